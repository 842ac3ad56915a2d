"""What all routes share: the check of tokens before the body, the audit of writes, and idempotency keys."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import cached_property, wraps
from inspect import iscoroutinefunction
from typing import Any, get_type_hints

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from anabranch.errors import AnabranchError
from anabranch.server.auth import Needs, authenticate
from anabranch.server.calls import BranchCall, BranchId, BucketName, ProjectId, TableName, get_service
from anabranch.server.envelope import Envelope, status_of
from anabranch.server.idempotency import HEADER_PARAMETER, IdempotentHandler
from anabranch.server.uploads import discard_untaken, has_upload

__all__ = ["DirectRoute", "make_router"]

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]
_READS = frozenset({"GET", "HEAD", "OPTIONS"})

_PATH_TYPES: Mapping[str, TypeAdapter[str]] = {
    "project_id": TypeAdapter(ProjectId),
    "branch_id": TypeAdapter(BranchId),
    "bucket": TypeAdapter(BucketName),
    "table": TypeAdapter(TableName),
}


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
