"""Threads that requests share: each token has a part of them, so that slow requests of one do not stop others."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from anabranch.errors import TooManyRequestsError
from anabranch.server.settings import Limits

_Result = TypeVar("_Result")


@dataclass(slots=True)
class _Share:
    """The work of one token: the threads that it may still use, and the number of its requests."""

    turns: asyncio.Semaphore
    requests: int = 0


class SharedThreads:
    """Runs one kind of work in threads of its own, so that the threads of the other requests stay free.

    Each token has a share of the threads. Its further work waits, and when too much waits it is refused. The token is
    None for the visitor of a repository on this machine, who may use all threads.
    """

    def __init__(self, noun: str, limits: Limits) -> None:
        self._noun = noun
        self._limits = limits
        self._threads = ThreadPoolExecutor(limits.shared_threads, thread_name_prefix=f"anabranch-{noun}")
        self._shares: dict[str | None, _Share] = {}

    async def run(self, token_id: str | None, work: Callable[[], _Result]) -> _Result:
        """Return the result of a function, as soon as the token has a thread for it."""
        limits = self._limits
        running = limits.shared_threads if token_id is None else limits.shared_threads_per_token
        share = self._shares.setdefault(token_id, _Share(asyncio.Semaphore(running)))
        if share.requests >= limits.shared_requests_per_token:
            raise TooManyRequestsError(
                f"{share.requests} {self._noun} of this token are running", hint="wait until some are answered"
            )
        # Counted before the wait: requests that wait for a thread count towards the limit.
        share.requests += 1
        try:
            await share.turns.acquire()
        # The request was cancelled while it waited, so no thread will leave the share for it.
        except BaseException:
            self._leave(token_id, share)
            raise
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Result] = loop.create_future()

        def finish(done: Future[_Result]) -> None:
            share.turns.release()
            self._leave(token_id, share)
            # The request timed out. A cancelled future does not accept a result.
            if answer.cancelled():
                return
            if (error := done.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(done.result())

        def on_done(done: Future[_Result]) -> None:
            with suppress(RuntimeError):  # the loop is closed when the service stops
                loop.call_soon_threadsafe(finish, done)

        # With the context of the request, in which its warnings are collected.
        future = self._threads.submit(contextvars.copy_context().run, work)
        # The share is left when the thread is done, not when this coroutine ends: a request that times out is
        # cancelled, but its thread continues to work. One callback for both saves waking the loop twice.
        future.add_done_callback(on_done)
        return await answer

    def close(self) -> None:
        """Drop the work that waits for a thread."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _leave(self, token_id: str | None, share: _Share) -> None:
        share.requests -= 1
        # A share that is not used is dropped: there is no bound on the number of tokens over time.
        if not share.requests:
            del self._shares[token_id]
