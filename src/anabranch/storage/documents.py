"""Stored objects as canonical JSON with a format version and a checksum.

An object of a newer format is refused. An object with a wrong checksum is refused before it is parsed. The checksum is
the last member of the object, `"~crc"`: the CRC-32 of all bytes before `,"~crc"`, as eight hexadecimal digits. It is
compared as bytes, before anything is parsed, so that no flipped bit reaches a decoder. A flipped bit can also hit the
checksum member itself, so that an object seems to have none. Objects of format `SEALED_SINCE` and later therefore must
have one. Only objects of earlier formats are read without it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from anabranch.errors import CorruptError, InvalidNameError, UnsupportedFormatError

# 2: summaries have more fields; a reader of format 1 would report them as damaged. 3: every object has a checksum.
FORMAT = 3

# The first format whose objects must have a checksum.
SEALED_SINCE = 3
_MEMBER = "~crc"
_MARK = b',"~crc":"%08x"}'
_LENGTH = len(_MARK % 0)
# A power loss leaves whole blocks of zeros. A single zero byte can be a flipped space.
_ZEROS = re.compile(rb"\x00{8}")
# How many bytes of the checksum member may differ in an object that is complete but damaged.
_FLIPPED_BYTES = 2


class SealError(ValueError):
    """The checksum is wrong, or is missing in a format that requires it."""


def dump(fields: Mapping[str, Any]) -> bytes:
    """Encode an object in the current format, with its checksum."""
    versioned = {**fields, "format": FORMAT}
    # Sorted and without spaces: equal objects have equal bytes, which a writer compares after a lost answer.
    body = json.dumps(versioned, sort_keys=True, separators=(",", ":"), ensure_ascii=False).removesuffix("}").encode()
    return body + _MARK % crc32(body)


@contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Convert errors while an object is decoded into a CorruptError that names the object."""
    hint = "run doctor on the repository"
    try:
        yield
    except SealError as err:
        raise CorruptError(f"{path!r} is damaged: {err}", hint=hint) from err
    except RecursionError:
        raise CorruptError(f"{path!r} is damaged: it is nested too deeply", hint=hint) from None
    except (ArithmeticError, AttributeError, InvalidNameError, LookupError, TypeError, ValueError) as err:
        raise CorruptError(f"{path!r} is damaged: {err!r}", hint=hint) from err


def load(data: bytes, *, path: str) -> dict[str, Any]:
    """Decode an object of this format or an earlier one. `path` appears in the error if the object is damaged."""
    with damage_named(path):
        fields = open_sealed(data)
        version = fields["format"]
    if not isinstance(version, int) or version > FORMAT:
        raise UnsupportedFormatError(
            f"{path!r} has format {version}, but this version of Anabranch reads formats up to {FORMAT}",
            hint="upgrade Anabranch to read this repository",
        )
    return fields


def is_sealed(data: bytes) -> bool:
    """Return whether an object ends with the checksum of its content."""
    return data[-_LENGTH:] == _MARK % crc32(memoryview(data)[:-_LENGTH])


def open_sealed(data: bytes) -> dict[str, Any]:
    """Parse a stored object and return its fields without the checksum. Raise ValueError if the object is damaged."""
    # Checked before the parser: a flipped bit must not become another valid value.
    if is_sealed(data):
        fields = json.loads(data)
        fields.pop(_MEMBER, None)
        return dict(fields)
    fields = dict(json.loads(data))
    # The member is there and was not accepted above, so the content changed after it was written.
    if _MEMBER in fields:
        raise SealError("its checksum does not match its content")
    if isinstance(fields["format"], int) and fields["format"] < SEALED_SINCE:
        return fields
    raise SealError("it has no checksum")


def is_torn(data: bytes) -> bool:
    """Return whether an object was cut off by a power loss, rather than damaged after it was complete.

    Such an object is empty, has blocks of zeros, or has no end. A flipped bit changes one byte and leaves the rest.
    """
    if not data or _ZEROS.search(data) or not data.strip(b"\x00"):
        return True
    if _ends_with_mark(data):
        return False
    # The first part of an object, or a complete object of an earlier format, which ends with two braces.
    return b"}" not in data[-2:] or _is_cut_off(data)


def _ends_with_mark(data: bytes) -> bool:
    """Return whether an object ends with a checksum member, in which a bit or two may be flipped."""
    # The digits of the checksum may be any.
    opening, closing = _MARK.split(b"%08x")
    tail = data[-_LENGTH:]
    found = tail[: len(opening)] + tail[_LENGTH - len(closing) :]
    differing = sum(found[index : index + 1] != bytes([byte]) for index, byte in enumerate(opening + closing))
    return differing <= _FLIPPED_BYTES


def _is_cut_off(data: bytes) -> bool:
    """Return whether a parser expects more at the end. A flipped bit would stop the parser earlier."""
    text = data.decode(errors="replace")
    try:
        json.loads(text)
    except json.JSONDecodeError as err:
        # An error at the very end means that the text stops too early.
        return err.pos >= len(text)
    except (RecursionError, ValueError):
        return False  # nested too deeply, or a number of thousands of digits
    return False
