"""Threads that requests share: each token has a part of them, so that slow requests of one do not stop others."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from anabranch.errors import TooManyRequestsError
from anabranch.server.settings import Limits

_Result = TypeVar("_Result")
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


@dataclass
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
        # A share lives as long as a request of its token uses it.
        self._shares: WeakValueDictionary[str | None, _Share] = WeakValueDictionary()

    async def run(self, token_id: str | None, work: Callable[[], _Result]) -> _Result:
        """Return the result of a function, as soon as the token has a thread for it."""
        limits = self._limits
        most = limits.shared_threads if token_id is None else limits.shared_threads_per_token
        share = self._shares.setdefault(token_id, _Share(asyncio.Semaphore(most)))
        if share.requests >= limits.shared_requests_per_token:
            raise TooManyRequestsError(
                f"{share.requests} {self._noun} of this token are running", hint="wait until some are answered"
            )
        # Counted before the wait: requests that wait for a thread count towards the limit.
        share.requests += 1
        try:
            await share.turns.acquire()
        except BaseException:  # the request was cancelled while it waited
            share.requests -= 1
            raise

        def leave(_: object) -> None:
            share.turns.release()
            share.requests -= 1

        # With the context of the request, in which its warnings are collected.
        context = contextvars.copy_context()
        running = asyncio.get_running_loop().run_in_executor(self._threads, context.run, work)
        # The share is left when the thread is done, not when this coroutine ends: a request that times out is
        # cancelled, but its thread continues to work.
        running.add_done_callback(leave)
        return await asyncio.shield(running)

    def close(self) -> None:
        """Drop the work that waits for a thread."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def in_threads(name: str) -> Callable[[_Endpoint], _Endpoint]:
    """Run a route in the threads of the service with this name."""

    def mark(endpoint: _Endpoint) -> _Endpoint:
        endpoint.threads = name  # type: ignore[attr-defined]
        return endpoint

    return mark
