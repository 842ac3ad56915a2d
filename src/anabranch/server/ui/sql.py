"""The SQL console: one read-only statement over the tables of a ref, with a bounded result.

Statements run in processes of their own, with limits of memory and time. DuckDB's own limit does not count all memory:
`SELECT repeat('x', 1000000000)` takes gigabytes in spite of it. The limit of a process holds for everything, and a
process that exceeds it ends without harm to the service.

A new process would import Lance, Arrow and DuckDB, which takes seconds. So one process, whose program is `main`,
imports them once and opens nothing. It forks for each statement. All of them end with the process that serves the
pages, also if that is killed: their connections to it are closed then.

The limit of memory needs Linux. Elsewhere a statement runs in the process that serves the pages, and DuckDB limits it.
"""

import atexit
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

from starlette.responses import Response

from anabranch.column_types import show_type
from anabranch.display import Cell, cell_of
from anabranch.errors import (
    AnabranchError,
    InvalidInputError,
    LimitError,
    NotFoundError,
    TooLargeError,
    TooManyRequestsError,
    TooSlowError,
)
from anabranch.files.formats import csv_lines, plain_rows
from anabranch.repo.repository import Repository
from anabranch.server.envelope import status_of
from anabranch.server.ui.requests import Departure
from anabranch.server.ui.responses import answer_text, join_limited
from anabranch.server.ui.site import Page, Shown, Visit, get

T = TypeVar("T")

# DuckDB stops a statement that takes longer.
_SECONDS = 30.0
_LONGEST = 10_000
_COLUMNS = 40
_CELLS = 2000
_TABLES = 50
# Small batches, because each value may be large.
_BATCH_ROWS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlResult:
    """The first rows and columns of a result."""

    columns: tuple[tuple[str, str], ...]
    column_count: int
    rows: tuple[tuple[Cell, ...], ...]
    has_more: bool


def show_sql(visit: Visit) -> Shown:
    """Show the console, and the result of a statement if there is one."""
    ref, sql = visit.ref(), visit.query("sql")
    tables = visit.repository.tables(ref)
    view = {
        "ref": ref,
        "sql": sql,
        "choices": visit.lake.list_choices(),
        "tables": tables[:_TABLES],
        "result": None,
        "problem": None,
    }
    if not sql:
        limited_processes().start()
        return Shown("sql.html", view)
    try:
        return Shown("sql.html", {**view, "result": _run(visit, read_result, sql)})
    # Errors of the statement are shown beside it, so that the visitor can correct it.
    except (InvalidInputError, NotFoundError, LimitError) as err:
        return Shown("sql.html", {**view, "problem": err}, status=status_of(err))


def download_result(visit: Visit) -> Response:
    return answer_text(_run(visit, read_csv, visit.query("sql")), name="result.csv", media_type="text/csv")


def _run(visit: Visit, read: Callable[[Repository, str, str], T], sql: str) -> T:
    """Run a statement as long as the visitor waits for it."""
    if len(sql) > _LONGEST:
        raise InvalidInputError(
            f"the SQL has {len(sql)} characters, at most {_LONGEST} are allowed", hint="use 'anabranch sql'"
        )
    work = partial(read, visit.repository, sql, visit.ref())
    return limited_processes().run(work, seconds=_SECONDS, owner=visit.session.token_id, departure=visit.departure)


def read_csv(repository: Repository, sql: str, ref: str) -> str:
    """Return the whole result of a statement as CSV. Runs in a process of its own."""
    with repository.sql_reader(sql, ref, timeout=_SECONDS, batch_rows=_BATCH_ROWS) as reader:
        hint = "select fewer rows, or use 'anabranch sql --csv'"
        return join_limited(csv_lines(reader.schema.names, reader), hint=hint)


def read_result(repository: Repository, sql: str, ref: str) -> SqlResult:
    """Return the first rows of the result of a statement. Runs in a process of its own."""
    with repository.sql_reader(sql, ref, timeout=_SECONDS, batch_rows=_BATCH_ROWS) as reader:
        fields = list(reader.schema)[:_COLUMNS]
        # A maximum of cells, not of rows, so that the page has about the same size for wide and narrow results.
        most = _CELLS // max(1, len(fields))
        rows: list[tuple[Cell, ...]] = []
        for batch in reader:
            # Only what is shown becomes Python values.
            part = batch.slice(0, most + 1 - len(rows)).select(list(range(len(fields))))
            rows += [tuple(map(cell_of, row)) for row in plain_rows(part)]
            # One more than the page shows is enough to know that there are more.
            if len(rows) > most:
                break
    return SqlResult(
        columns=tuple((field.name, show_type(field.type)) for field in fields),
        column_count=len(reader.schema),
        rows=tuple(rows[:most]),
        has_more=len(rows) > most,
    )


# The maximum number of statements of one token that run, and that run or wait: others must get their turn.
_RUNNING_OF_OWNER = 1
_OPEN_OF_OWNER = 4


class Turns:
    """A number of statements that run, and of others that wait. More are refused.

    The owner of a statement is a token of a service. It is None for the visitor of a repository on this machine, who
    has all turns.
    """

    def __init__(self, *, at_once: int, waiting: int) -> None:
        self._at_once = at_once
        self._most_open = at_once + waiting
        self._changed = threading.Condition()
        self._open: Counter[str | None] = Counter()
        self._running: Counter[str | None] = Counter()

    def count(self, owner: str | None) -> int:
        return self._open[owner]

    @contextmanager
    def turn(self, owner: str | None, *, seconds: float, departure: Departure) -> Iterator[None]:
        """Wait for a turn. Raise TooManyRequestsError if too many wait, or if the time is over."""
        with self._changed:
            is_greedy = owner is not None and self._open[owner] >= _OPEN_OF_OWNER
            if is_greedy or self._open.total() >= self._most_open:
                raise _busy()
            self._open[owner] += 1
        try:
            self._wait(owner, seconds=seconds, departure=departure)
            try:
                yield
            finally:
                self._subtract(self._running, owner)
        finally:
            self._subtract(self._open, owner)

    def _wait(self, owner: str | None, *, seconds: float, departure: Departure) -> None:
        with departure.stopping(self._notify), self._changed:
            is_free = self._changed.wait_for(lambda: departure.has_left or self._is_free(owner), timeout=seconds)
            if departure.has_left:
                raise _gone()
            if not is_free:
                raise _busy()
            self._running[owner] += 1

    def _is_free(self, owner: str | None) -> bool:
        is_greedy = owner is not None and self._running[owner] >= _RUNNING_OF_OWNER
        return not is_greedy and self._running.total() < self._at_once

    def _subtract(self, counter: Counter[str | None], owner: str | None) -> None:
        with self._changed:
            counter[owner] -= 1
            if not counter[owner]:
                del counter[owner]
            self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _busy() -> TooManyRequestsError:
    return TooManyRequestsError("other statements are running", hint="try again in a moment")


def _gone() -> TooSlowError:
    """Return the error of a statement whose visitor left. No visitor reads it."""
    return TooSlowError("the connection was closed before the statement ended", hint="send it again")


_MEMORY_BYTES = 1 << 30
# DuckDB stops a statement by itself, but not while it computes one large value. Then the process is ended.
_EXTRA_SECONDS = 2.0
# Statements that run at the same time. Others wait for their turn.
_AT_ONCE = 2
# Each waiting statement keeps a thread of the server, which other pages need too.
_WAITING = 8
# The longest time for the imports and a fork, on a busy machine.
_START_SECONDS = 60.0
_PROGRAM = "from anabranch.server.ui.sql import main; main()"
# What all statements need. The process that forks imports it once.
_IMPORTED = ("anabranch.duck.engine", "anabranch.format.dataset")
_STATUS = Path("/proc/self/status")
_READY = b"r"


@cache
def limited_processes() -> "LimitedProcesses":
    """Return the processes of this process. The first one starts when it is needed."""
    processes = LimitedProcesses()
    atexit.register(processes.close)
    return processes


class LimitedProcesses:
    """Runs functions in forked processes that may take a limited amount of memory and time."""

    def __init__(self, *, memory_bytes: int = _MEMORY_BYTES, at_once: int = _AT_ONCE, waiting: int = _WAITING) -> None:
        self._memory_bytes = memory_bytes
        self.turns = Turns(at_once=at_once, waiting=waiting)
        self._starting = threading.Lock()
        self._control: socket.socket | None = None
        self._forking: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process that forks, without waiting until it is ready."""
        if _STATUS.exists():
            with self._starting:
                self._started()

    def close(self) -> None:
        """End the process that forks. It starts again when it is needed."""
        with self._starting:
            self._close()

    def run(
        self, work: Callable[[], T], *, seconds: float, owner: str | None = None, departure: Departure | None = None
    ) -> T:
        """Return the result of a function that can be pickled, and so can its result.

        Raise what it raises, TooLargeError if it takes too much memory, and TooSlowError if it takes too much time, or
        if the visitor leaves. The function takes a turn of the owner.
        """
        leaving = departure or Departure()
        with self.turns.turn(owner, seconds=seconds, departure=leaving):
            return cast(T, self._run(work, seconds, leaving)) if _STATUS.exists() else work()

    def _run(self, work: Callable[[], Any], seconds: float, departure: Departure) -> Any:
        with (
            self._connect() as connection,
            connection.makefile("rwb") as pipe,
            # The other process ends when the connection is shut down.
            departure.stopping(partial(_shut_down, connection)),
        ):
            pickle.dump((pickle.dumps(work), self._memory_bytes, seconds + _EXTRA_SECONDS), pipe)
            pipe.flush()
            # The process ends itself, unless it cannot, for example because the machine was suspended.
            connection.settimeout(seconds + _START_SECONDS)
            began = time.monotonic()
            try:
                result = pickle.load(pipe)  # noqa: S301 - from a process of this module
            # The process ended before its answer: by the alarm, or because memory could not be allocated.
            except (EOFError, pickle.UnpicklingError, OSError) as err:
                if departure.has_left:
                    raise _gone() from err
                if time.monotonic() - began >= seconds:
                    raise TooSlowError(f"the SQL took more than {seconds:g} seconds", hint="read fewer rows") from err
                raise _too_large(self._memory_bytes) from err
        if isinstance(result, MemoryError):
            raise _too_large(self._memory_bytes)
        if isinstance(result, AnabranchError | RuntimeError):
            raise result
        return result

    def _connect(self) -> socket.socket:
        """Return a connection to a new process."""
        # The process that forks may have ended, for example because a user ended it. Then it is started again.
        connection = self._fork() or self._fork()
        if connection is None:
            raise RuntimeError("the process of the SQL console cannot be started; its standard error gives the reason")
        return connection

    def _fork(self) -> socket.socket | None:
        """Return a connection to a new process that has reported its start, None if it did not start."""
        with self._starting:
            control = self._started()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(control, [b"x"], [theirs.fileno()])
            ours.settimeout(_START_SECONDS)
            if ours.recv(1) == _READY:
                return ours
        except OSError:
            pass
        ours.close()
        with self._starting:
            if self._control is control:  # another thread may have started the next one
                self._close()
        return None

    def _started(self) -> socket.socket:
        """Return the connection to the process that forks. The caller holds the lock."""
        if self._control is None:
            ours, theirs = socket.socketpair()
            # The modules of this process. Without `-P`, those of the working directory would come first.
            paths = [path or os.getcwd() for path in sys.path]
            with theirs:
                self._forking = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-P", "-c", _PROGRAM],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                    process_group=0,  # Ctrl+C is for the process that serves the pages
                )
            self._control = ours
        return self._control

    def _close(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._forking is not None:
            self._forking.kill()
            self._forking.wait()
        self._control = self._forking = None


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # it may be closed already
        connection.shutdown(socket.SHUT_RDWR)


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(
        f"the SQL needs more than {most >> 20:,} MiB of memory",
        hint="select fewer rows or columns, or shorter values, or aggregate them",
    )


def main() -> None:
    """Fork a process for each connection that arrives at the standard input, until that is closed."""
    for name in _IMPORTED:
        import_module(name)
    # This process has opened nothing, so its threads are idle.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forked processes leave nothing to wait for
    control = socket.socket(fileno=os.dup(0))
    # Forked processes must not keep the connection open after this process has ended.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        if os.fork() == 0:
            try:
                control.close()
                _serve(socket.socket(fileno=descriptors[0]))
            finally:
                os._exit(0)
        os.close(descriptors[0])


def _serve(connection: socket.socket) -> None:
    connection.sendall(_READY)
    with connection.makefile("rwb") as pipe:
        work, memory_bytes, seconds = pickle.load(pipe)  # noqa: S301 - from the process that serves the pages
        signal.setitimer(signal.ITIMER_REAL, seconds)
        threading.Thread(target=_end_with, args=[connection], daemon=True).start()
        _limit_memory(memory_bytes)
        pipe.write(_answer(work))


def _end_with(connection: socket.socket) -> None:
    """End this process when the other end is closed: no process waits for the answer any more."""
    connection.recv(1)
    os._exit(1)


def _answer(work: bytes) -> bytes:
    try:
        return pickle.dumps(pickle.loads(work)())  # noqa: S301 - from the process that serves the pages
    except (AnabranchError, MemoryError) as err:
        return pickle.dumps(err)
    except Exception:  # noqa: BLE001 - a bug, which is reported where the pages are served
        return pickle.dumps(RuntimeError(f"a statement failed in its process:\n{traceback.format_exc()}"))


def _limit_memory(more: int) -> None:
    """Limit the memory of this process to what it has now, such as what the imports have reserved, and more."""
    import resource  # not on Windows

    lines = _STATUS.read_text().splitlines()
    most = more + next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


PAGES: tuple[Page, ...] = (get("/sql", show_sql, is_long=True), get("/sql.csv", download_result, is_long=True))
