"""Merges of branches of a project's repository: the plan, the conflicts, and the merge itself.

Dev branches are not merged over HTTP, as their specification demands. The branches that are
merged here were created by the library, the command line or Spark.
"""

from itertools import islice
from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import AliasPath, BaseModel, BeforeValidator, Field

from anabranch.errors import InvalidInputError, MergeConflictError
from anabranch.ids import MAIN
from anabranch.json_values import json_value
from anabranch.repo.merge.conflict_resolution import Strategy
from anabranch.repo.merge.conflict_types import ConflictKind
from anabranch.repo.merge.decisions import read_resolutions
from anabranch.repo.merge.plan import MergeOutcome
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess, publishing_once
from anabranch.server.branches import Branches
from anabranch.server.files import FILE_ID, Files
from anabranch.server.history import Commit
from anabranch.server.idempotency import IDEMPOTENCY_KEY, Attempt
from anabranch.server.request_limits import in_threads
from anabranch.server.routing import Body, FreeText, Limit, ProjectCall, ProjectToChange, ProjectToRead, make_router

router = make_router("merges", prefix="/projects/{project_id}/merges")

# Rows are matched in this process: a request does not wait for a JVM.
_ENGINE = "local"
_MOST_RESOLUTIONS_BYTES = 16 << 20

_Ref = Annotated[str, Field(min_length=1, max_length=200)]
_Json = Annotated[Any, BeforeValidator(json_value)]


class Resolution(Body):
    """A decision on a conflict. The fields of a listed conflict are accepted, so that it can be sent back with `take`.

    With `base`, `source` or `target` it applies only while these have the same values.
    """

    table: Annotated[str, Field(max_length=300, examples=["in_c_sales.orders"])]
    key: Annotated[dict[str, Any] | None, Field(examples=[{"id": 2}])] = None
    column: Annotated[str | None, Field(max_length=256, examples=["amount"])] = None
    path: Annotated[str | None, Field(max_length=1000)] = None
    take: Annotated[str | None, Field(max_length=10, examples=["source"])] = None
    value: Any = None
    base: Any = None
    source: Any = None
    target: Any = None
    kind: ConflictKind | None = None
    problem: str | None = None
    hint: str | None = None
    decision: dict[str, Any] | None = None


class MergeQuestion(Body):
    """Two branches of a project, and how conflicts between them are decided. Dev branches are refused."""

    source: Annotated[_Ref, Field(description="A branch, a tag or a commit of the repository.", examples=["reviewed"])]
    into: Annotated[_Ref, Field(description="The branch to merge into, by its name in the repository.")] = MAIN
    strategy: Annotated[Strategy, Field(description="Decides what nothing else decides.")] = Strategy.FAIL
    resolvers: Annotated[
        dict[str, str],
        Field(max_length=1000, description="Rules by column or table.", examples=[{"in_c_sales.orders.amount": "max"}]),
    ] = Field(default_factory=dict)
    resolutions: Annotated[list[Resolution], Field(max_length=100_000, description="Decisions on conflicts.")] = Field(
        default_factory=list
    )
    resolutions_file_id: Annotated[
        str | None,
        Field(pattern=FILE_ID, max_length=64, description="An uploaded CSV or JSON file with more resolutions."),
    ] = None


class MergeOrder(MergeQuestion):
    """A merge to publish, as one commit."""

    message: FreeText | None = None
    metadata: Annotated[dict[str, str], Field(max_length=50, description="Metadata of the commit.")] = Field(
        default_factory=dict
    )
    expected_head: Annotated[
        str | None, Field(max_length=26, description="Refuse if the branch is not on this commit any more.")
    ] = None
    expected_source: Annotated[
        str | None,
        Field(
            max_length=26,
            description="Refuse if the source is not on this commit any more, such as `source_commit_id` of a plan.",
        ),
    ] = None
    squash: Annotated[bool, Field(description="Leave the history of the source out.")] = False
    ff_only: Annotated[bool, Field(description="Refuse if the branch has commits that the source has not.")] = False
    keep_decisions: Annotated[
        bool, Field(description="If nothing is merged, keep the resolutions for the next merge of these branches.")
    ] = False


class MergeConflict(BaseModel, from_attributes=True):
    """A conflict with the values of the base, the source and the target. See the page Merging for its fields."""

    table: str
    kind: ConflictKind
    key: _Json
    column: str | None
    path: str | None
    base: _Json
    source: _Json
    target: _Json
    problem: str
    hint: str


class ConflictPage(BaseModel):
    """The conflicts of one page. `next` is the value of `offset` for the next page, null on the last one."""

    conflicts: list[MergeConflict]
    next: int | None


class PlannedTable(BaseModel, from_attributes=True):
    """What a merge changes in a table. `taken_from` is the side that the whole table is taken from, if any."""

    table: str
    action: str
    renamed_from: str | None
    taken_from: str | None
    rows_inserted: Annotated[int, Field(validation_alias=AliasPath("counts", "inserted"))]
    rows_updated: Annotated[int, Field(validation_alias=AliasPath("counts", "updated"))]
    rows_deleted: Annotated[int, Field(validation_alias=AliasPath("counts", "deleted"))]
    added_columns: tuple[str, ...]
    dropped_columns: tuple[str, ...]
    altered_columns: tuple[str, ...]
    built_indices: tuple[str, ...]
    dropped_indices: tuple[str, ...]
    wanted_indices: tuple[str, ...]
    conflicts: int


class Gap(BaseModel, from_attributes=True):
    """Conflicts of a table that the strategy does not decide, and what to do instead."""

    table: str
    conflicts: int
    hint: str


class Plan(BaseModel, from_attributes=True):
    """A merge before it is published. `conflicts` are the first ones of `conflict_count`."""

    source: str
    into: str
    outcome: MergeOutcome
    source_commit_id: str
    target_commit_id: str
    base_commit_ids: tuple[str, ...]
    tables: tuple[PlannedTable, ...]
    conflict_count: int
    conflicts: tuple[MergeConflict, ...]
    strategy_gaps: tuple[Gap, ...]


class Merged(BaseModel):
    """A merge. `commit` is null if there was nothing to do.

    `plan` is null if the service stopped after the commit and the request was sent again with its key.
    """

    commit: Commit | None
    plan: Plan | None


@router.post("/plan")
@in_threads("comparisons")
def plan_merge(call: ProjectToRead, body: MergeQuestion) -> Plan:
    """Return what a merge would change, and its conflicts. Nothing is changed."""
    result = _open(call, body).merge(body.source, body.into, dry_run=True, **_decisions(call, body))
    return Plan.model_validate(result.plan)


@router.post("/conflicts")
@in_threads("comparisons")
def list_merge_conflicts(
    call: ProjectToRead,
    body: MergeQuestion,
    limit: Limit = 100,
    offset: Annotated[int, Query(ge=0, le=1_000_000_000, description="Number of conflicts to skip.")] = 0,
) -> ConflictPage:
    """List the conflicts of a merge that are not decided. Nothing is changed."""
    found = _open(call, body).conflicts(body.source, body.into, **_decisions(call, body))
    page = list(islice(found, offset, offset + limit + 1))
    shown = [MergeConflict.model_validate(conflict) for conflict in page[:limit]]
    return ConflictPage(conflicts=shown, next=offset + limit if len(page) > limit else None)


@router.post("")
def merge_branches(call: ProjectToChange, body: MergeOrder, request: Request) -> Merged:
    """Merge a branch into another one as one commit. If conflicts are left, nothing changes."""
    repository = _open(call, body)
    attempt: Attempt | None = getattr(request.state, "attempt", None)
    # The branch is in the body and not in the path, so the search for an earlier attempt is made here.
    made = None if attempt is None else attempt.find_commit(repository, body.into)
    if made is not None:
        return Merged(commit=Commit.model_validate(made), plan=None)
    # A put of an earlier attempt that timed out may still arrive. Then publishing finds it and changes nothing.
    handle = publishing_once(repository, None if attempt is None else attempt.once(body.into))
    metadata = {**body.metadata, "token_id": call.token.id}
    if attempt is not None:
        metadata[IDEMPOTENCY_KEY] = attempt.digest
    try:
        result = handle.merge(
            body.source,
            body.into,
            message=body.message,
            metadata=metadata,
            expected_head=body.expected_head,
            expected_source=body.expected_source,
            squash=body.squash,
            ff_only=body.ff_only,
            keep_decisions=body.keep_decisions,
            **_decisions(call, body),
        )
    except MergeConflictError as err:
        shown = [MergeConflict.model_validate(conflict).model_dump(mode="json") for conflict in err.conflicts]
        err.details = {**err.details, "conflict_count": err.count, "conflicts": shown}
        err.hint = "list them with /merges/conflicts, then send a strategy, resolvers or resolutions"
        raise
    commit = None if result.commit is None else Commit.model_validate(result.commit)
    return Merged(commit=commit, plan=Plan.model_validate(result.plan))


def _open(call: ProjectCall, body: MergeQuestion) -> Repository:
    """Return the repository of a project. Raise InvalidInputError if one of the sides is a dev branch."""
    repository = call.open_repository()
    refuse_dev_branches(call.part(Branches), call.project_id, repository, source=body.source, into=body.into)
    return repository


def refuse_dev_branches(branches: Branches, project_id: str, repository: Repository, *, source: str, into: str) -> None:
    """Raise InvalidInputError if a side of a merge is a dev branch, or a commit or a tag of one."""
    made_on = EngineAccess(repository).published_snapshot_of(source).commit.branch
    for name in (source, made_on, into):
        if branches.is_dev_branch(project_id, name):
            raise InvalidInputError(
                f"'{name}' is a dev branch, and these are not merged by the service",
                hint="export its tables, or merge it with the library or the command line",
            )


def _decisions(call: ProjectCall, body: MergeQuestion) -> dict[str, Any]:
    # A field that was not sent differs from null: `base: null` demands that the base is null.
    given = [resolution.model_dump(mode="json", exclude_unset=True) for resolution in body.resolutions]
    if body.resolutions_file_id is not None:
        given += _read_file(call, body.resolutions_file_id)
    return {"strategy": body.strategy, "resolvers": body.resolvers, "resolutions": given, "engine": _ENGINE}


def _read_file(call: ProjectCall, file_id: str) -> list[dict[str, Any]]:
    upload = call.part(Files).get(call.project_id, file_id)
    # The file is read into memory at once, and the size of a compressed file does not bound its content.
    if upload.path.suffix in (".gz", ".zst") or upload.size_bytes > _MOST_RESOLUTIONS_BYTES:
        raise InvalidInputError(
            f"the file {upload.name!r} is compressed or has more than {_MOST_RESOLUTIONS_BYTES} bytes",
            hint="upload a smaller file without compression",
        )
    return read_resolutions(upload.path.read_bytes(), name=upload.name)
