"""The 22 queries of TPC-H on catalog tables: on main, on a branch, and on an earlier version."""

import math
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
from tests.spark.conftest import add_catalog, setting
from tests.spark.tpch import KEYS, QUERIES, find_generator, generate

pytestmark = pytest.mark.spark

BUCKET = "tpch"
# Spark spends much of a small query's time on planning it and on starting its tasks: several at once use all cores.
AT_ONCE = 4
ROWS_PER_FRAGMENT = 200_000
Row = tuple[str | float, ...]
Rows = list[Row]
Answers = dict[str, Rows]


@dataclass(frozen=True)
class Lake:
    """The tables in a repository, and for each of its two states parquet files of the same rows."""

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


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    return make_lake(tmp_path_factory.mktemp("tpch"), scale=0.1)


def make_lake(folder: Path, *, scale: float) -> Lake:
    """Main has the generated rows; on the branch `dev`, rows are deleted, changed and added in one commit."""
    generator = find_generator()
    assert generator is not None, "tpchgen-cli is not installed: run make install"
    generate(generator, folder / "main", scale)
    repo = ab.init(folder / "lake", actor="tester")
    tables = {name: pq.read_table(folder / "main" / f"{name}.parquet") for name in KEYS}
    with repo.transaction(message="load") as tx:
        for name, rows in tables.items():
            tx.create_table(f"{BUCKET}.{name}", rows.schema, primary_key=KEYS[name])
            for start in range(0, len(rows), ROWS_PER_FRAGMENT):
                tx.append(f"{BUCKET}.{name}", rows.slice(start, ROWS_PER_FRAGMENT))
    repo.branch_create("dev")
    with repo.transaction("dev", message="change") as tx:
        tx.delete(f"{BUCKET}.lineitem", "l_orderkey % 5 = 0")
        tx.delete(f"{BUCKET}.customer", "c_custkey % 11 = 0")
        tx.update(f"{BUCKET}.orders", {"o_orderpriority": "'1-URGENT'"}, where="o_orderkey % 4 = 0")
        tx.append(f"{BUCKET}.orders", later(tables["orders"]))
    snapshot = repo.snapshot_of("dev")
    (folder / "dev").mkdir()
    for name in KEYS:
        pq.write_table(snapshot[f"{BUCKET}.{name}"].to_arrow(), folder / "dev" / f"{name}.parquet")
    return Lake(catalog=add_catalog(repo), parquet=folder)


def later(orders: pa.Table) -> pa.Table:
    some = orders.slice(0, 500).combine_chunks()
    keys = pc.add(some["o_orderkey"], 100_000_000)
    return some.set_column(some.column_names.index("o_orderkey"), "o_orderkey", keys)


def run_on_spark(spark: SparkSession, source: Callable[[str], str]) -> Answers:
    """Run all queries, each table as `source` names it."""

    def run(query: str) -> Rows:
        return comparable([tuple(row) for row in spark.sql(query).collect()])

    for name in KEYS:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT * FROM {source(name)}")
    try:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return dict(zip(QUERIES, threads.map(run, QUERIES.values()), strict=True))
    finally:
        for name in KEYS:
            spark.catalog.dropTempView(name)


def run_on_duckdb(files: Path) -> Answers:
    with duckdb.connect() as connection:
        for name in KEYS:
            connection.sql(f"CREATE VIEW {name} AS FROM '{files}/{name}.parquet'")
        return {number: comparable(connection.sql(query).fetchall()) for number, query in QUERIES.items()}


def comparable(rows: list[tuple[Any, ...]]) -> Rows:
    """Return the rows in an order of their own, which names and dates decide before numbers do."""
    return sorted((tuple(map(as_plain, row)) for row in rows), key=in_order)


def in_order(row: Row) -> tuple[list[str], list[float]]:
    return [v for v in row if isinstance(v, str)], [v for v in row if isinstance(v, float)]


def as_plain(value: Any) -> str | float:
    if isinstance(value, int | float | Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def find_different(found: Answers, expected: Answers) -> list[str]:
    """Return the queries that are not answered alike. Spark's quotients of decimals have six digits after the point."""
    return [number for number in expected if not is_same(found[number], expected[number])]


def is_same(found: Rows, expected: Rows) -> bool:
    if [len(row) for row in found] != [len(row) for row in expected]:
        return False
    pairs = [pair for rows in zip(found, expected, strict=True) for pair in zip(*rows, strict=True)]
    return all(
        math.isclose(one, other, rel_tol=1e-8, abs_tol=1e-6)
        if isinstance(one, float) and isinstance(other, float)
        else one == other
        for one, other in pairs
    )


@pytest.fixture(scope="module")
def on_main(tpch: Lake) -> Answers:
    answers = run_on_duckdb(tpch.parquet / "main")
    assert len(answers) == 22
    assert all(answers.values()), "a query without rows shows nothing"
    return answers


@pytest.fixture(scope="module")
def on_branch(tpch: Lake, on_main: Answers) -> Answers:
    answers = run_on_duckdb(tpch.parquet / "dev")
    assert len(find_different(answers, on_main)) > 10
    return answers


@pytest.fixture
def fixed_plans(spark: SparkSession) -> Iterator[None]:
    """Plan each query once, which takes a quarter less time for small tables. The proof plans them as usual."""
    with setting(spark, "spark.sql.adaptive.enabled", "false"):
        yield


@pytest.mark.usefixtures("fixed_plans")
def test_queries_on_parquet_answer_as_duckdb_does(spark: SparkSession, tpch: Lake, on_main: Answers) -> None:
    assert find_different(run_on_spark(spark, tpch.in_parquet_of_main), on_main) == []


@pytest.mark.usefixtures("fixed_plans")
def test_queries_on_main_answer_as_duckdb_does(spark: SparkSession, tpch: Lake, on_main: Answers) -> None:
    assert find_different(run_on_spark(spark, tpch.on_main), on_main) == []


@pytest.mark.usefixtures("fixed_plans")
def test_queries_on_a_branch_see_its_changes(spark: SparkSession, tpch: Lake, on_branch: Answers) -> None:
    assert find_different(run_on_spark(spark, tpch.on_branch), on_branch) == []


@pytest.mark.usefixtures("fixed_plans")
def test_queries_on_an_earlier_version_see_the_state_before(spark: SparkSession, tpch: Lake, on_main: Answers) -> None:
    assert find_different(run_on_spark(spark, tpch.before_change), on_main) == []


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
def test_queries_with_adaptive_plans_answer_as_parquet_and_duckdb_do(
    spark: SparkSession, tpch: Lake, on_main: Answers, on_branch: Answers
) -> None:
    for source, expected in (
        (tpch.in_parquet_of_main, on_main),
        (tpch.in_parquet_of_branch, on_branch),
        (tpch.on_main, on_main),
        (tpch.on_branch, on_branch),
        (tpch.before_change, on_main),
    ):
        assert find_different(run_on_spark(spark, source), expected) == []
