"""Try again what others were faster with, for a bounded time."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from anabranch.errors import BusyError

__all__ = ["retried"]

_Result = TypeVar("_Result")
_LONGEST_PAUSE_SECONDS = 0.5


def retried(action: Callable[[], _Result], *, seconds: float) -> _Result:
    """Do something again while others are faster; when the time is over, tell who asked."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        try:
            return action()
        except BusyError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(random.uniform(0, pause))  # noqa: S311 - only to come at another moment than the others
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
