"""Progress of work that several threads do."""

import threading
from collections.abc import Callable

__all__ = ["Steps"]


class Steps:
    """Count what is done, of how much that is known by now."""

    def __init__(self, progress: Callable[[int, int], None], total: int = 0) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._total = total
        self._done = 0

    def expect(self, count: int) -> None:
        """Say that there is more to do."""
        with self._lock:
            self._total += count
            self._progress(self._done, self._total)

    def done(self) -> None:
        with self._lock:
            self._done += 1
            self._progress(self._done, self._total)
