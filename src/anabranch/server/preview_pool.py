"""The threads that read previews, shared fairly between tokens."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

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
        self._threads = ThreadPoolExecutor(limits.preview_workers, thread_name_prefix="anabranch-preview")
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
            await share.turns.acquire()
        except BaseException:
            self._leave(token_id, share)
            raise
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Result] = loop.create_future()

        def finish(done: Future[_Result]) -> None:
            share.turns.release()
            self._leave(token_id, share)
            if answer.cancelled():
                return
            if (error := done.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(done.result())

        def on_done(done: Future[_Result]) -> None:
            with suppress(RuntimeError):  # the loop is closed when the service stops
                loop.call_soon_threadsafe(finish, done)

        future = self._threads.submit(contextvars.copy_context().run, read)
        # The share is left when the thread is done, not when this coroutine ends: a request that times out is
        # cancelled, but its thread continues to read. One callback for both saves waking the loop twice.
        future.add_done_callback(on_done)
        return await answer

    def close(self) -> None:
        """Drop the previews that wait for a thread."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _leave(self, token_id: str, share: _Share) -> None:
        share.requests -= 1
        if not share.requests:
            del self._shares[token_id]
