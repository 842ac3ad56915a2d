"""A cache with a bound: it keeps the values that were stored last."""

import math
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """The values kept last, at most `limit` of them; threads may share it.

    With a `capacity`, the weights of all kept values are at most that in sum, but the newest value is always kept.
    """

    def __init__(self, limit: int, *, capacity: int | None = None) -> None:
        self._limit = limit
        self._capacity = math.inf if capacity is None else capacity
        self._lock = threading.Lock()
        self._values: dict[K, tuple[V, int]] = {}
        self._weight = 0

    def __len__(self) -> int:
        return len(self._values)

    @property
    def weight(self) -> int:
        """The weights of all kept values in sum."""
        return self._weight

    def find(self, key: K) -> V | None:
        found = self._values.get(key)
        return None if found is None else found[0]

    def keep(self, key: K, value: V, *, weight: int = 1) -> None:
        with self._lock:
            # Removed first, so that the key moves to the end: the dict is in the order of storing.
            _, former = self._values.pop(key, (None, 0))
            self._values[key] = (value, weight)
            self._weight += weight - former
            while len(self._values) > self._limit or (self._weight > self._capacity and len(self._values) > 1):
                self._weight -= self._values.pop(next(iter(self._values)))[1]

    def forget(self, is_stale: Callable[[K], bool]) -> None:
        with self._lock:
            for key in [key for key in self._values if is_stale(key)]:
                self._weight -= self._values.pop(key)[1]
