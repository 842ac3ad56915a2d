"""Run requests in parallel, and count their progress."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["Steps", "in_parallel", "iter_in_parallel"]

T = TypeVar("T")
R = TypeVar("R")

_AT_A_TIME = 16


def in_parallel(request: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Call `request` for each item and return the results in order. Raise the first error."""
    return list(iter_in_parallel(request, items))


def iter_in_parallel(request: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Like `in_parallel`, but yield each result as soon as it and all results before it are complete."""
    waiting = list(items)
    if len(waiting) < 2:
        yield from map(request, waiting)
        return
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        yield from threads.map(request, waiting)


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
