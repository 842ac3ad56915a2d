"""Sessions of visitors: a cookie, a token against forged forms, and one-time tokens to begin with."""

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from anabranch.errors import ForbiddenError

__all__ = ["Cookie", "OneTimeToken", "Session", "Sessions", "check_same_site"]

_BYTES = 32
_LIFE_SECONDS = 12 * 3600.0
# The oldest sessions end when there are more, of one token or of all. A token that signs in again and again must not
# end the sessions of others.
_MOST_OF_TOKEN = 100
_MOST = 10_000


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
            while len(self._by_id) > _MOST:
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
