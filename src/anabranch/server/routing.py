"""What all routes share: their parameters, the token and its scope, the audit of writes, and idempotency keys."""

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from inspect import Parameter, iscoroutinefunction, signature
from typing import Annotated, Any, Protocol, TypeVar, get_args

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import request_response

from anabranch.repo.repository import Repository
from anabranch.server.auth import Scope, Token, authenticate, require
from anabranch.server.branch_access import OpenBranch
from anabranch.server.envelope import Envelope, status_of
from anabranch.server.idempotency import HEADER_PARAMETER, Attempt, answer_once
from anabranch.server.settings import Settings

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_Part = TypeVar("_Part")
_PART = r"^[A-Za-z0-9_][A-Za-z0-9_-]*$"


class _Projects(Protocol):
    def get(self, project_id: str) -> object: ...
    def in_use(self, project_id: str) -> AbstractContextManager[None]: ...
    def open(self, project_id: str, *, actor: str | None) -> Repository: ...


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
    files: Any

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

    def open_repository(self) -> Repository:
        return self.service.projects.open(self.project_id, actor=self.token.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchCall(ProjectCall):
    """A request about a branch of a project."""

    branch_id: str
    attempt: Attempt | None = None

    def open(self) -> OpenBranch:
        return replace(self.service.branches.open(self.project_id, self.branch_id, self.token), attempt=self.attempt)


# Describes the header in OpenAPI.
_Bearer = Annotated[
    HTTPAuthorizationCredentials | None,
    Depends(HTTPBearer(auto_error=False, description="A token of the service: `Authorization: Bearer ab_...`")),
]


class Public:
    """Mark a route that needs no token."""

    async def __call__(self) -> None: ...


class Needs:
    """The scope that a route needs, and the call that the route gets: the dependency of the route's first argument.

    FastAPI only describes it in the OpenAPI document. `ServiceRoute` checks the token.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def __call__(self, _: _Bearer) -> None: ...

    def authenticate(self, request: Request) -> Token:
        """Return the token of a request. Raise an error if it does not allow the request."""
        token = authenticate(request)
        self.check(token, request)
        # A misspelled parameter would otherwise be ignored.
        known = getattr(request.scope.get("route"), "query_names", None)
        if known is not None and (unknown := sorted(set(request.query_params) - known)):
            raise RequestValidationError(
                [{"loc": ("query", name), "msg": "no such option", "type": "extra_forbidden"} for name in unknown]
            )
        return token

    def check(self, token: Token, request: Request) -> None:
        """Raise ForbiddenError if the scope or the binding of the token does not allow the request."""
        require(token, self.scope, path=request.path_params)

    @contextmanager
    def open(self, request: Request, token: Token) -> Iterator[Call]:
        """Return the call of a request with a token that was checked."""
        yield Call(service=get_service(request), token=token)


class _ProjectNeeds(Needs):
    def __call__(self, _: _Bearer, project_id: ProjectId) -> None: ...  # type: ignore[override]

    @contextmanager
    def open(self, request: Request, token: Token) -> Iterator[Call]:
        with get_service(request).projects.in_use(request.path_params["project_id"]):
            yield self._call(request, token)

    def _call(self, request: Request, token: Token) -> ProjectCall:
        return ProjectCall(service=get_service(request), token=token, project_id=request.path_params["project_id"])


class _BranchNeeds(_ProjectNeeds):
    def __call__(self, _: _Bearer, project_id: ProjectId, branch_id: BranchId) -> None: ...  # type: ignore[override]

    def _call(self, request: Request, token: Token) -> ProjectCall:
        attempt = getattr(request.state, "attempt", None)
        path = {name: request.path_params[name] for name in _CALL_PATH}
        return BranchCall(service=get_service(request), token=token, attempt=attempt, **path)


class _ProjectEndNeeds(_ProjectNeeds):
    @contextmanager
    def open(self, request: Request, token: Token) -> Iterator[Call]:
        # Without `in_use`: a deletion waits until no request uses the project, and would wait for itself.
        yield self._call(request, token)


# The first argument of a route states the scope that it needs.
ForAdmin = Annotated[Call, Depends(Needs(Scope.ADMIN))]
ForReaders = Annotated[Call, Depends(Needs(Scope.READ))]
ProjectToEnd = Annotated[ProjectCall, Depends(_ProjectEndNeeds(Scope.ADMIN))]
ProjectToChange = Annotated[ProjectCall, Depends(_ProjectNeeds(Scope.PROJECT))]
ProjectToBranch = Annotated[ProjectCall, Depends(_ProjectNeeds(Scope.BRANCH))]
ProjectToRead = Annotated[ProjectCall, Depends(_ProjectNeeds(Scope.READ))]
BranchToChange = Annotated[BranchCall, Depends(_BranchNeeds(Scope.BRANCH))]
BranchToRead = Annotated[BranchCall, Depends(_BranchNeeds(Scope.READ))]


class Body(BaseModel):
    """The body of a request. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# Returns an argument of an endpoint from the request and its parsed body, and adds errors to the list.
_Reader = Callable[[Request, Any, list[Any]], Any]
_MISSING = object()
# The path parameters that the call of a route reads. The others are arguments of the endpoint.
_CALL_PATH: Mapping[str, TypeAdapter[str]] = {"project_id": TypeAdapter(ProjectId), "branch_id": TypeAdapter(BranchId)}


class ServiceRoute(APIRoute):
    """Check the token before the body is read, record writes in the audit, and apply idempotency keys.

    FastAPI describes the route in the OpenAPI document. It would take 0.6 ms to read the arguments of the endpoint, so
    this class does that, with the same checks and errors. The answer is rendered in the thread of the endpoint.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        if not set(options.get("methods") or {"GET"}) <= _READS:
            extra = dict(options.get("openapi_extra") or {})
            options["openapi_extra"] = {**extra, "parameters": [*extra.get("parameters", ()), HEADER_PARAMETER]}
        self._parameters = dict(signature(endpoint).parameters)
        self.query_names = frozenset(_iter_query_names(self._parameters, path))
        super().__init__(path, endpoint, **options)
        if not isinstance(self._needs, Public):
            # Without the exit stacks of FastAPI, which only its own handler uses.
            self.app = request_response(self._handle)

    @property
    def _needs(self) -> Needs | Public:
        """Return the requirement that the first parameter of the endpoint states."""
        (needs,) = (one.dependency for one in get_args(next(iter(self._parameters.values())).annotation)[1:])
        if not isinstance(needs, Needs | Public):
            # FastAPI does not check the token of such a route.
            raise TypeError(f"the first argument of {self.name!r} states no scope that is checked")
        return needs

    def get_route_handler(self) -> _Handler:
        return self._handle

    @cached_property
    def _handle(self) -> _Handler:
        needs = self._needs
        if isinstance(needs, Public):
            return super().get_route_handler()
        handle = _explaining(self._make_handler(needs))
        if (self.methods or set()) <= _READS:
            return handle
        body = (self.openapi_extra or {}).get("requestBody", {})
        once = partial(
            answer_once,
            handle=handle,
            authenticate=needs.authenticate,
            has_secret="secret" in getattr(self.response_model, "__annotations__", {}),
            takes_file="multipart/form-data" in body.get("content", {}),
        )

        async def audited(request: Request) -> Response:
            authenticate(request)
            audit = get_service(request).audit
            pending = audit.begin(request, action=self.name, success_status=self.status_code or 200)
            status = 500  # also that of a request that is cancelled because it takes too long
            try:
                response = await once(request)
                status = response.status_code
            except Exception as err:
                status = status_of(err)
                raise
            finally:
                # The handler may have recorded the event with its last row. A different status is recorded as well.
                if pending.status != status:
                    await run_in_threadpool(audit.write, (), status=status)
                if getattr(request.state, "upload", None) is not None:
                    await run_in_threadpool(get_service(request).files.discard_untaken, request)
            return response

        return audited

    def _make_handler(self, needs: Needs) -> _Handler:
        """Return the handler of a request without audit and idempotency keys."""
        call_name, *names = self._parameters
        readers = {name: _reader_of(self._parameters[name], is_path=name in self.param_convertors) for name in names}
        call_path = {name: kind for name, kind in _CALL_PATH.items() if name in self.param_convertors}
        has_body = self.body_field is not None
        is_coroutine = iscoroutinefunction(self.endpoint)
        threads = getattr(self.endpoint, "threads", None)

        async def handle(request: Request) -> Response:
            token = needs.authenticate(request)
            body = await _read_body(request) if has_body else _MISSING
            arguments = _read_arguments(request, body, readers, call_path)
            with needs.open(request, token) as call:
                arguments[call_name] = call
                if is_coroutine:
                    return self._render(await self.endpoint(**arguments))
                run = run_in_threadpool if threads is None else partial(getattr(call.service, threads).run, token.id)
                return await run(lambda: self._render(self.endpoint(**arguments)))

        return handle

    @cached_property
    def _answer_type(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.response_model)

    def _render(self, answer: Any) -> Response:
        if isinstance(answer, Response):
            return answer
        status = self.status_code or 200
        if self.response_model is None:
            return Response(status_code=status)
        checked = self._answer_type.validate_python(answer, from_attributes=True)
        return Response(self._answer_type.dump_json(checked), status, media_type="application/json")


def _read_arguments(
    request: Request, body: Any, readers: Mapping[str, _Reader], call_path: Mapping[str, TypeAdapter[str]]
) -> dict[str, Any]:
    """Return the arguments of an endpoint by name, after a check of the path parameters of its call."""
    # Collect the errors: FastAPI also reports all errors of a request at once.
    errors: list[Any] = []
    for name, kind in call_path.items():
        _checked(kind, request.path_params[name], ("path", name), errors)
    arguments = {name: read(request, body, errors) for name, read in readers.items()}
    if errors:
        raise RequestValidationError(errors)
    return arguments


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _iter_query_names(parameters: Mapping[str, Parameter], path: str) -> Iterator[str]:
    for name, parameter in parameters.items():
        kind, is_described = parameter.annotation, get_args(parameter.annotation)
        if is_described and _is_model(is_described[0]):
            yield from is_described[0].model_fields
        elif kind is not Request and not _is_model(kind) and f"{{{name}}}" not in path:
            yield name


def _reader_of(parameter: Parameter, *, is_path: bool) -> _Reader:
    """Return the function that reads an argument of an endpoint from the path, the query or the body of a request."""
    name, kind = parameter.name, parameter.annotation
    if kind is Request:
        return lambda request, _, __: request
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    if is_path:
        return lambda request, _, errors: _checked(adapter, request.path_params[name], ("path", name), errors)
    if _is_model(kind):
        return lambda _, body, errors: _checked(adapter, body, ("body",), errors)
    # All parameters of the query are fields of one model.
    if _is_model(get_args(kind)[0]):
        return lambda request, _, errors: _checked(adapter, dict(request.query_params), ("query",), errors)

    def read_query(request: Request, _: Any, errors: list[Any]) -> Any:
        value = request.query_params.get(name)
        if value is None and parameter.default is not Parameter.empty:
            return parameter.default
        return _checked(adapter, _MISSING if value is None else value, ("query", name), errors)

    return read_query


def _checked(kind: TypeAdapter[Any], value: Any, location: tuple[str, ...], errors: list[Any]) -> Any:
    """Return a value of a request in its type, or add what is wrong with it to the errors."""
    if value is _MISSING:
        errors.append({"type": "missing", "loc": location, "msg": "Field required", "input": None})
        return None
    try:
        return kind.validate_python(value, from_attributes=True)
    except ValidationError as err:
        errors += [{**one, "loc": (*location, *one["loc"])} for one in err.errors(include_url=False)]
        return None


async def _read_body(request: Request) -> Any:
    """Return the parsed body of a request, or its bytes if it is not JSON. Raise the errors that FastAPI raises."""
    try:
        content = await request.body()
        if not content:
            return _MISSING
        kind, _, subkind = request.headers.get("content-type", "").partition(";")[0].strip().lower().partition("/")
        is_json = kind == "application" and (subkind == "json" or subkind.endswith("+json"))
        return json.loads(content) if is_json else content
    except json.JSONDecodeError as err:
        error = {"type": "json_invalid", "loc": ("body", err.pos), "msg": "JSON decode error", "input": {}}
        raise RequestValidationError([error]) from err
    except HTTPException:
        raise
    except Exception as err:
        raise HTTPException(400, "There was an error parsing the body") from err


def _explaining(handle: _Handler) -> _Handler:
    """Raise BranchNotFoundError for a failure whose cause is that the branch was deleted with its files."""

    async def explained(request: Request) -> Response:
        try:
            return await handle(request)
        except Exception as err:
            branch = request.path_params.get("branch_id")
            # A deletion removes files that a running request still reads, which looks like damaged data.
            if branch is not None and status_of(err) >= 500:
                branches = get_service(request).branches
                await run_in_threadpool(branches.require_there, request.path_params["project_id"], branch)
            raise

    return explained


def make_router(noun: str, *, prefix: str = "") -> APIRouter:
    """Return a router whose routes describe their errors and record writes in the audit."""
    return APIRouter(
        prefix=prefix,
        tags=[noun],
        route_class=ServiceRoute,
        generate_unique_id_function=lambda route: route.name,
        responses={"4XX": {"model": Envelope, "description": "Refused"}},
    )
