"""The metadata tables: `bucket.table.history`, `.changes`, `.files`, `.refs` and `.nearest`, computed when read."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import FloatType, StructField, StructType

from anabranch.errors import InvalidInputError
from anabranch.format.bases import list_data_files
from anabranch.format.scan import check_nearest
from anabranch.repo.history.changes import TableFeed, change_feed
from anabranch.repo.history.table_history import TableChange
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Snapshot
from anabranch.spark.change_feed import (
    CHANGE,
    COMMIT,
    INSERT,
    FeedFollower,
    Piece,
    PinnedFeed,
    plan_pieces,
    read_pieces,
)
from anabranch.spark.gateway.requests import Request, TableName, columns_of, split_from_json, values_of
from anabranch.spark.options import FeedOptions, TableLocation
from anabranch.spark.types import as_shown, shown_columns, shown_schema, struct_from_json

_CHANGES = "changes"
_NEAREST = "nearest"
_OPTIONS = {_CHANGES: ("since", "until"), _NEAREST: ("column", "vector", "k", "where")}
# Options of a stream that do not select the changes to read.
_STREAMING = ("skipchanges", "path")
_MOST_FOLLOWERS = 64
_FOLLOWERS: dict[str, tuple[FeedFollower, PinnedFeed]] = {}
_FOLLOWERS_LOCK = Lock()
# Options that Spark itself reads, and passes on.
_TIME_TRAVEL = ("timestampasof", "versionasof")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The table that a metadata table is about, at one commit."""

    repository: Repository
    key: str
    commit: str

    @property
    def feed(self) -> TableFeed:
        return change_feed(self.repository, self.key)

    @property
    def snapshot(self) -> Snapshot:
        return self.repository.snapshot_of(self.commit)


def load_metadata(name: TableName, repository: Repository, snapshot: Snapshot) -> dict[str, Any]:
    """Return a metadata table, pinned to the commit of its table."""
    source = _Source(repository=repository, key=str(name.key), commit=snapshot.id)
    shown = _shown(source, name.metadata or "")
    return {
        "key": f"{name.key}.{name.metadata}",
        "ref": name.ref,
        "commit": snapshot.id,
        "schema": json.dumps(shown.jsonValue()),
        "metadata": {"kind": name.metadata, "key": str(name.key), "commit": snapshot.id, "branch": name.branch},
    }


def plan_metadata(request: Request) -> dict[str, Any]:
    """Return the parts of a metadata table: several for changes, else one."""
    kind, options = request["metadata"]["kind"], request["options"]
    known = _OPTIONS.get(kind, ())
    for name in options:
        if name not in (*known, *_TIME_TRAVEL):
            raise InvalidInputError(
                f"the option {name!r} is not known to the metadata table '{kind}'",
                hint=f"the options are {', '.join(known)}" if known else "leave it out",
            )
    source = _source(request)
    if kind == _NEAREST:
        # Checked on the driver: the error of a task would be inside the text of a failed job.
        column, vector, k = _parse_nearest(options)
        check_nearest(source.snapshot[source.key].version_ref, column, vector, k=k)
    if kind != _CHANGES:
        return {"splits": [{}]}
    until = options.get("until", source.commit)
    return _plan(source.feed, list(source.feed.iter_states(since=options.get("since"), until=until)))


def _plan(feed: TableFeed, changes: Sequence[TableChange]) -> dict[str, Any]:
    return {"splits": [[_piece_to_json(piece) for piece in part] for part in plan_pieces(feed, changes)]}


def read_metadata(request: Request) -> None:
    """Send the rows of one part."""
    source, kind = _source(request), request["metadata"]["kind"]
    shown = shown_columns(struct_from_json(request["schema"]))
    if kind == _CHANGES:
        feed = source.feed
        pieces = (_piece_from_json(feed, source.repository, found) for found in request["split"])
        batches: Iterator[pa.RecordBatch] = read_pieces(_feed_at(source), feed, pieces)
        # A stream of the table itself, not of its changes.
        if (mode := request.get("rows")) is not None:
            batches = _only_inserted(batches, source.key, skip_others=mode == "skip")
    elif kind == _NEAREST:
        column, vector, k = _parse_nearest(request["options"])
        where = request["options"].get("where")
        found = source.snapshot[source.key].nearest(column, vector, k=k, where=where)
        batches = iter(found.to_batches())
    else:
        schema, rows = _TABLES[kind]
        batches = iter(pa.Table.from_pylist(list(rows(source)), schema).to_batches())
    request.send_rows(as_shown(batches, shown), shown)


def _shown(source: _Source, kind: str) -> StructType:
    if kind == _CHANGES:
        return _feed_at(source).shown
    if kind == _NEAREST:
        columns = shown_schema(source.snapshot[source.key].schema)
        return StructType([*columns.fields, StructField("_distance", FloatType())])
    return shown_schema(_TABLES[kind][0])


def _only_inserted(batches: Iterator[pa.RecordBatch], key: str, *, skip_others: bool) -> Iterator[pa.RecordBatch]:
    """Yield new rows. Refuse updates and deletions, which a stream of rows cannot express, or leave them out."""
    for batch in batches:
        is_new = pc.equal(batch.column(CHANGE), INSERT)
        if not skip_others and not pc.all(is_new).as_py():
            commit = batch.filter(pc.invert(is_new)).column(COMMIT)[0].as_py()
            raise InvalidInputError(
                f"commit {commit} updates or deletes rows of '{key}', and this is a stream of new rows",
                hint=f"read {key}.changes, or set the option skipChanges to true",
            )
        yield batch.filter(is_new)


def _source(request: Request) -> _Source:
    about = request["metadata"]
    return _Source(repository=request.repository, key=about["key"], commit=about["commit"])


def _parse_nearest(options: Mapping[str, str]) -> tuple[str, list[float], int]:
    """Read the options of a vector search: the column, the vector, and the number of rows."""
    for name in ("column", "vector"):
        if name not in options:
            raise InvalidInputError(
                f"the option {name!r} of the metadata table 'nearest' is missing",
                hint="write WITH ('column' = 'v', 'vector' = '[0.1, 0.2]', 'k' = '10')",
            )
    try:
        vector = [float(number) for number in json.loads(options["vector"])]
        return options["column"], vector, int(options.get("k", "10"))
    except (TypeError, ValueError) as err:
        raise InvalidInputError(
            f"the vector {options['vector']!r} or k {options.get('k')!r} is not made of numbers",
            hint="write the vector as '[0.1, 0.2]' and k as '10'",
        ) from err


# Changes


def _feed_at(source: _Source) -> PinnedFeed:
    """Return the feed in the columns that the table has at the commit."""
    location = TableLocation(repository=source.repository.uri, key=source.key)
    return PinnedFeed.find(FeedOptions(location=location, until=source.commit), source.repository)


def begin_stream(request: Request) -> dict[str, Any]:
    """Return the first offset, and the maximum number of commits of a batch."""
    follower, pinned = _follower(request)
    return {"offset": follower.first(), "most": pinned.options.most_commits}


def find_head(request: Request) -> dict[str, Any]:
    """Return the head commit of the branch of a stream."""
    return {"commit": _follower(request)[0].head()}


def find_offset(request: Request) -> dict[str, Any]:
    """Return the next offset to read up to: the commit `until`, or the head of the branch."""
    follower, _ = _follower(request)
    until = request.get("until") or follower.head()
    return {"offset": follower.latest(request["start"], until=until, most=request.get("most"))}


def plan_stream(request: Request) -> dict[str, Any]:
    """Return the parts of the changes between two offsets."""
    follower, _ = _follower(request)
    return _plan(follower.feed, follower.changes(request["start"], request["end"]))


def _follower(request: Request) -> tuple[FeedFollower, PinnedFeed]:
    """Return the follower of the stream of a request. All batches share it, because it caches what it has searched."""
    key = json.dumps([request["repo"], request["metadata"], request["options"]], sort_keys=True)
    with _FOLLOWERS_LOCK:
        if key not in _FOLLOWERS:
            _FOLLOWERS[key] = _make_follower(request)
        # A stream that ends does not report it, so the oldest follower is dropped. If its stream still runs, it is
        # made again.
        if len(_FOLLOWERS) > _MOST_FOLLOWERS:
            _FOLLOWERS.pop(next(iter(_FOLLOWERS)))
        return _FOLLOWERS[key]


def _make_follower(request: Request) -> tuple[FeedFollower, PinnedFeed]:
    source, branch = _source(request), request["metadata"]["branch"]
    if branch is None:
        raise InvalidInputError(
            f"'{source.key}' is one state of the past, which a stream cannot follow", hint="name it on a branch"
        )
    given = {name: value for name, value in request["options"].items() if name not in _STREAMING}
    given |= {"repo": source.repository.uri, "table": source.key, "branch": branch}
    options = FeedOptions.parse(given)
    # Use the columns of the commit at which the table was loaded: the branch may have moved since.
    pinned = replace(PinnedFeed.find(options, source.repository), columns=_feed_at(source).columns)
    return FeedFollower(pinned, source.repository), pinned


def _piece_to_json(piece: Piece) -> dict[str, Any]:
    return {
        "commit": piece.change.commit.graph_commit_id,
        "split": None if piece.split is None else asdict(piece.split),
        # A stream begins with all rows of a table, as if the commit had created it.
        "has_before": piece.change.before is not None,
    }


def _piece_from_json(feed: TableFeed, repository: Repository, found: Mapping[str, Any]) -> Piece:
    commit = repository.get_commit(found["commit"])
    change = feed.state_at(commit.graph_commit_id)
    if found["has_before"] and commit.parent_commit_id is not None:
        before = feed.state_at(commit.parent_commit_id)
        change = replace(change, before=before.after)
    return Piece(change, None if found["split"] is None else split_from_json(found["split"]))


# The others


_TEXT, _LONG, _TIME = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")
_HISTORY: tuple[tuple[str, pa.DataType, Callable[[TableChange], Any]], ...] = (
    ("commit", _TEXT, lambda change: change.commit.graph_commit_id),
    ("branch", _TEXT, lambda change: change.commit.branch),
    ("version", _LONG, lambda change: change.commit.manifest_version),
    ("time", _TIME, lambda change: change.commit.created),
    ("actor", _TEXT, lambda change: change.commit.actor_id),
    ("kind", _TEXT, lambda change: str(change.commit.kind)),
    ("message", _TEXT, lambda change: change.commit.message),
    ("metadata", pa.map_(_TEXT, _TEXT), lambda change: list(change.commit.metadata.items())),
    ("parent", _TEXT, lambda change: change.commit.parent_commit_id),
    ("merged_parent", _TEXT, lambda change: change.commit.merged_parent_commit_id),
    ("rows_before", _LONG, lambda change: None if change.before is None else change.before.rows),
    ("rows_after", _LONG, lambda change: None if change.after is None else change.after.rows),
)
_REFS = pa.schema(
    dict.fromkeys(["name", "type", "commit", "version", "mode", "parent", "protected", "created", "description"], _TEXT)
    | {"version": _LONG, "protected": pa.bool_(), "created": _TIME}
)


def _history(source: _Source) -> Iterator[Mapping[str, Any]]:
    for change in reversed(list(source.feed.iter_states(since=None, until=source.commit))):
        yield {name: value_of(change) for name, _, value_of in _HISTORY}


def _files(source: _Source) -> Iterator[Mapping[str, Any]]:
    version_ref = source.snapshot[source.key].version_ref
    for file in list_data_files(version_ref.home, version_ref.version):
        yield values_of(file, "rows bytes deletions fragment", path=file.uri)


def _refs(source: _Source) -> Iterator[Mapping[str, Any]]:
    for info in source.repository.branch_list():
        about = {"type": "branch", "commit": info.head_commit_id, "protected": info.is_protected}
        yield values_of(info, "name version mode parent created description", **about)
    for tag in source.repository.tag_list():
        yield values_of(tag, "name created description", type="tag", commit=tag.commit_id)


_TABLES: Mapping[str, tuple[pa.Schema, Callable[[_Source], Iterator[Mapping[str, Any]]]]] = {
    "history": (pa.schema([(name, kind) for name, kind, _ in _HISTORY]), _history),
    "files": (columns_of("path", longs="rows bytes deletions fragment"), _files),
    "refs": (_REFS, _refs),
}
