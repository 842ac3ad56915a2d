"""What a repository knows about itself, as tables for SQL.

Each is built only when a query names it. Times are microseconds in UTC.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from anabranch.ids import BranchName
from anabranch.repo.log.times import to_datetime
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.write.homes import owns

__all__ = ["SYSTEM_TABLES"]

_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.list_(pa.string())

_BRANCHES = pa.schema(
    [
        ("name", pa.string()),
        ("mode", pa.string()),
        ("parent", pa.string()),
        ("parent_commit_id", pa.string()),
        ("head_commit_id", pa.string()),
        ("version", pa.int64()),
        ("created_at", _TIME),
        ("created_by", pa.string()),
        ("description", pa.string()),
        ("expires_at", _TIME),
    ]
)
_TABLES = pa.schema(
    [
        ("table_key", pa.string()),
        ("bucket", pa.string()),
        ("name", pa.string()),
        ("row_count", pa.int64()),
        ("primary_key", _TEXTS),
        ("dataset", pa.string()),
        ("home", pa.string()),
        ("lance_version", pa.string()),
    ]
)
_BRANCH_TABLES = pa.schema([("branch", pa.string()), *_TABLES])
_COMMITS = pa.schema(
    [
        ("commit_id", pa.string()),
        ("branch", pa.string()),
        ("version", pa.int64()),
        ("parent_commit_id", pa.string()),
        ("merged_parent_commit_id", pa.string()),
        ("actor", pa.string()),
        ("created_at", _TIME),
        ("message", pa.string()),
        ("kind", pa.string()),
        ("metadata", pa.map_(pa.string(), pa.string())),
        ("tables", _TEXTS),
    ]
)
_TAGS = pa.schema(
    [
        ("name", pa.string()),
        ("commit_id", pa.string()),
        ("created_at", _TIME),
        ("created_by", pa.string()),
        ("description", pa.string()),
    ]
)
_REFS = pa.schema([("name", pa.string()), ("kind", pa.string()), ("commit_id", pa.string())])


def _branches(repository: Repository, _: Snapshot) -> pa.Table:
    """The branches, internal ones apart."""
    infos = repository.branch_list()
    return _table(_BRANCHES, ({name: getattr(info, name) for name in _BRANCHES.names} for info in infos))


def _tables(_: Repository, snapshot: Snapshot) -> pa.Table:
    """The tables of the ref."""
    return _table(_TABLES, _rows_of(snapshot))


def _branch_tables(repository: Repository, _: Snapshot) -> pa.Table:
    """The tables that a branch has made or written itself, so that it holds its own state of them."""
    rows: list[dict[str, Any]] = []
    for info in repository.branch_list():
        branch = BranchName.parse(info.name)
        known = _rows_of(repository.snapshot_of(info.name))
        rows += ({"branch": info.name, **row} for row in known if owns(branch, row["home"]))
    return _table(_BRANCH_TABLES, rows)


def _rows_of(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        {
            "table_key": str(key),
            "bucket": key.bucket,
            "name": key.table,
            "row_count": entry.rows,
            "primary_key": entry.primary_key,
            "dataset": entry.dataset,
            "home": entry.home,
            "lance_version": str(entry.version),
        }
        for key, entry in sorted(snapshot.entries.items())
    ]


def _commits(_: Repository, snapshot: Snapshot) -> pa.Table:
    """The commits that led to the ref, newest first."""
    return _table(
        _COMMITS,
        (
            {
                "commit_id": commit.graph_commit_id,
                "branch": commit.branch,
                "version": commit.manifest_version,
                "parent_commit_id": commit.parent_commit_id,
                "merged_parent_commit_id": commit.merged_parent_commit_id,
                "actor": commit.actor_id,
                "created_at": commit.created_at,
                "message": commit.message,
                "kind": str(commit.kind),
                "metadata": list(commit.metadata.items()),
                "tables": commit.tables,
            }
            for commit in snapshot.iter_commits()
        ),
    )


def _tags(repository: Repository, _: Snapshot) -> pa.Table:
    infos = repository.tag_list()
    return _table(_TAGS, ({name: getattr(info, name) for name in _TAGS.names} for info in infos))


def _refs(repository: Repository, _: Snapshot) -> pa.Table:
    """Branches and tags in one."""
    heads = [(info.name, "branch", info.head_commit_id) for info in repository.branch_list()]
    marks = [(info.name, "tag", info.commit_id) for info in repository.tag_list()]
    return _table(_REFS, (dict(zip(_REFS.names, row, strict=True)) for row in [*heads, *marks]))


def _table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    times = [field.name for field in schema if field.type == _TIME]
    return pa.Table.from_pylist([{**row, **{name: _time(row[name]) for name in times}} for row in rows], schema)


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else to_datetime(microseconds)


SYSTEM_TABLES: Mapping[str, Callable[[Repository, Snapshot], pa.Table]] = MappingProxyType(
    {
        "branch_tables": _branch_tables,
        "branches": _branches,
        "commits": _commits,
        "refs": _refs,
        "tables": _tables,
        "tags": _tags,
    }
)
