"""The UI of one repository on this machine, for the person who started it."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from anabranch.errors import InvalidInputError
from anabranch.hints import Door
from anabranch.repo.repository import Repository
from anabranch.server.auth import Scope
from anabranch.server.ui.lake import Lake
from anabranch.server.ui.overview import PAGES
from anabranch.server.ui.requests import Cookie, OneTimeToken, Session, Sessions
from anabranch.server.ui.responses import Frame, SecurityHeadersMiddleware, render
from anabranch.server.ui.site import PageRoute, Site
from anabranch.server.ui.storage import Workshop

ENTER_PATH = "/enter"
_STATIC = "/static"


class LocalSite(Site):
    """Admits the browser that brings the one-time token, and then its cookie."""

    home = "/"
    static_path = _STATIC
    door = Door.PAGE

    def __init__(self, repository: Repository, *, port: int, token: OneTimeToken) -> None:
        super().__init__()
        # Browsers send cookies to all ports of a host, so each port has a cookie of its own.
        self.cookie = Cookie(name=f"anabranch_{port}", path="/")
        self.sessions = Sessions()
        self._token = token
        name = os.path.basename(repository.uri.rstrip("/")) or repository.uri
        self._lake = Lake(repository=repository, path="", name=name)

    def find_session(self, request: Request) -> Session | None:
        return self.sessions.find(self.cookie.read(request))

    def check_scope(self, request: Request, needs: Scope) -> None:
        """Allow everything, as `check` does."""

    def check(self, request: Request, needs: Scope, branch: str | None) -> None:
        """Allow everything: the visitor started the process."""

    @contextmanager
    def open(self, request: Request) -> Iterator[Lake]:  # noqa: ARG002 - there is one lake
        yield self._lake

    def turn_away(self, request: Request) -> Response:
        return render("closed.html", None, frame=self.frame(request), status=401)

    async def enter(self, request: Request) -> Response:
        """Exchange the one-time token for a cookie, and open the first page without the token in its address."""
        response = RedirectResponse("/", status_code=303)
        # Programs that preview a link send HEAD, which must not use the token up. A visitor may open the link again.
        # The token is used up then, but the cookie is still valid.
        if request.method == "HEAD" or self.find_session(request) is not None:
            return response
        if not self._token.use(request.query_params.get("token", "")):
            return self.turn_away(request)
        # The loopback address is served by plain HTTP, over which browsers may not send a secure cookie.
        self.cookie.set(response, self.sessions.start().id, is_secure=False)
        return response


class LoopbackHosts:
    """Refuse requests for other host names.

    A page of another site can make its name resolve to this machine (DNS rebinding). Then its scripts could read the
    answers, but the browser sends the other name.
    """

    def __init__(self, app: ASGIApp, *, port: int) -> None:
        self._app = app
        self._home = f"http://127.0.0.1:{port}/"
        names = ("127.0.0.1", "localhost", "[::1]")
        # Browsers leave the port of plain HTTP out.
        self._hosts = {f"{name}:{port}" for name in names} | ({*names} if port == 80 else set())

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and Request(scope).headers.get("host") not in self._hosts:
            error = InvalidInputError("this host name is not allowed", hint="use 127.0.0.1 or localhost")
            frame = Frame(request=Request(scope), static_path=_STATIC, home=self._home)
            await render("error.html", error, frame=frame, status=421)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def create_local_app(repository: Repository, *, port: int, token: OneTimeToken) -> Starlette:
    """Return the UI of a repository as an ASGI application for a loopback address."""
    site = LocalSite(repository, port=port, token=token)
    enter = PageRoute(ENTER_PATH, site.enter, method="GET", name="enter")

    async def answer_failure(request: Request, error: Exception) -> Response:
        return site.answer_failure(request, error)

    workshop = Workshop()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        workshop.close()

    app = Starlette(
        lifespan=lifespan,
        routes=[enter, site.static_route(), *site.routes(PAGES, prefix="")],
        exception_handlers={HTTPException: answer_failure, Exception: answer_failure},
    )
    app.state.workshop = workshop
    app.add_middleware(LoopbackHosts, port=port)
    app.add_middleware(SecurityHeadersMiddleware, path="/")
    return app
