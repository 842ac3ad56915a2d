"""Files that a page offers to save. They have a limit, because they are made in memory."""

from collections.abc import Iterable
from urllib.parse import quote

from starlette.responses import Response

from anabranch.errors import TooLargeError
from anabranch.server.ui.headers import SECURITY_HEADERS

__all__ = ["answer_csv", "answer_text"]

_MOST_CHARACTERS = 32 << 20


def answer_text(text: str, *, name: str, media_type: str = "text/plain") -> Response:
    """Return a file to save. Browsers do not show it, because it may contain anything."""
    headers = {
        **SECURITY_HEADERS,
        "Cache-Control": "no-store",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
    }
    return Response(text.encode("utf-8", "surrogatepass"), media_type=f"{media_type}; charset=utf-8", headers=headers)


def answer_csv(parts: Iterable[str], *, name: str, hint: str) -> Response:
    """Return a CSV file to save. Raise TooLargeError if it is larger than the limit."""
    found, size = [], 0
    for part in parts:
        size += len(part)
        if size > _MOST_CHARACTERS:
            raise TooLargeError(f"the file has more than {_MOST_CHARACTERS:,} characters", hint=hint)
        found.append(part)
    return answer_text("".join(found), name=name, media_type="text/csv")
