"""What the first bytes of a file reveal about its format."""

import re

from anabranch.errors import InvalidInputError

__all__ = ["check_is_csv", "check_is_json"]

# An object, or an array of objects. A header such as [id],[name] is neither.
_JSON = re.compile(rb'\s*(?:\{\s*["}]|\[\s*[{\]])')
# How files begin that are not text, what they are, and what to do.
_BINARY = (
    (b"PAR1", "a Parquet file", "pass `format='parquet'`"),
    (b"\x1f\x8b", "packed with gzip", "add .gz to the name of the file"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "add .zst to the name of the file"),
    (b"PK\x03\x04", "a zip archive or an Excel file", "unpack it, or save the sheet as CSV"),
    (b"\xd0\xcf\x11\xe0", "an Excel file", "save the sheet as CSV"),
)
# A line that does not begin as an object or an array, and has a usual delimiter.
_DELIMITED = re.compile(rb"[^{\[]+?[,;|\t]")
_MAX_SHOWN = 30
_MOST_READ = 1 << 16


def check_is_csv(first: bytes, file: str, *, has_header: bool) -> None:
    """Raise InvalidInputError if the first text of a file is not CSV but another format."""
    for start, what, hint in _BINARY:
        if first.startswith(start):
            raise InvalidInputError(f"{file!r} is not CSV: it is {what}", hint=hint)
    # Without a header, a line of JSON may be a value: each line is loaded as one text.
    if has_header and _JSON.match(first):
        raise InvalidInputError(
            f"{file!r} looks like JSON, not CSV: it begins with {_shown(first)}", hint="pass `format='json'`"
        )


def check_is_json(first: bytes, file: str) -> None:
    """Raise InvalidInputError if the first text of a file looks like CSV and not like JSON."""
    lines = [line.strip() for line in first[:_MOST_READ].splitlines() if line.strip()][:2]
    # One line may be a bad record. If the next one is not an object either, the file has another format.
    if len(lines) == 2 and all(_DELIMITED.match(line) for line in lines):
        raise InvalidInputError(
            f"{file!r} looks like CSV, not JSON: it begins with {_shown(lines[0])}", hint="pass `format='csv'`"
        )


def _shown(text: bytes) -> str:
    shown = " ".join(text[:200].decode(errors="replace").split())
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
