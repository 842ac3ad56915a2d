"""What all routes share: the parameters of their paths, their calls, and the audit of writes."""

import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException

from anabranch.errors import AnabranchError
from anabranch.server.access import Needs, Scope, Token, authenticate, find_secret
from anabranch.server.attempts import Attempt
from anabranch.server.branches import OpenBranch
from anabranch.server.envelope import Envelope, status_of
from anabranch.server.idempotency import HEADER_PARAMETER, Once
from anabranch.server.metadata.audit import AuditEvent
from anabranch.server.service import Service
from anabranch.server.uploading import discard_untaken

__all__ = [
    "RefQuery",
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
    "TableName",
    "get_service",
    "make_router",
]

_PART = r"^[A-Za-z0-9_][A-Za-z0-9_-]*$"
_Handler = Callable[[Request], Coroutine[Any, Any, Response]]
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


def get_service(request: Request) -> Service:
    service: Service = request.app.state.service
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
        description="Read as of a commit id, a tag or a moment, such as `2026-11-15T10:00:00Z`.",
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

    service: Service
    token: Token


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


class AuditedRoute(APIRoute):
    """Check the token before the body is read, record writes in the audit, and apply idempotency keys."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        methods = set(options.get("methods") or {"GET"})
        if not methods <= _READS:
            extra = dict(options.get("openapi_extra") or {})
            options["openapi_extra"] = {**extra, "parameters": [*extra.get("parameters", ()), HEADER_PARAMETER]}
        super().__init__(path, endpoint, **options)
        self.query_names = frozenset(_iter_query_names(self.dependant))

    def get_route_handler(self) -> _Handler:
        needs = next(_iter_needs(self.dependant), None)
        handle = _explaining(super().get_route_handler())
        if (self.methods or set()) <= _READS:
            return handle

        once = self._once(handle, needs)

        async def audited(request: Request) -> Response:
            if needs is not None:
                # FastAPI reads the body before it solves the dependencies of a route.
                authenticate(request, find_secret(request.headers.get("Authorization")))
            status = 500
            try:
                response = await once(request)
                status = response.status_code
            except Exception as err:
                status = _status_of(err)
                raise
            finally:
                if hasattr(request.state, "token"):
                    await run_in_threadpool(_record, request, self.name, status)
                await run_in_threadpool(discard_untaken, request)
            return response

        return audited

    def _once(self, handle: _Handler, needs: Needs | None) -> _Handler:
        if needs is None:
            return handle
        body = (self.openapi_extra or {}).get("requestBody", {})
        return Once(
            handle=handle,
            needs=needs,
            has_secret="secret" in getattr(self.response_model, "model_fields", {}),
            takes_file="multipart/form-data" in body.get("content", {}),
        )


def _iter_needs(dependant: Dependant) -> Iterator[Needs]:
    for found in dependant.dependencies:
        if isinstance(found.call, Needs):
            yield found.call
        yield from _iter_needs(found)


def _iter_query_names(dependant: Dependant) -> Iterator[str]:
    for found in dependant.dependencies:
        yield from _iter_query_names(found)
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield from model.model_fields
        else:
            yield field.alias


def _explaining(handle: _Handler) -> _Handler:
    """Raise BranchNotFoundError for a failure whose cause is that the branch was deleted with its files."""

    async def explained(request: Request) -> Response:
        try:
            return await handle(request)
        except Exception as err:
            branch = request.path_params.get("branch_id")
            if branch is not None and _status_of(err) >= 500:
                branches = get_service(request).branches
                await run_in_threadpool(branches.require_there, request.path_params["project_id"], branch)
            raise

    return explained


def make_router(noun: str, *, prefix: str = "") -> APIRouter:
    """Return a router whose routes describe their errors and record writes in the audit."""
    return APIRouter(
        prefix=prefix,
        tags=[noun],
        route_class=AuditedRoute,
        responses={"4XX": {"model": Envelope, "description": "Refused"}},
    )


def _record(request: Request, action: str, status: int) -> None:
    service, token = get_service(request), request.state.token
    service.audit.record(
        AuditEvent(
            happened_at=service.clock(),
            request_id=getattr(request.state, "request_id", secrets.token_hex(8)),
            token_id=token.id,
            actor=token.name,
            action=action,
            project_id=request.path_params.get("project_id"),
            branch_id=request.path_params.get("branch_id"),
            path=request.url.path[:1000],
            status=status,
        )
    )


def _status_of(error: Exception) -> int:
    match error:
        case AnabranchError():
            return status_of(error)
        case RequestValidationError():
            return 422
        case HTTPException():
            return error.status_code
        case _:
            return 500
