"""Many requests at a time."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_parallel", "iter_in_parallel"]

T = TypeVar("T")
R = TypeVar("R")

_AT_A_TIME = 16


def in_parallel(request: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Make a request for each item and return the answers in order; raise the first error."""
    return list(iter_in_parallel(request, items))


def iter_in_parallel(request: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The same, each answer as soon as it and all before it are there."""
    waiting = list(items)
    if len(waiting) < 2:
        yield from map(request, waiting)
        return
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        yield from threads.map(request, waiting)
