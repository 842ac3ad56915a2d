"""What every request goes through before any route: an id, a size, a time, and no more than so many at once."""

import asyncio
import secrets
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.errors import AnabranchError, TooLargeError, TooManyRequestsError, TooSlowError
from anabranch.server.envelope import TellingException, answer_error
from anabranch.server.settings import Limits
from anabranch.warnings import collect_warnings

__all__ = ["LimitingMiddleware", "WarningMiddleware"]

_ALWAYS_ANSWERED = frozenset({"/health", "/metrics"})


class LimitingMiddleware:
    """Refuses what is too much, in the one form of all errors."""

    def __init__(self, app: ASGIApp, *, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["request_id"] = secrets.token_hex(8)
        if self._running >= self._limits.requests_at_once and scope["path"] not in _ALWAYS_ANSWERED:
            error = TooManyRequestsError(f"{self._running} requests are under way", hint="try again in a moment")
            await answer_error(error)(scope, receive, send)
            return
        self._running += 1
        try:
            await self._limited(scope, receive, send)
        finally:
            self._running -= 1

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        try:
            async with asyncio.timeout(self._limits.request_seconds) as patience:

                def grant(message: Message) -> None:
                    """Large bodies may take longer, as long as they come and go fast enough."""
                    more = len(message.get("body", b"")) / self._limits.slowest_bytes_per_second
                    if not patience.expired():
                        patience.reschedule((patience.when() or 0.0) + more)

                async def noting(message: Message) -> None:
                    nonlocal has_begun
                    has_begun = True
                    await send(message)
                    grant(message)

                most = self._most_bytes(scope)
                _refuse_announced(scope, most)
                await self._app(scope, _counting(receive, most, grant), noting)
        except TimeoutError:
            if has_begun:
                raise
            error = TooSlowError(
                f"the request took more than {self._limits.request_seconds:g} seconds",
                hint="look at what it did before it is sent again",
            )
            await answer_error(error)(scope, receive, send)
        except AnabranchError as err:
            await answer_error(err)(scope, receive, send)

    def _most_bytes(self, scope: Scope) -> int:
        is_upload = _header(scope, b"content-type").startswith(b"multipart/")
        return self._limits.upload_bytes if is_upload else self._limits.body_bytes


class WarningMiddleware:
    """Send the warnings of a request in headers `Anabranch-Warning`, one for each."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with collect_warnings() as warnings:

            async def adding(message: Message) -> None:
                if message["type"] == "http.response.start":
                    added = [(b"anabranch-warning", text.encode("ascii", "backslashreplace")) for text in warnings]
                    message = {**message, "headers": [*message.get("headers", ()), *added]}
                await send(message)

            await self._app(scope, receive, adding)


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")


def _refuse_announced(scope: Scope, most: int) -> None:
    length = _header(scope, b"content-length")
    if length.isdigit() and int(length) > most:
        raise _too_large(most)


def _counting(receive: Receive, most: int, grant: Callable[[Message], None]) -> Receive:
    """Read a body until it is too much, whatever its sender said about it."""
    taken = 0

    async def counted() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > most:
            raise TellingException(_too_large(most))
        grant(message)
        return message

    return counted


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"the body has more than {most} bytes", hint="send less at a time, or a file")
