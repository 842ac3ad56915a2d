"""The changes of a table for Spark: as a stream that follows a branch, or between two commits.

Offsets are commits, which never change; so a batch that is read again has the same rows. The driver plans from the
commits alone, and the workers compare.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from anabranch.column_types import show_type
from anabranch.errors import InvalidInputError, NotInHistoryError, SchemaMismatchError, TableNotFoundError
from anabranch.format.splits import Selection, Split, plan_splits, read_split
from anabranch.repo.history.changes import CommitChanges, TableFeed, change_feed
from anabranch.repo.history.diff import find_appended_rows
from anabranch.repo.history.table_history import TableChange
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Table
from anabranch.spark.options import LATEST, FeedOptions, OpenRepository
from anabranch.spark.types import as_shown, shown_columns, shown_schema

CHANGE, COMMIT = "_change", "_commit"
# The kind of change of a new row.
INSERT = "insert"
_ABOUT = (
    StructField(CHANGE, StringType()),
    StructField(COMMIT, StringType()),
    StructField("_version", LongType()),
    StructField("_generation", LongType()),
    StructField("_time", TimestampType()),
)
# The kind of change of a row, by its side.
_BEFORE = {"deleted": "delete", "updated": "update_before"}
_AFTER = {"inserted": INSERT, "updated": "update_after"}
# Maximum number of parts for the commits of one batch: each costs a tenth of a second before its first row.
_PARTS = 16
_ALL = Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFeed:
    """A feed as of the creation of a DataFrame: all its rows have the columns of the table at that commit."""

    options: FeedOptions
    since: str | None
    until: str
    generation: int
    columns: StructType

    @classmethod
    def find(cls, options: FeedOptions, repository: Repository) -> "PinnedFeed":
        feed = change_feed(repository, options.location.key)
        end = options.branch if options.until is None else options.until
        now = feed.state_at(end)
        until = now.commit.graph_commit_id
        table = feed.compare(now).diff.after
        if table is None:
            raise TableNotFoundError(
                f"there is no table '{options.location.key}' in '{end}'", hint="list its tables to see which exist"
            )
        since = options.since
        if since == LATEST:
            since = until
        elif since is not None:
            feed.list_commits(since=since, until=end)  # refuses commits outside of its history
            since = feed.state_at(since).commit.graph_commit_id
        # A row of an older commit may lack a column, which is null then.
        columns = _nullable(shown_schema(table.schema))
        _refuse_taken(columns, options.location.key)
        return cls(options=options, since=since, until=until, generation=now.commit.generation, columns=columns)

    @property
    def shown(self) -> StructType:
        return StructType([*self.columns.fields, *_ABOUT])


@dataclass(frozen=True, slots=True)
class Piece:
    """The changes of one commit, or, if it created or dropped the table, a part of its rows."""

    change: TableChange
    split: Split | None = None


def plan_pieces(feed: TableFeed, changes: Sequence[TableChange]) -> list[tuple[Piece, ...]]:
    """Divide changes into parts, each for one task."""
    compared, whole = [], []
    for change in changes:
        # A comparison cannot be divided, so a commit is one piece. A whole table is divided like a scan.
        if change.before is not None and change.after is not None:
            compared.append(Piece(change))
        elif (table := _only_side(feed.compare(change))) is not None:
            whole += [(Piece(change, split),) for split in plan_splits(table.version_ref, _ALL)]
    parts = min(_PARTS, len(compared))
    cuts = [len(compared) * number // parts for number in range(parts + 1)] if parts else []
    return [*(tuple(compared[start:end]) for start, end in pairwise(cuts)), *whole]


def read_pieces(pinned: PinnedFeed, feed: TableFeed, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
    """Read the rows of one part, in the columns that the feed shows."""
    for piece in pieces:
        step = feed.compare(piece.change)
        for table in (step.diff.before, step.diff.after):
            if table is not None:
                _check_columns(pinned, step.commit, table)
        rows = _iter_compared(step) if piece.split is None else _iter_whole(step, piece.split)
        shown = (_fitted(pinned, step, labels, batch) for labels, batch in rows)
        yield from as_shown(shown, shown_columns(pinned.shown))


class _FeedReader:
    """The common part of both readers. Spark pickles readers, so they have only values."""

    def __init__(self, pinned: PinnedFeed, open_repository: OpenRepository) -> None:
        self._pinned = pinned
        self._open_repository = open_repository

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is not None:  # Spark adds a part if there is none
            yield from read_pieces(self._pinned, self._open_feed(), partition.value)

    def _open(self) -> Repository:
        return self._pinned.options.location.open(self._open_repository)

    def _open_feed(self) -> TableFeed:
        return change_feed(self._open(), self._pinned.options.location.key)


class ChangeReader(_FeedReader, DataSourceReader):
    """Reads the changes between two commits."""

    def __init__(self, pinned: PinnedFeed, open_repository: OpenRepository) -> None:
        if pinned.since is None:
            raise InvalidInputError(
                "the start of the changes is not given", hint="give the option 'since', or read by a stream"
            )
        super().__init__(pinned, open_repository)

    def partitions(self) -> Sequence[InputPartition]:
        feed = self._open_feed()
        changes = list(feed.iter_states(since=self._pinned.since, until=self._pinned.until))
        return [InputPartition(pieces) for pieces in plan_pieces(feed, changes)]


class FeedFollower:
    """Follows the changes of a table on a branch, from offset to offset.

    An offset is the last commit that was read, as a dict. Its commit is empty if none was read.
    """

    def __init__(self, pinned: PinnedFeed, repository: Repository) -> None:
        if pinned.options.until is not None:
            raise InvalidInputError(
                "a stream has no end", hint="leave the option 'until' out, or read without a stream"
            )
        self.newest: GraphCommit | None = None
        self.feed = change_feed(repository, pinned.options.location.key)
        self._pinned = pinned
        self._repository = repository
        self._idle: tuple[str, str] | None = None

    def first(self) -> dict[str, Any]:
        """Return the offset to begin with."""
        since = self._pinned.since
        return {"commit": ""} if since is None else _offset(self._repository.get_commit(since))

    def head(self) -> str:
        """Return the head commit of the branch."""
        return self._repository.head_commit_id_for_branch(self._pinned.options.branch)

    def latest(self, start: Mapping[str, Any], *, until: str, most: int | None) -> dict[str, Any]:
        """Return the next offset to read up to, with a maximum number of commits after another one."""
        # A stream without a start begins with all rows of the newest state, as one batch.
        if not start["commit"]:
            self.newest = self._repository.get_commit(until)
            return _offset(self.newest)
        commits = self._list_new(start["commit"], until)
        if not commits:
            return dict(start)
        self.newest = commits[-1]
        return _offset(commits[:most][-1])

    def changes(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[TableChange]:
        """Return the changes of the table by the commits between two offsets."""
        if start["commit"] == end["commit"]:
            return []
        if start["commit"]:
            return list(self.feed.iter_states(since=start["commit"], until=end["commit"]))
        return [self.feed.state_at(end["commit"])]

    def _list_new(self, start: str, until: str) -> list[GraphCommit]:
        """Return the commits to read. Commits without changes that were searched before are not searched again."""
        looked = self._idle[1] if self._idle is not None and self._idle[0] == start else start
        if looked == until:
            return []
        try:
            commits = self.feed.list_commits(since=looked, until=until)
        except (InvalidInputError, NotInHistoryError):
            # The branch was reset to before the commit that was searched last. The start may still be in its history.
            commits = self._list_all_new(start, until)
        if not commits:
            self._idle = (start, until)
        return commits

    def _list_all_new(self, start: str, until: str) -> list[GraphCommit]:
        branch = self._pinned.options.branch
        try:
            return self.feed.list_commits(since=start, until=until)
        except (InvalidInputError, NotInHistoryError) as err:
            common = self.feed.newest_common(start, until).graph_commit_id
            raise NotInHistoryError(
                f"branch '{branch}' no longer has commit {start}, up to which this stream has read",
                hint=f"undo the reset, or begin a stream with a new checkpoint since {common}, the newest commit that "
                "it has read and the branch still has",
            ) from err


class ChangeStreamReader(_FeedReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a branch for Spark's own interface of sources written in Python."""

    def __init__(self, pinned: PinnedFeed, open_repository: OpenRepository) -> None:
        super().__init__(pinned, open_repository)
        # Only on the driver, computed at the first call.
        self._known: FeedFollower | None = None
        self._end: str | None = None
        if pinned.options.until is not None:
            self._follower()  # refuses an invalid option

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._follower().first()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        # Read the head once: on a busy branch, a query that follows the head would never end.
        self._end = self._follower().head()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        # Spark limits rows, bytes and files. A commit counts as a file.
        return ReadMaxFiles(self._pinned.options.most_commits)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        follower = self._follower()
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return follower.latest(start, until=self._end or follower.head(), most=most)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        newest = self._follower().newest
        return None if newest is None else _offset(newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        follower = self._follower()
        return [InputPartition(pieces) for pieces in plan_pieces(follower.feed, follower.changes(start, end))]

    def _follower(self) -> FeedFollower:
        if self._known is None:
            self._known = FeedFollower(self._pinned, self._open())
        return self._known


def _offset(commit: GraphCommit) -> dict[str, Any]:
    return {"commit": commit.graph_commit_id, "version": commit.manifest_version}


def _only_side(step: CommitChanges) -> Table | None:
    return step.diff.after if step.diff.before is None else step.diff.before


def _iter_whole(step: CommitChanges, split: Split) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
    """Yield a part of the rows of a table that was created or dropped, with the kind of change."""
    table = _only_side(step)
    label = INSERT if step.diff.before is None else "delete"
    for batch in () if table is None else read_split(table.version_ref, split, _ALL):
        yield pa.repeat(label, len(batch)), batch


def _iter_compared(step: CommitChanges) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
    """Yield the rows that differ with the kind of their change, in each batch the old rows first."""
    # The rows of a commit that only appends are read as they are, without a comparison.
    appended = find_appended_rows(step.diff)
    if appended is not None:
        yield from ((pa.repeat(INSERT, len(batch)), batch) for batch in appended.read())
        return
    for batch in step.diff.iter_batches():
        for name, labels in (("before", _BEFORE), ("after", _AFTER)):
            side = batch.column(name)
            kinds = batch.column("change").filter(side.is_valid())
            yield _renamed(kinds, labels), pa.RecordBatch.from_struct_array(side.filter(side.is_valid()))


def _renamed(kinds: pa.Array, labels: Mapping[str, str]) -> pa.Array:
    return pa.array(list(labels.values())).take(pc.index_in(kinds, pa.array(list(labels))))


def _fitted(pinned: PinnedFeed, step: CommitChanges, labels: pa.Array, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in the columns of the feed, in types that can be converted to those of Spark."""
    columns = shown_columns(pinned.columns)
    values = [
        _cast(pinned, step.commit, rows.column(field.name), field)
        if field.name in rows.schema.names
        else pa.nulls(len(rows), field.type)
        for field in columns
    ]
    about = [
        pa.scalar(step.commit.graph_commit_id),
        pa.scalar(step.commit.manifest_version, pa.int64()),
        pa.scalar(step.commit.generation, pa.int64()),
        pa.scalar(step.changed, pa.timestamp("us", "UTC")),
    ]
    arrays = [*values, labels, *(pa.repeat(value, len(rows)) for value in about)]
    return pa.RecordBatch.from_arrays(arrays, names=pinned.shown.names)


def _cast(pinned: PinnedFeed, commit: GraphCommit, values: pa.Array, field: pa.Field) -> pa.Array:
    if _shown_types(pa.schema([pa.field(field.name, values.type)]))[field.name] == field.type:
        return values
    try:
        return pc.cast(values, field.type, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _too_old(pinned, commit, f"column {field.name!r} was {show_type(values.type)}") from None


def _check_columns(pinned: PinnedFeed, commit: GraphCommit, table: Table) -> None:
    """Refuse rows that the feed's columns do not fit.

    A commit after the creation of the feed must have exactly these columns. An earlier commit may have fewer, which
    become null, or more, which are left out. If both is the case, a column may have been renamed.
    """
    found, wanted = _shown_types(table.schema), _shown_types(shown_columns(pinned.columns))
    more, fewer = sorted(found.keys() - wanted.keys()), sorted(wanted.keys() - found.keys())
    if commit.generation > pinned.generation:
        if found != wanted:
            other = ", ".join(sorted({*more, *fewer}) or sorted(name for name in found if found[name] != wanted[name]))
            raise SchemaMismatchError(
                f"commit {commit.graph_commit_id} or one before it changed the columns of '{table.key}': {other}",
                hint="start the query again; it continues with the new columns",
            )
    elif more and fewer:
        raise _too_old(pinned, commit, f"the table had {', '.join(more)} and not {', '.join(fewer)}")


def _too_old(pinned: PinnedFeed, commit: GraphCommit, problem: str) -> SchemaMismatchError:
    key = pinned.options.location.key
    return SchemaMismatchError(
        f"rows of commit {commit.graph_commit_id} do not fit the columns that '{key}' has now: {problem}",
        hint="begin a stream with a new checkpoint after the commit that changed the columns",
    )


def _shown_types(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the types in which Spark shows the columns."""
    shown = shown_columns(_nullable(shown_schema(schema)))
    return {field.name: field.type for field in shown}


def _nullable(columns: StructType) -> StructType:
    return StructType([StructField(field.name, field.dataType, True, field.metadata) for field in columns])  # noqa: FBT003


def _refuse_taken(columns: StructType, key: str) -> None:
    ours = {field.name for field in _ABOUT}
    for field in columns:
        # Spark does not distinguish upper and lower case in names of columns.
        if field.name.lower() in ours:
            raise SchemaMismatchError(
                f"table '{key}' has a column {field.name!r}, which is reserved for the change feed",
                hint="rename the column of the table",
            )
