"""An event loop of its own for a test."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_apart(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine in another thread: the browser of other tests has an event loop in this one."""
    with ThreadPoolExecutor(1) as outside:
        return outside.submit(lambda: asyncio.run(work())).result()
