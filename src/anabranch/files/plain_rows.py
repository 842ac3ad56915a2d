"""The rows of a table as plain values: for a JSON document and for CSV."""

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["csv_lines", "json_value", "not_finite", "plain_rows"]

_MAX_JSON_INTEGER = 2**63 - 1
_PLAIN_FIELD = re.compile(r'[^",\r\n]+')


def plain_rows(table: "pa.Table | pa.RecordBatch") -> list[tuple[Any, ...]]:
    """The rows as Python values."""
    from anabranch.format.python_values import python_values

    return list(zip(*(python_values(column) for column in table.columns), strict=True))


def json_value(value: Any) -> Any:
    """A value as JSON holds it: bytes in base 64, decimals and numbers outside of JSON as text."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) <= _MAX_JSON_INTEGER else str(value)
        case float():
            return value if math.isfinite(value) else not_finite(value)
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return f"PT{value.total_seconds():f}".rstrip("0").rstrip(".") + "S"
        case Mapping():
            return {str(key): json_value(item) for key, item in value.items()}
        case Sequence():
            return [json_value(item) for item in value]
        case _:
            return str(value)


def csv_lines(header: Sequence[str], batches: "Iterable[pa.RecordBatch]") -> Iterator[str]:
    """The rows as CSV, batch by batch; a null is an empty field, empty text a quoted one, a list or struct is JSON."""
    rest = iter(batches)
    first = next(rest, None)  # what cannot be read is to fail before anything is printed
    yield _csv([header])
    for batch in () if first is None else chain([first], rest):
        yield _csv([_csv_value(value) for value in row] for row in plain_rows(batch))


def _csv(rows: Iterable[Sequence[str | None]]) -> str:
    return "".join(",".join(map(_csv_field, row)) + "\n" for row in rows)


def _csv_field(text: str | None) -> str:
    # Python's own writer makes no difference between a null and empty text.
    if text is None:
        return ""
    return text if _PLAIN_FIELD.fullmatch(text) else '"' + text.replace('"', '""') + '"'


def _csv_value(value: Any) -> str | None:
    match value:
        case None:
            return None
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case Mapping() | list() | tuple():
            return json.dumps(json_value(value))
        case _:
            return str(json_value(value))


def not_finite(value: float) -> str:
    """A float that JSON has no number for."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
