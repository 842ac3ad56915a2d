"""One lock for all methods of an object, so that threads may share it."""

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["atomic", "new_lock"]

P = ParamSpec("P")
R = TypeVar("R")
_LOCK = "_lock"


def new_lock() -> threading.RLock:
    """Return a lock for an object with atomic methods, to be kept as `_lock`. A method may call another one."""
    return threading.RLock()


def atomic(method: Callable[P, R]) -> Callable[P, R]:
    """Let one thread at a time run the atomic methods of an object; others wait."""

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with getattr(args[0], _LOCK):
            return method(*args, **kwargs)

    return run
