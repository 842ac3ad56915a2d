"""The one form of a value in JSON: in answers of the HTTP service, documents of the command line and exported files."""

import base64
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

__all__ = ["json_value", "not_finite"]

# Most JSON readers hold integers in 64 signed bits.
_INTEGERS = range(-(2**63), 2**63)
_MICROSECOND = timedelta(microseconds=1)


def json_value(value: Any) -> Any:
    """Return a value as JSON holds it.

    Bytes are base 64. Decimals, durations (ISO 8601, in seconds), integers beyond 64 signed bits and the floats NaN and
    Infinity are strings. Times are ISO 8601; those with a zone are in UTC and end with `Z`. Raise TypeError for an
    object that is not a value of a table or a document.
    """
    match value:
        case Enum():
            return value.value
        case None | bool() | str():
            return value
        case int():
            return value if value in _INTEGERS else str(value)
        case float():
            return value if math.isfinite(value) else not_finite(value)
        case Mapping():
            return {str(key): json_value(item) for key, item in value.items()}
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case Sequence():
            return [json_value(item) for item in value]
        case _:
            return _text(value)


def _text(value: Any) -> str:
    match value:
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return _duration(value)
        case Decimal():
            return f"{value:f}"  # never with an exponent, unlike str()
        case UUID():
            return str(value)
    raise TypeError(f"{type(value).__name__} does not have a form in JSON")


def _duration(value: timedelta) -> str:
    # In integers: the float of total_seconds() loses microseconds of long durations.
    seconds, microseconds = divmod(abs(value) // _MICROSECOND, 10**6)
    fraction = f".{microseconds:06d}".rstrip("0") if microseconds else ""
    return f"PT{'-' if value < timedelta() else ''}{seconds}{fraction}S"


def not_finite(value: float) -> str:
    """Return the text of a float that JSON does not have a number for."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
