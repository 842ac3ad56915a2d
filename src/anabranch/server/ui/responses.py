"""Answers: pages made from templates, files to save and static files. And the headers that every answer has."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import anabranch
from anabranch.column_types import show_type
from anabranch.display import draw_cell, html_style, html_time, human_size, one_line, printable, short_id
from anabranch.drawing import box_style
from anabranch.errors import TooLargeError
from anabranch.format.home import is_staged
from anabranch.hints import Door, words_at
from anabranch.repo.history.diff_drawing import draw_before_after, draw_change, draw_column_changes, draw_count
from anabranch.server.ui.lake import Lake
from anabranch.server.ui.requests import Session

# The pages that every page links to: their path below the lake's, and their name.
NAVIGATION = (
    ("/", "Overview"),
    ("/branches", "Branches"),
    ("/graph", "Graph"),
    ("/compare", "Compare"),
    ("/merge", "Merge"),
    ("/sql", "SQL"),
    ("/runs", "Runs"),
    ("/storage", "Storage"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whose session it is, the address where it ends, and the pages about the service, by name."""

    name: str
    sign_out: str
    links: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What surrounds the content of a page: who visits it, and which lake it is about."""

    request: Request
    static_path: str
    session: Session | None = None
    lake: Lake | None = None
    account: Account | None = None
    home: str = "/"
    door: Door = Door.PAGE
    # An answer that is not what the visitor opened leaves the message for the next page.
    takes_notice: bool = True

    def link(self, path: str, **query: object) -> str:
        """Return the address of a page of the lake. Empty parameters are left out, a tuple is a repeated one."""
        return address(f"{'' if self.lake is None else self.lake.path}{path}", **query)

    def here(self, **query: object) -> str:
        return f"{self.request.url.path}?{urlencode(query)}"

    def static(self, name: str) -> str:
        """Return the address of a static file, which changes with the version so that browsers may keep it."""
        return f"{self.static_path}/{name}?v={anabranch.__version__}"

    def is_here(self, path: str) -> bool:
        """Return whether the visitor is on a page of the navigation or below it."""
        here = self.request.url.path.removeprefix(self.lake.path if self.lake else "") or "/"
        return here == path or (path != "/" and here.startswith(f"{path}/"))


def address(path: str, **query: object) -> str:
    """Return the address of a path with parameters. Empty ones are left out, a tuple is a repeated one."""
    given = {name: value for name, value in query.items() if value not in (None, "", ())}
    return f"{path}{'?' + urlencode(given, doseq=True) if given else ''}"


def render(template: str, view: object, *, frame: Frame, status: int = 200) -> Response:
    """Return a page. Browsers do not keep it: it may contain data."""
    found = _environment().get_template(template)
    text = found.render(
        view=view,
        frame=frame,
        lake=frame.lake,
        link=frame.link,
        csrf="" if frame.session is None else frame.session.csrf,
        notice=frame.session.take_notice() if frame.session is not None and frame.takes_notice else None,
        words=partial(words_at, frame.door),
        navigation=NAVIGATION,
    )
    return HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store"})


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("anabranch.server.ui"),
        # Names, messages and values come from other writers, and Jinja does not escape by default.
        autoescape=True,
        # A misspelt name in a template raises instead of rendering as an empty text.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(short=short_id, count=_count, line=one_line, text=_text, size=human_size, type=show_type)
    environment.tests["staged"] = is_staged  # a version of Lance whose number has 20 digits
    # What notebooks show is drawn by the same functions. They escape all texts.
    for draw in (draw_before_after, draw_cell, draw_change, draw_column_changes, draw_count):
        environment.globals[draw.__name__] = _marked(draw)
    environment.globals["time"] = _marked(html_time)
    environment.globals.update(version=anabranch.__version__)
    return environment


def _marked(draw: Callable[..., str]) -> Callable[..., Markup]:
    def drawn(*arguments: Any) -> Markup:
        return Markup(draw(*arguments))  # noqa: S704 - the drawing escapes all texts

    return drawn


def _count(number: int, word: str = "") -> str:
    """Return a number with separators, and a word in the singular or plural."""
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}es" if word.endswith("ch") else f"{word}s"
    text = f"{number:,}"
    return f"{text} {word if number == 1 else plural}" if word else text


def _text(text: object, most: int) -> str:
    """Return a text of several lines, shortened, with control and direction characters made visible."""
    whole = str(text).strip()
    return printable(whole if len(whole) <= most else f"{whole[: most - 1]}…")


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paged(Generic[T]):
    """The items of one page. `total` is None if they were not counted."""

    items: Sequence[T]
    number: int
    size: int
    has_more: bool
    total: int | None = None

    @property
    def first(self) -> int:
        """The position of the first item, from 1 on."""
        return (self.number - 1) * self.size + 1

    @property
    def last(self) -> int:
        return self.first + len(self.items) - 1


def page_of(items: Sequence[T], *, number: int, size: int) -> Paged[T]:
    """Return one page of a list, the first page is number 1."""
    start = (number - 1) * size
    return page_from(items[start : start + size + 1], number=number, size=size, total=len(items))


def page_from(found: Sequence[T], *, number: int, size: int, total: int | None = None) -> Paged[T]:
    """Return a page of what was read from its start on: its items, and one more if there is another page."""
    return Paged(items=found[:size], number=number, size=size, has_more=len(found) > size, total=total)


SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
STYLE_SHEET = "anabranch.css"
# Files to save have a limit, because they are made in memory.
_MOST_CHARACTERS = 32 << 20
_FOLDER = Path(__file__).parent / "static"
_TYPES: Mapping[str, str] = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
# The address of a static file contains the version of the package.
_STATIC_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable"}


class SecurityHeadersMiddleware:
    """Add the security headers to every answer below a path: pages, files, redirects and refusals."""

    def __init__(self, app: ASGIApp, *, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_below(self._path, scope["path"]):
            await self._app(scope, receive, send)
            return

        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        await self._app(scope, receive, adding)


def is_below(path: str, other: str) -> bool:
    """Return whether a path is another one or below it. Both may end with a slash or not."""
    return f"{other}/".startswith(f"{path.rstrip('/')}/")


def answer_text(text: str, *, name: str, media_type: str = "text/plain") -> Response:
    """Return a file to save. Browsers do not show it, because it may contain anything."""
    headers = {
        "Cache-Control": "no-store",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
    }
    # A text may hold a lone surrogate, for which the strict encoder raises.
    return Response(text.encode("utf-8", "surrogatepass"), media_type=f"{media_type}; charset=utf-8", headers=headers)


def join_limited(parts: Iterable[str], *, hint: str) -> str:
    """Join the parts of a file to save. Raise TooLargeError if it is larger than the limit."""
    found, size = [], 0
    for part in parts:
        size += len(part)
        if size > _MOST_CHARACTERS:
            raise TooLargeError(f"the file has more than {_MOST_CHARACTERS:,} characters", hint=hint)
        found.append(part)
    return "".join(found)


async def answer_static(request: Request) -> Response:
    """Return a static file: the style sheet, htmx or Swagger UI, all from this package."""
    found = _files().get(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    content, media_type = found
    return Response(content, headers=_STATIC_HEADERS, media_type=media_type)


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Return the content and media type of each file by its path below the folder. No other file can be requested."""
    files = sorted(path for path in _FOLDER.rglob("*") if path.suffix in _TYPES)
    found = {str(path.relative_to(_FOLDER)): (path.read_bytes(), _TYPES[path.suffix]) for path in files}
    # The style of what is drawn for notebooks too is part of the drawings.
    style, media_type = found[STYLE_SHEET]
    return {**found, STYLE_SHEET: (f"{html_style()}{box_style()}".encode() + style, media_type)}
