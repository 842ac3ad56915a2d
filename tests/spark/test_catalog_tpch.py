"""The 22 queries of TPC-H on catalog tables: on main, on a branch, and on an earlier version."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from tests.spark.conftest import add_catalog
from tests.spark.tpch import KEYS, QUERIES, find_generator, generate

pytestmark = pytest.mark.spark

BUCKET = "tpch"
# One of each kind, where the others would only repeat what runs on main: all of them take a minute.
SOME = {name: QUERIES[name] for name in ("q01", "q06", "q13", "q15", "q17")}
Rows = list[tuple[str, ...]]


@dataclass(frozen=True)
class Lake:
    """The tables in a repository, and the parquet files that they were made of."""

    repo: ab.Repository
    catalog: str
    parquet: Path


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    return make_lake(tmp_path_factory.mktemp("tpch"), scale=0.01)


def make_lake(folder: Path, *, scale: float) -> Lake:
    """Main has the generated rows; on the branch `dev`, rows are deleted, changed and added in one commit."""
    generator = find_generator()
    assert generator is not None, "tpchgen-cli is not installed: run make install"
    generate(generator, folder / "parquet", scale)
    repo = ab.init(folder / "lake", actor="tester")
    tables = {name: pq.read_table(folder / "parquet" / f"{name}.parquet") for name in KEYS}
    with repo.transaction(message="load") as tx:
        for name, rows in tables.items():
            tx.create_table(f"{BUCKET}.{name}", rows.schema, primary_key=KEYS[name])
            for batch in rows.to_batches(max_chunksize=20_000):
                tx.append(f"{BUCKET}.{name}", pa.Table.from_batches([batch]))
    repo.branch_create("dev")
    with repo.transaction("dev", message="change") as tx:
        tx.delete(f"{BUCKET}.lineitem", "l_orderkey % 5 = 0")
        tx.delete(f"{BUCKET}.customer", "c_custkey % 11 = 0")
        tx.update(f"{BUCKET}.orders", {"o_orderpriority": "'1-URGENT'"}, where="o_orderkey % 4 = 0")
        tx.append(f"{BUCKET}.orders", later(tables["orders"]))
    return Lake(repo=repo, catalog=add_catalog(repo), parquet=folder / "parquet")


def later(orders: pa.Table) -> pa.Table:
    some = orders.slice(0, 500).combine_chunks()
    keys = pc.add(some["o_orderkey"], 100_000_000)
    return some.set_column(some.column_names.index("o_orderkey"), "o_orderkey", keys)


def run_on_spark(
    spark: SparkSession, source: Callable[[str], str], queries: Mapping[str, str] = QUERIES
) -> Iterator[tuple[str, Rows]]:
    """Run queries, each table as `source` names it."""
    for name in KEYS:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT * FROM {source(name)}")
    try:
        for number, query in queries.items():
            yield number, comparable([tuple(row) for row in spark.sql(query).collect()])
    finally:
        for name in KEYS:
            spark.catalog.dropTempView(name)


def run_on_duckdb(tables: dict[str, pa.Table], queries: Mapping[str, str] = QUERIES) -> dict[str, Rows]:
    with duckdb.connect() as connection:
        for name, rows in tables.items():
            connection.register(name, rows)
        return {number: comparable(connection.sql(query).fetchall()) for number, query in queries.items()}


def comparable(rows: list[tuple[Any, ...]]) -> Rows:
    """Rows without their order, and with numbers as far as all engines agree on them."""
    return sorted(tuple(as_text(value) for value in row) for row in rows)


def as_text(value: Any) -> str:
    if isinstance(value, int | float | Decimal):
        return f"{round(float(value), 4):.8g}"  # Spark's averages of decimals have six digits after the point
    return value.isoformat() if isinstance(value, date) else str(value)


def tables_of(lake: Lake, ref: str) -> dict[str, pa.Table]:
    snapshot = lake.repo.snapshot_of(ref)
    return {name: snapshot[f"{BUCKET}.{name}"].to_arrow() for name in KEYS}


def test_queries_on_main_answer_as_duckdb_does(spark: SparkSession, tpch: Lake) -> None:
    expected = run_on_duckdb(tables_of(tpch, "main"))
    assert len(expected) == 22
    assert dict(run_on_spark(spark, lambda name: f"{tpch.catalog}.{BUCKET}.{name}")) == expected


def test_queries_on_parquet_answer_as_duckdb_does(spark: SparkSession, tpch: Lake) -> None:
    expected = run_on_duckdb(tables_of(tpch, "main"), SOME)
    assert dict(run_on_spark(spark, lambda name: f"parquet.`{tpch.parquet}/{name}.parquet`", SOME)) == expected


def test_queries_on_a_branch_see_its_changes(spark: SparkSession, tpch: Lake) -> None:
    expected = run_on_duckdb(tables_of(tpch, "dev"), SOME)
    assert expected != run_on_duckdb(tables_of(tpch, "main"), SOME)
    assert dict(run_on_spark(spark, lambda name: f"{tpch.catalog}.{BUCKET}.{name}.branch_dev", SOME)) == expected


def test_queries_on_an_earlier_version_see_the_state_before(spark: SparkSession, tpch: Lake) -> None:
    expected = run_on_duckdb(tables_of(tpch, "dev~1"), SOME)
    found = dict(run_on_spark(spark, lambda name: f"{tpch.catalog}.{BUCKET}.{name} VERSION AS OF 'dev~1'", SOME))
    assert found == expected


def test_explain_shows_pruned_columns_and_pushed_filters(spark: SparkSession, tpch: Lake) -> None:
    query = QUERIES["q06"].replace("lineitem", f"{tpch.catalog}.{BUCKET}.lineitem")
    explained = spark.sql(f"EXPLAIN {query}").first()
    assert explained is not None
    scan = re.search(r"BatchScan.* columns=\[(.*?)\] filter=\[(.*?)\] RuntimeFilters", explained[0])
    assert scan is not None
    assert scan[1] == "l_quantity, l_extendedprice, l_discount, l_shipdate"
    for part in ("`l_shipdate` >= DATE '1994-01-01'", "`l_quantity` < CAST('24", "`l_discount` <= CAST('0.07"):
        assert part in scan[2]


@pytest.mark.proof
def test_all_queries_on_all_states_answer_as_parquet_and_duckdb_do(spark: SparkSession, tmp_path: Path) -> None:
    lake = make_lake(tmp_path, scale=0.1)
    for ref, suffix in (("main", ""), ("dev", ".branch_dev"), ("dev~1", " VERSION AS OF 'dev~1'")):
        tables = tables_of(lake, ref)
        for name, rows in tables.items():
            pq.write_table(rows, tmp_path / f"{name}.parquet")
        expected = run_on_duckdb(tables)
        found = run_on_spark(spark, lambda name, suffix=suffix: f"{lake.catalog}.{BUCKET}.{name}{suffix}")  # type: ignore[misc]
        assert dict(found) == expected
        assert dict(run_on_spark(spark, lambda name: f"parquet.`{tmp_path}/{name}.parquet`")) == expected
