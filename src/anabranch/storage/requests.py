"""Requests to stores: exactly once, in parallel, with progress, and not in a forked process.

In a forked child process the thread pools of obstore and Lance are dead, and a request would hang. Only a child of a
process that used them before the fork is affected: a parent that has imported everything but opened nothing may fork.
New handles in the child do not help, because the pools belong to the process.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from typing import Protocol, TypeVar

from anabranch.errors import ForkError, ObjectExistsError, ObjectNotFoundError, StorageError
from anabranch.storage.uris import is_local

T = TypeVar("T")
R = TypeVar("R")

# Of one call, and of all calls of the process.
_AT_A_TIME = 16
_THREADS = 64


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads of this process, started when they are first needed."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="anabranch")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child gets its own


class SupportsPut(Protocol):
    """What `put_once` needs of an object store."""

    def get(self, path: str) -> bytes: ...
    def put_if_absent(self, path: str, data: bytes, *, durable: bool, after: Sequence[str]) -> None: ...


def put_once(store: SupportsPut, path: str, data: bytes, *, durable: bool = True, after: Sequence[str] = ()) -> bool:
    """Put an object if it does not exist. Return False if another writer has put a different one.

    The answer to a put can get lost, and a retried put then finds the object of its own first try. So after any
    failure, read the object and compare. `durable` and `after` are those of `put_if_absent`.
    """
    try:
        store.put_if_absent(path, data, durable=durable, after=after)
    except (ObjectExistsError, StorageError) as err:
        try:
            return store.get(path) == data
        # The object is not there, so the put failed for the reason that it gave.
        except ObjectNotFoundError:
            raise err from None
    return True


def at_once(root: str) -> int:
    """Return how many requests for one table to send at a time: one on a local disk, which answers at once.

    There, threads cost more than they save, and the tables of a commit are worked on in parallel.
    """
    return 1 if is_local(root) else _AT_A_TIME


def in_parallel(request: Callable[[T], R], items: Iterable[T], *, at_a_time: int = _AT_A_TIME) -> list[R]:
    """Call `request` for each item and return the results in order. Raise the first error."""
    waiting = list(items)
    if len(waiting) == 1:
        return [request(waiting[0])]
    return list(iter_in_parallel(request, waiting, at_a_time=at_a_time))


def iter_in_parallel(request: Callable[[T], R], items: Iterable[T], *, at_a_time: int = _AT_A_TIME) -> Iterator[R]:
    """Like `in_parallel`, but yield each result as soon as it and all results before it are complete.

    The calling thread works too. So a request may itself call `in_parallel`: it never waits for a free thread.
    """
    waiting = list(items)
    # Without threads for a single request: to start one takes longer than the request on a local disk.
    if len(waiting) < 2 or at_a_time < 2:
        yield from map(request, waiting)
        return
    answers: list[Future[R]] = [Future() for _ in waiting]
    todo = deque(zip(waiting, answers, strict=True))
    # One fewer than allowed, because the calling thread is the last one.
    count = min(len(waiting), at_a_time) - 1
    helpers = [_threads().submit(_send, request, todo, is_done=lambda: False) for _ in range(count)]
    try:
        for answer in answers:
            _send(request, todo, is_done=answer.done)
            yield answer.result()
    finally:
        todo.clear()  # after an error, or if the caller wants no more
        # Requests in flight are awaited: they must not touch files after the caller has cleaned up.
        wait([helper for helper in helpers if not helper.cancel()])


def _send(request: Callable[[T], R], todo: deque[tuple[T, Future[R]]], *, is_done: Callable[[], bool]) -> None:
    """Send the next requests until `is_done` or none is left."""
    while todo and not is_done():
        try:
            item, answer = todo.popleft()
        except IndexError:
            return  # another thread took the last one
        try:
            answer.set_result(request(item))
        except BaseException as err:
            answer.set_exception(err)  # raised by the thread that reads the answer
            if not isinstance(err, Exception):
                raise  # such as KeyboardInterrupt, at once


@dataclass(slots=True)
class _Process:
    has_used_threads: bool = False
    is_forked: bool = False

    def mark_forked(self) -> None:
        self.is_forked = self.is_forked or self.has_used_threads


_PROCESS = _Process()
os.register_at_fork(after_in_child=_PROCESS.mark_forked)


def check_process() -> None:
    """Raise ForkError if this process was forked from one that had used a store or a dataset."""
    if _PROCESS.is_forked:
        raise ForkError(
            f"process {os.getpid()} was forked after its parent had opened a repository or dataset",
            hint="start processes with multiprocessing.get_context('spawn'), or fork before anything is opened",
        )
    _PROCESS.has_used_threads = True


class Steps:
    """Progress of work in several threads: the steps done, and the number of steps known so far."""

    def __init__(self, progress: Callable[[int, int], None], total: int = 0) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._total = total
        self._done = 0

    def expect(self, count: int) -> None:
        """Add to the number of steps."""
        with self._lock:
            self._total += count
            self._progress(self._done, self._total)

    def done(self) -> None:
        """Count one step as done."""
        with self._lock:
            self._done += 1
            self._progress(self._done, self._total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an operation is: `done` of `total`. `stage` names what is counted, such as 'tables' or 'bytes'.

    `rows` is the number of rows that were read or written so far. It is 0 where rows are not counted. An operation that
    has more to report passes a subclass: pipelines pass `anabranch.types.StepProgress` and `BackfillProgress`.
    """

    stage: str
    done: int
    total: int
    rows: int = 0


# Every `progress=` callback is one.
OnProgress = Callable[[Progress], None]


def ignore_progress(_progress: Progress) -> None:
    """Do nothing."""


def counting(progress: OnProgress | None, stage: str) -> Callable[[int, int], None]:
    """Return a function of `done` and `total` that reports the progress of one stage."""

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(Progress(stage=stage, done=done, total=total))

    return report
