"""The threads in which pages are made: apart from those of the JSON routes, with a share for each token."""

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakValueDictionary

from anyio import CapacityLimiter, to_thread

__all__ = ["PageThreads"]

T = TypeVar("T")

_AT_ONCE = 16
_OF_OWNER = 4


class PageThreads:
    """Runs functions in threads. A page may compare or sort whole tables, so that many at once must not stop others.

    The owner is a token of a service, None for the visitor of a repository on this machine.
    """

    def __init__(self) -> None:
        self._all: CapacityLimiter | None = None
        # A limiter lives as long as a request of its owner uses it.
        self._by_owner: WeakValueDictionary[str, CapacityLimiter] = WeakValueDictionary()

    async def run(self, owner: str | None, work: Callable[[], T]) -> T:
        """Return the result of a function, when a thread is free."""
        if self._all is None:  # not before there is an event loop
            self._all = CapacityLimiter(_AT_ONCE)
        if owner is None:
            return await to_thread.run_sync(work, limiter=self._all)
        share = self._by_owner.setdefault(owner, CapacityLimiter(_OF_OWNER))
        async with share:
            return await to_thread.run_sync(work, limiter=self._all)
