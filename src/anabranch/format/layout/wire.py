"""Protobuf messages as bytes: fields read one by one, and written back with their unknown neighbours untouched."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from anabranch.errors import DamagedFileError

__all__ = [
    "WireField",
    "bytes_field",
    "bytes_fields",
    "damaged",
    "iter_fields",
    "made_field",
    "packed_field",
    "read_values",
    "read_varint",
    "split_fields",
    "varint_field",
]

# Wire types: the lowest three bits of the key of a field.
_VARINT, _BYTES = 0, 2


class WireField(NamedTuple):
    """One field: its number, its value (numbers unsigned), and the bytes it was read from."""

    number: int
    value: int | bytes
    raw: bytes


def iter_fields(message: bytes, what: str) -> Iterator[WireField]:
    """Read a message field by field; `what` names it in the error."""
    at = 0
    while at < len(message):
        begin = at
        number, value, at = _read_field(message, at, what)
        yield WireField(number, value, message[begin:at])


def read_values(message: bytes, what: str) -> dict[int, int | bytes]:
    """Read a message without repeated fields: its values by their field numbers."""
    return {field.number: field.value for field in iter_fields(message, what)}


def split_fields(message: bytes, repeated: int, what: str) -> tuple[list[bytes], tuple[WireField, ...]]:
    """Return the values of one repeated field of bytes, and all other fields.

    A manifest has one such value for each fragment and is read at every commit, so they are read in a short loop.
    """
    # The key of a field below 16 is one byte, so that one comparison finds it.
    key, size = repeated << 3 | _BYTES, len(message)
    values: list[bytes] = []
    others: list[WireField] = []
    at = 0
    try:
        while at < size:
            if message[at] == key:
                length, start = message[at + 1], at + 2
                if length > 127:  # a call of `read_varint` would take as long as all the rest
                    second, start = message[at + 2], at + 3
                    length = length & 127 | second << 7
                    if second > 127:
                        length, start = read_varint(message, at + 1)
                at = start + length
                values.append(message[start:at])
            else:
                begin = at
                number, value, at = _read_field(message, at, what)
                # The loop compares the shortest form of the key only. In a longer form, the value would be missing
                # from the result.
                if number == repeated:
                    raise damaged(what, f"the key of field {number} is not written in the shortest way")
                others.append(WireField(number, value, message[begin:at]))
    except IndexError:
        raise damaged(what, "it breaks off inside a field") from None
    # A slice beyond the end is shorter, without an error.
    if at > size:
        raise damaged(what, "a field runs past its end")
    return values, tuple(others)


def _read_field(message: bytes, at: int, what: str) -> tuple[int, int | bytes, int]:
    """Return the number and the value of the field at a position, and the position after it."""
    value: int | bytes
    try:
        key, at = read_varint(message, at)
        match key & 7:
            case 0:
                value, at = read_varint(message, at)
            case 2:
                length, at = read_varint(message, at)
                value, at = message[at : at + length], at + length
            # Numbers of a fixed width are kept as bytes: they are only written back.
            case 1 | 5 as fixed:
                length = 8 if fixed == 1 else 4
                value, at = message[at : at + length], at + length
            case other:
                raise damaged(what, f"it holds a field of the unknown wire type {other}")
    except IndexError:
        raise damaged(what, "it breaks off inside a field") from None
    if at > len(message):
        raise damaged(what, "a field runs past its end")
    return key >> 3, value, at


def made_field(number: int, value: int | bytes) -> WireField:
    """Return a field as it would be read."""
    raw = varint_field(number, value) if isinstance(value, int) else bytes_field(number, value)
    return WireField(number, value, raw)


def varint_field(number: int, value: int) -> bytes:
    return _write_varint(number << 3 | _VARINT) + _write_varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    return _write_varint(number << 3 | _BYTES) + _write_varint(len(value)) + value


def bytes_fields(number: int, values: Iterable[bytes]) -> bytes:
    """Return a repeated field of bytes."""
    key = _write_varint(number << 3 | _BYTES)
    parts: list[bytes] = []
    for value in values:
        parts += (key, _write_varint(len(value)), value)
    return b"".join(parts)


def packed_field(number: int, values: Iterable[int]) -> bytes:
    """Return a repeated field of numbers; negative ones are written as 64 bits."""
    return bytes_field(number, b"".join(_write_varint(value & (1 << 64) - 1) for value in values))


def damaged(what: str, problem: str) -> DamagedFileError:
    return DamagedFileError(
        f"{what} is damaged: {problem}", hint="run `Dataset.doctor()` on it, or restore it from a backup"
    )


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    if data[at] < 128:  # one byte, as most numbers are
        return data[at], at + 1
    if data[at + 1] < 128:  # two bytes
        return data[at] & 127 | data[at + 1] << 7, at + 2
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


@lru_cache(maxsize=4096)  # most are the lengths of fragments, which occur again
def _write_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
