"""Templates: how they are rendered, and what surrounds the content of each page."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import anabranch
from anabranch.display import human_size, printable, short_id
from anabranch.drawing.diff_table import draw_before_after, draw_change, draw_column_changes, draw_count
from anabranch.drawing.html import draw_cell, one_line, time
from anabranch.hints import Door, words_at
from anabranch.server.ui.lake import Lake
from anabranch.server.ui.session import Session

__all__ = ["NAVIGATION", "Account", "Frame", "address", "render"]

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
        """Return the address of this page with other parameters."""
        return f"{self.request.url.path}?{urlencode(query)}"

    def static(self, name: str) -> str:
        """Return the address of a static file, which changes with the version so that browsers may keep it."""
        return f"{self.static_path}/{name}?v={anabranch.__version__}"

    def is_exactly(self, path: str) -> bool:
        """Return whether the visitor is on a page."""
        return self.request.url.path == self.link(path)

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
    text = (
        _environment()
        .get_template(template)
        .render(
            view=view,
            frame=frame,
            lake=frame.lake,
            link=frame.link,
            csrf="" if frame.session is None else frame.session.csrf,
            notice=frame.session.take_notice() if frame.session is not None and frame.takes_notice else None,
            words=partial(words_at, frame.door),
            navigation=NAVIGATION,
        )
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
    environment.filters.update(short=short_id, count=_count, line=one_line, text=_text, size=human_size)
    # What notebooks show is drawn by the same functions. They escape all texts.
    for draw in (draw_before_after, draw_cell, draw_change, draw_column_changes, draw_count, time):
        environment.globals[draw.__name__] = _marked(draw)
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
