"""The changes of a table as DataFrames: a stream that follows a branch, and the rows between two commits."""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

import anabranch as ab
from anabranch import testing
from anabranch.errors import (
    BranchNotFoundError,
    InvalidInputError,
    NotInHistoryError,
    SchemaMismatchError,
    TableNotFoundError,
    VersionNotFoundError,
)
from anabranch.repo.history.changes import change_feed
from anabranch.spark.change_feed import ChangeStreamReader
from anabranch.spark.tasks import spark_errors
from anabranch.testing import CountingStore
from pyspark_anabranch import DefaultSource
from tests.conftest import Location
from tests.processes import run_until_killed
from tests.spark.conftest import ORDERS, Read, options, orders, rows, slow
from tests.spark.following import changes, follow, read_batches, replay, write_down

pytestmark = pytest.mark.spark

SMALL = "s.small"
OTHER = "s.other"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def small(location: Location) -> ab.Repository:
    """A repository with two tables, one of which has the rows 1 ('a') and 2 ('b')."""
    repo = ab.init(location / "lake", storage_options=location.storage_options, actor="ada")
    with repo.transaction(message="first") as tx:
        tx.create_table(SMALL, orders(0, 1).schema, primary_key=["id"])
        tx.append(SMALL, pa.table({"id": [1, 2], "v": ["a", "b"]}))
        tx.create_table(OTHER, orders(0, 1).schema)
    return repo


def put(repo: ab.Repository, number: int, v: str, key: str = SMALL) -> str:
    with repo.transaction(message=v) as tx:
        data = pa.table({"id": [number], "v": [v]})
        if key == SMALL:
            tx.upsert(key, data)
        else:
            tx.append(key, data)
    assert tx.published is not None
    return tx.published.graph_commit_id


class Follower:
    """Follows a table with one checkpoint, and writes down each batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def load(self, repo: ab.Repository, **given: str) -> DataFrame:
        return self.spark.readStream.format("anabranch").options(**options(repo), **given).load(SMALL)

    def take(self, frame: DataFrame, number: int) -> None:
        write_down(frame, self.folder / f"{number}.json")

    def run(self, frame: DataFrame) -> list[list[dict[str, Any]]]:
        """Take all there is; the batches that this brought."""
        before = len(list(self.folder.glob("*.json")))
        with spark_errors():
            follow(frame, self.take, checkpoint=str(self.folder / "checkpoint"))
        return read_batches(self.folder)[before:]


@pytest.fixture
def follower(spark: SparkSession, tmp_path: Path) -> Follower:
    return Follower(spark, tmp_path / "followed")


def test_the_rows_between_two_commits_are_reported_with_what_happened_to_them(lake: ab.Repository, read: Read) -> None:
    first = lake.snapshot().id
    with lake.transaction() as tx:
        tx.upsert(ORDERS, pa.table({"id": [99, 100], "v": ["x", "y"]}))
    second = tx.published
    assert second is not None
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id = 7")
    frame = read(lake, since=first)
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id = 8")  # a DataFrame stays what it was
    assert frame.columns == ["id", "v", "_change", "_commit", "_version", "_generation", "_time"]
    found = sorted(frame.collect(), key=lambda row: (row["_generation"], row["id"], row["_change"]))
    assert [(row["_change"], row["id"], row["v"], row["_version"]) for row in found] == [
        ("update_after", 99, "x", 3),
        ("update_before", 99, "old", 3),
        ("insert", 100, "y", 3),
        ("delete", 7, "old", 4),
    ]
    assert {row["_commit"] for row in found[:3]} == {second.graph_commit_id}
    assert found[0]["_time"].astimezone(UTC) == EPOCH + timedelta(microseconds=second.created_at)
    born = read(lake, since=f"{first}~1", until=first).collect()
    assert sorted(row["id"] for row in born) == list(range(100))
    assert {row["_change"] for row in born} == {"insert"}


def test_a_stream_continues_where_it_was_stopped(small: ab.Repository, follower: Follower) -> None:
    put(small, 2, "z")
    [first] = follower.run(follower.load(small, branch="main"))
    assert changes([first]) == [("insert", 1, "a"), ("insert", 2, "z")]
    assert {row["_version"] for row in first} == {3}
    put(small, 2, "y")
    with small.transaction() as tx:
        tx.delete(SMALL, "id = 1")
    put(small, 7, "elsewhere", key=OTHER)
    put(small, 3, "c")
    small.compact()
    later = follower.run(follower.load(small, branch="main", maxCommitsPerBatch="2"))
    assert changes(later[:1]) == [("update_before", 2, "z"), ("update_after", 2, "y"), ("delete", 1, "a")]
    assert changes(later[1:]) == [("insert", 3, "c")]
    put(small, 8, "elsewhere", key=OTHER)
    assert follower.run(follower.load(small, branch="main")) == []


def test_a_running_stream_takes_what_is_committed_concurrently(small: ab.Repository, follower: Follower) -> None:
    since = small.snapshot().id
    put(small, 3, "before")
    query = follower.load(small, since=since).writeStream.foreachBatch(follower.take).start()
    try:
        query.processAllAvailable()
        assert changes(read_batches(follower.folder)) == [("insert", 3, "before")]
        put(small, 8, "elsewhere", key=OTHER)
        put(small, 4, "during")
        query.processAllAvailable()
    finally:
        query.stop()
    assert changes(read_batches(follower.folder)) == [("insert", 3, "before"), ("insert", 4, "during")]


def test_a_stream_since_the_latest_shows_only_what_comes(small: ab.Repository, follower: Follower) -> None:
    put(small, 3, "before")
    frame = follower.load(small, branch="main", since="latest")
    put(small, 4, "after")
    assert changes(follower.run(frame)) == [("insert", 4, "after")]


@pytest.mark.proof
def test_a_killed_driver_leaves_nothing_lost_and_nothing_repeated(small: ab.Repository, follower: Follower) -> None:
    since = small.get_commit("main~1").graph_commit_id
    put(small, 3, "three")
    put(small, 4, "four")
    given = [json.dumps(options(small)), SMALL, since, str(follower.folder), "1"]
    run_until_killed([sys.executable, "-m", "tests.spark.programs.follow", *given], timeout=300)
    known = read_batches(follower.folder)
    assert changes(known) == [("insert", 1, "a"), ("insert", 2, "b"), ("insert", 3, "three")]
    with small.transaction() as tx:
        tx.update(SMALL, {"v": "'changed'"}, where="id = 1")
        tx.delete(SMALL, "id = 2")
    repeated = follower.folder / "1.json"
    repeated.unlink()
    follower.run(follower.load(small, since=since, maxCommitsPerBatch="1"))
    batches = read_batches(follower.folder)
    assert repeated.exists()  # Spark did not know of it
    assert batches[:2] == known
    assert [len({row["_commit"] for row in batch}) for batch in batches] == [1, 1, 1, 1]
    assert [len(batch) for batch in batches] == [2, 1, 1, 3]
    assert replay(batches) == {row["id"]: row["v"] for row in rows(small, key=SMALL)}


@pytest.mark.proof
def test_new_columns_end_a_stream_until_it_is_started_again(small: ab.Repository, follower: Follower) -> None:
    since = small.snapshot().id
    put(small, 3, "old columns")
    frame = follower.load(small, since=since)
    with small.transaction() as tx:
        tx.add_columns(SMALL, {"twice": "nullif(id * 2, 2)"})
    put(small, 4, "new columns")
    with pytest.raises(SchemaMismatchError, match=r"changed the columns of 's\.small': twice; start the query again"):
        follower.run(frame)
    [batch] = follower.run(follower.load(small, since=since))
    assert [(row["_change"], row["id"], row["twice"]) for row in batch] == [
        ("insert", 3, None),
        ("update_before", 2, None),
        ("update_after", 2, 4),
        ("update_before", 3, None),
        ("update_after", 3, 6),
        ("insert", 4, None),
    ]


def test_rows_from_before_a_column_got_another_name_are_refused(small: ab.Repository, follower: Follower) -> None:
    since = small.snapshot().id
    put(small, 3, "old name")
    with small.transaction() as tx:
        tx.alter_columns(SMALL, [ab.ColumnChange(path="v", name="w")])
    with pytest.raises(SchemaMismatchError, match="has now: the table had v and not w; begin a stream with a new"):
        follower.run(follower.load(small, since=since))


@pytest.mark.proof
def test_a_table_that_is_dropped_and_made_again_goes_and_comes(small: ab.Repository, follower: Follower) -> None:
    frame = follower.load(small, since=small.snapshot().id)
    with small.transaction() as tx:
        tx.drop_table(SMALL)
    with small.transaction() as tx:
        tx.create_table(SMALL, orders(0, 1).schema)
        tx.append(SMALL, orders(5, 6, v="new"))
    assert changes(follower.run(frame)) == [("delete", 1, "a"), ("delete", 2, "b"), ("insert", 5, "new")]


def test_a_reset_below_what_was_read_ends_a_stream(small: ab.Repository, follower: Follower) -> None:
    kept = put(small, 3, "kept")
    lost = put(small, 4, "lost")
    follower.run(follower.load(small, branch="main"))
    small.reset("main", to=kept)
    with pytest.raises(NotInHistoryError, match=f"'main' no longer has commit {lost}, .* since {kept}"):
        follower.run(follower.load(small, branch="main"))


@pytest.mark.parametrize(
    ("given", "error", "problem"),
    [
        ({}, InvalidInputError, "the branch of the stream is not given; give the option 'branch'"),
        slow({"until": "main"}, InvalidInputError, "a stream has no end"),
        slow(
            {"branch": "main", "until": "main"},
            InvalidInputError,
            "both 'branch' and 'until' give the end of the changes",
        ),
        slow({"branch": "nowhere"}, BranchNotFoundError, "nowhere"),
        ({"since": "main@v9"}, VersionNotFoundError, "has no version 9"),
        slow({"since": "dev"}, InvalidInputError, "'dev' comes after 'main'"),
        ({"branch": "other", "since": "dev"}, NotInHistoryError, "is not in the history of 'other'"),
        slow({"branch": "main", "ref": "main"}, InvalidInputError, "the option 'ref' is not known here"),
        slow({"branch": "main", "maxcommitsperbatch": "0"}, InvalidInputError, "'maxCommitsPerBatch' is '0'"),
        slow({"branch": "main", "table": "s.none"}, InvalidInputError, r"two tables are named, s\.none and s\.small"),
        ({"branch": "main", "path": "s.none"}, TableNotFoundError, r"there is no table 's\.none' in 'main'"),
        ({"branch": "main", "path": "s.taken"}, SchemaMismatchError, r"'s\.taken' has a column '_Commit'"),
    ],
)
def test_what_a_stream_cannot_follow_is_refused(
    small: ab.Repository, given: dict[str, str], error: type[Exception], problem: str
) -> None:
    with small.transaction() as tx:
        tx.create_table("s.taken", pa.schema([("_Commit", pa.string())]))
    for branch in ("dev", "other"):
        small.branch_create(branch)
        with small.transaction(branch) as tx:
            tx.append(SMALL, orders(5, 6))
    with pytest.raises(error, match=problem):
        begin(small, **given)


def begin(repo: ab.Repository, **given: str) -> ChangeStreamReader:
    """What Spark does before it runs a stream."""
    source = DefaultSource({**options(repo), "path": SMALL, **given})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, ChangeStreamReader)
    return reader


def test_rows_without_a_stream_need_a_beginning(small: ab.Repository) -> None:
    source = DefaultSource({**options(small), "table": SMALL, "branch": "main"})
    with pytest.raises(InvalidInputError, match="option 'ref'"):
        source.reader(source.schema())


def test_a_stream_that_waits_does_not_read_the_history_again(small: ab.Repository) -> None:
    reader = begin(small, since="latest")
    start = reader.initialOffset()
    waiting = [put(small, number, "elsewhere", key=OTHER) for number in range(70)]
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    follower = reader._follower()
    store = CountingStore(testing.store_of(small))
    follower._repository = testing.open(small, store=store)
    follower.feed = change_feed(follower._repository, SMALL)
    put(small, 70, "elsewhere", key=OTHER)
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    read = [path for _, path in store.requests if path.startswith("_commits/")]
    assert f"_commits/{waiting[-1]}.json" in read
    assert len(read) <= 2
    store.reset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert len(store.requests) == 1  # whether the branch has moved
    assert reader.partitions(start, start) == []
    found = put(small, 9, "at last")
    assert reader.latestOffset(start, ReadAllAvailable()) == {"commit": found, "version": 74}
    assert reader.reportLatestOffset() == {"commit": found, "version": 74}


def test_a_branch_alone_is_not_read_as_changes_by_mistake(spark: SparkSession, small: ab.Repository) -> None:
    frame = spark.read.format("anabranch").options(**options(small), branch="main").load(SMALL)
    with pytest.raises(InvalidInputError, match="option 'ref'"), spark_errors():
        frame.count()
