"""Read the form of a request within limits: the number of its parts, their size, and the encoding of its texts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request

__all__ = ["FILE_FORM", "TEXT_FORM", "FormLimits", "reading_form", "text_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormLimits:
    """The parts that a form may have. Texts are kept in memory, files go to disk."""

    files: int
    texts: int
    text_bytes: int


# The middleware of a service limits the whole form, too.
TEXT_FORM = FormLimits(files=0, texts=5000, text_bytes=1 << 20)
# The whole form may be as large as a file, so that only this limits its texts.
FILE_FORM = FormLimits(files=1, texts=20, text_bytes=64 << 10)


@asynccontextmanager
async def reading_form(request: Request, limits: FormLimits) -> AsyncIterator[FormData]:
    """Yield the form of a request. Its files are open until the end."""
    _check_encoding(request)
    async with request.form(max_files=limits.files, max_fields=limits.texts, max_part_size=limits.text_bytes) as form:
        yield form


def _check_encoding(request: Request) -> None:
    """Refuse a form in another encoding than UTF-8, which all browsers send.

    Starlette decodes texts by any decoder of Python that the request names. That of Punycode takes minutes for a
    megabyte, in the thread that serves all requests. That of UTF-7 returns texts that cannot be encoded again.
    """
    _, options = parse_options_header(request.headers.get("Content-Type"))
    encoding = options.get(b"charset", b"utf-8")
    if encoding.lower() not in (b"utf-8", b"utf8"):
        raise HTTPException(400, "its encoding is not UTF-8")


def text_of(form: FormData, name: str) -> str:
    """Return a text of a form without the blanks around it, or an empty text."""
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""
