"""Tables by name in Spark SQL: branches, tags, commits, versions and times."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.spark.tasks import spark_errors
from tests.spark.conftest import ORDERS, orders

pytestmark = pytest.mark.spark


@pytest.fixture
def dev(lake: ab.Repository) -> ab.Repository:
    """The lake with a tag on main, and a branch `dev` with ten more orders."""
    lake.tag_create("v1")
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.append(ORDERS, orders(100, 110))
    return lake


def count(spark: SparkSession, table: str) -> int:
    return int(spark.sql(f"SELECT count(*) FROM {table}").first()[0])  # type: ignore[index]


def test_a_name_may_end_with_a_branch_a_tag_or_a_commit(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    table = f"{catalog}.{ORDERS}"
    main, head = (dev.head_commit_id_for_branch(branch) for branch in ("main", "dev"))
    assert count(spark, table) == 100
    assert count(spark, f"{table}.branch_dev") == 110
    assert count(spark, f"{table}.branch_main") == 100
    assert count(spark, f"{table}.tag_v1") == 100
    assert count(spark, f"{table}.commit_{main}") == 100
    assert count(spark, f"{table}.commit_{head}") == 110


def test_version_as_of_takes_a_ref_a_tag_and_a_number(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    table = f"{catalog}.{ORDERS}"
    assert count(spark, f"{table} VERSION AS OF 'dev'") == 110
    assert count(spark, f"{table} VERSION AS OF 'dev~1'") == 100
    assert count(spark, f"{table} VERSION AS OF 'v1'") == 100
    assert count(spark, f"{table}.branch_dev VERSION AS OF {dev.snapshot_of('dev').commit.manifest_version}") == 110
    # Through a DataFrame, too.
    assert spark.read.option("versionAsOf", "dev").table(table).count() == 110


def test_timestamp_as_of_takes_the_state_of_that_moment(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    table = f"{catalog}.{ORDERS}"
    micros = dev.snapshot_of("main").commit.created_at
    with dev.transaction() as tx:
        tx.delete(ORDERS, "true")
    assert count(spark, table) == 0
    assert count(spark, f"{table} TIMESTAMP AS OF timestamp_micros({micros})") == 100


def test_a_setting_of_the_session_names_the_default_branch(
    spark: SparkSession, dev: ab.Repository, catalog: str
) -> None:
    table = f"{catalog}.{ORDERS}"
    spark.sql(f"SET spark.sql.catalog.{catalog}.branch = dev")
    assert count(spark, table) == 110
    assert count(spark, f"{table}.branch_main") == 100
    spark.sql(f"RESET spark.sql.catalog.{catalog}.branch")
    assert count(spark, table) == 100


@pytest.mark.parametrize("name", ["s.nope", "nope.orders"])
def test_a_table_that_does_not_exist_is_refused(
    spark: SparkSession, dev: ab.Repository, catalog: str, name: str
) -> None:
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        count(spark, f"{catalog}.{name}")


@pytest.mark.parametrize(
    ("name", "problem"), [("branch_nope", "nope"), ("tag_nope", "nope"), ("x", "ends with"), ("x.y", "too many parts")]
)
def test_a_state_that_does_not_exist_is_refused(
    spark: SparkSession, dev: ab.Repository, catalog: str, name: str, problem: str
) -> None:
    with pytest.raises(AnabranchError, match=problem), spark_errors():
        count(spark, f"{catalog}.{ORDERS}.{name}")


def test_all_tables_of_a_query_come_from_one_commit(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    table = f"{catalog}.{ORDERS}"
    plan = spark.sql(f"SELECT * FROM {table} a JOIN {table} b USING (id) JOIN {table}.branch_dev c USING (id)")
    with dev.transaction() as tx:
        tx.delete(ORDERS, "true")
    assert plan.count() == 100  # a DataFrame stays as it was made
    assert count(spark, table) == 0


def test_a_query_on_a_live_branch_sees_main(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    with dev.transaction() as tx:
        tx.create_table("s.more", orders(0, 1).schema)
    dev.branch_create_from("main", "live", mode="live")
    with dev.transaction("live") as tx:
        tx.append(ORDERS, orders(100, 105))
    with dev.transaction() as tx:
        tx.append("s.more", orders(0, 3))
    joined = f"{catalog}.{ORDERS}.branch_live JOIN {catalog}.s.more.branch_live USING (id)"
    assert count(spark, joined) == 3
    assert count(spark, f"{catalog}.s.more.branch_live JOIN {catalog}.{ORDERS}.branch_live USING (id)") == 3


def test_a_name_of_a_catalog_is_taken_once(
    spark: SparkSession, lake: ab.Repository, catalog: str, tmp_path: Path
) -> None:
    other = ab.init(tmp_path / "other")
    ab.spark_session(lake, catalog=catalog)  # again, with the same repository
    with pytest.raises(InvalidInputError, match=f"'{catalog}' of this session is the repository at .*lake"):
        ab.spark_session(other, catalog=catalog)
    ab.spark_session(other, catalog=None)
    with pytest.raises(InvalidInputError, match="not a name of SQL"):
        ab.spark_session(other, catalog="my lake")
