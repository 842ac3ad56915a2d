"""Warnings of this product, and how a service collects those of one request."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# A context variable, because `warnings.catch_warnings` changes the whole process: concurrent requests would collect
# each other's warnings.
_COLLECTED: ContextVar[list[str] | None] = ContextVar("anabranch_warnings", default=None)


class DurabilityWarning(UserWarning):
    """A change is visible to all readers, and the disk failed before it confirmed that it keeps the change.

    The change may be lost with a power loss. Check the disk, and then whether the change is there.
    """


class ExternalWriteWarning(UserWarning):
    """A commit was published, and another Lance tool has written to one of its tables.

    The external write is kept, and plain Lance readers see it. `adopt` merges it into the branch; `settle` with `force`
    sets it aside.
    """


class UnreadableRefWarning(UserWarning):
    """A ref file could not be read, and is missing from a list of branches or tags."""


class UnregisteredCloneWarning(UserWarning):
    """The source of a shallow clone is read-only, so its garbage collection does not know of the clone."""


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect the warnings of a block in a list, also from the threads that it starts with its context."""
    found: list[str] = []
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)


def warn_of_external_write(message: str) -> None:
    """Issue an ExternalWriteWarning, or hand it to the collector of the running block."""
    collected = _COLLECTED.get()
    if collected is None:
        warnings.warn(message, ExternalWriteWarning, stacklevel=_level_of_caller())
    elif message not in collected:
        collected.append(message)


def _level_of_caller() -> int:
    """Return the stack level of the code that called this package: a warning names that line, not one of ours."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "anabranch":
        level, frame = level + 1, frame.f_back
    return level
