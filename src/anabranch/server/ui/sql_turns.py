"""Whose statement of the SQL console runs next: a few at a time, and one of each token."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.errors import TooManyRequestsError, TooSlowError
from anabranch.server.ui.departure import Departure

__all__ = ["Turns", "gone"]

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
        """Return how many statements of an owner run or wait."""
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
                raise gone()
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


def gone() -> TooSlowError:
    """Return the error of a statement whose visitor left. No visitor reads it."""
    return TooSlowError("the connection was closed before the statement ended", hint="send it again")
