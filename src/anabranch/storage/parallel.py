"""Many requests at a time."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_parallel"]

T = TypeVar("T")
R = TypeVar("R")

_AT_A_TIME = 16


def in_parallel(request: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Make a request for each item and return the answers in order; raise the first error."""
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        return list(threads.map(request, items))
