"""Listen on a port and run the service in this process until it is stopped."""

import asyncio
import gc
import math
import socket
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from anabranch.errors import InvalidInputError
from anabranch.server.connections import make_protocol
from anabranch.server.service import Service

__all__ = ["listen", "make_server", "serve"]

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
        raise InvalidInputError(
            f"nothing can listen at {host}, port {port}: {err.strerror}", hint="name another --port or --host"
        ) from err
    # Accepted connections inherit this option. asyncio sets it only for sockets whose `proto` is IPPROTO_TCP, which
    # `create_server` leaves at 0. Without it the body of an answer waits 40 ms for the client's delayed ACK.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class _Server(uvicorn.Server):
    """Stops in a bounded time: jobs that clients wait for are interrupted, and then requests are cancelled."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

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
    with suppress(KeyboardInterrupt):
        make_server(app).run(sockets=[listening])
