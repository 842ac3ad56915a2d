# ---
# description: What each customer has paid, and the rank by that.
# key: customer
# inputs: [staging.orders, staging.customers]
# checks:
#   - unique: rank
#   - relations: {column: customer, to: staging.customers, field: id}
# ---
import pyarrow as pa


def model(orders: pa.Table, customers: pa.Table) -> pa.Table:
    paid = dict.fromkeys(customers["id"].to_pylist(), 0.0)
    for order in orders.to_pylist():
        if order["status"] == "paid":
            paid[order["customer"]] += order["amount"]
    ranked = sorted(paid, key=lambda customer: (-paid[customer], customer))
    return pa.table(
        {
            "customer": pa.array(ranked, pa.int64()),
            "paid": pa.array([paid[customer] for customer in ranked], pa.float64()),
            "rank": pa.array(range(1, len(ranked) + 1), pa.int64()),
        }
    )
