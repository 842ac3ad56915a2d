"""The one form of a value in JSON: in answers of the HTTP service, documents of the command line and exported files."""

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    import pyarrow as pa


# Most JSON readers hold integers in 64 signed bits.
_INTEGERS = range(-(2**63), 2**63)
_MICROSECOND = timedelta(microseconds=1)
# The number of digits behind the point of a second in each unit of Arrow.
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def json_value(value: Any) -> Any:
    """Return a value as JSON holds it.

    Bytes are base 64. Decimals, durations (ISO 8601, in seconds), integers beyond 64 signed bits and the floats NaN and
    Infinity are strings. Times are ISO 8601; those with a zone are in UTC and end with `Z`. Raise TypeError for an
    object that is not a value of a table or a document.
    """
    match value:
        # First, because a StrEnum or IntEnum also matches str or int below.
        case Enum():
            return value.value
        # Before int and Sequence: a bool is an int, and a string is a Sequence of characters.
        case None | bool() | str():
            return value
        case int():
            return value if value in _INTEGERS else str(value)
        case float():
            return value if math.isfinite(value) else not_finite(value)
        case Mapping():
            return {str(key): json_value(item) for key, item in value.items()}
        # Before Sequence, which would turn bytes into a list of integers.
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case Sequence():
            return [json_value(item) for item in value]
        case _:
            return _text(value)


def _text(value: Any) -> str:
    match value:
        # Before date: a datetime is a date too, and would not be converted to UTC.
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return duration_text(value // _MICROSECOND, "us")
        case Decimal():
            return f"{value:f}"  # never with an exponent, unlike str()
        case UUID():
            return str(value)
    raise TypeError(f"{type(value).__name__} does not have a form in JSON")


def duration_text(number: int, unit: str) -> str:
    """Return a duration, a number of an Arrow unit, in the form of ISO 8601."""
    digits = _DIGITS[unit]
    # In integers: the float of total_seconds() loses microseconds of long durations.
    seconds, rest = divmod(abs(number), 10**digits)
    fraction = f".{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"PT{'-' if number < 0 else ''}{seconds}{fraction}S"


def not_finite(value: float) -> str:
    """Return the text of a float that JSON does not have a number for."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def value_from_json(value: Any, kind: "pa.DataType") -> Any:
    """Return a value of a column from its form in JSON: the inverse of `json_value`.

    The result is for `pa.array` with the type, or with the storage type of an extension. A value that is in the form of
    Python already stays as it is. Raise ValueError or TypeError if it is not a value of the type.
    """
    import pyarrow as pa

    types = pa.types
    if value is None:
        return None
    if isinstance(kind, pa.BaseExtensionType):
        return _extension_value(value, kind)
    if types.is_dictionary(kind):
        return value_from_json(value, kind.value_type)
    if types.is_nested(kind):
        return _nested_value(value, kind)
    if types.is_decimal(kind) and isinstance(value, int | float) and not isinstance(value, bool):
        # By its text: Decimal(0.1) has all 55 digits of the binary fraction.
        return Decimal(str(value))
    return _value_from_text(value, kind) if isinstance(value, str) else value


def _extension_value(value: Any, kind: "pa.BaseExtensionType") -> Any:
    match kind.extension_name:
        case "arrow.uuid":
            return value if isinstance(value, bytes) else UUID(str(value)).bytes
        case "arrow.json":
            return value if isinstance(value, str) else json.dumps(value)
        case _:
            return value_from_json(value, kind.storage_type)


def _nested_value(value: Any, kind: "pa.DataType") -> Any:
    import pyarrow as pa

    if isinstance(value, str):
        value = json.loads(value)  # A CSV file has it as text.
    if pa.types.is_struct(kind):
        return _struct_value(value, kind)
    if pa.types.is_map(kind):
        # JSON has a map as an object, or as the pairs that Python has.
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(value_from_json(key, kind.key_type), value_from_json(item, kind.item_type)) for key, item in pairs]
    # Bytes are a Sequence of integers, and would pass as a list of numbers.
    if isinstance(value, bytes | Mapping) or not isinstance(value, Sequence):
        raise TypeError(f"expected a list, got {value!r}")
    return [value_from_json(item, kind.value_type) for item in value]


def _struct_value(value: Any, kind: "pa.DataType") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected an object, got {value!r}")
    fields = {field.name: field.type for field in kind}
    # Arrow ignores a field that the struct does not have, so a misspelt name would lose its value without an error.
    if unknown := [name for name in value if name not in fields]:
        raise ValueError(f"unknown field {unknown[0]!r}, expected {', '.join(fields)}")
    return {name: value_from_json(item, fields[name]) for name, item in value.items()}


def _value_from_text(text: str, kind: "pa.DataType") -> Any:
    import pyarrow as pa

    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return text
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        # Without `validate`, other characters are skipped, and text that is not base 64 becomes some bytes.
        return base64.b64decode(text, validate=True)
    if types.is_duration(kind):
        return _duration_from_text(text, kind.unit)
    if types.is_time(kind):
        time.fromisoformat(text)  # Its errors name the part that is wrong.
    if types.is_time(kind) or types.is_timestamp(kind):
        # Arrow does not read times. They are read as times of the first day, which are the same numbers.
        moment, unit = (f"1970-01-01T{text}", pa.timestamp(kind.unit)) if types.is_time(kind) else (text, kind)
        # Arrow refuses more digits than the unit has, also zeros. Return integers: Python does not have nanoseconds.
        moment = re.sub(r"(\.\d*?)0+(?!\d)", lambda found: found[1].removesuffix("."), moment)
        return pa.scalar(moment).cast(unit).value
    return pa.scalar(text).cast(kind).as_py()


def _duration_from_text(text: str, unit: str) -> int:
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    found = re.fullmatch(r"PT(-?)(\d+)(?:\.(\d+))?S", text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration, such as 'PT90.5S'")
    digits = _DIGITS[unit]
    fraction = found[3] or ""
    # Refused rather than rounded: zeros beyond the unit lose nothing, other digits would be lost.
    if fraction[digits:].strip("0"):
        raise ValueError(f"{text!r} does not fit a duration in {unit}")
    number = int(found[2] + fraction[:digits].ljust(digits, "0"))
    return -number if found[1] else number
