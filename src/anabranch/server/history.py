"""What happened to a branch: its commits, tags, how it differs from main, and what main did meanwhile."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from anabranch.errors import CommitNotFoundError
from anabranch.ids import MAIN, CommitId, TableKey
from anabranch.json_values import json_value
from anabranch.repo.history.diff import RowChange, TableDiff
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.refs.tags import TagInfo
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.write.pull import TableDrift
from anabranch.server.access import DEFAULT_BRANCH
from anabranch.server.branches import OpenBranch, moment
from anabranch.server.reading import is_visible, snapshot_at

__all__ = [
    "ChangedRow",
    "Commit",
    "Drift",
    "Tag",
    "TableChange",
    "compare_table",
    "create_tag",
    "get_commit",
    "list_changes",
    "list_commits",
    "list_drift",
    "tag_of",
]

# Rows are compared in this process: a request does not wait for a JVM.
_ENGINE = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One step of a branch."""

    id: str
    branch_id: str
    parent_id: str | None
    merged_parent_id: str | None
    actor: str | None
    created_at: datetime
    message: str
    kind: str
    metadata: dict[str, str]
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A commit by a name that does not move."""

    name: str
    commit_id: str
    description: str
    created_at: datetime
    created_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChanged:
    change: str
    column: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """How a table of a branch differs from main's; rows are counted as from main to the branch."""

    bucket: str
    table: str
    change: str
    columns: tuple[ColumnChanged, ...]
    rows_inserted: int
    rows_updated: int
    rows_deleted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """A row as main has it, and as the branch does."""

    change: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What main did with a table since a branch copied it; versions are Lance's, as text."""

    bucket: str
    table: str
    has_drifted: bool
    branch_rows: int | None
    main_rows: int | None
    forked_version: str | None
    main_version: str | None


def list_commits(branch: OpenBranch, *, limit: int, before: str | None, table: TableKey | None) -> list[Commit]:
    """The newest first; of a dev branch also main's, from where the branch was made."""
    if before is not None:
        get_commit(branch, before)
    found = branch.repository.list_commits(
        branch.name, limit=limit, before=before, table=None if table is None else str(table)
    )
    return [_commit(commit) for commit in found]


def get_commit(branch: OpenBranch, commit_id: str) -> Commit:
    """A commit of the branch, or of main."""
    found = EngineAccess(branch.repository).published_snapshot_of(str(CommitId.parse(commit_id))).commit
    if not is_visible(branch, found):
        raise CommitNotFoundError(f"commit {commit_id} was made on another branch", hint="list this branch's commits")
    return _commit(found)


def list_changes(branch: OpenBranch) -> list[TableChange]:
    """How each table that differs does so."""
    diff = branch.repository.diff(MAIN, branch.name, engine=_ENGINE)
    return [_table_change(table) for table in diff.tables if not table.is_empty]


def compare_table(branch: OpenBranch, key: TableKey, *, limit: int) -> Iterator[ChangedRow]:
    """The first rows of a table that differ."""
    diff = branch.repository.diff(MAIN, branch.name, tables=[str(key)], engine=_ENGINE)
    for table in diff.tables:
        for row in islice(table.iter_rows(), limit):
            yield _changed_row(row)


def list_drift(branch: OpenBranch) -> list[Drift]:
    return [_drift(found) for found in branch.repository.branch_drift(branch.name)]


def create_tag(branch: OpenBranch, name: str, *, ref: str | None, description: str) -> Tag:
    """Name the newest commit of a branch, or the one that it was at."""
    source = branch.name if ref is None else snapshot_at(branch, ref).id
    return tag_of(branch.repository.tag_create(name, ref=source, description=description))


def tag_of(tag: TagInfo) -> Tag:
    return Tag(
        name=tag.name,
        commit_id=tag.commit_id,
        description=tag.description,
        created_at=moment(tag.created_at),
        created_by=tag.created_by,
    )


def _commit(commit: GraphCommit) -> Commit:
    return Commit(
        id=commit.graph_commit_id,
        branch_id=DEFAULT_BRANCH if commit.branch == MAIN else commit.branch,
        parent_id=commit.parent_commit_id,
        merged_parent_id=commit.merged_parent_commit_id,
        actor=commit.actor_id,
        created_at=moment(commit.created_at),
        message=commit.message,
        kind=str(commit.kind),
        metadata=dict(commit.metadata),
        tables=commit.tables,
    )


def _table_change(diff: TableDiff) -> TableChange:
    key, counts = TableKey.parse(diff.key), diff.counts
    return TableChange(
        bucket=key.bucket,
        table=key.table,
        change=str(diff.change),
        columns=tuple(
            ColumnChanged(change=one.change, column=one.column, before=one.before, after=one.after)
            for one in diff.columns
        ),
        rows_inserted=counts.inserted,
        rows_updated=counts.updated,
        rows_deleted=counts.deleted,
    )


def _changed_row(row: RowChange) -> ChangedRow:
    return ChangedRow(
        change=str(row.change),
        before=None if row.before is None else json_value(row.before),
        after=None if row.after is None else json_value(row.after),
        columns=row.columns,
    )


def _drift(found: TableDrift) -> Drift:
    key = TableKey.parse(found.table)
    return Drift(
        bucket=key.bucket,
        table=key.table,
        has_drifted=found.has_drifted,
        branch_rows=found.branch_rows,
        main_rows=found.main_rows,
        forked_version=None if found.forked_version is None else str(found.forked_version),
        main_version=None if found.main_version is None else str(found.main_version),
    )
