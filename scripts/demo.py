"""Tell the story of what works so far on a fresh lake: each step shows what a user would type, and how long it took."""

import shutil
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

STEPS = [
    (
        "Start Spark on this machine",
        """
        spark = ab.spark_session()
        """,
        'f"Spark {spark.version} on {spark.sparkContext.master}"',
    ),
    (
        "Make a lake, and load files into it with Spark: each load is one commit",
        """
        repo = ab.init(LAKE, actor="ada")
        orders = repo.load("in_c_shop.orders", f"{FILES}/orders-*.csv", primary_key=["id"], engine="spark")
        customers = repo.load("in_c_shop.customers", f"{FILES}/customers.parquet", primary_key=["id"], engine="spark")
        """,
        'f"{orders.rows_loaded} orders from {len(orders.files)} files, {customers.rows_loaded} customers"',
    ),
    (
        "A few rows need no Spark; a line that is no row is set aside",
        """
        late = repo.load("in_c_shop.orders", f"{FILES}/late.csv", on_bad="reject")
        rejects = repo.snapshot()[late.reject_table].to_arrow().to_pylist()
        """,
        "f\"{late.rows_loaded} loaded; line {rejects[0]['line']}: {rejects[0]['reason']}\"",
    ),
    (
        "Try a change of two tables on a branch: no data is copied",
        """
        repo.branch_create("dev")
        with repo.transaction("dev", message="Give everybody a discount") as tx:
            discounted = tx.update("in_c_shop.orders", {"amount": "amount * 0.9"}, where="customer < 10")
            removed = tx.delete("in_c_shop.orders", "amount > 990")
            tx.update("in_c_shop.customers", {"name": "concat(name, ' (gold)')"}, where="id < 10")
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
        "Spark reads the branch's tables as views, and writes a new one there",
        """
        ab.tables(spark, repo, ref="dev")
        totals = spark.sql('''
            SELECT c.id, c.name, round(sum(o.amount)) AS total
            FROM in_c_shop__orders o JOIN in_c_shop__customers c ON o.customer = c.id GROUP BY ALL
        ''')
        totals.write.format("anabranch").mode("append").options(repo=LAKE, branch="dev").save("out_c_shop.totals")
        """,
        'f\'only on dev: {set(repo.snapshot_of("dev")) - set(repo.snapshot_of("main"))}\'',
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
    import anabranch as ab

    with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as files:
        make_files(Path(files))
        try:
            tell({"ab": ab, "LAKE": str(lake), "FILES": files, "make_orders": make_orders})
        except ab.errors.MissingDependencyError as err:
            sys.exit(f"\n{err.problem}\n{err.hint}")
    print(f"\nThe lake is yours to play with: anabranch.open({str(lake)!r})")


def tell(names: dict[str, Any]) -> None:
    for number, (title, code, result) in enumerate(STEPS, 1):
        source = textwrap.dedent(code).strip()
        print(f"\n{number}. {title}\n")
        print(textwrap.indent(source, "    >>> "), flush=True)
        start = time.perf_counter()
        exec(source, names)
        took = (time.perf_counter() - start) * 1000
        print(f"\n    {eval(result, names)}   ({took:.0f} ms)")


def make_files(folder: Path) -> None:
    """What a shop might deliver: orders in several files, and one more in which a line is broken."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    orders = make_orders(200_000)
    for number in range(4):
        pyarrow.csv.write_csv(orders.slice(number * 50_000, 50_000), folder / f"orders-{number}.csv")
    customers = pa.table({"id": list(range(1_000)), "name": [f"customer {n}" for n in range(1_000)]})
    pyarrow.parquet.write_table(customers, folder / "customers.parquet")
    (folder / "late.csv").write_text("id,customer,amount\n200000,7,12.5\n200001,seven,8.0\n200002,8,99.9\n")


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


if __name__ == "__main__":
    main()
