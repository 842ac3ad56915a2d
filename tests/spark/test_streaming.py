"""Streams become commits: one for each batch that brings rows, exactly once."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import anabranch as ab
from anabranch.errors import BranchNotFoundError, InvalidInputError, KeyConflictError, SchemaMismatchError
from anabranch.spark.tasks import spark_errors
from tests.repo.conftest import nothing_changes
from tests.spark.conftest import ORDERS, options, orders, rows, slow
from tests.spark.feeds import STREAMED, Feed, Shape, as_it_is, batches, ids

pytestmark = pytest.mark.spark


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    (tmp_path / "feed").mkdir()
    return Feed(spark=spark, folder=tmp_path / "feed")


@pytest.mark.s3
def test_each_batch_is_a_commit_and_a_restart_continues(lake: ab.Repository, feed: Feed) -> None:
    lake.branch_create("dev")
    feed.add(0, 1)
    feed.add(2, 3)
    query = feed.run(lake, branch="dev", primaryKey="id", metadata='{"ticket": "7"}', actor="bob")
    assert batches(lake, "dev") == [(query.id, "0"), (query.id, "1")]
    commit = lake.list_commits("dev")[0]
    assert (commit.message, commit.kind, commit.actor_id) == ("Batch 1 of a stream into 's.streamed'", "load", "bob")
    assert commit.metadata["ticket"] == "7"
    assert lake.snapshot_of("dev")[STREAMED].primary_key == ("id",)
    assert STREAMED not in lake.snapshot_of("main")
    with nothing_changes(lake):
        again = feed.run(lake, branch="dev")
    assert (again.id, again.runId != query.runId) == (query.id, True)
    feed.add(4)
    feed.run(lake, branch="dev", message="more")
    assert batches(lake, "dev")[2:] == [(query.id, "2")]
    assert lake.list_commits("dev")[0].message == "more"
    assert ids(lake, ref="dev") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("given", [{}, {"upsert": "true", "primaryKey": "id"}])
def test_a_batch_that_spark_forgot_is_not_repeated(lake: ab.Repository, feed: Feed, given: dict[str, str]) -> None:
    """Spark notes a batch after it is published; a process that is killed in between does not know that it was."""
    feed.add(0, 1)
    feed.add(2, 3)
    feed.run(lake, shape=as_it_is, **given)
    noted = feed.at("checkpoint") / "commits" / "1"
    noted.unlink()
    noted.with_name(".1.crc").unlink()
    with lake.transaction() as tx:  # another writer works on the same table concurrently
        tx.append(STREAMED, orders(100, 101))
    with nothing_changes(lake):
        feed.run(lake, shape=as_it_is, **given)
    assert noted.exists()  # it was there when it came again
    feed.add(4)
    feed.run(lake, shape=as_it_is, **given)
    assert [epoch for _, epoch in batches(lake)] == ["0", "1", "2"]
    assert ids(lake) == [0, 1, 2, 3, 4, 100]


def test_without_its_checkpoint_a_stream_is_another_one(lake: ab.Repository, feed: Feed) -> None:
    feed.add(0, 1)
    first = feed.run(lake)
    shutil.rmtree(feed.at("checkpoint"))
    second = feed.run(lake)
    assert batches(lake) == [(first.id, "0"), (second.id, "0")]
    assert ids(lake) == [0, 0, 1, 1]


def test_two_streams_write_to_one_table(lake: ab.Repository, feed: Feed) -> None:
    feed.add(0, 1)
    for checkpoint, low in (("low", "id < 1"), ("high", "id >= 1")):
        feed.run(lake, checkpoint=checkpoint, shape=lambda frame, low=low: frame.filter(low))  # type: ignore[misc]
    assert len(set(batches(lake))) == 2
    assert ids(lake) == [0, 1]


def test_an_upsert_replaces_rows_of_earlier_batches(lake: ab.Repository, feed: Feed) -> None:
    feed.add(99, 100, v="one")
    feed.add(100, 101, v="two")
    feed.run(lake, ORDERS, upsert="true")
    assert rows(lake)[98:] == [
        {"id": 98, "v": "old"},
        {"id": 99, "v": "one"},
        {"id": 100, "v": "two"},
        {"id": 101, "v": "two"},
    ]


def test_the_mode_complete_replaces_the_table_with_each_batch(lake: ab.Repository, feed: Feed) -> None:
    def count(frame: DataFrame) -> DataFrame:
        return frame.groupBy("v").count()

    feed.add(1, 2, v="a")
    feed.run(lake, mode="complete", shape=count)
    feed.add(3, v="a")
    feed.add(4, v="b")
    feed.run(lake, mode="complete", shape=count)
    found = lake.snapshot_of("main")[STREAMED].to_arrow().sort_by("v").to_pylist()
    assert found == [{"v": "a", "count": 3}, {"v": "b", "count": 1}]
    assert [epoch for _, epoch in batches(lake)] == ["0", "1", "2"]


def test_a_batch_without_rows_is_not_a_commit(lake: ab.Repository, feed: Feed) -> None:
    feed.add(200)
    feed.add(5)
    feed.add(201)
    feed.run(lake, ORDERS, shape=lambda frame: frame.filter("id >= 100"))
    assert [epoch for _, epoch in batches(lake)] == ["0", "2"]
    assert ids(lake, ORDERS)[100:] == [200, 201]


def test_a_batch_that_fails_publishes_nothing_and_comes_again(lake: ab.Repository, feed: Feed) -> None:
    feed.add(0, 1)
    feed.add(2, 1)
    feed.add(3)

    def run(shape: Shape) -> None:
        feed.run(lake, primaryKey="id", shape=shape)

    with pytest.raises(KeyConflictError, match="'id': 1"), spark_errors():
        run(as_it_is)
    assert ids(lake) == [0, 1]
    with nothing_changes(lake), pytest.raises(Exception, match="stop here"):
        run(lambda frame: frame.selectExpr("id", "if(id = 2, raise_error('stop here'), v) AS v"))
    run(lambda frame: frame.filter("id != 1"))
    assert ids(lake) == [0, 1, 2, 3]
    assert [epoch for _, epoch in batches(lake)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("numbers", "given", "kind", "message"),
    [
        ((200, 200), {"upsert": "true"}, KeyConflictError, "more than once"),
        ((5,), {}, KeyConflictError, "for example {'id': 5}"),
        ((200,), {"branch": "gone"}, BranchNotFoundError, "'gone'"),
        slow((200,), {"ref": "main"}, InvalidInputError, "the option 'ref' is not known here"),
        slow((200,), {"run": "01JD0000000000000000000000"}, InvalidInputError, "a stream does not write into a run"),
        slow((200,), {"primaryKey": "v"}, InvalidInputError, "is id, not v"),
        slow((200,), {"mode": "complete", "upsert": "true"}, InvalidInputError, "an upsert keeps"),
        slow((200,), {"mode": "complete"}, SchemaMismatchError, "names the column 'id', which is not there"),
    ],
)
def test_what_cannot_be_written_changes_nothing(
    lake: ab.Repository,
    feed: Feed,
    numbers: tuple[int, ...],
    given: dict[str, str],
    kind: type[ab.AnabranchError],
    message: str,
) -> None:
    feed.add(*numbers)
    shape: Shape = (lambda frame: frame.groupBy("v").count()) if "mode" in given else as_it_is
    with nothing_changes(lake), pytest.raises(kind) as caught, spark_errors():
        feed.run(lake, ORDERS, shape=shape, **given)
    assert message in str(caught.value)


@pytest.mark.proof
def test_spark_has_no_mode_update_for_sources_in_python(lake: ab.Repository, feed: Feed) -> None:
    """A caller can upsert each batch by hand, which may come twice and is the same."""
    feed.add(1)
    with nothing_changes(lake), pytest.raises(Exception, match="anabranch does not support Update mode"):
        feed.run(lake, ORDERS, mode="update", upsert="true")

    def upsert(frame: DataFrame, _epoch: int) -> None:
        writer = frame.write.format("anabranch").mode("append").options(**options(lake), upsert="true")
        writer.save(ORDERS)

    counted = feed.spark.readStream.schema("id long, v string").json(str(feed.folder)).groupBy("id").count()
    writer = counted.selectExpr("id", "cast(count AS string) AS v").writeStream.foreachBatch(upsert)
    writer = writer.outputMode("update").option("checkpointLocation", str(feed.at("by hand")))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert rows(lake)[1] == {"id": 1, "v": "1"}
