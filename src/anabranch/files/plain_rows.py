"""The rows of a table as Python values, as objects of JSON and as CSV."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from anabranch.json_values import json_value

if TYPE_CHECKING:
    import pyarrow as pa

# Not empty: empty text is quoted, because an empty field is null.
_PLAIN_FIELD = re.compile(r'[^",\r\n]+')


def plain_rows(table: "pa.Table | pa.RecordBatch") -> list[tuple[Any, ...]]:
    """Return the rows as Python values."""
    from anabranch.format.arrow_types import python_values

    return list(zip(*(python_values(column) for column in table.columns), strict=True))


def json_rows(table: "pa.Table | pa.RecordBatch") -> list[dict[str, Any]]:
    """Return the rows as objects of JSON, one by column name each."""
    from anabranch.format.arrow_types import python_values

    columns = [
        # Most columns need no conversion of each value.
        python_values(column) if _is_json(field.type) else [json_value(value) for value in python_values(column)]
        for field, column in zip(table.schema, table.columns, strict=True)
    ]
    names = table.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _is_json(kind: "pa.DataType") -> bool:
    """Whether all values of a type are values of JSON already."""
    from pyarrow import types

    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_boolean(kind)
        or (types.is_integer(kind) and not types.is_uint64(kind))
    )


def csv_lines(header: Sequence[str], batches: "Iterable[pa.RecordBatch]") -> Iterator[str]:
    """Yield the rows as CSV by batches. A null is an empty field, empty text a quoted one, a list or struct is JSON."""
    rest = iter(batches)
    first = next(rest, None)  # an error of the first read comes before any output
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
