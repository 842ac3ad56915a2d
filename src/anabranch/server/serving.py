"""Run the service in this process until it is told to stop."""

import socket
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from anabranch.errors import InvalidInputError

__all__ = ["listen", "serve"]

# Longer than most clients and proxies keep a connection, so that they, not we, close it: no request meets a closed one.
_KEPT_ALIVE_SECONDS = 75
_BACKLOG = 2048


def listen(*, host: str, port: int) -> socket.socket:
    """Take a port before anybody is told that the service is there; who comes meanwhile waits."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as err:
        raise InvalidInputError(
            f"nothing can listen at {host}, port {port}: {err.strerror}", hint="name another --port or --host"
        ) from err


def serve(app: FastAPI, listening: socket.socket) -> None:
    config = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=_KEPT_ALIVE_SECONDS,
    )
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
