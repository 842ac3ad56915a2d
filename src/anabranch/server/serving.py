"""Run the service in this process until it is told to stop."""

import uvicorn
from fastapi import FastAPI

__all__ = ["serve"]

# Longer than most clients and proxies keep a connection, so that they, not we, close it: no request meets a closed one.
_KEPT_ALIVE_SECONDS = 75


def serve(app: FastAPI, *, host: str, port: int) -> None:
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=_KEPT_ALIVE_SECONDS,
    )
