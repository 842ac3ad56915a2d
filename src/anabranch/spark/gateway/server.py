"""The process itself: it answers requests on a Unix socket until the JVM that started it ends."""

import os
import socket
import socketserver
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.spark.gateway import catalog, metadata, procedures, scans, writes
from anabranch.spark.gateway.frames import Frames, ProtocolError
from anabranch.spark.gateway.requests import Request
from anabranch.spark.options import OpenRepository

__all__ = ["PROTOCOL", "serve"]

# Raised with every change that an older jar would misunderstand.
PROTOCOL = 1
_SEND_BUFFER = 4 << 20

# Operations that answer with one JSON object.
_ANSWERS: Mapping[str, Callable[[Request], Mapping[str, Any]]] = {
    "hello": lambda _: {"protocol": PROTOCOL},
    "list_tables": catalog.list_tables,
    "load_table": catalog.load_table,
    "create_table": catalog.create_table,
    "alter_table": catalog.alter_table,
    "drop_table": catalog.drop_table,
    "rename_table": catalog.rename_table,
    "push_filters": scans.push_filters,
    "plan_scan": scans.plan_scan,
    "plan_metadata": metadata.plan_metadata,
    "list_procedures": procedures.list_procedures,
    "begin_write": writes.begin_write,
    "write_rows": writes.write_rows,
    "write_moved": writes.write_moved,
    "write_addresses": writes.write_addresses,
    "commit_write": writes.commit_write,
    "commit_batch": writes.commit_batch,
    "begin_stream": metadata.begin_stream,
    "find_head": metadata.find_head,
    "find_offset": metadata.find_offset,
    "plan_stream": metadata.plan_stream,
    "abort_write": writes.abort_write,
    "delete_where": writes.delete_where,
}
# Operations that answer with rows, and send them themselves.
_STREAMS: Mapping[str, Callable[[Request], None]] = {
    "read_rows": scans.read_rows,
    "read_metadata": metadata.read_metadata,
    "call_procedure": procedures.call_procedure,
}


def serve(path: str, open_repository: OpenRepository) -> None:
    """Answer requests at a socket until standard input ends, which it does when the JVM does."""
    with _Server(path, open_repository) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.buffer.read()
    # Requests may be in the middle of something that nobody waits for any more.
    os._exit(0)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: str, open_repository: OpenRepository) -> None:
        super().__init__(path, _Handler)
        self.open_repository = _cached(open_repository)


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        connection: socket.socket = self.request
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        frames = Frames(connection)
        try:
            self._answer(frames)
        except (BrokenPipeError, ConnectionResetError, ProtocolError):
            pass  # the task was cancelled, or its JVM has gone
        except AnabranchError as err:
            _send_error(frames, type(err).__name__, err.problem, err.hint)
        except Exception as err:  # noqa: BLE001 - whatever went wrong, Spark must hear of it
            text = "".join(traceback.format_exception(err))
            _send_error(frames, type(err).__name__, f"{err}\n{text}", "")

    def _answer(self, frames: Frames) -> None:
        arguments = frames.read_json()
        request = Request(arguments, frames, self.server.open_repository)
        op = arguments["op"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if op in _STREAMS:
                _STREAMS[op](request)
            else:
                answer = _ANSWERS[op](request)
                request.drain()
                frames.send_json(answer)


def _send_error(frames: Frames, kind: str, problem: str, hint: str) -> None:
    with suppress(OSError):  # the other side may have gone
        frames.send_error({"error": kind, "problem": problem, "hint": hint})


def _cached(open_repository: OpenRepository) -> OpenRepository:
    """Open each repository once: handles keep what they have read."""
    opened: dict[Any, Any] = {}
    lock = threading.Lock()

    def opener(uri: str, *, actor: str | None, storage_options: Mapping[str, str]) -> Any:
        key = (uri, actor, tuple(sorted(storage_options.items())))
        with lock:
            if key not in opened:
                opened[key] = open_repository(uri, actor=actor, storage_options=storage_options)
            return opened[key]

    return opener
