"""Let writers of one table in one process wait for each other, instead of staging work that loses the race.

This saves work and is not needed for correctness: a writer that cannot wait safely, or has waited long enough,
continues, and publishing decides.
"""

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec, TypeVar

from anabranch.ids import BranchName, TableKey

__all__ = ["WRITERS", "Writer", "WriterQueue", "atomic"]


# The repository's root, the branch and the table.
Key = tuple[str, BranchName, TableKey]

# Longer than most transactions take. After that, staging beside the holder costs only work that may be lost.
_PATIENCE_SECONDS = 10.0
# How often a waiting writer checks whether the holder was dropped, which notifies no one.
_POLL_SECONDS = 0.1


@dataclass(slots=True, weakref_slot=True, eq=False)
class Writer:
    """One transaction in the queue. The queue does not keep it alive, so a dropped one does not block others."""

    thread: int = field(default_factory=threading.get_ident)


@dataclass(slots=True)
class WriterQueue:
    """Which writer holds which table. `generation` increases whenever a writer finishes."""

    patience_seconds: float = _PATIENCE_SECONDS
    generation: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _turns: dict[Key, weakref.ref[Writer]] = field(default_factory=dict)

    def take(self, writer: Writer, key: Key) -> None:
        """Wait a bounded time for a key; after that the writer holds it until it leaves."""
        deadline = time.monotonic() + self.patience_seconds
        with self._changed:
            while self._holder(key) not in {None, writer}:
                # It continues without a turn, and publishing decides. To wait here could make two threads wait for
                # each other.
                if self._must_not_wait(key):
                    return
                # The holder may be open for hours, for example in a notebook. This writer takes its turn, so that the
                # next one waits for this one.
                if (left := deadline - time.monotonic()) <= 0:
                    break
                self._changed.wait(min(left, _POLL_SECONDS))
            self._turns[key] = weakref.ref(writer)

    def leave(self, writer: Writer) -> None:
        with self._changed:
            for key in list(self._turns):
                # Turns of dropped writers end, too. One that another writer has taken over stays.
                if self._holder(key) in {None, writer}:
                    del self._turns[key]
            self.generation += 1
            self._changed.notify_all()

    def _holder(self, key: Key) -> Writer | None:
        turn = self._turns.get(key)
        return None if turn is None else turn()

    def _must_not_wait(self, key: Key) -> bool:
        """Whether this thread holds the key, or a later one that others may wait for while they hold this one.

        Keys are waited for in their order only, so that no two threads wait for each other.
        """
        later = [self._holder(other) for other in list(self._turns) if other >= key]
        return any(holder is not None and holder.thread == threading.get_ident() for holder in later)


# The writers of this process.
WRITERS = WriterQueue()


P = ParamSpec("P")
R = TypeVar("R")
_LOCK = "_lock"


def atomic(method: Callable[P, R]) -> Callable[P, R]:
    """Let one thread at a time run the atomic methods of an object; others wait.

    The object keeps an RLock as `_lock`, so that a method may call another one.
    """

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with getattr(args[0], _LOCK):
            return method(*args, **kwargs)

    return run
