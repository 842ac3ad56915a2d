"""What routes get: their parameters, and the call with the token of the request and the scope that it needs."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Path, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from anabranch.server.auth import Needs, Scope, Token
from anabranch.server.idempotency import Attempt
from anabranch.server.open_branch import OpenBranch
from anabranch.server.settings import Settings

__all__ = [
    "Body",
    "BranchCall",
    "BranchId",
    "BranchToChange",
    "BranchToRead",
    "BucketName",
    "Call",
    "ColumnName",
    "ForAdmin",
    "ForAnyone",
    "FreeName",
    "FreeText",
    "Limit",
    "ProjectCall",
    "ProjectId",
    "ProjectToBranch",
    "ProjectToChange",
    "ProjectToEnd",
    "ProjectToRead",
    "RefQuery",
    "TableName",
    "get_service",
]

_PART = r"^[A-Za-z0-9_][A-Za-z0-9_-]*$"

_Part = TypeVar("_Part")


class _Projects(Protocol):
    def get(self, project_id: str) -> object: ...
    def in_use(self, project_id: str) -> AbstractContextManager[None]: ...


class _Branches(Protocol):
    def get(self, project_id: str, branch_id: str) -> object: ...
    def open(self, project_id: str, branch_id: str, token: Token) -> OpenBranch: ...
    def require_there(self, project_id: str, branch_id: str) -> None: ...


class ServiceParts(Protocol):
    """The service as routes see it.

    The modules of the nouns import this one, so it cannot import their classes. Routes get the instance of a class
    with `part`.
    """

    settings: Settings
    clock: Callable[[], datetime]
    projects: _Projects
    branches: _Branches
    audit: Any

    def part(self, kind: type[_Part]) -> _Part: ...


def get_service(request: Request) -> ServiceParts:
    service: ServiceParts = request.app.state.service
    return service


ProjectId = Annotated[str, Path(pattern=_PART, max_length=64, description="The project.", examples=["123"])]
BranchId = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9_-]+$",
        max_length=64,
        description="The id of a dev branch, or `default` for main.",
        examples=["default"],
    ),
]
BucketName = Annotated[str, Path(pattern=_PART, max_length=128, examples=["in_c_sales"])]
TableName = Annotated[str, Path(pattern=_PART, max_length=128, examples=["orders"])]
ColumnName = Annotated[str, Path(min_length=1, max_length=256, examples=["amount"])]
RefQuery = Annotated[
    str | None,
    Query(
        max_length=200,
        description="Read as of a commit id, a tag or a time, such as `2026-11-15T10:00:00Z`.",
        examples=["2026-11-15T10:00:00Z"],
    ),
]

Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")]


def _one_line(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("must be one line of printable characters, without space around it")
    return text


FreeName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=128),
    AfterValidator(_one_line),
    Field(examples=["feature-new-report"]),
]
FreeText = Annotated[str, StringConstraints(max_length=4000), Field(examples=["Testing new report logic"])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The token of a request, and the service."""

    service: ServiceParts
    token: Token

    def part(self, kind: type[_Part]) -> _Part:
        """Return the part of the service of a class."""
        return self.service.part(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectCall(Call):
    """A request about a project."""

    project_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchCall(ProjectCall):
    """A request about a branch of a project."""

    branch_id: str
    attempt: Attempt | None = None

    def open(self) -> OpenBranch:
        return replace(self.service.branches.open(self.project_id, self.branch_id, self.token), attempt=self.attempt)


def _for_service(scope: Scope) -> Any:
    async def call(request: Request, token: Annotated[Token, Depends(Needs(scope))]) -> Call:
        return Call(service=get_service(request), token=token)

    return Depends(call)


def _for_project(scope: Scope) -> Any:
    async def call(
        request: Request, token: Annotated[Token, Depends(Needs(scope))], project_id: ProjectId
    ) -> AsyncIterator[ProjectCall]:
        service = get_service(request)
        with service.projects.in_use(project_id):
            yield ProjectCall(service=service, token=token, project_id=project_id)

    return Depends(call)


def _for_branch(scope: Scope) -> Any:
    async def call(
        request: Request,
        token: Annotated[Token, Depends(Needs(scope))],
        project_id: ProjectId,
        branch_id: BranchId,
    ) -> AsyncIterator[BranchCall]:
        service = get_service(request)
        with service.projects.in_use(project_id):
            yield BranchCall(
                service=service,
                token=token,
                project_id=project_id,
                branch_id=branch_id,
                attempt=getattr(request.state, "attempt", None),
            )

    return Depends(call)


# Without `in_use`: a deletion waits until no request uses the project, and would wait for itself.
async def _to_end(
    request: Request, token: Annotated[Token, Depends(Needs(Scope.ADMIN))], project_id: ProjectId
) -> ProjectCall:
    return ProjectCall(service=get_service(request), token=token, project_id=project_id)


# The first argument of a route states the scope that it needs.
ForAdmin = Annotated[Call, _for_service(Scope.ADMIN)]
ForAnyone = Annotated[Call, _for_service(Scope.READ)]
ProjectToEnd = Annotated[ProjectCall, Depends(_to_end)]
ProjectToChange = Annotated[ProjectCall, _for_project(Scope.PROJECT)]
ProjectToBranch = Annotated[ProjectCall, _for_project(Scope.BRANCH)]
ProjectToRead = Annotated[ProjectCall, _for_project(Scope.READ)]
BranchToChange = Annotated[BranchCall, _for_branch(Scope.BRANCH)]
BranchToRead = Annotated[BranchCall, _for_branch(Scope.READ)]


class Body(BaseModel):
    """The body of a request. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
