"""Commits, differences from main, and drift of a branch."""

from typing import Annotated

from fastapi import Path, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from anabranch.ids import TableKey
from anabranch.server.history import (
    ChangedRow,
    Commit,
    Drift,
    TableChange,
    compare_table,
    get_commit,
    list_changes,
    list_commits,
    list_drift,
)
from anabranch.server.routing import BranchToRead, BucketName, Limit, TableName, make_router

__all__ = ["router"]

router = make_router("history", prefix="/projects/{project_id}/branches/{branch_id}")

CommitName = Annotated[
    str,
    Path(
        min_length=26,
        max_length=26,
        pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$",
        examples=["01JD0Z8M3C5S6T7V8W9X0Y1Z2A"],
    ),
]


class CommitList(BaseModel):
    """`next` is what `before` takes to go on; nothing if this is all."""

    commits: list[Commit]
    next: str | None


class ChangeList(BaseModel):
    tables: list[TableChange]


class ChangedRows(BaseModel):
    rows: list[ChangedRow]
    has_more: bool


class DriftList(BaseModel):
    tables: list[Drift]


@router.get("/commits")
def list_branch_commits(
    call: BranchToRead,
    limit: Limit = 50,
    before: Annotated[str | None, Query(max_length=26, description="Only those before this one.")] = None,
    table: Annotated[str | None, Query(max_length=300, description="Only those of `bucket.table`.")] = None,
) -> CommitList:
    """The commits of a branch, newest first; of a dev branch also main's before it."""
    key = None if table is None else TableKey.parse(table)
    found = list_commits(call.open(), limit=limit + 1, before=before, table=key)
    shown = found[:limit]
    return CommitList(commits=shown, next=shown[-1].id if len(found) > limit else None)


@router.get("/commits/{commit_id}")
def get_branch_commit(call: BranchToRead, commit_id: CommitName) -> Commit:
    """One commit, and the tables that it changed."""
    return get_commit(call.open(), commit_id)


@router.get("/diff")
def diff_branch(call: BranchToRead) -> ChangeList:
    """How the tables of a branch differ from main's, as both are now."""
    return ChangeList(tables=list_changes(call.open()))


@router.get("/diff/{bucket}/{table}", response_model=ChangedRows)
def diff_table(call: BranchToRead, bucket: BucketName, table: TableName, limit: Limit = 100) -> JSONResponse:
    """The rows of a table that differ from main's, with their values on both sides."""
    found = list(compare_table(call.open(), TableKey(bucket, table), limit=limit + 1))
    rows = [
        {"change": row.change, "before": row.before, "after": row.after, "columns": row.columns}
        for row in found[:limit]
    ]
    return JSONResponse({"rows": rows, "has_more": len(found) > limit})


@router.get("/drift")
def get_drift(call: BranchToRead) -> DriftList:
    """What main did with the tables that a branch has copied, since it did."""
    return DriftList(tables=list_drift(call.open()))
