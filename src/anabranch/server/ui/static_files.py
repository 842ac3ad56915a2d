"""The static files of the UI: a style sheet, htmx and Swagger UI, all from this package."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from anabranch.repo.history.lineage.svg import STYLE as LINEAGE_STYLE
from anabranch.server.ui.headers import SECURITY_HEADERS
from anabranch.server.ui.site import PageRoute

__all__ = ["static_route"]

STYLE_SHEET = "anabranch.css"
_FOLDER = Path(__file__).parent / "static"
_TYPES: Mapping[str, str] = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
# The address of a file contains the version of the package.
_HEADERS = {**SECURITY_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}


def static_route(path: str) -> PageRoute:
    """Return the route of the static files. It needs no session: the sign-in page uses them."""
    return PageRoute(f"{path}/{{name:path}}", _answer, method="GET", name="static")


async def _answer(request: Request) -> Response:
    found = _files().get(request.path_params["name"])
    if found is None:
        return Response("not found", status_code=404, headers=SECURITY_HEADERS, media_type="text/plain")
    content, media_type = found
    return Response(content, headers=_HEADERS, media_type=media_type)


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Return the content and media type of each file by its path below the folder. No other file can be requested."""
    files = sorted(path for path in _FOLDER.rglob("*") if path.suffix in _TYPES)
    found = {str(path.relative_to(_FOLDER)): (path.read_bytes(), _TYPES[path.suffix]) for path in files}
    # The style of the lineage graph is part of its drawing, which notebooks and files contain as a whole.
    style, media_type = found[STYLE_SHEET]
    return {**found, STYLE_SHEET: (style + LINEAGE_STYLE.encode(), media_type)}
