"""Requests of visitors: their sessions, forms within limits, and whether they have left."""

import asyncio
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anabranch.errors import AnabranchError, ForbiddenError

_BYTES = 32
_LIFE_SECONDS = 12 * 3600.0
# The oldest sessions end when there are more, of one token or of all. A token that signs in again and again must not
# end the sessions of others.
_MOST_OF_TOKEN = 100
_MOST_SESSIONS = 10_000


@dataclass(slots=True, kw_only=True)
class Session:
    """A visitor who has signed in. `notice` is a message for the next page that the visitor opens.

    The token is that of a service, with the hash of the secret that the session began with. It is None for a repository
    on this machine.
    """

    id: str
    csrf: str
    expires_at: float
    token_id: str | None = None
    token_hash: str | None = field(default=None, repr=False)
    notice: str | None = field(default=None, repr=False)

    def take_notice(self) -> str | None:
        notice, self.notice = self.notice, None
        return notice

    def check_form(self, value: object) -> None:
        """Raise ForbiddenError unless a form contains the token of this session."""
        # In constant time, and as bytes: for strings that are not ASCII, compare_digest raises TypeError.
        if not isinstance(value, str) or not hmac.compare_digest(value.encode(), self.csrf.encode()):
            raise ForbiddenError(
                "the form does not belong to this session", hint="open the page again and send the form from there"
            )


class Sessions:
    """All sessions, in memory: a restart of the process ends them."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        # Monotonic by default: setting the system clock back must not extend a session.
        self._clock = clock
        self._changing = threading.Lock()
        self._by_id: OrderedDict[str, Session] = OrderedDict()

    def start(self, *, token_id: str | None = None, token_hash: str | None = None) -> Session:
        session = Session(
            id=secrets.token_urlsafe(_BYTES),
            csrf=secrets.token_urlsafe(_BYTES),
            expires_at=self._clock() + _LIFE_SECONDS,
            token_id=token_id,
            token_hash=token_hash,
        )
        with self._changing:
            self._by_id[session.id] = session
            of_token = [one.id for one in self._by_id.values() if one.token_id == token_id]
            for session_id in of_token[:-_MOST_OF_TOKEN]:
                del self._by_id[session_id]
            while len(self._by_id) > _MOST_SESSIONS:
                self._by_id.popitem(last=False)
        return session

    def find(self, session_id: str | None) -> Session | None:
        """Return the session with this id if it has not ended."""
        session = None if session_id is None else self._by_id.get(session_id)
        return session if session is not None and self._clock() < session.expires_at else None

    def end(self, session: Session) -> None:
        with self._changing:
            self._by_id.pop(session.id, None)


class OneTimeToken:
    """A secret that is valid once."""

    def __init__(self) -> None:
        self.value = secrets.token_urlsafe(_BYTES)
        self._using = threading.Lock()
        self._is_used = False

    def use(self, value: str) -> bool:
        """Return whether the value is the token and was not used before."""
        if not hmac.compare_digest(value.encode(), self.value.encode()):
            return False
        # With a lock, because two concurrent requests must not both find the token unused.
        with self._using:
            was_used, self._is_used = self._is_used, True
        return not was_used


@dataclass(frozen=True, slots=True, kw_only=True)
class Cookie:
    """A cookie that scripts cannot read and that browsers send with requests from the same site only."""

    name: str
    path: str

    def read(self, request: Request) -> str | None:
        return request.cookies.get(self.name)

    def set(self, response: Response, value: str, *, is_secure: bool) -> None:
        response.set_cookie(self.name, value, path=self.path, httponly=True, samesite="strict", secure=is_secure)

    def delete(self, response: Response) -> None:
        response.delete_cookie(self.name, path=self.path, httponly=True, samesite="strict")


def check_same_site(request: Request) -> None:
    """Raise ForbiddenError if a browser sent the request from a page of another site."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    # 'none' is a request of the user, such as by the address bar or a bookmark.
    is_other_site = site not in (None, "same-origin", "none")
    is_other_origin = origin is not None and origin.partition("://")[2] != request.headers.get("Host")
    # Sec-Fetch-Site decides if the browser sends it. Older browsers send only Origin.
    if is_other_site or (site is None and is_other_origin):
        raise ForbiddenError("the request comes from a page of another site", hint="open the page itself")


# The parts that a form may have, as Starlette limits them. Texts are kept in memory, files go to disk. The middleware
# of a service limits the whole form, too.
TEXT_FORM: Mapping[str, int] = {"max_files": 0, "max_fields": 5000, "max_part_size": 1 << 20}
# The whole form may be as large as a file, so that only this limits its texts.
FILE_FORM: Mapping[str, int] = {"max_files": 1, "max_fields": 20, "max_part_size": 64 << 10}


@asynccontextmanager
async def reading_form(request: Request, limits: Mapping[str, int]) -> AsyncIterator[FormData]:
    """Yield the form of a request. Its files are open until the end.

    Refuse another encoding than UTF-8, which all browsers send. Starlette decodes texts by any decoder of Python that
    the request names. That of Punycode takes minutes for a megabyte, in the thread that serves all requests. That of
    UTF-7 returns texts that cannot be encoded again.
    """
    _, options = parse_options_header(request.headers.get("Content-Type"))
    if options.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        raise HTTPException(400, "its encoding is not UTF-8")
    async with request.form(**limits) as form:
        yield form


def text_of(form: FormData, name: str) -> str:
    """Return a text of a form without the blanks around it, or an empty text."""
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


class Departure:
    """Records whether the visitor of a page has left, and calls the functions that stop its work."""

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
    """Yield an object that notices when the client closes the connection."""
    departure = Departure()

    async def watch() -> None:
        # Ignore the body of a GET request, and its errors.
        with suppress(AnabranchError, HTTPException):
            while (await request.receive())["type"] != "http.disconnect":
                pass
            departure.leave()

    watching = asyncio.create_task(watch())
    try:
        yield departure
    finally:
        watching.cancel()
