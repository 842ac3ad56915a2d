"""Listen on a port and run the service in this process until it is stopped."""

import socket
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from anabranch.errors import InvalidInputError
from anabranch.server.connections import make_protocol

__all__ = ["listen", "make_server", "serve"]

# Longer than most clients and proxies keep an idle connection. The client closes it first, so that no request is sent
# on a connection that the service is closing.
_KEEP_ALIVE_SECONDS = 75
_BACKLOG = 2048


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


def make_server(app: FastAPI) -> uvicorn.Server:
    """Return the HTTP server of an application, not started yet."""
    config = uvicorn.Config(
        app,
        http=make_protocol(app.state.service.settings.limits),
        ws="none",
        log_level="warning",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    return uvicorn.Server(config)


def serve(app: FastAPI, listening: socket.socket) -> None:
    """Serve an application until the process gets SIGINT or SIGTERM."""
    with suppress(KeyboardInterrupt):
        make_server(app).run(sockets=[listening])
