"""The history of a branch: its commits, how it differs from main, how main has changed since, and tags of commits."""

from datetime import datetime
from itertools import islice
from typing import Annotated, Any

from fastapi import Path, Query
from fastapi.responses import JSONResponse
from pydantic import AliasPath, BaseModel, BeforeValidator, Field

from anabranch.display import to_datetime
from anabranch.ids import MAIN, CommitId, TableKey
from anabranch.json_values import json_value
from anabranch.server.auth import DEFAULT_BRANCH
from anabranch.server.request_limits import in_threads
from anabranch.server.routing import (
    Body,
    BranchToRead,
    BucketName,
    FreeText,
    Limit,
    ProjectToChange,
    ProjectToRead,
    TableName,
    make_router,
)

router = make_router("history", prefix="/projects/{project_id}/branches/{branch_id}")

# Rows are compared in this process: a request does not wait for a JVM.
_ENGINE = "local"

CommitName = Annotated[
    str,
    Path(
        min_length=26,
        max_length=26,
        # A ULID in base 32, without the letters I, L, O and U. Its 128 bits leave three for the first character.
        pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$",
        examples=["01JD0Z8M3C5S6T7V8W9X0Y1Z2A"],
    ),
]
# A time of the repository, which counts microseconds.
Timestamp = Annotated[datetime, BeforeValidator(to_datetime)]
# The name of a branch in the repository as its id in paths.
_BranchId = Annotated[str, BeforeValidator(lambda name: DEFAULT_BRANCH if name == MAIN else name)]


class Commit(BaseModel, from_attributes=True):
    """A commit of a branch."""

    id: Annotated[str, Field(validation_alias="graph_commit_id")]
    branch_id: Annotated[_BranchId, Field(validation_alias="branch")]
    parent_id: Annotated[str | None, Field(validation_alias="parent_commit_id")]
    merged_parent_id: Annotated[str | None, Field(validation_alias="merged_parent_commit_id")]
    actor: Annotated[str | None, Field(validation_alias="actor_id")]
    created_at: Timestamp
    message: str
    kind: str
    metadata: dict[str, str]
    tables: tuple[str, ...]


class CommitList(BaseModel):
    """`next` is the value of `before` for the next page, and null on the last page."""

    commits: list[Commit]
    next: str | None


class ColumnChanged(BaseModel, from_attributes=True):
    change: str
    column: str
    before: str | None
    after: str | None


# The parts of a name `bucket.table`.
_Bucket = Annotated[str, BeforeValidator(lambda key: TableKey.parse(key).bucket)]
_Table = Annotated[str, BeforeValidator(lambda key: TableKey.parse(key).table)]


class TableChange(BaseModel, from_attributes=True):
    """How a table of a branch differs from that of main. Rows are counted from main to the branch."""

    bucket: Annotated[_Bucket, Field(validation_alias="key")]
    table: Annotated[_Table, Field(validation_alias="key")]
    change: str
    columns: tuple[ColumnChanged, ...]
    rows_inserted: Annotated[int, Field(validation_alias=AliasPath("counts", "inserted"))]
    rows_updated: Annotated[int, Field(validation_alias=AliasPath("counts", "updated"))]
    rows_deleted: Annotated[int, Field(validation_alias=AliasPath("counts", "deleted"))]


class ChangeList(BaseModel):
    tables: list[TableChange]


class ChangedRow(BaseModel):
    """A row as it is on main, and as it is on the branch."""

    change: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    columns: tuple[str, ...]


class ChangedRows(BaseModel):
    rows: list[ChangedRow]
    has_more: bool


class Drift(BaseModel, from_attributes=True, coerce_numbers_to_str=True):
    """How main has changed a table since the branch copied it. Versions are those of Lance, as text."""

    bucket: Annotated[_Bucket, Field(validation_alias="table")]
    table: _Table
    has_drifted: bool
    branch_rows: int | None
    main_rows: int | None
    forked_version: str | None
    main_version: str | None


class DriftList(BaseModel):
    tables: list[Drift]


@router.get("/commits")
def list_branch_commits(
    call: BranchToRead,
    limit: Limit = 50,
    before: Annotated[str | None, Query(max_length=26, description="Only commits before this one.")] = None,
    table: Annotated[str | None, Query(max_length=300, description="Only commits of `bucket.table`.")] = None,
) -> CommitList:
    """List the commits of a branch, newest first. A dev branch includes those of main before it was created."""
    branch = call.open()
    key = None if table is None else str(TableKey.parse(table))
    if before is not None:
        # Raises if the commit is of another branch, which a token that is bound to this one must not read.
        branch.snapshot_of_commit(str(CommitId.parse(before)))
    found = branch.repository.list_commits(branch.name, limit=limit + 1, after=before, table=key)
    shown = [Commit.model_validate(commit) for commit in found[:limit]]
    return CommitList(commits=shown, next=shown[-1].id if len(found) > limit else None)


@router.get("/commits/{commit_id}")
def get_branch_commit(call: BranchToRead, commit_id: CommitName) -> Commit:
    """Return a commit, and the tables that it changed."""
    return Commit.model_validate(call.open().snapshot_of_commit(str(CommitId.parse(commit_id))).commit)


@router.get("/diff")
@in_threads("comparisons")
def diff_branch(call: BranchToRead) -> ChangeList:
    """Compare the tables of a branch with those of main, as both are now."""
    branch = call.open()
    diff = branch.repository.diff(MAIN, branch.name, engine=_ENGINE)
    return ChangeList(tables=[TableChange.model_validate(table) for table in diff.tables if not table.is_empty])


@router.get("/diff/{bucket}/{table}", response_model=ChangedRows)
@in_threads("comparisons")
def diff_table(call: BranchToRead, bucket: BucketName, table: TableName, limit: Limit = 100) -> JSONResponse:
    """List the rows of a table that differ from main, with their values on both sides."""
    branch, key = call.open(), TableKey(bucket, table)
    diff = branch.repository.diff(MAIN, branch.name, tables=[str(key)], engine=_ENGINE)
    changed = (row for table_diff in diff.tables for row in table_diff.iter_rows())
    found = list(islice(changed, limit + 1))
    # Not the response model: checking each value takes as long as reading it.
    rows = [
        {"change": row.change, "before": json_value(row.before), "after": json_value(row.after), "columns": row.columns}
        for row in found[:limit]
    ]
    return JSONResponse({"rows": rows, "has_more": len(found) > limit})


@router.get("/drift")
def get_drift(call: BranchToRead) -> DriftList:
    """List the tables that a branch has copied, and how main has changed them since."""
    branch = call.open()
    return DriftList(tables=[Drift.model_validate(found) for found in branch.repository.branch_drift(branch.name)])


tag_router = make_router("tags", prefix="/projects/{project_id}/tags")

_TAG_PATTERN = r"^[A-Za-z0-9._-]+$"
TagPath = Annotated[str, Path(pattern=_TAG_PATTERN, max_length=128, examples=["v1.0"])]


class NewTag(Body):
    """A name for a commit. By default, this is the newest commit of main."""

    name: Annotated[str, Field(pattern=_TAG_PATTERN, max_length=128, examples=["v1.0"])]
    branch_id: Annotated[str, Field(max_length=64, examples=[DEFAULT_BRANCH])] = DEFAULT_BRANCH
    ref: Annotated[str | None, Field(max_length=200, description="A commit id, another tag or a time.")] = None
    description: FreeText = ""


class Tag(BaseModel, from_attributes=True):
    """A name of a commit that does not move."""

    name: str
    commit_id: str
    description: str
    created_at: Timestamp
    created_by: str | None


class TagList(BaseModel):
    """The tags of one page. `next` is the value of `after` for the next page, null on the last one."""

    tags: list[Tag]
    next: str | None = None


@tag_router.post("", status_code=201)
def create_project_tag(call: ProjectToChange, body: NewTag) -> Tag:
    """Name a commit."""
    branch = call.service.branches.open(call.project_id, body.branch_id, call.token)
    # Through the branch, which refuses a commit of another dev branch.
    source = branch.name if body.ref is None else branch.snapshot(body.ref).id
    return Tag.model_validate(branch.repository.tag_create(body.name, ref=source, description=body.description))


@tag_router.get("")
def list_tags(
    call: ProjectToRead,
    prefix: Annotated[str | None, Query(max_length=128, description="Only tags that start with this.")] = None,
    after: Annotated[str | None, Query(max_length=128, description="Only tags after this name.")] = None,
    limit: Annotated[int | None, Query(ge=1, le=1000, description="All by default.")] = None,
) -> TagList:
    """List the tags by name."""
    found = call.open_repository().tag_list(prefix=prefix, after=after, limit=None if limit is None else limit + 1)
    shown = [Tag.model_validate(tag) for tag in found[:limit]]
    return TagList(tags=shown, next=shown[-1].name if len(found) > len(shown) else None)


@tag_router.get("/{tag}")
def get_tag(call: ProjectToRead, tag: TagPath) -> Tag:
    """Return a tag."""
    return Tag.model_validate(call.open_repository().tag_get(tag))


@tag_router.delete("/{tag}", status_code=204)
def delete_tag(call: ProjectToChange, tag: TagPath) -> None:
    """Delete a tag. Its commit stays."""
    call.open_repository().tag_delete(tag)
