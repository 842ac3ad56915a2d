"""The ASGI application of a service, and the HTTP server that runs it and limits the time of connections."""

import asyncio
import errno
import gc
import math
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, ClassVar

import anyio.to_thread
import h11
import uvicorn
from fastapi import FastAPI, Request, Response
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

import anabranch
from anabranch.errors import InvalidInputError
from anabranch.server import (
    audit,
    branches,
    buckets,
    exports,
    files,
    history,
    imports,
    jobs,
    merges,
    projects,
    rows,
    status,
    tables,
    tokens,
)
from anabranch.server.envelope import add_handlers, answer_error
from anabranch.server.request_limits import RequestMiddleware
from anabranch.server.service import Service, open_service
from anabranch.server.settings import Limits, Settings
from anabranch.server.status import MetricsMiddleware
from anabranch.server.ui.responses import SecurityHeadersMiddleware, is_below
from anabranch.server.ui.service_pages import UI_PATH, ServiceSite
from anabranch.server.ui.storage import Workshop

_NOUNS = (status, projects, branches, buckets, tables, rows, imports, exports, files, jobs, history)
# In the order in which OpenAPI describes their routes.
_ROUTERS = (*(noun.router for noun in _NOUNS), history.tag_router, merges.router, tokens.router, audit.router)


def create_app(settings: Settings, *, service: Service | None = None) -> FastAPI:
    """Return the service as an ASGI application, which closes the service when it stops."""
    opened = service or open_service(settings)

    workshop = Workshop()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # The threads in which FastAPI runs `def` routes.
        anyio.to_thread.current_default_thread_limiter().total_tokens = settings.limits.workers
        yield
        workshop.close()
        opened.close()

    app = FastAPI(
        title="Anabranch",
        summary="Dev branches over a lake of Lance tables",
        version=anabranch.__version__,
        lifespan=lifespan,
        # The routes of `status` replace these: the pages of FastAPI load Swagger UI from another host.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = opened
    app.state.workshop = workshop
    site = ServiceSite(opened)

    def answer(request: Request, error: Exception) -> Response | None:
        """Return an error of the web UI as a page, None for other paths."""
        return site.answer_failure(request, error) if is_below(UI_PATH, request.url.path) else None

    add_handlers(app, answer=answer)
    app.add_middleware(
        RequestMiddleware,
        limits=settings.limits,
        find_token=opened.tokens.find,
        find_visitor=site.find_token,
        answer=lambda request, error: answer(request, error) or answer_error(error),
    )
    # The middleware that is added last runs first, so the metrics also count requests that the limits refuse.
    app.add_middleware(MetricsMiddleware, metrics=opened.metrics)
    app.add_middleware(SecurityHeadersMiddleware, path=UI_PATH)
    for router in _ROUTERS:
        # Not `include_router`: matching a path against nested routers takes three times as long.
        app.router.routes.extend(router.routes)
    app.router.routes.extend(site.all_routes())
    return app


# Longer than most clients and proxies keep an idle connection. The client closes it first, so that no request is sent
# on a connection that the service is closing.
_KEEP_ALIVE_SECONDS = 75
_BACKLOG = 2048
# Requests may take longer to stop than jobs: they answer after the job that they wait for was interrupted.
_STOP_FACTOR = 3


def listen(*, host: str, port: int) -> socket.socket:
    """Open a listening socket. Connections queue in its backlog until `serve` accepts them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as err:
        hint = "use another --port" if err.errno in (errno.EADDRINUSE, errno.EACCES) else "use another --host or --port"
        raise InvalidInputError(f"cannot listen on {host}, port {port}: {err.strerror}", hint=hint) from err
    # Accepted connections inherit this option. asyncio sets it only for sockets whose `proto` is IPPROTO_TCP, which
    # `create_server` leaves at 0. Without it the body of an answer waits 40 ms for the client's delayed ACK.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class _Server(uvicorn.Server):
    """Stops in a bounded time: jobs that clients wait for are interrupted, and then requests are cancelled."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The second Ctrl-C ends the process at once. uvicorn would still wait for jobs.
        if self.should_exit and sig == signal.SIGINT:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn closes the application only after the last request, and a request may wait for a job.
        stop_seconds = self._service.settings.limits.stop_seconds
        interrupting = asyncio.get_running_loop().call_later(stop_seconds, self._service.jobs.interrupt)
        try:
            await super().shutdown(sockets)
        finally:
            interrupting.cancel()


def make_server(app: FastAPI) -> uvicorn.Server:
    """Return the HTTP server of an application, not started yet."""
    service: Service = app.state.service
    limits = service.settings.limits
    config = uvicorn.Config(
        app,
        http=make_protocol(limits),
        ws="none",
        log_level="warning",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(_STOP_FACTOR * limits.stop_seconds),
    )
    return _Server(config, service)


def serve(app: FastAPI, listening: socket.socket) -> None:
    """Serve an application until the process gets SIGINT or SIGTERM."""
    gc.freeze()  # the modules and routes live as long as the process, so collections need not visit them
    # uvicorn raises the signal again when it has stopped. A KeyboardInterrupt would wait for jobs that do not stop.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    make_server(app).run(sockets=[listening])


_CROWDED_SECONDS = 1.0
# asyncio reads 256 KiB at a time, so all together discard at most 100 MiB in a second.
_SECONDS_PER_PART = 0.0025
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TimedProtocol(H11Protocol):
    """An HTTP connection with a time limit for the head of each request, which uvicorn does not have.

    The same limit holds for the rest of a body whose request was answered before it arrived completely. uvicorn
    discards that rest, so that the client reads the answer instead of a reset connection. It is read slowly.
    While too many connections wait, each further one gets a shorter limit, so that they do not use up the open files.
    """

    limits: ClassVar[Limits]
    waiting: ClassVar[set["TimedProtocol"]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_waiting()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # The head is complete, so its timer ends. After an early answer, the timer is that of the rest of the body.
        if self.conn.their_state is not h11.IDLE:
            if self._is_answered:
                # The more of them, the more slowly: their senders must not keep the event loop busy.
                self.flow.pause_reading()
                self.loop.call_later(_SECONDS_PER_PART * len(self.waiting), self.flow.resume_reading)
            else:
                self._stop_waiting()
        elif self.conn.trailing_data[0]:
            if self._deadline is None:  # the first part of the next head on a connection that was kept alive
                self._start_waiting()
        elif self._is_answered:
            # The rest of a refused body has arrived. uvicorn stopped its own timer when it did.
            self._stop_waiting()
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The answer was sent before the body arrived completely, for example because the request was refused.
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._start_waiting()
        # From here on uvicorn's keep-alive timer applies, unless a part of the next head has arrived.
        elif self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _is_answered(self) -> bool:
        # Before the first request there is no cycle, which uvicorn's annotation leaves out.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_complete

    def _start_waiting(self) -> None:
        self._stop_waiting()
        seconds = self.limits.head_seconds
        if len(self.waiting) >= self.limits.half_sent_heads:
            seconds = min(seconds, _CROWDED_SECONDS)
        self._deadline = self.loop.call_later(seconds, self._time_out)
        self.waiting.add(self)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.waiting.discard(self)

    def _time_out(self) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        # Answer only a head that has begun. On an idle connection, a client would take the 408 for the answer to its
        # next request.
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self.transport.write(_TIMED_OUT)
        self.transport.close()


def make_protocol(limits: Limits) -> type[TimedProtocol]:
    """Return the protocol of one server: its connections share the limits and the set of waiting ones."""
    return type("ServiceProtocol", (TimedProtocol,), {"limits": limits, "waiting": set()})
