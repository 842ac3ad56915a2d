"""Storage and upkeep: bytes by branch, garbage collection and the doctor.

Each runs on request in a thread of its own, because it reads the whole lake. While it runs, the page shows its progress
and reloads itself.
"""

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from anabranch.errors import TooManyRequestsError
from anabranch.server.auth import Scope
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, parse_days, parse_number, post
from anabranch.storage.requests import OnProgress, Progress

# Shorter work is answered at once.
_WAIT_SECONDS = 1.0
# A result that was not opened is computed again after that time.
_FRESH_SECONDS = 60.0
# The limits of work that runs at once in a process, of all its work that is kept, and of that of one lake.
_AT_ONCE = 2
_MOST_WORK = 20
_MOST_OF_LAKE = 4


class _StoppedError(Exception):
    """Raised in the thread of the work to end it. Not an AnabranchError, so that no retry catches it."""


@dataclass(slots=True)
class Work:
    """Work that runs or has ended, and its progress."""

    future: Future[Any]
    began: float
    ended: float | None = None
    progress: Progress | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def is_stale(self) -> bool:
        return self.ended is not None and time.monotonic() - self.ended > _FRESH_SECONDS


class Workshop:
    """The work that visitors requested, by its key. The same work is done once at a time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="anabranch-upkeep")
        self._changing = threading.Lock()
        self._by_key: dict[tuple[Hashable, ...], Work] = {}
        self._is_closed = False

    def request(self, key: tuple[Hashable, ...], make: Callable[[OnProgress], object]) -> Work:
        """Return the work of a key, after a short time in which it may end. A result is returned once.

        The first part of the key is the lake. The visitors of one lake must not take all turns.
        """
        with self._changing:
            work = self._by_key.get(key)
            if work is None or work.is_stale:
                work = self._start(key, make)
        with suppress(TimeoutError, Exception):  # the caller reads the error from the future
            work.future.result(timeout=_WAIT_SECONDS)
        if work.future.done():
            with self._changing:
                # Another visitor may have got the same result before, and requested the next one since.
                if self._by_key.get(key) is work:
                    del self._by_key[key]
        return work

    def close(self) -> None:
        """Stop the work that runs, at its next report of progress, and the work that waits.

        Python waits for all threads before the process ends. Without this, Ctrl-C would seem to do nothing.
        """
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start(self, key: tuple[Hashable, ...], make: Callable[[OnProgress], object]) -> Work:
        for old in [name for name, one in self._by_key.items() if one.is_stale]:
            del self._by_key[old]
        of_lake = sum(other[0] == key[0] for other in self._by_key)
        if of_lake >= _MOST_OF_LAKE or len(self._by_key) >= _MOST_WORK:
            raise TooManyRequestsError("other measurements are running", hint="try again later")
        work = Work(future=Future(), began=time.monotonic())

        def report(progress: Progress) -> None:
            work.progress = progress
            if self._is_closed:
                raise _StoppedError

        def run() -> None:
            try:
                work.future.set_result(make(report))
            except BaseException as err:  # noqa: BLE001 - raised where the result is read
                work.future.set_exception(err)
            work.ended = time.monotonic()

        self._threads.submit(run)
        self._by_key[key] = work
        return work


_HOLDERS = 100
_OBJECTS = 200
_FINDINGS = 200
_RELOAD_SECONDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which history a garbage collection keeps. None keeps all."""

    keep_last: int | None
    keep_newer_than: timedelta | None

    @classmethod
    def of(cls, keep_last: str, keep_days: str) -> "Policy":
        last = parse_number(keep_last, "number of commits", most=36_500, hint="for example 30") if keep_last else None
        return cls(keep_last=last, keep_newer_than=parse_days(keep_days))


def show_storage(visit: Visit) -> Shown:
    """Measure, try a garbage collection, or run the doctor, as the visitor requests."""
    repository, show = visit.repository, visit.query("show")
    policy = Policy.of(visit.query("keep_last"), visit.query("keep_days"))
    makers: Mapping[str, Callable[[OnProgress], Any]] = {
        "storage": lambda progress: repository.storage_report(**asdict(policy), progress=progress),
        # A GET request deletes nothing: a link of another page could cause it. The deletion is a form with a token.
        "gc": lambda progress: repository.gc(**asdict(policy), dry_run=True, progress=progress),
        "doctor": lambda progress: repository.doctor(progress=progress),
    }
    view = {
        "policy": policy,
        "work": None,
        **dict.fromkeys(makers),
        "most": {"holders": _HOLDERS, "objects": _OBJECTS, "findings": _FINDINGS},
        "reload_seconds": _RELOAD_SECONDS,
    }
    if show not in makers:
        return Shown("storage.html", view)
    workshop: Workshop = visit.request.app.state.workshop
    work = workshop.request((visit.lake.identity, show, policy), makers[show])
    if work.future.done():
        return Shown("storage.html", {**view, show: work.future.result()})
    # A header, because a page that reloads itself by an element is not accessible to all readers of screens.
    return Shown("storage.html", {**view, "work": work}, headers={"Refresh": str(_RELOAD_SECONDS)})


def collect_garbage(visit: Visit) -> Redirect:
    """Free the space of data that the policy does not keep."""
    report = visit.repository.gc(**asdict(Policy.of(visit.field("keep_last"), visit.field("keep_days"))))
    return Redirect("/storage", f"Deleted {len(report.objects):,} objects of {report.bytes:,} bytes.")


PAGES: tuple[Page, ...] = (get("/storage", show_storage, needs=Scope.PROJECT), post("/storage/gc", collect_garbage))
