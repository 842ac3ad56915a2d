"""What all routes share: the types of their parameters, the calls that they get, and the audit of writes."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, wraps
from inspect import iscoroutinefunction
from typing import Annotated, Any, Protocol, TypeVar, get_type_hints

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from anabranch.errors import AnabranchError
from anabranch.server.auth import Needs, Scope, Token, authenticate
from anabranch.server.envelope import Envelope, status_of
from anabranch.server.idempotency import HEADER_PARAMETER, Attempt, IdempotentHandler
from anabranch.server.open_branch import OpenBranch
from anabranch.server.settings import Settings
from anabranch.server.uploads import discard_untaken, has_upload

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
    "DirectRoute",
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


_PATH_TYPES: Mapping[str, TypeAdapter[str]] = {
    "project_id": TypeAdapter(ProjectId),
    "branch_id": TypeAdapter(BranchId),
    "bucket": TypeAdapter(BucketName),
    "table": TypeAdapter(TableName),
}


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


class AuditedRoute(APIRoute):
    """Check the token before the body is read, record writes in the audit, and apply idempotency keys."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        methods = set(options.get("methods") or {"GET"})
        if not methods <= _READS:
            extra = dict(options.get("openapi_extra") or {})
            options["openapi_extra"] = {**extra, "parameters": [*extra.get("parameters", ()), HEADER_PARAMETER]}
        # FastAPI itself does not run the endpoint, but `endpoint` here, which also renders the answer.
        super().__init__(path, endpoint if iscoroutinefunction(endpoint) else self._rendering(endpoint), **options)
        self.query_names = frozenset(_iter_query_names(self.dependant))

    def _rendering(self, endpoint: Callable[..., Any]) -> Callable[..., Response]:
        """Return an endpoint that renders its answer in the thread in which it runs.

        FastAPI checks the answer of a `def` endpoint in a second thread.
        """

        @wraps(endpoint)
        def rendered(**arguments: Any) -> Response:
            answer = endpoint(**arguments)
            if isinstance(answer, Response):
                return answer
            status = self.status_code or 200
            if self.response_model is None:
                return Response(status_code=status)
            return Response(self._render(answer), status, media_type="application/json")

        return rendered

    @cached_property
    def _answer_type(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.response_model)

    def _render(self, answer: Any) -> bytes:
        return self._answer_type.dump_json(self._answer_type.validate_python(answer, from_attributes=True))

    def get_route_handler(self) -> _Handler:
        needs = next(_iter_needs(self.dependant), None)
        handle = _explaining(self.get_plain_handler(needs))
        if needs is None or (self.methods or set()) <= _READS:
            return handle
        body = (self.openapi_extra or {}).get("requestBody", {})
        once = IdempotentHandler(
            handle=handle,
            needs=needs,
            has_secret="secret" in getattr(self.response_model, "model_fields", {}),
            takes_file="multipart/form-data" in body.get("content", {}),
        )

        async def audited(request: Request) -> Response:
            # FastAPI reads the body before it solves the dependencies of a route.
            authenticate(request)
            audit = get_service(request).audit
            pending = audit.begin(request, action=self.name, success_status=self.status_code or 200)
            status = 500  # also that of a request that is cancelled because it takes too long
            try:
                response = await once(request)
                status = response.status_code
            except Exception as err:
                status = _status_of(err)
                raise
            finally:
                # The handler may have recorded the event with its last row. A different status is recorded as well.
                if pending.status != status:
                    await run_in_threadpool(audit.write, (), status=status)
                if has_upload(request):
                    await run_in_threadpool(discard_untaken, request)
            return response

        return audited

    def get_plain_handler(self, needs: Needs | None) -> _Handler:  # noqa: ARG002 - for routes that check by themselves
        """Return the handler of a request without audit and idempotency keys: FastAPI's."""
        return super().get_route_handler()


class DirectRoute(AuditedRoute):
    """A route for many small requests, which reads their parameters without FastAPI. FastAPI takes 0.6 ms for that.

    The endpoint is a coroutine function of a call, the parameters of the path, and `options` with those of the query.
    FastAPI uses its signature for the OpenAPI document only. The checks and their errors are the same.
    """

    def get_plain_handler(self, needs: Needs | None) -> _Handler:
        if needs is None:
            raise TypeError(f"{self.path} needs a token")
        endpoint = self.endpoint
        path_types = {name: _PATH_TYPES[name] for name in self.param_convertors}
        options_type: TypeAdapter[Any] = TypeAdapter(get_type_hints(endpoint)["options"])

        async def handle(request: Request) -> Response:
            token = needs.authenticate(request)
            # Collected, because FastAPI also reports all wrong parameters of a request at once.
            errors: list[Any] = []
            path = {
                name: _checked(kind, request.path_params[name], ("path", name), errors)
                for name, kind in path_types.items()
            }
            options = _checked(options_type, dict(request.query_params), ("query",), errors)
            if errors:
                raise RequestValidationError(errors)
            service = get_service(request)
            project_id, branch_id = path.pop("project_id"), path.pop("branch_id")
            with service.projects.in_use(project_id):
                call = BranchCall(service=service, token=token, project_id=project_id, branch_id=branch_id)
                answer: Response = await endpoint(call, **path, options=options)
            return answer

        return handle


def _checked(kind: TypeAdapter[Any], value: Any, location: tuple[str, ...], errors: list[Any]) -> Any:
    """Return a value of a request in its type, or add what is wrong with it to the errors."""
    try:
        return kind.validate_python(value)
    except ValidationError as err:
        errors += [{**one, "loc": (*location, *one["loc"])} for one in err.errors(include_url=False)]
        return None


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
        # FastAPI has one field for a model of parameters. The names in the query are those of its fields.
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
            # A deletion removes files that a running request still reads, which looks like damaged data.
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
        generate_unique_id_function=lambda route: route.name,
        responses={"4XX": {"model": Envelope, "description": "Refused"}},
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
