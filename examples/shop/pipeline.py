"""From what the shop's systems deliver to what its people ask for: five tables, published together or not at all.

anabranch pipeline run examples/shop/pipeline.py --branch dev --param min_orders=5
"""

from datetime import date

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name

import anabranch as ab

pipeline = ab.Pipeline("shop", parameters={"since": date(2026, 1, 1), "min_orders": 3, "top": 10})

pipeline.sql(
    "silver.customers",
    """
    SELECT id, trim(name) AS name, lower(trim(email)) AS email, coalesce(country, '??') AS country, signed_up
    FROM bronze.customers
    """,
    primary_key=["id"],
    description="Customers, with addresses and countries in one spelling.",
)


@pipeline.table(
    "silver.orders",
    inputs=["bronze.orders"],
    incremental=["bronze.orders"],
    write="append",
    primary_key=["id"],
    description="Valid orders: with a customer and a product, not cancelled. Of each run only the new ones are read.",
)
def orders(raw: DataFrame, *, since: date) -> DataFrame:
    status = F.lower(F.trim(F.coalesce("status", F.lit("unknown"))))
    paid = F.lit(100) - F.coalesce("discount", F.lit(0))
    amount = F.col("quantity") * F.col("unit_price") * paid / F.lit(100)
    return raw.filter(
        F.col("customer_id").isNotNull() & (F.col("quantity") > 0) & (F.col("ordered_at") >= F.lit(since))
    ).select(
        "id",
        "customer_id",
        "product_id",
        F.to_date("ordered_at").alias("day"),
        status.alias("status"),
        "channel",
        "quantity",
        # What came back brought nothing in.
        F.when(status.isin("returned", "cancelled"), F.lit(0)).otherwise(amount).cast("decimal(12, 2)").alias("amount"),
    )


pipeline.sql(
    "gold.daily_revenue",
    """
    SELECT day, channel, count(*) AS orders, sum(quantity) AS pieces, sum(amount) AS revenue
    FROM silver.orders
    WHERE day >= :since
    GROUP BY day, channel
    """,
    write="upsert",
    primary_key=["day", "channel"],
    description="What each day brought in; days before the parameter `since` stay as they are.",
)


@pipeline.table(
    "gold.customer_value",
    inputs=["silver.orders", "silver.customers"],
    primary_key=["customer_id"],
    description="Customers with at least `min_orders` orders, and how they compare to others in their country.",
)
def customer_value(orders: DataFrame, customers: DataFrame, *, min_orders: int) -> DataFrame:
    spent = (
        orders.groupBy("customer_id")
        .agg(
            F.count("*").alias("orders"),
            F.sum("amount").alias("spent"),
            F.min("day").alias("first_day"),
            F.max("day").alias("last_day"),
        )
        .filter(F.col("orders") >= min_orders)
    )
    in_country = Window.partitionBy("country").orderBy(F.col("spent").desc(), "customer_id")
    return spent.join(customers.withColumnRenamed("id", "customer_id"), "customer_id").select(
        "customer_id",
        "name",
        "country",
        "orders",
        "spent",
        "first_day",
        "last_day",
        F.row_number().over(in_country).alias("rank_in_country"),
    )


pipeline.sql(
    "gold.product_ranking",
    """
    WITH sold AS (
        SELECT product_id, sum(quantity) AS pieces, sum(amount) AS revenue FROM silver.orders GROUP BY product_id
    ), seen AS (
        SELECT product_id, count(*) AS views FROM bronze.events WHERE kind = 'view' GROUP BY product_id
    ), ranked AS (
        SELECT p.category, p.id AS product_id, p.name, sold.pieces, sold.revenue, coalesce(seen.views, 0) AS views,
               row_number() OVER (PARTITION BY p.category ORDER BY sold.revenue DESC, p.id) AS rank
        FROM sold JOIN bronze.products p ON p.id = sold.product_id LEFT JOIN seen ON seen.product_id = p.id
    )
    SELECT * FROM ranked WHERE rank <= :top
    """,
    primary_key=["product_id"],
    description="The products that bring in most, by category, and how often they were viewed.",
)

pipeline.check("no negative revenue", "SELECT * FROM gold.daily_revenue WHERE revenue < 0")
pipeline.check(
    "every order has a customer",
    "SELECT id FROM silver.orders WHERE customer_id NOT IN (SELECT id FROM silver.customers)",
)


@pipeline.check("the days add up to the orders")
def days_add_up(snapshot: ab.Snapshot) -> bool:
    days = snapshot["gold.daily_revenue"].to_arrow(columns=["orders"])
    return bool(sum(days["orders"].to_pylist()) == snapshot["silver.orders"].count_rows())
