"""Notice that a visitor left while a page is made, so that long work for it can stop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from starlette.exceptions import HTTPException
from starlette.requests import Request

from anabranch.errors import AnabranchError

__all__ = ["Departure", "noticing_departure"]


class Departure:
    """Whether the visitor of a page has left, and what stops then."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._stops: list[Callable[[], None]] = []
        self.has_left = False

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call a function if the visitor leaves inside, or has left before."""
        with self._changing:
            self._stops.append(stop)
            has_left = self.has_left
        if has_left:
            stop()
        try:
            yield
        finally:
            with self._changing:
                self._stops.remove(stop)

    def leave(self) -> None:
        with self._changing:
            self.has_left = True
            stops = list(self._stops)
        for stop in stops:
            stop()


@asynccontextmanager
async def noticing_departure(request: Request) -> AsyncIterator[Departure]:
    """Yield what notices that the client closes the connection."""
    departure = Departure()

    async def watch() -> None:
        # A body of a GET request is of no use, and its errors neither.
        with suppress(AnabranchError, HTTPException):
            while (await request.receive())["type"] != "http.disconnect":
                pass
            departure.leave()

    watching = asyncio.create_task(watch())
    try:
        yield departure
    finally:
        watching.cancel()
