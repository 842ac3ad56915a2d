"""The process of the gateway: it answers requests on a Unix socket until the JVM that started it ends."""

import os
import select
import socket
import socketserver
import struct
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError, BranchNotFoundError
from anabranch.hints import Door, words_at
from anabranch.spark.gateway import metadata, procedures, scans, tables, writes
from anabranch.spark.gateway.requests import Frames, ProtocolError, Request
from anabranch.spark.options import OpenRepository
from anabranch.warnings import DurabilityWarning, ExternalWriteWarning

# Increased by every incompatible change for older jars.
PROTOCOL = 1
_SEND_BUFFER = 4 << 20
# Process, user and group of the other side of a Unix socket.
_CREDENTIALS = struct.Struct("3i")

# Operations that answer with one JSON object.
_ANSWERS: Mapping[str, Callable[[Request], Mapping[str, Any]]] = {
    "hello": lambda _: {"protocol": PROTOCOL},
    "list_tables": tables.list_tables,
    "load_table": tables.load_table,
    "load_source": scans.load_source,
    "create_table": tables.create_table,
    "alter_table": tables.alter_table,
    "drop_table": tables.drop_table,
    "rename_table": tables.rename_table,
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
# Operations that send rows.
_STREAMS: Mapping[str, Callable[[Request], None]] = {
    "read_rows": scans.read_rows,
    "read_metadata": metadata.read_metadata,
    "call_procedure": procedures.call_procedure,
}
# Hints in terms of SQL, for errors whose own hint names functions of the library.
_HINTS: Mapping[type[AnabranchError], str] = {
    BranchNotFoundError: "CALL lake.system.list_branches() lists the branches, SELECT * FROM lake.bucket.table.refs"
    " also the tags, and SELECT * FROM lake.bucket.table.history the commits",
}


def serve(path: str, open_repository: OpenRepository, *, idle_seconds: int = 0) -> None:
    """Answer requests at a socket until standard input ends, which happens when the JVM ends.

    With `idle_seconds`, also end after that time without a request, unless a write was begun and has not ended.
    """
    _show_own_warnings()
    with _Server(path, open_repository) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        _wait_for_end(server, idle_seconds)
        _remove_files(path)
    # Threads may still work on requests of disconnected callers.
    os._exit(0)


def _show_own_warnings() -> None:
    """Show warnings about commits on standard error, which is that of the JVM, and no warnings of libraries."""
    warnings.simplefilter("ignore")
    for kind in (DurabilityWarning, ExternalWriteWarning):
        warnings.simplefilter("always", kind)


def _wait_for_end(server: "_Server", idle_seconds: int) -> None:
    stdin = sys.stdin.fileno()
    timeout = max(idle_seconds / 10, 0.1) if idle_seconds else None
    while True:
        # The JVM has the other end of the pipe, which the system also closes if the JVM is killed.
        readable, _, _ = select.select([stdin], [], [], timeout)
        if readable and not os.read(stdin, 1):
            return
        # Only this process has the state of a begun write, which could not be committed after its end.
        if idle_seconds and server.idle_for() > idle_seconds and not writes.has_begun():
            return


def _remove_files(path: str) -> None:
    """Remove the socket, the packages beside it and their folder. A killed JVM does not."""
    socket_file = Path(path)
    for file in (socket_file, *socket_file.parent.glob("anabranch-*.zip")):
        file.unlink(missing_ok=True)
    with suppress(OSError):  # the folder has other files
        socket_file.parent.rmdir()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    # The tasks of a stage connect at the same time, and the default of socketserver is 5.
    request_queue_size = 128

    def __init__(self, path: str, open_repository: OpenRepository) -> None:
        super().__init__(path, _Handler)
        self.open_repository = _cached(open_repository)
        self._lock = threading.Lock()
        self._active = 0
        self._last_end = time.monotonic()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - of socketserver
        """Refuse other users. The folder of the socket also excludes them, unless its mode was changed."""
        if not hasattr(socket, "SO_PEERCRED"):
            return True  # not Linux
        credentials = request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(credentials)
        return bool(user == os.getuid())

    def idle_for(self) -> float:
        """Return the seconds since the last request ended, 0 while one is being answered."""
        with self._lock:
            return 0 if self._active else time.monotonic() - self._last_end

    @contextmanager
    def busy(self) -> Iterator[None]:
        with self._lock:
            self._active += 1
        try:
            yield
        finally:
            with self._lock:
                self._active -= 1
                self._last_end = time.monotonic()


class _Handler(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        connection: socket.socket = self.request
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        frames = Frames(connection)
        try:
            with self.server.busy():
                self._answer(frames)
        except (BrokenPipeError, ConnectionResetError, ProtocolError):
            pass  # the task was cancelled, or its JVM has ended
        except AnabranchError as err:
            hint = words_at(Door.SPARK_SQL, _HINTS.get(type(err), err.hint))
            _send_error(frames, type(err).__name__, err.problem, hint)
        except BaseException as err:  # noqa: BLE001 - Spark gets every error, also a panic of Lance
            text = "".join(traceback.format_exception(err))
            _send_error(frames, type(err).__name__, f"{err}\n{text}", "")

    def _answer(self, frames: Frames) -> None:
        arguments = frames.read_json()
        request = Request(arguments, frames, self.server.open_repository)
        op = arguments["op"]
        if op in _STREAMS:
            _STREAMS[op](request)
        else:
            answer = _ANSWERS[op](request)
            request.drain()
            frames.send_json(answer)


def _send_error(frames: Frames, kind: str, problem: str, hint: str) -> None:
    with suppress(OSError):  # the other side may have disconnected
        frames.send_error({"error": kind, "problem": problem, "hint": hint})


def _cached(open_repository: OpenRepository) -> OpenRepository:
    """Open each repository once: handles cache what they read."""
    opened: dict[Any, Any] = {}
    lock = threading.Lock()

    def opener(uri: str, *, actor: str | None, storage_options: Mapping[str, str]) -> Any:
        key = (uri, actor, tuple(sorted(storage_options.items())))
        with lock:
            if key not in opened:
                opened[key] = open_repository(uri, actor=actor, storage_options=storage_options)
            return opened[key]

    return opener
