"""The JSON form of all errors: `{code, message, details}`."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from anabranch import errors
from anabranch.errors import AnabranchError
from anabranch.hints import Door, words_at

_log = logging.getLogger("anabranch.server")
_STATUSES: Mapping[type[AnabranchError], int] = {
    errors.NotFoundError: 404,
    errors.ConflictError: 409,
    errors.InvalidInputError: 400,
    errors.BusyError: 409,
    errors.UnauthenticatedError: 401,
    errors.AccessError: 403,
    errors.TooLargeError: 413,
    errors.TooManyRequestsError: 429,
    errors.TooSlowError: 408,
    errors.LimitError: 400,
    errors.StorageUnavailableError: 503,
    AnabranchError: 500,
}
# `lance_errors` puts the path of the dataset before Lance's message. Clients know tables by name.
_DATASET = re.compile(r"dataset '[^']*': (?:Invalid user input: )?")
# The error itself is only logged: its text may contain data that clients must not read.
UNEXPECTED: Mapping[str, Any] = {
    "code": "internal",
    "message": "an unexpected error occurred",
    "details": {"hint": "see the log of the service", "retryable": False},
}
# The codes of errors that FastAPI and Starlette raise. Others get the phrase of their status.
_CODES = {404: "route_not_found", 405: "method_not_allowed", 413: "too_large", 422: "invalid_request"}


def with_example(**fields: Any) -> ConfigDict:
    """Return the configuration of a model whose description shows an example."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class Envelope(BaseModel):
    """The body of every error. Programs match on `code`."""

    model_config = with_example(
        code="table_not_found",
        message="there is no table 'in_c_sales.orders' on this branch",
        details={"hint": "list the tables to see which exist", "retryable": False},
    )

    code: str
    message: str
    details: dict[str, Any]


class EnvelopeException(HTTPException):
    """Carries an AnabranchError where only HTTPException passes, such as while FastAPI reads a body."""

    def __init__(self, error: AnabranchError) -> None:
        super().__init__(status_of(error), str(error))
        self.error = error


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error: that of its nearest base class that has one."""
    match error:
        case AnabranchError():
            return next(_STATUSES[group] for group in type(error).__mro__ if group in _STATUSES)
        case HTTPException():
            return error.status_code
        case _:
            return 422 if isinstance(error, RequestValidationError) else 500


def without_data_folder(error: AnabranchError, data: Path) -> AnabranchError:
    """Remove the data folder of the service from the text of an error: clients must not learn it.

    Dataset paths are removed too, except from server errors, where they help to find the damage.
    """
    error.problem = text_without_folder(error.problem, data)
    if status_of(error) < 500:
        error.problem = _DATASET.sub("", error.problem)
    return error


def text_without_folder(text: str, data: Path) -> str:
    """Return a text in which paths of files in a folder are relative to that folder."""
    # Both forms occur: as configured, and with symbolic links resolved. Lance omits the first slash in some texts.
    for folder in (f"{data}/", f"{data.resolve()}/"):
        text = text.replace(folder, "").replace(folder.lstrip("/"), "")
    return text


def answer_error(error: AnabranchError) -> JSONResponse:
    status = status_of(error)
    headers = {"Retry-After": "1"} if error.retryable else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(envelope_of(error), status_code=status, headers=headers)


def envelope_of(error: AnabranchError) -> dict[str, Any]:
    details = {**error.details, "hint": words_at(Door.HTTP, error.hint), "retryable": error.retryable}
    return {"code": error.code, "message": error.problem, "details": details}


def add_handlers(app: FastAPI, *, answer: Callable[[Request, Exception], Response | None]) -> None:
    """Answer errors in JSON, unless `answer` returns another response, such as a page."""

    async def on_error(request: Request, error: Exception) -> Response:
        return answer(request, error) or _answer(request, error)

    for kind in (AnabranchError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, on_error)


def _answer(request: Request, error: Exception) -> JSONResponse:
    match error:
        case EnvelopeException():
            return answer_error(error.error)
        case AnabranchError():
            if status_of(error) >= 500:
                _log.error("a request failed", exc_info=error)
            return answer_error(without_data_folder(error, request.app.state.service.settings.data))
        case HTTPException():
            return _answer_http_error(request, error)
        case RequestValidationError():
            found = [
                {"in": ".".join(map(str, one["loc"])), "problem": one["msg"], "type": one["type"]}
                for one in error.errors()
            ]
            message = f"{found[0]['in']}: {found[0]['problem']}" if found else "the request is not valid"
            details = {"errors": found, "retryable": False}
            return JSONResponse({"code": "invalid_request", "message": message, "details": details}, status_code=422)
        case _:
            return JSONResponse(UNEXPECTED, status_code=500)


def _answer_http_error(request: Request, error: HTTPException) -> JSONResponse:
    status, headers = error.status_code, dict(error.headers or {})
    code = _CODES.get(status, HTTPStatus(status).phrase.lower().replace(" ", "_"))
    # Starlette reports only the methods of the first route that matches the path.
    if status == 405:
        headers["Allow"] = ", ".join(sorted(methods_at(request.app.routes, request.url.path)))
    body = {"code": code, "message": str(error.detail), "details": {"retryable": False}}
    return JSONResponse(body, status_code=status, headers=headers)


def methods_at(routes: Iterable[Any], path: str) -> set[str]:
    """Return the methods of a path. Each route by itself reports only its own."""
    return set[str]().union(*(route.methods for route in routes if route.path_regex.match(path)))
