"""What all pages share: routes, sessions, rights, forms, and errors as pages."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, TypeVar

from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from anabranch.errors import AnabranchError, InvalidInputError, NotFoundError
from anabranch.format.home import BoundedCache
from anabranch.hints import Door
from anabranch.ids import MAIN
from anabranch.repo.repository import Repository
from anabranch.server.auth import Scope
from anabranch.server.envelope import EnvelopeException, methods_at, status_of
from anabranch.server.request_limits import SharedThreads
from anabranch.server.settings import Limits
from anabranch.server.ui.lake import Lake
from anabranch.server.ui.requests import (
    FILE_FORM,
    TEXT_FORM,
    Departure,
    Session,
    check_same_site,
    noticing_departure,
    reading_form,
    text_of,
)
from anabranch.server.ui.responses import SECURITY_HEADERS, Account, Frame, address, answer_static, render

T = TypeVar("T")

# Values of all lakes, with their sizes in bytes, which are estimates for all but rows.
_VALUES: BoundedCache[tuple[Hashable, ...], Any] = BoundedCache(limit=10_000, capacity=64 << 20)
_USUAL_WEIGHT = 10_000
_log = logging.getLogger("anabranch.server")
_UNEXPECTED = AnabranchError("an unexpected error occurred", hint="see the log of the process that serves this page")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request of a visitor who has signed in and may make it."""

    request: Request
    session: Session
    opened: Lake | None = None
    form: FormData = field(default_factory=FormData)
    departure: Departure = field(default_factory=Departure)

    @property
    def lake(self) -> Lake:
        """The lake of the page. Pages about a whole service have none."""
        if self.opened is None:
            raise TypeError(f"{self.request.url.path} is not a page of a lake")
        return self.opened

    @property
    def repository(self) -> Repository:
        return self.lake.repository

    def cached(self, make: Callable[[], T], *key: Hashable, weigh: Callable[[T], int] = lambda _: _USUAL_WEIGHT) -> T:
        """Return a value that its key determines, such as commit ids. It is computed once and cached."""
        # With the lake, because all lakes of the process share the cache, and their tables may have the same names.
        whole = (self.lake.identity, *key)
        found: T | None = _VALUES.find(whole)
        if found is None:
            found = make()
            _VALUES.keep(whole, found, weight=weigh(found))
        return found

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default).strip()

    def number(self, name: str) -> int:
        return parse_number(self.query(name) or "1", name, most=10**9, hint=f"use {name}=1")

    def ref(self) -> str:
        """Return the ref that the visitor chose, by default main. With a time, it is a branch as it was then."""
        ref, time = self.query("ref") or MAIN, self.query("at")
        # The time replaces a version or a time in the ref, because a ref has only one of them.
        return f"{ref.partition('@')[0]}@{{{time}}}" if time else ref

    def field(self, name: str) -> str:
        """Return a text of the form, or an empty text."""
        return text_of(self.form, name)


def parse_number(text: str, what: str, *, least: int = 1, most: int, hint: str) -> int:
    """Return a number that a visitor sent. Raise InvalidInputError if it is not from `least` to `most`."""
    # Limited before int(), which raises for very long texts. isascii() excludes digits such as '²'.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most):
        raise InvalidInputError(f"the {what} must be from {least} to {most}, got {text[:50]!r}", hint=hint)
    return int(text)


def parse_days(text: str) -> timedelta | None:
    """Return a number of days that a visitor sent, None for an empty text."""
    return timedelta(days=parse_number(text, "number of days", most=36_500, hint="for example 30")) if text else None


@dataclass(frozen=True, slots=True)
class Shown:
    """The answer of a page: a template, and the values that it reads as `view`."""

    template: str
    view: object
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Redirect:
    """The answer of an action: the page to open next, below the lake's path, and a message to show there."""

    path: str
    notice: str = ""
    query: Mapping[str, str] = field(default_factory=dict)


Answer = Shown | Redirect | Response
Handle = Callable[[Visit], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page or an action.

    `needs` is the scope that it needs, None if any visitor who signed in may open it. `writes` is the field of the form
    that names the branch it writes to. `form` limits the form of an action. A page that `is_long` stops when the
    visitor leaves.
    """

    method: str
    path: str
    handle: Handle
    needs: Scope | None
    writes: str | None = None
    form: Mapping[str, int] = field(default_factory=lambda: TEXT_FORM)
    is_long: bool = False

    @property
    def name(self) -> str:
        """The name of the function, which the audit records."""
        return str(getattr(self.handle, "__name__", self.path))


def get(path: str, handle: Handle, *, needs: Scope | None = Scope.READ, is_long: bool = False) -> Page:
    return Page(method="GET", path=path, handle=handle, needs=needs, is_long=is_long)


def post(
    path: str,
    handle: Handle,
    *,
    needs: Scope | None = Scope.PROJECT,
    writes: str | None = None,
    takes_file: bool = False,
) -> Page:
    """Declare an action. With `writes`, a write to main needs a token for the whole project."""
    return Page(
        method="POST",
        path=path,
        handle=handle,
        needs=Scope.BRANCH if writes else needs,
        writes=writes,
        form=FILE_FORM if takes_file else TEXT_FORM,
    )


class PageRoute(Route):
    """A route of the UI. Its page is None if it needs no session."""

    def __init__(self, path: str, endpoint: Any, *, method: str, name: str, page: Page | None = None) -> None:
        super().__init__(path, endpoint, methods=[method], name=name)
        self.page = page


class Site(ABC):
    """The pages of one UI, and the lakes that its visitors may see. A page is answered in a thread."""

    home: ClassVar[str]
    static_path: ClassVar[str]
    door: ClassVar[Door]

    def __init__(self) -> None:
        # A page may compare or sort whole tables. As many as there are requests may wait.
        limits = Limits(shared_threads=16, shared_threads_per_token=4, shared_requests_per_token=256)
        self._threads = SharedThreads("pages", limits)

    @abstractmethod
    def find_session(self, request: Request) -> Session | None: ...

    @abstractmethod
    def check_scope(self, request: Request, needs: Scope) -> None:
        """Raise ForbiddenError if the visitor may not do this to any branch."""

    @abstractmethod
    def check(self, request: Request, needs: Scope, branch: str | None) -> None:
        """Raise ForbiddenError if the visitor may not do this."""

    @abstractmethod
    def open(self, request: Request) -> AbstractContextManager[Lake | None]:
        """Return the lake of a page, None for a page about a whole service."""

    def record(self, request: Request, action: str, branch: str | None, run: Callable[[], Response]) -> Response:  # noqa: ARG002 - for a service
        """Run an action on a branch, or None. A service records it in the audit."""
        return run()

    def account(self, session: Session, lake: Lake | None) -> Account | None:  # noqa: ARG002 - for a service
        """Return the owner of the session, None if it is not shown."""
        return None

    def explain(self, error: AnabranchError) -> AnabranchError:
        """Return an error as the visitor may read it."""
        return error

    @abstractmethod
    def turn_away(self, request: Request) -> Response:
        """Answer a visitor who has not signed in."""

    def frame(self, request: Request) -> Frame:
        """Return the frame around a page that needs no session."""
        return Frame(request=request, static_path=self.static_path, home=self.home, door=self.door)

    def static_route(self) -> PageRoute:
        """Return the route of the static files. It needs no session: the sign-in page uses them."""
        return PageRoute(f"{self.static_path}/{{name:path}}", answer_static, method="GET", name="static")

    def routes(self, pages: Iterable[Page], *, prefix: str) -> list[PageRoute]:
        return [
            PageRoute(prefix + page.path, self._endpoint(page), method=page.method, name=page.name, page=page)
            for page in pages
        ]

    def _endpoint(self, page: Page) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            session = self.find_session(request)
            if session is None:
                return self.turn_away(request)
            visit = Visit(request=request, session=session)
            run = partial(self._threads.run, session.token_id)
            if page.method == "GET":
                watched = noticing_departure(request) if page.is_long else nullcontext(Departure())
                async with watched as departure:
                    return await run(partial(self._checked, page, replace(visit, departure=departure)))
            try:
                # Before the form is read, which may be large.
                check_same_site(request)
                if page.needs is not None:
                    self.check_scope(request, page.needs)
            except AnabranchError as err:
                refuse = partial(self._show_error, err, visit)
                return await run(partial(self.record, request, page.name, None, refuse))
            async with reading_form(request, page.form) as form:
                act = partial(self._checked, page, replace(visit, form=form))
                return await run(partial(self.record, request, page.name, _branch_of(page, form), act))

        return answer

    def _checked(self, page: Page, visit: Visit) -> Response:
        """Check the request, run the page or the action, and show errors as pages."""
        try:
            if page.method == "POST":
                # The second check against forged forms, after that of the headers of the browser.
                visit.session.check_form(visit.form.get("csrf"))
            if page.needs is not None:
                self.check(visit.request, page.needs, _branch_of(page, visit.form))
            with self.open(visit.request) as lake:
                return self._visit(page, replace(visit, opened=lake))
        except AnabranchError as err:
            return self._show_error(err, visit)

    def _visit(self, page: Page, visit: Visit) -> Response:
        try:
            answer = page.handle(visit)
        except AnabranchError as err:
            return self._show_error(err, visit)
        except Exception as err:  # noqa: BLE001 - a page must not show what an unexpected error contains
            _log.error("a page failed", exc_info=err)
            return self._show_error(_UNEXPECTED, visit)
        match answer:
            case Shown():
                return self._show(answer, visit.request, visit.session, visit.opened)
            case Redirect():
                visit.session.notice = answer.notice or None
                base = "" if visit.opened is None else visit.opened.path
                # Status 303: the browser opens the page with GET, so that reloading it does not send the form again.
                return RedirectResponse(address(f"{base}{answer.path}", **answer.query), status_code=303)
            case response:
                return response

    def answer_failure(self, request: Request, error: Exception) -> Response:
        """Show an error from outside of a page: a wrong address, method or form, or a limit of the service."""
        is_known = isinstance(error, AnabranchError | HTTPException)
        # After an unexpected error the search for the session might fail, too.
        session = self.find_session(request) if is_known else None
        headers = dict(SECURITY_HEADERS)  # an unexpected error is answered outside of the middleware that adds them
        match error:
            case EnvelopeException():
                shown = self._explained(error.error)
            case AnabranchError():
                shown = self._explained(error)
            case HTTPException():
                shown = Shown("error.html", _problem_of(request, error), error.status_code)
                if error.status_code == 405:
                    headers["Allow"] = ", ".join(sorted(methods_at(request.app.routes, request.url.path)))
            case _:
                shown = Shown("error.html", _UNEXPECTED, 500)
        response = self._show(shown, request, session, None, takes_notice=False)
        response.headers.update(headers)
        return response

    def _explained(self, error: AnabranchError) -> Shown:
        explained = self.explain(error)
        return Shown("error.html", explained, status_of(explained))

    def _show_error(self, error: AnabranchError, visit: Visit) -> Response:
        shown = self._explained(error)
        # `_visit` has logged an unexpected error already, with its cause.
        if shown.status >= 500 and error is not _UNEXPECTED:
            _log.error("a page failed", exc_info=error)
        return self._show(shown, visit.request, visit.session, visit.opened)

    def _show(
        self, shown: Shown, request: Request, session: Session | None, lake: Lake | None, *, takes_notice: bool = True
    ) -> Response:
        frame = replace(
            self.frame(request),
            session=session,
            lake=lake,
            account=None if session is None else self.account(session, lake),
            takes_notice=takes_notice and request.method != "HEAD",
        )
        response = render(shown.template, shown.view, status=shown.status, frame=frame)
        response.headers.update(shown.headers)
        return response


def _branch_of(page: Page, form: FormData) -> str | None:
    """Return the branch that an action writes to, None if it does not write to one."""
    # The same text as the handler reads, where an empty one means main: a check of another spelling would let a token
    # for branches write to main.
    return text_of(form, page.writes) or MAIN if page.writes else None


def _problem_of(request: Request, error: HTTPException) -> AnabranchError:
    path = request.url.path[:200]
    match error.status_code:
        case 404:
            return NotFoundError(f"there is no page {path!r}", hint="check the address, or start from the overview")
        case 405:
            hint = "open the page that has the form, and send it from there"
            return InvalidInputError(f"the address {path!r} cannot be opened in this way", hint=hint)
        case _:
            return InvalidInputError(f"the form cannot be read: {error.detail}", hint="go back and send it again")
