"""The 22 queries of TPC-H on catalog tables: on main, on a branch, and on an earlier version."""

import re
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import setting
from tests.spark.tpch import QUERIES
from tests.spark.tpch.answers import Answers, find_different, run_on_duckdb, run_on_spark
from tests.spark.tpch.lake import BUCKET, Lake, make_lake

pytestmark = pytest.mark.spark

ROWS_PER_FRAGMENT = 200_000


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    folder = tmp_path_factory.mktemp("tpch")
    return make_lake(folder, catalog="tpch_lake", scale=0.1, rows_per_fragment=ROWS_PER_FRAGMENT)


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
@pytest.mark.proof
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
