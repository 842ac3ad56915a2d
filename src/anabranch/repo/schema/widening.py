"""Type changes that keep every possible value of a column."""

from collections.abc import Callable

import pyarrow as pa

__all__ = ["is_widening"]

_UNITS = ("s", "ms", "us", "ns")
# For floats of a number of bits, the largest integer type that they represent exactly, in bits.
_EXACT_BITS = {16: 8, 32: 16, 64: 32}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_types = pa.types


def is_widening(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether every value of `before` is a value of `after`, so that no value can be lost or fail to convert."""
    if before == after or _types.is_null(before):
        return True
    # A dictionary is only an encoding: its values decide.
    if _types.is_dictionary(before):
        return is_widening(before.value_type, after)
    return any(is_before(before) and keeps(before, after) for is_before, keeps in _RULES)


def _integer(before: pa.DataType, after: pa.DataType) -> bool:
    bits, is_signed = before.bit_width, _types.is_signed_integer(before)
    if _types.is_integer(after):
        if is_signed == _types.is_signed_integer(after):
            return bool(after.bit_width >= bits)
        # A wider signed type holds all unsigned values. No unsigned type holds negative ones.
        return not is_signed and bool(after.bit_width > bits)
    if _types.is_floating(after):
        return bool(bits <= _EXACT_BITS[after.bit_width])
    if _types.is_decimal(after):
        # The largest unsigned integer of 64 bits has 20 digits, the largest signed one has 19.
        digits = _DIGITS[bits] + (1 if bits == 64 and not is_signed else 0)
        return bool(after.precision - after.scale >= digits)
    return False


def _floating(before: pa.DataType, after: pa.DataType) -> bool:
    return bool(_types.is_floating(after) and after.bit_width >= before.bit_width)


def _decimal(before: pa.DataType, after: pa.DataType) -> bool:
    return bool(
        _types.is_decimal(after)
        and after.scale >= before.scale
        and after.precision - after.scale >= before.precision - before.scale
    )


def _text(_: pa.DataType, after: pa.DataType) -> bool:
    return bool(_types.is_large_string(after))


def _bytes(before: pa.DataType, after: pa.DataType) -> bool:
    return bool(_types.is_large_binary(after) or (_types.is_binary(after) and _types.is_fixed_size_binary(before)))


def _date(before: pa.DataType, after: pa.DataType) -> bool:
    if _types.is_timestamp(after):
        # Nanosecond timestamps end in the year 2262, so they cannot hold every date.
        return after.tz is None and after.unit != "ns"
    return bool(_types.is_date64(after) and _types.is_date32(before))


def _timestamp(before: pa.DataType, after: pa.DataType) -> bool:
    return bool(_types.is_timestamp(after) and after.tz == before.tz and _is_finer(before, after))


def _time(before: pa.DataType, after: pa.DataType) -> bool:
    # A day has few enough nanoseconds, unlike a timestamp or a duration.
    return bool(_types.is_time(after) and _UNITS.index(after.unit) >= _UNITS.index(before.unit))


def _duration(before: pa.DataType, after: pa.DataType) -> bool:
    return bool(_types.is_duration(after) and _is_finer(before, after))


def _is_finer(before: pa.DataType, after: pa.DataType) -> bool:
    # In nanoseconds, 64 bits hold only 292 years in each direction.
    return after.unit != "ns" and _UNITS.index(after.unit) >= _UNITS.index(before.unit)


def _list(before: pa.DataType, after: pa.DataType) -> bool:
    if not _is_list(after) or not _keeps_field(before.value_field, after.value_field):
        return False
    if _types.is_fixed_size_list(after):
        return _types.is_fixed_size_list(before) and bool(after.list_size == before.list_size)
    # The offsets of a large list may be larger than the 32 bits of a list.
    return bool(_types.is_large_list(after) or not _types.is_large_list(before))


def _struct(before: pa.DataType, after: pa.DataType) -> bool:
    if not _types.is_struct(after) or [f.name for f in before] != [f.name for f in after]:
        return False
    return all(_keeps_field(one, other) for one, other in zip(before, after, strict=True))


def _keeps_field(before: pa.Field, after: pa.Field) -> bool:
    return (after.nullable or not before.nullable) and is_widening(before.type, after.type)


def _is_list(kind: pa.DataType) -> bool:
    return bool(_types.is_list(kind) or _types.is_large_list(kind) or _types.is_fixed_size_list(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(_types.is_binary(kind) or _types.is_fixed_size_binary(kind))


_RULES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], bool]], ...] = (
    (_types.is_integer, _integer),
    (_types.is_floating, _floating),
    (_types.is_decimal, _decimal),
    (_types.is_string, _text),
    (_is_bytes, _bytes),
    (_types.is_date, _date),
    (_types.is_timestamp, _timestamp),
    (_types.is_time, _time),
    (_types.is_duration, _duration),
    (_is_list, _list),
    (_types.is_struct, _struct),
)
