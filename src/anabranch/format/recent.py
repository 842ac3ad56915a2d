"""What was looked up last, kept at hand."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Recent"]

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The values kept last, at most `limit` of them; threads may share it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()

    def find(self, key: K) -> V | None:
        with self._lock:
            return self._values.get(key)

    def keep(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._limit:
                self._values.popitem(last=False)

    def forget(self, is_stale: Callable[[K], bool]) -> None:
        with self._lock:
            for key in [key for key in self._values if is_stale(key)]:
                del self._values[key]
