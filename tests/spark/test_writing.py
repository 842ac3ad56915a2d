"""DataFrames become commits: one each, or none."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import anabranch as ab
from anabranch.errors import (
    BranchNotFoundError,
    InvalidInputError,
    KeyConflictError,
    SchemaMismatchError,
    WriteConflictError,
)
from anabranch.format.staging import DEFAULT
from anabranch.spark.tasks import spark_errors
from tests.repo.conftest import data_files
from tests.spark.conftest import ORDERS, Read, Write, orders, rows, slow

pytestmark = pytest.mark.spark

Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def frame_of(spark: SparkSession, start: int, end: int, v: str = "new", parts: int = 2) -> DataFrame:
    return spark.range(start, end, numPartitions=parts).select("id", f.lit(v).alias("v"))


def test_rows_of_many_tasks_are_one_commit(spark: SparkSession, lake: ab.Repository, write: Write) -> None:
    lake.branch_create("dev")
    before = len(lake.list_commits("dev"))
    about = {"branch": "dev", "message": "more", "metadata": '{"ticket": "7"}', "actor": "bob"}
    write(frame_of(spark, 100, 140, parts=4), lake, **about)
    commit = lake.list_commits("dev")[0]
    assert len(lake.list_commits("dev")) == before + 1
    assert (commit.message, dict(commit.metadata), commit.actor_id) == ("more", {"ticket": "7"}, "bob")
    assert commit.tables == (ORDERS,)
    assert [row["id"] for row in rows(lake, "dev")] == list(range(140))
    assert [row["id"] for row in rows(lake, "main")] == list(range(100))


def test_overwriting_replaces_rows_and_columns(spark: SparkSession, lake: ab.Repository, write: Write) -> None:
    write(spark.sql("SELECT 7L AS id, 1.5D AS price"), lake, mode="overwrite")
    assert rows(lake) == [{"id": 7, "price": 1.5}]
    assert lake.snapshot_of("main")[ORDERS].primary_key == ("id",)
    write(spark.sql("SELECT 7L AS id, 1.5D AS price WHERE false"), lake, mode="overwrite")
    assert rows(lake) == []


def test_an_upsert_replaces_adds_and_keeps(spark: SparkSession, lake: ab.Repository, read: Read, write: Write) -> None:
    write(frame_of(spark, 95, 105), lake, upsert="true")
    assert [row["v"] for row in rows(lake)] == ["old"] * 95 + ["new"] * 10
    write(spark.range(104, 106).toDF("id"), lake, upsert="true")  # without v: kept where there is one
    assert rows(lake)[-2:] == [{"id": 104, "v": "new"}, {"id": 105, "v": None}]
    # The same as by hand, on another branch.
    lake.branch_create_from("main~2", "by_hand")
    with lake.transaction("by_hand") as tx:
        tx.upsert(ORDERS, orders(95, 105, "new"))
    assert rows(lake, "main~1") == rows(lake, "by_hand")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_missing_table_is_made(spark: SparkSession, lake: ab.Repository, write: Write, mode: str) -> None:
    write(frame_of(spark, 0, 5), lake, "s.fresh", mode=mode, primaryKey="id")
    fresh = lake.snapshot_of("main")["s.fresh"]
    assert fresh.primary_key == ("id",)
    assert fresh.schema == pa.schema([("id", pa.int64()), ("v", pa.string())])
    assert fresh.count_rows() == 5
    write(frame_of(spark, 3, 7, "x"), lake, "s.fresh", upsert="true")
    assert [row["v"] for row in rows(lake, key="s.fresh")] == ["new"] * 3 + ["x"] * 4


def test_columns_that_are_left_out_get_their_defaults(spark: SparkSession, lake: ab.Repository, write: Write) -> None:
    state = pa.field("state", pa.string(), metadata={DEFAULT: "'new'"})
    with lake.transaction() as tx:
        tx.create_table("s.states", pa.schema([pa.field("id", pa.int64()), state]), primary_key=["id"])
    write(spark.range(2), lake, "s.states")
    write(spark.sql("SELECT 0L AS id, 'old' AS state"), lake, "s.states", upsert="true")
    write(spark.range(3), lake, "s.states", upsert="true")
    assert [row["state"] for row in rows(lake, key="s.states")] == ["old", "new", "new"]


def test_nothing_to_write_is_not_a_commit(spark: SparkSession, lake: ab.Repository, write: Write) -> None:
    head = lake.head_commit_id_for_branch("main")
    write(frame_of(spark, 0, 5).filter("id < 0"), lake)
    write(frame_of(spark, 0, 5).filter("id < 0"), lake, upsert="true")
    assert lake.head_commit_id_for_branch("main") == head


def test_a_table_can_be_rewritten_from_itself(lake: ab.Repository, read: Read, write: Write) -> None:
    write(read(lake).selectExpr("id * 2 AS id", "upper(v) AS v"), lake, mode="overwrite")
    assert rows(lake)[:2] == [{"id": 0, "v": "OLD"}, {"id": 2, "v": "OLD"}]
    assert len(rows(lake)) == 100


def test_a_job_that_fails_halfway_publishes_nothing(spark: SparkSession, lake: ab.Repository, write: Write) -> None:
    head, files = lake.head_commit_id_for_branch("main"), data_files(lake)
    # One task after the other, and the last one fails: the others have written by then.
    broken = spark.range(100, 500, numPartitions=4).selectExpr(
        "id", "CASE WHEN id = 499 THEN raise_error('stop here') ELSE 'new' END AS v"
    )
    with pytest.raises(PySparkException, match="stop here"):
        write(broken, lake)
    assert lake.head_commit_id_for_branch("main") == head
    assert rows(lake) == orders(0, 100).to_pylist()
    assert data_files(lake) > files


def test_a_job_that_is_cancelled_publishes_nothing(
    spark: SparkSession, lake: ab.Repository, write: Write, tmp_path: Path
) -> None:
    head = lake.head_commit_id_for_branch("main")
    started = tmp_path / "started"

    def wait_for_ever(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        yield from batches
        started.touch()
        while True:
            time.sleep(0.1)

    stuck = frame_of(spark, 100, 200).mapInArrow(wait_for_ever, "id long, v string")

    def run() -> None:
        ab.spark_session()  # this thread's, too
        write(stuck, lake)

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(run)
        while not started.exists() and not writing.done():
            wait([writing], timeout=0.1)
        spark.sparkContext.cancelAllJobs()
        assert "cancelled" in str(writing.exception(timeout=120))
    assert lake.head_commit_id_for_branch("main") == head
    assert len(rows(lake)) == 100


@pytest.mark.parametrize(
    ("sql", "given", "kind", "message"),
    [
        ("SELECT 5L AS id, 'x' AS v", {}, KeyConflictError, "for example {'id': 5}"),
        slow("SELECT 200L AS id, 'x' AS v UNION ALL SELECT 200L, 'y'", {}, KeyConflictError, "more than once"),
        ("SELECT 5L AS id, 'x' AS v UNION ALL SELECT 5L, 'y'", {"upsert": "true"}, KeyConflictError, "more than once"),
        slow("SELECT cast(NULL AS long) AS id, 'x' AS v", {}, KeyConflictError, "key column 'id'"),
        slow("SELECT 200L AS id, 'x' AS w", {}, SchemaMismatchError, "column 'w' (found string) is not expected"),
        ("SELECT 'a' AS id, 'x' AS v", {}, SchemaMismatchError, "column 'id' was expected to be int64 and was found"),
        slow(
            "SELECT 200L AS id, 1.5D AS v",
            {},
            SchemaMismatchError,
            "column 'v' was expected to be string and was found",
        ),
        ("SELECT 200L AS id, 'x' AS v", {"branch": "gone"}, BranchNotFoundError, "'gone'"),
        slow("SELECT 200L AS id, 'x' AS v", {"ref": "main"}, InvalidInputError, "the option 'ref' is not known here"),
        slow("SELECT 200L AS id, 'x' AS v", {"primaryKey": "v"}, InvalidInputError, "is id, not v"),
        ("SELECT 200L AS id, 'x' AS v", {"mode": "overwrite", "upsert": "true"}, InvalidInputError, "an upsert keeps"),
        slow("SELECT 200L AS id, 'x' AS v", {"upsert": "perhaps"}, InvalidInputError, "'perhaps'"),
        slow("SELECT 200L AS id, 'x' AS v", {"metadata": "7"}, InvalidInputError, "'metadata'"),
    ],
)
def test_what_cannot_be_written_changes_nothing(
    spark: SparkSession,
    lake: ab.Repository,
    write: Write,
    sql: str,
    given: dict[str, str],
    kind: type[ab.AnabranchError],
    message: str,
) -> None:
    head = lake.head_commit_id_for_branch("main")
    with pytest.raises(kind) as caught, spark_errors():
        write(spark.sql(sql), lake, **given)
    assert message in str(caught.value)
    assert lake.head_commit_id_for_branch("main") == head


def test_an_upsert_without_a_key_is_refused(spark: SparkSession, lake: ab.Repository, write: Write) -> None:
    with pytest.raises(InvalidInputError, match="has no primary key"), spark_errors():
        write(frame_of(spark, 0, 1), lake, "s.keyless", upsert="true")
    assert "s.keyless" not in lake.snapshot_of("main")


def change_in_task(lake: ab.Repository, change: Callable[[ab.Repository], None]) -> Batches:
    """A function for mapInArrow: it changes the lake while the job runs, once."""
    uri, storage_options = lake.uri, dict(lake.storage_options)

    def map_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import anabranch

        change(anabranch.open(uri, storage_options=storage_options))
        yield from batches

    return map_batches


def test_rows_that_others_append_concurrently_stay(spark: SparkSession, lake: ab.Repository, write: Write) -> None:
    def change(repo: ab.Repository) -> None:
        with repo.transaction() as tx:
            tx.append(ORDERS, orders(300, 310))

    job = frame_of(spark, 100, 110, parts=1).mapInArrow(change_in_task(lake, change), "id long, v string")
    write(job, lake)
    assert [row["id"] for row in rows(lake)] == [*range(110), *range(300, 310)]


def test_a_key_that_others_append_concurrently_is_noticed(
    spark: SparkSession, lake: ab.Repository, write: Write
) -> None:
    def change(repo: ab.Repository) -> None:
        with repo.transaction() as tx:
            tx.append(ORDERS, orders(105, 106))

    job = frame_of(spark, 100, 110, parts=1).mapInArrow(change_in_task(lake, change), "id long, v string")
    with pytest.raises(KeyConflictError, match="105"), spark_errors():
        write(job, lake)
    assert len(rows(lake)) == 101


def test_an_overwrite_of_a_changed_table_is_a_conflict(spark: SparkSession, lake: ab.Repository, write: Write) -> None:
    def change(repo: ab.Repository) -> None:
        with repo.transaction() as tx:
            tx.append(ORDERS, orders(300, 310))

    job = frame_of(spark, 100, 110, parts=1).mapInArrow(change_in_task(lake, change), "id long, v string")
    with pytest.raises(WriteConflictError), spark_errors():
        write(job, lake, mode="overwrite")
    assert len(rows(lake)) == 110


def test_rows_written_into_a_run_show_when_it_is_published(
    spark: SparkSession, lake: ab.Repository, write: Write
) -> None:
    run = lake.begin_run("main")
    write(frame_of(spark, 100, 110), lake, run=run.id)
    write(frame_of(spark, 105, 115, "newer"), lake, run=run.id, upsert="true")
    assert len(rows(lake)) == 100
    run.publish()
    assert [row["v"] for row in rows(lake)] == ["old"] * 100 + ["new"] * 5 + ["newer"] * 10
