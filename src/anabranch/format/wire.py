"""Protobuf messages as bytes: fields read one by one, and written back with their unknown neighbours untouched."""

from collections.abc import Container, Iterator
from typing import NamedTuple

from anabranch.errors import DamagedFileError

__all__ = ["WireField", "bytes_field", "damaged", "iter_fields", "read_varint", "varint_field"]

_VARINT, _BYTES = 0, 2
_SMALL = tuple(bytes([value]) for value in range(128))


class WireField(NamedTuple):
    """One field: its number, its value (numbers unsigned), and the bytes it was read from."""

    number: int
    value: int | bytes
    raw: bytes


def iter_fields(message: bytes, what: str, *, only: Container[int] | None = None) -> Iterator[WireField]:
    """Read a message field by field; `what` names it in the error. Skip all numbers but `only`, if that is given."""
    at = 0
    try:
        while at < len(message):
            begin = at
            key = message[at]
            if key < 128:  # one byte, as the keys of most fields are
                at += 1
            else:
                key, at = read_varint(message, at)
            value: int | bytes
            match key & 7:
                case 0:
                    value, at = read_varint(message, at)
                case 2:
                    length = message[at]
                    if length < 128:
                        at += 1
                    else:
                        length, at = read_varint(message, at)
                    value, at = message[at : at + length], at + length
                case 1 | 5 as fixed:
                    length = 8 if fixed == 1 else 4
                    value, at = message[at : at + length], at + length
                case other:
                    raise damaged(what, f"it holds a field of the unknown wire type {other}")
            if at > len(message):
                raise damaged(what, "a field runs past its end")
            if only is None or key >> 3 in only:
                yield WireField(key >> 3, value, message[begin:at])
    except IndexError:
        raise damaged(what, "it breaks off inside a field") from None


def varint_field(number: int, value: int) -> bytes:
    return _write_varint(number << 3 | _VARINT) + _write_varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    return _write_varint(number << 3 | _BYTES) + _write_varint(len(value)) + value


def damaged(what: str, problem: str) -> DamagedFileError:
    return DamagedFileError(
        f"{what} is damaged: {problem}", hint="run 'anabranch dataset doctor' on it, or restore it from a backup"
    )


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _write_varint(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
