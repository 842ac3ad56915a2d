"""The rows of a table as plain values: for a JSON document, for people, and for CSV."""

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from anabranch.cli.output import jsonable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["csv_lines", "json_value", "plain_rows", "text_value"]

# Embeddings and the like: what is left out is in --json and --csv.
_MOST_ITEMS = 8
_MOST_BYTES = 16
_PLAIN_FIELD = re.compile(r'[^",\r\n]+')


def plain_rows(table: "pa.Table | pa.RecordBatch") -> list[tuple[Any, ...]]:
    """The rows as Python values."""
    from anabranch.format.python_values import python_values

    return list(zip(*(python_values(column) for column in table.columns), strict=True))


def json_value(value: Any) -> Any:
    """A value as JSON holds it: bytes in base 64, decimals and what is no number of JSON as text."""
    match value:
        case None | bool() | int() | str():
            return jsonable(value)
        case float():
            return value if math.isfinite(value) else _not_finite(value)
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime():
            return jsonable(value) if value.tzinfo is not None else value.isoformat()
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


def text_value(value: Any) -> str:
    """A value as people read it; long lists and bytes are shortened."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case float() if not math.isfinite(value):
            return _not_finite(value)
        case bytes():
            shown = value[:_MOST_BYTES].hex()
            return f"0x{shown}" if len(value) <= _MOST_BYTES else f"0x{shown}… ({len(value)} bytes)"
        case datetime():
            return value.isoformat(sep=" ").replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case Mapping():
            return "{" + ", ".join(f"{key}: {text_value(item)}" for key, item in value.items()) + "}"
        case Sequence():
            shown = ", ".join(text_value(item) for item in value[:_MOST_ITEMS])
            return f"[{shown}]" if len(value) <= _MOST_ITEMS else f"[{shown}, … {len(value)} values]"
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
            return text_value(value)
        case Mapping() | list() | tuple():
            return json.dumps(json_value(value))
        case _:
            return str(json_value(value))


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
