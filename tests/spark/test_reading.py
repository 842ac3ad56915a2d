"""DataFrames of tables: one snapshot each, the rows asked for, all of them."""

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.errors import (
    BranchNotFoundError,
    InvalidExpressionError,
    InvalidInputError,
    InvalidNameError,
    SchemaMismatchError,
    TableNotFoundError,
)
from anabranch.spark.tasks import spark_errors
from tests.spark.conftest import ORDERS, Read, options, orders, slow

pytestmark = pytest.mark.spark


def test_a_filter_does_not_stay_with_the_dataframe(lake: ab.Repository, read: Read) -> None:
    frame = read(lake)
    assert frame.filter("id >= 90").count() == 10
    assert frame.count() == 100
    assert frame.filter("id < 5").count() == 5
    assert frame.filter("id >= 90").limit(3).count() == 3
    assert sorted(row.id for row in frame.select("id").collect()) == list(range(100))


def test_a_dataframe_keeps_its_snapshot_while_the_branch_moves(lake: ab.Repository, read: Read) -> None:
    frame = read(lake)
    frame.createOrReplaceTempView("kept")
    with lake.transaction() as tx:
        tx.append(ORDERS, orders(100, 120))
        tx.delete(ORDERS, "id < 50")
    assert frame.count() == 100
    assert frame.sparkSession.sql("SELECT count(*) AS n FROM kept").first().n == 100  # type: ignore[union-attr]
    with lake.transaction() as tx:
        tx.drop_table(ORDERS)
    assert frame.agg({"id": "sum"}).first()[0] == 4950  # type: ignore[index]
    assert read(lake, ref="main~1").count() == 70


def test_a_ref_may_be_a_branch_a_tag_a_commit_or_an_older_one(lake: ab.Repository, read: Read) -> None:
    lake.tag_create("v1")
    first = lake.head_commit_id_for_branch("main")
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.append(ORDERS, orders(100, 110))
    found = {ref: read(lake, ref=ref).count() for ref in ("main", "dev", "v1", first, "dev~1")}
    assert found == {"main": 100, "dev": 110, "v1": 100, first: 100, "dev~1": 100}


def test_a_name_in_double_quotes_is_a_column_of_the_filter(lake: ab.Repository, read: Read) -> None:
    assert read(lake, where="\"v\" <> 'old'").count() == 0
    assert read(lake, where='"id" < 3').count() == 3
    with pytest.raises(InvalidExpressionError, match="there is no column 'nope'"), spark_errors():
        read(lake, where='"nope" IS NOT NULL').count()


def test_columns_and_rows_can_be_chosen_before_spark_sees_them(lake: ab.Repository, read: Read) -> None:
    frame = read(lake, columns="v, id", where="id BETWEEN 20 AND 29 OR id = 99")
    assert frame.columns == ["v", "id"]
    assert frame.count() == 11
    assert read(lake, columns="id", where="v = 'old' AND id < 3").collect() == [(0,), (1,), (2,)]
    assert read(lake, columns="id", where="v = 'none'").collect() == []


def test_deleted_rows_and_empty_tables_are_read_as_such(lake: ab.Repository, read: Read) -> None:
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id % 2 = 0 OR id < 25")
        tx.create_table("s.empty", orders(0, 1).schema)
    assert sorted(row.id for row in read(lake).collect()) == list(range(25, 100, 2))
    empty = read(lake, "s.empty")
    assert (empty.columns, empty.count(), empty.collect()) == (["id", "v"], 0, [])


@pytest.mark.proof
def test_every_task_has_a_share_of_a_large_table(lake: ab.Repository, read: Read) -> None:
    rows = pa.table({"id": pa.array(range(2_500_000), pa.int64()), "v": pa.nulls(2_500_000, pa.string())})
    with lake.transaction() as tx:
        tx.create_table("s.large", rows.schema)
        tx.append("s.large", rows)
    frame = read(lake, "s.large")
    assert frame.rdd.getNumPartitions() == 2
    assert frame.selectExpr("count(*)", "count(distinct id)", "sum(id)").first() == (
        2_500_000,
        2_500_000,
        2_499_999 * 1_250_000,
    )


def test_a_live_branch_shows_main_as_it_is_when_the_dataframe_is_made(lake: ab.Repository, read: Read) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    before = read(lake, ref="dev")
    with lake.transaction() as tx:
        tx.append(ORDERS, orders(100, 105))
    assert (before.count(), read(lake, ref="dev").count()) == (100, 105)


def test_all_tables_of_one_snapshot_become_views(spark: SparkSession, lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.create_table("s.customers", orders(0, 1).schema)
        tx.append("s.customers", orders(10, 12))
    assert ab.tables(spark, lake, ref="main") == ["s__customers", "s__orders"]
    with lake.transaction() as tx:
        tx.delete(ORDERS, "true")
    found = spark.sql("SELECT o.id FROM s__orders o JOIN s__customers c ON o.id = c.id ORDER BY 1")
    assert [row.id for row in found.collect()] == [10, 11]
    ab.tables(spark, lake)
    assert spark.table("s__orders").count() == 0


def test_views_of_one_name_are_refused(spark: SparkSession, lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.create_table("S.Orders", orders(0, 1).schema)
    with pytest.raises(InvalidNameError, match=r"'S\.Orders' and 's\.orders' would both be the view"):
        ab.tables(spark, lake)


def test_rows_of_some_bases_only(lake: ab.Repository, read: Read) -> None:
    assert read(lake, bases="root").count() == 100
    with pytest.raises(AnalysisException, match="BaseNotFoundError: there is no base 'cold'"):
        read(lake, bases="cold").count()


@pytest.mark.parametrize(
    ("key", "given", "kind", "message"),
    [
        ("s.nothing", {}, TableNotFoundError, "there is no table 's.nothing' in 'main'"),
        slow(ORDERS, {"ref": "gone"}, BranchNotFoundError, "'gone'"),
        slow(ORDERS, {"columns": "id,x"}, SchemaMismatchError, "there is no column 'x'"),
        slow(ORDERS, {"where": "id >"}, InvalidExpressionError, "'id >'"),
        (ORDERS, {"where": "price > 1"}, InvalidExpressionError, "price"),
        (ORDERS, {"filters": "id > 1"}, InvalidInputError, "the option 'filters' is not known here"),
        slow("orders", {}, InvalidNameError, "orders"),
    ],
)
def test_what_cannot_be_read_is_reported_at_once(
    lake: ab.Repository, read: Read, key: str, given: dict[str, str], kind: type[ab.AnabranchError], message: str
) -> None:
    with pytest.raises(kind) as caught, spark_errors():
        read(lake, key, **given)
    assert message in caught.value.problem
    assert caught.value.hint


def test_a_schema_is_not_taken_for_a_table_has_its_own(spark: SparkSession, lake: ab.Repository) -> None:
    """With a schema Spark would pin the snapshot again for every query."""
    frame = spark.read.format("anabranch").options(**options(lake)).schema("id long").load(ORDERS)
    with pytest.raises(InvalidInputError, match="a schema is given"), spark_errors():
        frame.count()
