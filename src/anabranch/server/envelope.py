"""The JSON form of all errors: `{code, message, details}`."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
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
_RETRY_AFTER_SECONDS = "1"
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


Answer = Callable[[Request, Exception], Response | None]
_Handler = Callable[[Request, Exception], Awaitable[Response]]


class Envelope(BaseModel):
    """The body of every error. Programs match on `code`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "code": "table_not_found",
                    "message": "there is no table 'in_c_sales.orders' on this branch",
                    "details": {"hint": "list the tables to see which exist", "retryable": False},
                }
            ]
        }
    )

    code: str
    message: str
    details: dict[str, Any]


class EnvelopeException(HTTPException):
    """Carries an AnabranchError where only HTTPException passes, such as while FastAPI reads a body."""

    def __init__(self, error: AnabranchError) -> None:
        super().__init__(status_of(error), str(error))
        self.error = error


def status_of(error: AnabranchError) -> int:
    """Return the HTTP status of the nearest base class of an error that has one."""
    return next(_STATUSES[group] for group in type(error).__mro__ if group in _STATUSES)


def without_data_folder(error: AnabranchError, data: Path) -> AnabranchError:
    """Remove the data folder of the service from the text of an error: clients must not learn it.

    Dataset paths are removed too, except from server errors, where they help to find the damage.
    """
    error.problem = text_without_folder(error.problem, data)
    if status_of(error) < 500:
        error.problem = _DATASET.sub("", error.problem)
    return error


def text_without_folder(text: str, data: Path) -> str:
    """Return a text without the paths of a folder: what is in the folder has its path below it."""
    # Both forms occur: as configured, and with symbolic links resolved. Lance omits the first slash in some texts.
    for folder in (f"{data}/", f"{data.resolve()}/"):
        text = text.replace(folder, "").replace(folder.lstrip("/"), "")
    return text


def answer_error(error: AnabranchError) -> JSONResponse:
    status = status_of(error)
    headers = {"Retry-After": _RETRY_AFTER_SECONDS} if error.retryable else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(envelope_of(error), status_code=status, headers=headers)


def envelope_of(error: AnabranchError) -> dict[str, Any]:
    details = {**error.details, "hint": words_at(Door.HTTP, error.hint), "retryable": error.retryable}
    return {"code": error.code, "message": error.problem, "details": details}


def add_handlers(app: FastAPI, *, answer: Answer) -> None:
    """Answer all errors in JSON, except those that `answer` answers, such as with a page."""
    kinds: Mapping[type[Exception], _Handler] = {
        AnabranchError: _on_error,
        HTTPException: _on_http_error,
        RequestValidationError: _on_invalid,
        Exception: _on_unexpected,
    }
    for kind, handle in kinds.items():
        app.add_exception_handler(kind, _unless_answered(handle, answer))


def _unless_answered(handle: _Handler, answer: Answer) -> _Handler:
    async def on_error(request: Request, error: Exception) -> Response:
        return answer(request, error) or await handle(request, error)

    return on_error


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, AnabranchError)  # noqa: S101 - registered for these only
    if status_of(error) >= 500:
        _log.error("a request failed", exc_info=error)
    return answer_error(without_data_folder(error, request.app.state.service.settings.data))


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, EnvelopeException):
        return answer_error(error.error)
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these only
    status = error.status_code
    code = _CODES.get(status, HTTPStatus(status).phrase.lower().replace(" ", "_"))
    # Starlette reports only the methods of the first route that matches the path.
    headers = dict(error.headers or {})
    if status == 405:
        headers["Allow"] = ", ".join(sorted(methods_at(request.app.routes, request.url.path)))
    return _answer(status, code=code, message=str(error.detail), details={"retryable": False}, headers=headers)


def methods_at(routes: Iterable[Any], path: str) -> set[str]:
    """Return the methods of a path. Each route by itself reports only its own."""
    return set[str]().union(*(route.methods for route in routes if route.path_regex.match(path)))


async def _on_invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for these only
    found = [
        {"in": ".".join(map(str, one["loc"])), "problem": one["msg"], "type": one["type"]} for one in error.errors()
    ]
    message = f"{found[0]['in']}: {found[0]['problem']}" if found else "the request is not valid"
    return _answer(422, code="invalid_request", message=message, details={"errors": found, "retryable": False})


async def _on_unexpected(_: Request, __: Exception) -> JSONResponse:
    return JSONResponse(UNEXPECTED, status_code=500)


def _answer(
    status: int, *, code: str, message: str, details: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> JSONResponse:
    body = {"code": code, "message": message, "details": dict(details)}
    return JSONResponse(body, status_code=status, headers=dict(headers or {}))
