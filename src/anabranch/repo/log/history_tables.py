"""The commits as Lance tables, for SQL and Spark: read from the logs, never read by anything here.

They follow the logs a few commits behind; `sync_history` closes the gap, and `rebuild_history` makes them anew.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import AnabranchError, BusyError, CorruptError
from anabranch.format.home import Home
from anabranch.format.projection import add_rows, find_newest, make_table, remove_table, replace_rows
from anabranch.format.scan import read_table
from anabranch.format.staging import Pin
from anabranch.ids import MAIN
from anabranch.repo.log import codec
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import GraphCommit, LogEntry
from anabranch.repo.log.store import RepoStore
from anabranch.storage import documents

__all__ = [
    "HISTORY_TABLES",
    "HistoryTables",
    "commits_since",
    "follow_history",
    "history_row",
    "read_history",
    "rebuild_history",
    "sync_history",
    "COMMIT_COLUMNS",
    "ACTOR_COLUMNS",
]

_COMMITS = "_graph_commits.lance"
_ACTORS = "_graph_commit_actors.lance"
HISTORY_TABLES = (_COMMITS, _ACTORS)
_COMMITS_SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("manifest_branch", pa.string()),
        pa.field("manifest_version", pa.int64(), nullable=False),
        pa.field("parent_commit_id", pa.string()),
        pa.field("merged_parent_commit_id", pa.string()),
        pa.field("created_at", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
    ]
)
_ACTORS_SCHEMA = pa.schema(
    [pa.field("graph_commit_id", pa.string(), nullable=False), pa.field("actor_id", pa.string(), nullable=False)]
)
COMMIT_COLUMNS = tuple(_COMMITS_SCHEMA.names)
ACTOR_COLUMNS = tuple(_ACTORS_SCHEMA.names)
# The tables follow after main's first commit, its second entry, and then after so many entries of any branch. Not after
# each branch's first: to write them costs more than to fork a table, and most branches are short.
_FIRST = 2
_EVERY = 32
_MAX_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTables:
    """Where the tables are, and how many commits were put into them just now. Without actors there is one table."""

    commits_uri: str
    actors_uri: str | None
    added: int


def follow_history(records: RepoStore, published: LogEntry) -> None:
    """Bring the tables up to date with a branch once in a while; a failure is left to the next who comes by."""
    is_very_first = str(published.branch) == MAIN and published.number == _FIRST
    if not is_very_first and published.number % _EVERY:
        return
    try:
        _until_done(records, lambda records: _sync(records, [published]))
    except AnabranchError:
        return


def sync_history(records: RepoStore) -> HistoryTables:
    """Add every commit that the tables do not have yet, those of deleted branches too."""
    return _until_done(records, _sync)


def rebuild_history(records: RepoStore) -> HistoryTables:
    """Make the tables anew from the logs, whatever they hold now."""
    return _until_done(records, _rebuild)


def _rebuild(records: RepoStore) -> int | None:
    # The versions are read before the logs: who adds what the logs had not yet said makes this attempt fail.
    commits_at = _find_sound(records.context, _COMMITS)
    actors_at = _find_sound(records.context, _ACTORS)
    commits = _list_missing(records, records.heads.list(), recorded={})
    actors = _actors_of(commits)
    if commits_at is None or (actors_at is None and len(actors)):
        _open(records.context, _COMMITS, _COMMITS_SCHEMA)
        if len(actors):
            _open(records.context, _ACTORS, _ACTORS_SCHEMA)
        return None  # somebody may have filled them already
    # Actors come first, so that a commit that is there has its actor.
    done = (actors_at is None or replace_rows(actors_at, actors)) and replace_rows(commits_at, _rows_of(commits))
    return len(commits) if done else None


def _sync(records: RepoStore, heads: Sequence[LogEntry] | None = None) -> int | None:
    """Add what is missing of some branches, or of all; None if somebody else was faster."""
    pin = _open(records.context, _COMMITS, _COMMITS_SCHEMA)
    missing = _list_missing(records, records.heads.list() if heads is None else heads, recorded=_newest_recorded(pin))
    # Actors come first, so that a commit that is there has its actor.
    done = _add_actors(records.context, _actors_of(missing)) and add_rows(pin, _rows_of(missing))
    return len(missing) if done else None


def _until_done(records: RepoStore, attempt: Callable[[RepoStore], int | None]) -> HistoryTables:
    context = records.context
    for losses in range(1, _MAX_ATTEMPTS + 1):
        began = context.clock()
        if (added := attempt(records)) is not None:
            actors = find_newest(_home(context, _ACTORS))
            return HistoryTables(
                commits_uri=_home(context, _COMMITS).uri,
                actors_uri=None if actors is None else actors.home.uri,
                added=added,
            )
        context.give_way(losses, context.clock() - began)
    raise BusyError(f"others wrote the history tables of {context.root!r} all the time", hint="try again")


def history_homes(context: RepoConfig) -> Iterator[tuple[str, Home]]:
    """The tables that exist, by the names of their folders."""
    for name in (_COMMITS, _ACTORS):
        if find_newest(_home(context, name)) is not None:
            yield name, _home(context, name)


def _home(context: RepoConfig, name: str) -> Home:
    return context.home_at(name)


def _open(context: RepoConfig, name: str, schema: pa.Schema) -> Pin:
    home = _home(context, name)
    return find_newest(home) or make_table(home, schema)


def _find_sound(context: RepoConfig, name: str) -> Pin | None:
    """The table, if there is one; one that is damaged is removed."""
    home = _home(context, name)
    try:
        return find_newest(home)
    except CorruptError:
        remove_table(home)
        return None


def _add_actors(context: RepoConfig, actors: pa.Table) -> bool:
    if not len(actors):
        return True
    pin = _open(context, _ACTORS, _ACTORS_SCHEMA)
    # Whoever dies between the two tables leaves actors without commits.
    recorded = read_table(pin, columns=["graph_commit_id"]).column("graph_commit_id").combine_chunks()
    is_new = pc.invert(pc.is_in(actors.column("graph_commit_id"), value_set=recorded))
    return add_rows(pin, actors.filter(is_new))


def _newest_recorded(pin: Pin) -> dict[str, int]:
    """The newest version of each branch that the table has: what is older is there, too."""
    found = read_table(pin, columns=["manifest_branch", "manifest_version"])
    newest = found.group_by("manifest_branch").aggregate([("manifest_version", "max")])
    return {row["manifest_branch"] or MAIN: row["manifest_version_max"] for row in newest.to_pylist()}


def _list_missing(records: RepoStore, heads: Iterable[LogEntry], *, recorded: Mapping[str, int]) -> list[GraphCommit]:
    found = [
        commit for head in heads for commit in commits_since(records, head, version=recorded.get(str(head.branch), 0))
    ]
    return sorted(found, key=lambda commit: (commit.created_at, commit.graph_commit_id))


def commits_since(records: RepoStore, head: LogEntry, *, version: int) -> Iterator[GraphCommit]:
    """The commits made on a branch after a version of it.

    An entry names the commits before it, so that few entries are read; but a reset leaves those behind that it took
    back, so that every number has to be accounted for.
    """
    numbers: set[int] = set()
    found: dict[str, GraphCommit] = {}
    for number in range(head.number, version, -1):
        if number in numbers:
            continue
        entry = head if number == head.number else records.heads.get_numbered(head.branch, number)
        with documents.damage_named(records.context.branch_log(head.branch).path(number)):
            named = [entry.head.commit, *codec.iter_summaries(entry.head)]
        if named[-1].manifest_version == number:  # a rebase makes many at once, perhaps more than an entry names
            made = records.commits.iter_history(entry.head)
            named += takewhile(lambda commit: commit.manifest_version == number, made)  # noqa: B023 - used at once
        own = [commit for commit in named if commit.branch == str(head.branch)]
        numbers.update(commit.manifest_version for commit in own)
        found.update((commit.graph_commit_id, commit) for commit in own)
    return (commit for commit in found.values() if commit.manifest_version > version)


def history_row(commit: GraphCommit) -> dict[str, Any]:
    """What the table of commits holds of one."""
    return {name: getattr(commit, name) for name in _COMMITS_SCHEMA.names} | {"kind": commit.kind.value}


def read_history(context: RepoConfig) -> tuple[pa.Table | None, pa.Table | None]:
    """The tables of commits and of their actors as they are now; None for one that is not there."""
    found = [find_newest(_home(context, name)) for name in (_COMMITS, _ACTORS)]
    commits, actors = (None if pin is None else read_table(pin) for pin in found)
    return commits, actors


def _rows_of(commits: Sequence[GraphCommit]) -> pa.Table:
    return pa.Table.from_pylist([history_row(commit) for commit in commits], schema=_COMMITS_SCHEMA)


def _actors_of(commits: Sequence[GraphCommit]) -> pa.Table:
    named = [commit for commit in commits if commit.actor_id is not None]
    ids, actors = [commit.graph_commit_id for commit in named], [commit.actor_id for commit in named]
    return pa.table([ids, actors], schema=_ACTORS_SCHEMA)
