"""The threads that read previews, shared fairly between tokens."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from anabranch.errors import TooManyRequestsError
from anabranch.server.settings import Limits

__all__ = ["PreviewPool"]

_Result = TypeVar("_Result")


class _Share:
    """The previews of one token: those that run, and those that wait for a thread."""

    def __init__(self, running: int) -> None:
        self.turns = asyncio.Semaphore(running)
        self.requests = 0


class PreviewPool:
    """Run previews in threads of their own, so that slow ones leave the threads of the writers free.

    Each token has a share of the threads. Its further previews wait, and when too many wait they are refused.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = anyio.CapacityLimiter(limits.preview_workers)
        self._shares: dict[str, _Share] = {}

    async def run(self, token_id: str, read: Callable[[], _Result]) -> _Result:
        """Return the result of a read, as soon as the token has a thread for it."""
        share = self._shares.get(token_id)
        if share is None:
            share = self._shares[token_id] = _Share(self._limits.previews_per_token)
        if share.requests >= self._limits.waiting_previews_per_token:
            raise TooManyRequestsError(
                f"{share.requests} previews of this token are under way", hint="wait until some are answered"
            )
        share.requests += 1
        try:
            async with share.turns:
                return await anyio.to_thread.run_sync(read, limiter=self._threads)
        finally:
            share.requests -= 1
            if not share.requests:
                del self._shares[token_id]
