"""The tables of TPC-H in a repository: the generated rows on main, and changed rows on a branch."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import anabranch as ab
from tests.spark.tpch import KEYS, find_generator, generate

__all__ = ["BUCKET", "Lake", "make_lake"]

BUCKET = "tpch"


@dataclass(frozen=True)
class Lake:
    """The tables in a repository, and for each of its two states parquet files of the same rows."""

    repo: ab.Repository
    catalog: str
    parquet: Path

    def on_main(self, name: str) -> str:
        return f"{self.catalog}.{BUCKET}.{name}"

    def on_branch(self, name: str) -> str:
        return f"{self.on_main(name)}.branch_dev"

    def before_change(self, name: str) -> str:
        return f"{self.on_main(name)} VERSION AS OF 'dev~1'"

    def in_parquet_of_main(self, name: str) -> str:
        return f"parquet.`{self.parquet}/main/{name}.parquet`"

    def in_parquet_of_branch(self, name: str) -> str:
        return f"parquet.`{self.parquet}/dev/{name}.parquet`"


def make_lake(folder: Path, *, catalog: str, scale: float, rows_per_fragment: int | None = None) -> Lake:
    """Main has the generated rows; on the branch `dev`, rows are deleted, changed and added in one commit."""
    generator = find_generator()
    if generator is None:
        raise SystemExit("tpchgen-cli is not installed: pip install tpchgen-cli")
    generate(generator, folder / "main", scale)
    repo = ab.init(folder / "lake", actor="tester")
    with repo.transaction(message="load") as tx:
        for name, key in KEYS.items():
            rows = pq.read_table(folder / "main" / f"{name}.parquet")
            tx.create_table(f"{BUCKET}.{name}", rows.schema, primary_key=key)
            step = rows_per_fragment or len(rows)
            for start in range(0, len(rows), step):
                tx.append(f"{BUCKET}.{name}", rows.slice(start, step))
    repo.branch_create("dev")
    orders = pq.read_table(folder / "main" / "orders.parquet")
    with repo.transaction("dev", message="change") as tx:
        tx.delete(f"{BUCKET}.lineitem", "l_orderkey % 5 = 0")
        tx.delete(f"{BUCKET}.customer", "c_custkey % 11 = 0")
        tx.update(f"{BUCKET}.orders", {"o_orderpriority": "'1-URGENT'"}, where="o_orderkey % 4 = 0")
        tx.append(f"{BUCKET}.orders", later(orders))
    snapshot = repo.snapshot_of("dev")
    (folder / "dev").mkdir()
    for name in KEYS:
        pq.write_table(snapshot[f"{BUCKET}.{name}"].to_arrow(), folder / "dev" / f"{name}.parquet")
    ab.spark_session(repo, catalog=catalog)
    return Lake(repo=repo, catalog=catalog, parquet=folder)


def later(orders: pa.Table) -> pa.Table:
    some = orders.slice(0, 500).combine_chunks()
    keys = pc.add(some["o_orderkey"], 100_000_000)
    return some.set_column(some.column_names.index("o_orderkey"), "o_orderkey", keys)
