"""Limits of requests: the ASGI middleware with those of size, time and number, and threads that tokens share.

The middleware also gives each request an id, and adds warnings to answers as headers.
"""

import asyncio
import contextvars
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.errors import AnabranchError, TooLargeError, TooManyRequestsError, TooSlowError
from anabranch.hints import Door, words_at
from anabranch.server.auth import Token, find_secret
from anabranch.server.envelope import EnvelopeException
from anabranch.server.settings import Limits
from anabranch.warnings import collect_warnings

# The ends of the paths of routes that write a file of a form to disk.
_UPLOAD_PATHS = ("/import", "/files")
_UI_PATH = "/ui/"
# Monitoring has to work when all slots are in use.
_ALWAYS_ANSWERED = frozenset({"/health", "/metrics"})


@dataclass(slots=True)
class _Slots:
    """A limit shared by all running requests, such as their number or the bytes of their bodies."""

    limit: int
    used: int = 0


class RequestMiddleware:
    """Refuse requests that are too large, too slow or too many. Add warnings to the answers of the others.

    The token is checked first, and kept for the routes as `request.state.token`. For the web UI it is the token with
    which the visitor signed in. Requests without a valid one have slots of their own, so that they cannot take those of
    the others, and the routes refuse them before their body is read.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        find_token: Callable[[str], Token | None],
        find_visitor: Callable[[Request], Token | None],
        answer: Callable[[Request, AnabranchError], Response],
    ) -> None:
        self._app = app
        self._limits = limits
        self._find_token = find_token
        self._find_visitor = find_visitor
        self._answer = answer
        self._known = _Slots(limits.requests_at_once)
        self._anonymous = _Slots(limits.anonymous_requests_at_once)
        self._bodies = _Slots(limits.bodies_bytes_at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        # Not a secret. `secrets` calls the system, and then the event loop waits until other threads release the
        # interpreter.
        state["request_id"] = f"{random.getrandbits(64):016x}"
        token = self._find_token_of(scope)
        if token is not None:
            state["token"] = token
        is_known = token is not None
        slots = self._known if is_known else self._anonymous
        if slots.used >= slots.limit and scope["path"] not in _ALWAYS_ANSWERED:
            error = TooManyRequestsError(f"{slots.used} requests are running", hint="try again later")
            await self._answer(Request(scope), error)(scope, receive, send)
            return
        # No lock is needed: the event loop runs nothing else between the check and this line.
        slots.used += 1
        try:
            seconds = self._limits.request_seconds
            if not is_known:
                seconds = min(seconds, self._limits.anonymous_seconds)
            await self._limited(scope, receive, send, seconds=seconds, is_known=is_known)
        finally:
            slots.used -= 1

    def _find_token_of(self, scope: Scope) -> Token | None:
        """Return the valid token of a request, or that of the visitor of the UI, or None."""
        secret = find_secret(_header(scope, b"authorization").decode("latin-1"))
        token = None if secret is None else self._find_token(secret)
        if token is None and scope["path"].startswith(_UI_PATH):
            # Only here: another site could send the cookie of a visitor to the other routes.
            return self._find_visitor(Request(scope))
        return token

    async def _limited(self, scope: Scope, receive: Receive, send: Send, *, seconds: float, is_known: bool) -> None:
        has_begun = False
        try:
            async with asyncio.timeout(seconds) as timeout:

                def extend(message: Message) -> None:
                    """Give large bodies more time, in proportion to what has arrived or was sent."""
                    more = len(message.get("body", b"")) / self._limits.slowest_bytes_per_second
                    # Requests without a token get no extra time. An expired timeout raises an error if it is
                    # rescheduled.
                    if is_known and not timeout.expired():
                        timeout.reschedule((timeout.when() or 0.0) + more)

                async def send_and_extend(message: Message) -> None:
                    nonlocal has_begun
                    has_begun = True
                    await send(_with_warnings(message, warnings))
                    extend(message)

                body = self._limited_body(scope, receive, is_known=is_known, on_message=extend)
                try:
                    with collect_warnings() as warnings:
                        await self._app(scope, body.receive, send_and_extend)
                finally:
                    body.release()
        except TimeoutError:
            # The status is sent already. Raising closes the connection, so the client sees that the body is
            # incomplete.
            if has_begun:
                raise
            error = TooSlowError(
                f"the request took more than {seconds:g} seconds", hint="check its effect before sending it again"
            )
            await self._answer(Request(scope), error)(scope, receive, send)
        except AnabranchError as err:
            await self._answer(Request(scope), err)(scope, receive, send)

    def _limited_body(
        self, scope: Scope, receive: Receive, *, is_known: bool, on_message: Callable[[Message], None]
    ) -> "_Body":
        """Return the body of a request with the limits of its kind. Raise TooLargeError if its length exceeds them."""
        is_form = _header(scope, b"content-type").startswith(b"multipart/")
        # By path too: other routes would keep a form in memory.
        is_upload = is_form and scope["path"].endswith(_UPLOAD_PATHS)
        most = self._limits.upload_bytes if is_upload else self._limits.body_bytes
        length = _header(scope, b"content-length")
        # Without a valid token the answer is 401, even if the body is too large.
        if is_known and length.isdigit() and int(length) > most:
            raise _too_large(most)
        # Uploads go to disk piece by piece. Other bodies are kept in memory until the request ends.
        held = None if is_upload else self._bodies
        values = None if is_form else self._limits.body_values
        return _Body(
            source=receive, limits=self._limits, most=most, most_values=values, held=held, on_message=on_message
        )


def _with_warnings(message: Message, warnings: Sequence[str]) -> Message:
    """Add the warnings of a request to the head of its answer as headers `Anabranch-Warning`, one for each."""
    if message["type"] != "http.response.start" or not warnings:
        return message
    texts = (words_at(Door.HTTP, warning) for warning in warnings)
    # A header holds ASCII, and a warning may contain names of tables in other characters.
    added = [(b"anabranch-warning", text.encode("ascii", "backslashreplace")) for text in texts]
    return {**message, "headers": [*message.get("headers", ()), *added]}


@dataclass(slots=True, kw_only=True)
class _Body:
    """The body of a request, refused when it is too large, arrives too slowly, or when others use the memory.

    `held` counts the bytes of all bodies in memory. It is None for a body that is not kept in memory. `most_values` is
    None for a body that is not JSON.
    """

    source: Receive
    limits: Limits
    most: int
    most_values: int | None
    held: _Slots | None
    on_message: Callable[[Message], None]
    size: int = 0
    values: int = 0
    waited: float = 0.0
    is_complete: bool = False

    async def receive(self) -> Message:
        if self.is_complete:
            return await self.source()  # waits until the client disconnects
        message = await self._receive_in_time()
        self.is_complete = not message.get("more_body", False)
        self._add(message.get("body", b""))
        self.on_message(message)
        return message

    def _add(self, body: bytes) -> None:
        size = len(body)
        # A body may be larger than its header announces.
        if self.size + size > self.most:
            raise EnvelopeException(_too_large(self.most))
        self._count_values(body)
        if self.held is not None:
            used = self.held.used
            if used + size > self.held.limit:
                # Release at once, and not when the error is sent: of several bodies that grow together, some must fit.
                self.release()
                raise EnvelopeException(
                    TooManyRequestsError(f"the bodies of running requests have {used} bytes", hint="try again later")
                )
            self.held.used += size
        self.size += size

    def _count_values(self, body: bytes) -> None:
        """Refuse a body of JSON whose values would take too much memory, before it is parsed.

        Each value follows a comma or a bracket. Commas and brackets inside of texts count too: the limit allows for
        them.
        """
        if self.most_values is None:
            return
        self.values += body.count(b",") + body.count(b"{") + body.count(b"[")
        if self.values > self.most_values:
            problem = f"the body has more than {self.most_values} values"
            raise EnvelopeException(TooLargeError(problem, hint="send less at a time, or a file"))

    def release(self) -> None:
        """Stop counting the body."""
        if self.held is not None:
            self.held.used -= self.size
            self.held = None

    async def _receive_in_time(self) -> Message:
        allowed = self.limits.body_seconds + self.size / self.limits.slowest_bytes_per_second
        began = time.monotonic()
        try:
            # Only the time spent waiting for the client counts, not the time in which the service stores the body.
            async with asyncio.timeout(allowed - self.waited) as timeout:
                message = await self.source()
        except TimeoutError:
            if not timeout.expired():
                raise
            error = TooSlowError(
                f"only {self.size} bytes of the body arrived in {allowed:.0f} seconds",
                hint="send it faster, or in smaller parts",
            )
            raise EnvelopeException(error) from None
        self.waited += time.monotonic() - began
        return message


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"the body has more than {most} bytes", hint="send less at a time, or a file")


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

        def leave() -> None:
            share.turns.release()
            share.requests -= 1

        loop = asyncio.get_running_loop()
        # With the context of the request, in which its warnings are collected.
        future = self._threads.submit(contextvars.copy_context().run, work)
        # The share is left when the thread is done, not when this coroutine ends: a request that times out is
        # cancelled, but its thread continues to work. Work that has no thread yet is dropped.
        future.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(leave))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Drop the work that waits for a thread."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def in_threads(name: str) -> Callable[[_Endpoint], _Endpoint]:
    """Run a route in the threads of the service with this name."""

    def mark(endpoint: _Endpoint) -> _Endpoint:
        endpoint.threads = name  # type: ignore[attr-defined]
        return endpoint

    return mark
