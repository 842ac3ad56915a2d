"""The metadata tables of Spark SQL: history, changes, files and refs, on main and on a branch."""

from collections import Counter

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import InvalidInputError, NotInHistoryError
from anabranch.spark.tasks import spark_errors
from tests.spark.conftest import ORDERS, orders

pytestmark = pytest.mark.spark


@pytest.fixture
def dev(lake: ab.Repository) -> ab.Repository:
    """The lake with a tag, a branch `dev` that changed ten orders and deleted one, and another table on main."""
    lake.tag_create("v1", description="the first orders")
    lake.branch_create("dev")
    with lake.transaction("dev", message="change ten") as tx:
        tx.upsert(ORDERS, orders(0, 10, "new"))
    with lake.transaction("dev", message="delete one") as tx:
        tx.delete(ORDERS, "id = 99")
    with lake.transaction(message="another table") as tx:
        tx.create_table("s.other", pa.schema([("x", pa.int64())]))
    return lake


def kinds(frame: DataFrame) -> Counter[str]:
    return Counter(row[0] for row in frame.select("_change").collect())


def test_history_lists_the_commits_that_changed_the_table(
    spark: SparkSession, dev: ab.Repository, catalog: str
) -> None:
    rows = spark.sql(f"SELECT * FROM {catalog}.{ORDERS}.history").collect()
    assert [(row.message, row.rows_before, row.rows_after) for row in rows] == [("first", None, 100)]
    assert rows[0].commit == dev.tag_get("v1").commit_id
    assert (rows[0].branch, rows[0].actor, rows[0].version) == ("main", "ada", 2)
    rows = spark.sql(f"SELECT rows_after, message FROM {catalog}.{ORDERS}.branch_dev.history").collect()
    assert rows == [(99, "delete one"), (100, "change ten"), (100, "first")]
    assert spark.sql(f"SELECT count(*) FROM {catalog}.{ORDERS}.tag_v1.history").collect() == [(1,)]
    assert spark.sql(f"SELECT count(*) FROM {catalog}.{ORDERS}.history VERSION AS OF 'dev~1'").collect() == [(2,)]


def test_changes_are_the_change_feed(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    changes = f"{catalog}.{ORDERS}.branch_dev.changes"
    assert kinds(spark.table(f"{catalog}.{ORDERS}.changes")) == {"insert": 100}
    expected = {"insert": 100, "update_before": 10, "update_after": 10, "delete": 1}
    assert kinds(spark.table(changes)) == expected
    assert spark.table(changes).rdd.getNumPartitions() > 1
    later = {name: count for name, count in expected.items() if name != "insert"}
    assert kinds(spark.read.option("since", "v1").table(changes)) == later
    assert kinds(spark.sql(f"SELECT * FROM {changes} WITH ('since' = 'v1', 'until' = 'dev~1')")) == {
        "update_before": 10,
        "update_after": 10,
    }
    row = spark.sql(f"SELECT id, v, _commit, _time FROM {changes} WHERE _change = 'delete'").first()
    head = dev.snapshot_of("dev").commit
    assert row is not None
    assert (row.id, row.v, row._commit) == (99, "old", head.graph_commit_id)


def test_files_are_those_of_the_version(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    rows = spark.table(f"{catalog}.{ORDERS}.branch_dev.files").collect()
    assert sum(row.rows - row.deletions for row in rows) == 99
    assert sum(row.deletions for row in rows) == 11
    assert all(row.bytes > 0 and row.path.endswith(".lance") for row in rows)
    main = {row.path for row in spark.table(f"{catalog}.{ORDERS}.files").collect()}
    assert len(main) == 4
    assert main < {row.path for row in rows}


def test_refs_are_branches_and_tags(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    rows = spark.sql(f"SELECT name, type, commit, description FROM {catalog}.{ORDERS}.refs").collect()
    assert rows == [
        ("dev", "branch", dev.head_commit_id_for_branch("dev"), ""),
        ("main", "branch", dev.head_commit_id_for_branch("main"), ""),
        ("v1", "tag", dev.tag_get("v1").commit_id, "the first orders"),
    ]


def test_nearest_finds_the_rows_with_the_nearest_vectors(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    vectors = pa.array([[float(n), 0.0] for n in range(10)], pa.list_(pa.float32(), 2))
    with dev.transaction("dev") as tx:
        tx.create_table("s.points", pa.schema([("id", pa.int64()), ("v", vectors.type)]))
        tx.append("s.points", pa.table({"id": pa.array(range(10), pa.int64()), "v": vectors}))
    nearest = f"{catalog}.s.points.branch_dev.nearest"
    options = "'column' = 'v', 'vector' = '[4.2, 0]'"
    rows = spark.sql(f"SELECT id, _distance FROM {nearest} WITH ({options}, 'k' = '3')").collect()
    assert [row.id for row in rows] == [4, 5, 3]
    assert rows[0]._distance == pytest.approx(0.04, abs=0.001)
    rows = spark.sql(f"SELECT id, v FROM {nearest} WITH ({options}, 'k' = '1', 'where' = 'id > 6')").collect()
    assert rows == [(7, [7.0, 0.0])]
    for wrong in ("'column' = 'v'", "'column' = 'v', 'vector' = 'x'", "'column' = 'v', 'vector' = '[1]'"):
        with pytest.raises(InvalidInputError), spark_errors():
            spark.sql(f"SELECT id FROM {nearest} WITH ({wrong})").collect()


def test_a_real_table_of_the_name_wins(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    before = spark.sql("SELECT current_catalog(), current_schema()").first()
    assert before is not None
    try:
        spark.sql(f"USE {catalog}.s")
        assert spark.sql("SELECT count(*) FROM orders.history").collect() == [(1,)]
        assert spark.sql("SELECT count(*) FROM orders.branch_dev").collect() == [(99,)]
        assert spark.sql("SELECT count(*) FROM orders.branch_dev.history").collect() == [(3,)]
        with dev.transaction() as tx:
            tx.create_table("orders.history", pa.schema([("x", pa.int64())]))
        assert spark.sql("SELECT * FROM orders.history").columns == ["x"]
        assert "message" in spark.sql(f"SELECT * FROM {catalog}.s.orders.history").columns
    finally:
        spark.sql(f"USE {before[0]}.{before[1]}")


def test_metadata_tables_are_read_only(spark: SparkSession, dev: ab.Repository, catalog: str) -> None:
    table = f"{catalog}.{ORDERS}"
    with pytest.raises(InvalidInputError, match="read-only"), spark_errors():
        spark.sql(f"DROP TABLE {table}.history")
    with pytest.raises(AnalysisException):
        spark.sql(f"INSERT INTO {table}.refs SELECT * FROM {table}.refs")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table(f"{catalog}.s.nope.history")
    with pytest.raises(InvalidInputError, match="option 'x'"), spark_errors():
        spark.read.option("x", "1").table(f"{table}.history").collect()
    with pytest.raises(NotInHistoryError), spark_errors():
        spark.read.option("since", "dev").table(f"{table}.changes").collect()
