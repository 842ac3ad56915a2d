"""Health, metrics and the description of the service."""

import asyncio
import logging
import threading
import time
from typing import Annotated

import duckdb
from fastapi import Depends, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import anabranch
from anabranch.errors import StorageUnavailableError
from anabranch.server.database import Database
from anabranch.server.routing import ForReaders, Public, get_service, make_router
from anabranch.server.ui.responses import SECURITY_HEADERS

_log = logging.getLogger("anabranch.server")
_VALID_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0
# FastAPI cannot build the description in two threads at once. It is built and rendered only once: that takes long, and
# this route needs no token.
_describing = threading.Lock()


class HealthCheck:
    """Reads the database in a thread and keeps the result for a second, so that most requests cost no SQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._check: asyncio.Task[bool] | None = None
        self._began = 0.0

    async def is_healthy(self) -> bool:
        """Return whether the database answered within the last second, or answers now."""
        # Not read again below: another request may start the next check while this one waits.
        check = self._check
        if check is None or (check.done() and time.monotonic() - self._began >= _VALID_SECONDS):
            self._began = time.monotonic()
            # Not `run_in_threadpool`: its threads may all be busy with requests.
            check = self._check = asyncio.create_task(asyncio.to_thread(self._read))
        await asyncio.wait([check], timeout=_TIMEOUT_SECONDS)
        return check.done() and check.result()

    def _read(self) -> bool:
        try:
            self._database.read("SELECT 1")
        except duckdb.Error:
            _log.exception("the metadata database cannot be read")
            return False
        return True


class Metrics:
    """The Prometheus metrics of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route")
        self.requests = Counter("anabranch_requests", "Answered requests.", (*labels, "status"), registry=self.registry)
        self.seconds = Histogram(
            "anabranch_request_seconds", "Duration of requests in seconds.", labels, registry=self.registry
        )
        self.running = Gauge("anabranch_requests_running", "Requests that are running.", registry=self.registry)


class MetricsMiddleware:
    """Count requests by route. Not by path: the number of paths has no bound."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The status of a request whose application raises before it answers.
        status = 500
        began = time.perf_counter()

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._metrics.running.track_inprogress():
            try:
                await self._app(scope, receive, send_and_note)
            finally:
                route = getattr(scope.get("route"), "path", "none")
                # A client may send any text as the method. As a label it would add a time series for each text.
                method = scope["method"] if route != "none" else "any"
                self._metrics.requests.labels(method, route, str(status)).inc()
                self._metrics.seconds.labels(method, route).observe(time.perf_counter() - began)


router = make_router("status")
Unprotected = Annotated[None, Depends(Public())]


class Health(BaseModel):
    status: str
    version: str


# Rendered once: the answer is the same every time.
_HEALTHY = JSONResponse(Health(status="ok", version=anabranch.__version__).model_dump())


@router.get("/health", response_model=Health)
async def get_health(_: Unprotected, request: Request) -> Response:
    """Report that the service answers and can read its metadata; 503 if it cannot."""
    if not await get_service(request).part(HealthCheck).is_healthy():
        raise StorageUnavailableError("the metadata database cannot be read", hint="see the log of the service")
    return _HEALTHY


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The numbers"}},
)
def get_metrics(call: ForReaders) -> Response:
    """Return the metrics in the format of Prometheus; needs a token that is bound to no project."""
    return Response(generate_latest(call.part(Metrics).registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json", include_in_schema=False)
def get_openapi(_: Unprotected, request: Request) -> JSONResponse:
    """Describe the routes as OpenAPI."""
    state = request.app.state
    with _describing:
        if getattr(state, "description", None) is None:
            state.description = JSONResponse(request.app.openapi())
    description: JSONResponse = state.description
    return description


_DOCS = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Anabranch: HTTP routes</title>
<link rel="icon" href="/ui/static/logo.svg" type="image/svg+xml">
<link rel="stylesheet" href="/ui/static/vendor/swagger-ui.css">
</head>
<body>
<div id="swagger-ui" data-url="/openapi.json"></div>
<script src="/ui/static/vendor/swagger-ui-bundle.js"></script>
<script src="/ui/static/docs.js"></script>
</body>
</html>
"""
# Swagger UI has images in its style sheet, and sets styles of elements.
_DOCS_POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"


@router.get("/docs", include_in_schema=False)
def get_docs(_: Unprotected) -> HTMLResponse:
    """Show the routes as a web page. All of its files are from this package."""
    return HTMLResponse(_DOCS, headers={**SECURITY_HEADERS, "Content-Security-Policy": _DOCS_POLICY})
