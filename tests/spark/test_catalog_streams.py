"""Streams into and out of tables by name: one commit for each batch, exactly once, and every commit once."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

import anabranch as ab
from anabranch.errors import InvalidInputError
from anabranch.spark.tasks import spark_errors
from tests.spark.conftest import ORDERS, orders, rows

pytestmark = pytest.mark.spark

_COLUMNS = StructType([StructField("id", LongType()), StructField("v", StringType())])


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of the JSON files in a folder, one file for each batch."""
    return spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 1).json(str(folder))


def put(folder: Path, number: int, *lines: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text("\n".join(lines))


def test_each_batch_is_one_commit_and_none_is_repeated(
    spark: SparkSession, lake: ab.Repository, catalog: str, tmp_path: Path
) -> None:
    lake.branch_create("dev")
    table, folder, checkpoint = f"{catalog}.{ORDERS}.branch_dev", tmp_path / "in", str(tmp_path / "checkpoint")
    put(folder, 1, '{"id": 200, "v": "a"}', '{"id": 201, "v": "b"}')
    put(folder, 2, '{"id": 202, "v": "c"}')
    main = lake.head_commit_id_for_branch("main")

    def follow(**options: str) -> None:
        writer = stream(spark, folder).writeStream.options(checkpointLocation=checkpoint, **options)
        with spark_errors():
            writer.trigger(availableNow=True).toTable(table).awaitTermination()

    follow()
    assert {row["id"] for row in rows(lake, "dev")} == {*range(100), 200, 201, 202}
    published = [commit for commit in lake.snapshot_of("dev").iter_commits() if "stream.epoch" in commit.metadata]
    assert [commit.metadata["stream.epoch"] for commit in published] == ["1", "0"]

    # As if the process had died after the commit, before Spark noted that the batch was done.
    for name in ("1", ".1.crc"):
        (Path(checkpoint) / "commits" / name).unlink()
    put(folder, 3, '{"id": 203, "v": "d"}')
    follow()
    assert sum(row["id"] == 202 for row in rows(lake, "dev")) == 1
    assert {row["id"] for row in rows(lake, "dev")} == {*range(100), 200, 201, 202, 203}

    put(folder, 4, '{"id": 203, "v": "new"}', '{"id": 7, "v": "new"}')
    follow(upsert="true", message="Newer orders")
    assert {row["id"] for row in rows(lake, "dev") if row["v"] == "new"} == {7, 203}
    assert lake.snapshot_of("dev").commit.message == "Newer orders"
    assert lake.head_commit_id_for_branch("main") == main


def test_a_complete_result_replaces_the_table(
    spark: SparkSession, lake: ab.Repository, catalog: str, tmp_path: Path
) -> None:
    folder, table = tmp_path / "in", f"{catalog}.s.counts"
    spark.sql(f"CREATE TABLE {table} (v STRING, count BIGINT NOT NULL)")
    put(folder, 1, '{"id": 1, "v": "a"}', '{"id": 2, "v": "a"}')
    put(folder, 2, '{"id": 3, "v": "b"}', '{"id": 4, "v": "a"}')
    counts = stream(spark, folder).groupBy("v").count().writeStream.outputMode("complete")
    query = counts.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).toTable(table)
    query.awaitTermination()
    found = lake.snapshot_of("main")["s.counts"].to_arrow().sort_by("v").to_pylist()
    assert found == [{"v": "a", "count": 3}, {"v": "b", "count": 1}]


def test_an_upsert_without_a_key_is_refused(
    spark: SparkSession, lake: ab.Repository, catalog: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE {catalog}.s.plain (id BIGINT, v STRING)")
    frame = spark.createDataFrame([(1, "a")], _COLUMNS)
    with pytest.raises(InvalidInputError, match="no primary key"), spark_errors():
        frame.writeTo(f"{catalog}.s.plain").option("upsert", "true").append()
    frame.writeTo(f"{catalog}.{ORDERS}").option("upsert", "true").append()
    assert next(row["v"] for row in rows(lake) if row["id"] == 1) == "a"


def test_a_stream_follows_the_changes_or_the_new_rows_of_a_branch(
    spark: SparkSession, lake: ab.Repository, catalog: str, tmp_path: Path
) -> None:
    table = f"{catalog}.{ORDERS}"
    first = lake.head_commit_id_for_branch("main")

    def follow(name: str, source: str, **options: str) -> list[tuple[object, ...]]:
        """Read what a stream has not read yet."""
        found: list[tuple[object, ...]] = []
        frame = spark.readStream.options(**options).table(source)
        writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect())))
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        with spark_errors():
            writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(found, key=repr)

    assert len(follow("rows", table)) == 100
    assert follow("changes", f"{table}.changes", since=first) == []
    assert follow("skipping", table, since=first, skipChanges="true") == []
    with lake.transaction() as tx:
        tx.append(ORDERS, orders(100, 102))
    assert follow("rows", table) == [(100, "old"), (101, "old")]
    # A stream that begins later begins with all rows, too, though the newest commit did not make the table.
    assert len(follow("rows from now on", table)) == 102
    assert {row[2] for row in follow("changes from now on", f"{table}.changes")} == {"insert"}
    with lake.transaction() as tx:
        tx.update(ORDERS, {"v": "'new'"}, where="id = 7")
        tx.delete(ORDERS, "id = 8")
    changes = follow("changes", f"{table}.changes", since=first, maxCommitsPerBatch="1")
    assert [(row[2], row[0], row[1]) for row in changes] == [
        ("insert", 100, "old"),
        ("insert", 101, "old"),
        ("update_after", 7, "new"),
        ("update_before", 7, "old"),
        ("delete", 8, "old"),
    ]
    assert follow("skipping", table, since=first, skipChanges="true") == [(100, "old"), (101, "old")]
    with pytest.raises(InvalidInputError, match=r"updates or deletes rows.*s\.orders\.changes"):
        follow("rows", table)
