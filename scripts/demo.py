"""Tell the story of what works so far on a fresh lake: each step shows what a user would type, and how long it took."""

import shutil
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

STEPS = [
    (
        "Make a lake, with two tables in one commit",
        """
        repo = ab.init(LAKE, actor="ada")
        orders = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.float64())])
        customers = pa.schema([("id", pa.int64()), ("name", pa.string())])
        with repo.transaction(message="Load the shop") as tx:
            tx.create_table("in_c_shop.orders", orders, primary_key=["id"])
            tx.create_table("in_c_shop.customers", customers, primary_key=["id"])
            tx.append("in_c_shop.orders", make_orders(200_000))
            tx.append("in_c_shop.customers", make_customers(1_000))
        """,
        'f"{tx.commit.graph_commit_id}: {tx.commit.message}, {list(tx.commit.tables)}"',
    ),
    (
        "Try a change on a branch: no data is copied",
        """
        repo.branch_create("dev")
        with repo.transaction("dev", message="Give everybody a discount") as tx:
            discounted = tx.update("in_c_shop.orders", {"amount": "amount * 0.9"}, where="customer < 10")
            removed = tx.delete("in_c_shop.orders", "amount > 990")
        """,
        'f"{discounted} orders discounted, {removed} removed, on dev only"',
    ),
    (
        "Both states are there, side by side",
        """
        on_main = repo.snapshot_of("main")["in_c_shop.orders"]
        on_dev = repo.snapshot_of("dev")["in_c_shop.orders"]
        """,
        'f"main has {on_main.count_rows()} orders, dev {on_dev.count_rows()}"',
    ),
    (
        "Any Lance tool reads a branch, too",
        """
        import lance
        home = on_dev.entry.home
        plain = lance.dataset(f"{LAKE}/tables/in_c_shop/orders.lance/tree/{home}")
        """,
        'f"plain pylance sees {plain.count_rows()} orders on dev"',
    ),
    (
        "A mistake on main, seen from the past",
        """
        with repo.transaction(message="Oops") as tx:
            tx.delete("in_c_shop.customers", "id >= 0")
        now = repo.snapshot_of("main")["in_c_shop.customers"]
        before = repo.snapshot_of("main~1")["in_c_shop.customers"]
        """,
        'f"now {now.count_rows()} customers, one commit ago {before.count_rows()}"',
    ),
    (
        "SQL across branches and time",
        """
        answer = repo.sql('''
            SELECT count(*) AS orders, round(sum(main.amount - dev.amount)) AS discount
            FROM in_c_shop.orders AT 'dev' AS dev JOIN in_c_shop.orders AT 'main' AS main USING (id)
        ''')
        """,
        "answer.to_pylist()",
    ),
    (
        "Take the mistake back",
        """
        repo.undo()
        customers = repo.snapshot()["in_c_shop.customers"]
        """,
        'f"{customers.count_rows()} customers again"',
    ),
    (
        "Bad input is refused, and changes nothing",
        """
        try:
            with repo.transaction(message="Twice the same order") as tx:
                tx.append("in_c_shop.orders", make_orders(1))
        except ab.AnabranchError as err:
            refusal = err
        """,
        'f"{refusal.code}: {refusal}"',
    ),
    (
        "Throw the branch away, and change your mind",
        """
        repo.branch_delete("dev")
        repo.branch_restore("dev")
        """,
        "[branch.name for branch in repo.branch_list()]",
    ),
    (
        "Everything that happened, the undone mistake too",
        """
        movements = repo.reflog("main")
        """,
        '"; ".join(f"v{m.number} {m.event} ({m.message})" for m in movements)',
    ),
    (
        "One Lance dataset by itself: a tag, and what lies where",
        """
        table = ab.dataset(f"{LAKE}/tables/in_c_shop/orders.lance")
        table.tag_create("first-load")
        report = table.storage_report()
        """,
        'f"{report.total.files} live files, {report.total.bytes} bytes; tags: {[t.name for t in table.tag_list()]}"',
    ),
]


def main() -> None:
    lake = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-lake").absolute()
    shutil.rmtree(lake, ignore_errors=True)
    import pyarrow as pa

    import anabranch as ab

    names: dict[str, Any] = {
        "ab": ab,
        "pa": pa,
        "LAKE": str(lake),
        "make_orders": make_orders,
        "make_customers": make_customers,
    }
    for number, (title, code, result) in enumerate(STEPS, 1):
        source = textwrap.dedent(code).strip()
        print(f"\n{number}. {title}\n")
        print(textwrap.indent(source, "    >>> "))
        start = time.perf_counter()
        exec(source, names)
        took = (time.perf_counter() - start) * 1000
        print(f"\n    {eval(result, names)}   ({took:.0f} ms)")
    print(f"\nThe lake is yours to play with: anabranch.open({str(lake)!r})")


def make_orders(count: int) -> Any:
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(7)
    return pa.table(
        {
            "id": np.arange(count),
            "customer": random.integers(0, 1_000, count),
            "amount": random.random(count).round(4) * 1_000,
        }
    )


def make_customers(count: int) -> Any:
    import pyarrow as pa

    return pa.table({"id": list(range(count)), "name": [f"customer {n}" for n in range(count)]})


if __name__ == "__main__":
    main()
