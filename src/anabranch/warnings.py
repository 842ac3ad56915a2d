"""Warnings of this product, and how a service collects those of one request."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["ExternalWriteWarning", "collect_warnings", "warn_of_external_write"]

_COLLECTED: ContextVar[list[str] | None] = ContextVar("anabranch_warnings", default=None)


class ExternalWriteWarning(UserWarning):
    """A commit was published, and another Lance tool has written to one of its tables.

    The external write is kept, and plain Lance readers see it. `adopt` merges it into the branch; `settle` with `force`
    sets it aside.
    """


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
        warnings.warn(message, ExternalWriteWarning, stacklevel=4)
    elif message not in collected:
        collected.append(message)
