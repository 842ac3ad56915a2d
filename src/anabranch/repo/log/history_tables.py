"""The history tables: the commits as Lance tables, for SQL and Spark. They are derived from the logs.

They may be a few commits behind the logs. `sync_history` adds the missing commits, `rebuild_history` writes all of
them again. No operation depends on these tables.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import AnabranchError, BusyError, CorruptError
from anabranch.format.home import Home
from anabranch.format.plain_tables import add_rows, find_newest, make_table, remove_table, replace_rows
from anabranch.format.scan import read_table
from anabranch.format.staging import VersionRef
from anabranch.ids import MAIN
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import GraphCommit, LogEntry
from anabranch.repo.log.repo_store import RepoStore

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
# The tables are updated after the first commit of main, its second entry, and then every `INTERVAL` entries of a
# branch. Not after the first entry of each branch: that costs more than a fork of a table, and most are short.
FIRST = 2
INTERVAL = 32
_MAX_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTables:
    """The URIs of the history tables, and how many commits were added. Without actors there is only one table."""

    commits_uri: str
    actors_uri: str | None
    added: int


def follow_history(repo_store: RepoStore, published: LogEntry) -> None:
    """Add the commits of a branch to the tables. If that fails, a later call adds them."""
    # The commit is published, so an error of a derived table must not reach its writer.
    with suppress(AnabranchError):
        _until_done(repo_store, lambda repo_store: _sync(repo_store, [published]))


def sync_history(repo_store: RepoStore) -> HistoryTables:
    """Add every commit that the tables do not have yet, including those of deleted branches."""
    return _until_done(repo_store, _sync)


def rebuild_history(repo_store: RepoStore) -> HistoryTables:
    """Replace the content of the tables by all commits of the logs."""
    return _until_done(repo_store, _rebuild)


def _rebuild(repo_store: RepoStore) -> int | None:
    """Replace the content of the tables. Return the number of commits, or None if another process wrote first."""
    # Read the versions of the tables before the logs: if another process adds newer commits, the replace fails.
    commits_at = _find_readable(repo_store.config, _COMMITS)
    actors_at = _find_readable(repo_store.config, _ACTORS)
    commits = _list_missing(repo_store, repo_store.heads.list(), recorded={})
    actors = _actors_of(commits)
    if commits_at is None or (actors_at is None and len(actors)):
        _open(repo_store.config, _COMMITS, _COMMITS_SCHEMA)
        if len(actors):
            _open(repo_store.config, _ACTORS, _ACTORS_SCHEMA)
        return None  # try again: another process may have added rows already
    # Write the actors first, so that every commit in the table has its actor.
    done = (actors_at is None or replace_rows(actors_at, actors)) and replace_rows(commits_at, _rows_of(commits))
    return len(commits) if done else None


def _sync(repo_store: RepoStore, heads: Sequence[LogEntry] | None = None) -> int | None:
    """Add the missing commits of some branches, or of all. Return None if another process was faster."""
    version_ref = _open(repo_store.config, _COMMITS, _COMMITS_SCHEMA)
    heads = repo_store.heads.list() if heads is None else heads
    missing = _list_missing(repo_store, heads, recorded=_newest_recorded(version_ref))
    # Write the actors first, so that every commit in the table has its actor.
    done = _add_actors(repo_store.config, _actors_of(missing)) and add_rows(version_ref, _rows_of(missing))
    return len(missing) if done else None


def _until_done(repo_store: RepoStore, attempt: Callable[[RepoStore], int | None]) -> HistoryTables:
    config = repo_store.config
    for losses in range(1, _MAX_ATTEMPTS + 1):
        began = config.clock()
        if (added := attempt(repo_store)) is not None:
            actors = find_newest(config.home_at(_ACTORS))
            return HistoryTables(
                commits_uri=config.home_at(_COMMITS).uri,
                actors_uri=None if actors is None else actors.home.uri,
                added=added,
            )
        config.give_way(losses, config.clock() - began)
    problem = f"other processes changed the history tables of {config.root!r} during all {_MAX_ATTEMPTS} attempts"
    raise BusyError(problem, hint="try again")


def history_homes(config: RepoConfig) -> Iterator[tuple[str, Home]]:
    """Yield the history tables that exist, with the names of their folders."""
    for name in HISTORY_TABLES:
        if find_newest(config.home_at(name)) is not None:
            yield name, config.home_at(name)


def _open(config: RepoConfig, name: str, schema: pa.Schema) -> VersionRef:
    home = config.home_at(name)
    return find_newest(home) or make_table(home, schema)


def _find_readable(config: RepoConfig, name: str) -> VersionRef | None:
    """Return the table, or None if it does not exist. Delete it if it is damaged."""
    home = config.home_at(name)
    try:
        return find_newest(home)
    except CorruptError:
        # The table is derived from the logs, so nothing is lost. If it stayed damaged, every later call would fail.
        remove_table(home)
        return None


def _add_actors(config: RepoConfig, actors: pa.Table) -> bool:
    if not len(actors):
        return True
    version_ref = _open(config, _ACTORS, _ACTORS_SCHEMA)
    # A process that died between the two tables has left actors without commits, so some may be recorded already.
    recorded = read_table(version_ref, columns=["graph_commit_id"]).column("graph_commit_id").combine_chunks()
    is_new = pc.invert(pc.is_in(actors.column("graph_commit_id"), value_set=recorded))
    return add_rows(version_ref, actors.filter(is_new))


def _newest_recorded(version_ref: VersionRef) -> dict[str, int]:
    """Return the newest version of each branch in the table. All older versions are in it, too."""
    found = read_table(version_ref, columns=["manifest_branch", "manifest_version"])
    newest = found.group_by("manifest_branch").aggregate([("manifest_version", "max")])
    # The maximum is enough: each append adds all commits of a branch up to its head, in one version of the table.
    return {row["manifest_branch"] or MAIN: row["manifest_version_max"] for row in newest.to_pylist()}


def _list_missing(
    repo_store: RepoStore, heads: Iterable[LogEntry], *, recorded: Mapping[str, int]
) -> list[GraphCommit]:
    found = [
        commit for head in heads for commit in repo_store.commits_since(head, version=recorded.get(str(head.branch), 0))
    ]
    return sorted(found, key=lambda commit: (commit.created_at, commit.graph_commit_id))


def history_row(commit: GraphCommit) -> dict[str, Any]:
    """Return the row of a commit in the table of commits."""
    return {name: getattr(commit, name) for name in _COMMITS_SCHEMA.names} | {"kind": commit.kind.value}


def read_history(config: RepoConfig) -> tuple[pa.Table | None, pa.Table | None]:
    """Return the tables of commits and of actors, or None for a table that does not exist."""
    found = [find_newest(config.home_at(name)) for name in HISTORY_TABLES]
    commits, actors = (None if version_ref is None else read_table(version_ref) for version_ref in found)
    return commits, actors


def _rows_of(commits: Sequence[GraphCommit]) -> pa.Table:
    return pa.Table.from_pylist([history_row(commit) for commit in commits], schema=_COMMITS_SCHEMA)


def _actors_of(commits: Sequence[GraphCommit]) -> pa.Table:
    named = [commit for commit in commits if commit.actor_id is not None]
    ids, actors = [commit.graph_commit_id for commit in named], [commit.actor_id for commit in named]
    return pa.table([ids, actors], schema=_ACTORS_SCHEMA)
