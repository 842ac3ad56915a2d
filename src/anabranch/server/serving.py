"""Run the service in this process until it is told to stop."""

import uvicorn
from fastapi import FastAPI

__all__ = ["serve"]


def serve(app: FastAPI, *, host: str, port: int) -> None:
    uvicorn.run(app, host=host, port=port, log_level="warning", server_header=False)
