"""Answers that are not pages: files to save and static files. And the headers that every answer has."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.drawing.boxes import STYLE as LINEAGE_STYLE
from anabranch.drawing.html import STYLE
from anabranch.errors import TooLargeError

__all__ = [
    "SECURITY_HEADERS",
    "SecurityHeadersMiddleware",
    "answer_csv",
    "answer_static",
    "answer_text",
    "is_below",
    "join_limited",
]

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


def answer_csv(parts: Iterable[str], *, name: str, hint: str) -> Response:
    """Return a CSV file to save. Raise TooLargeError if it is larger than the limit."""
    return answer_text(join_limited(parts, hint=hint), name=name, media_type="text/csv")


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
    return {**found, STYLE_SHEET: (f"{STYLE}{LINEAGE_STYLE}".encode() + style, media_type)}
