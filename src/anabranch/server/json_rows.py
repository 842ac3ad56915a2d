"""Rows of a request as Arrow's, in the types of a table."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import BadRecordError, SchemaMismatchError
from anabranch.files.finding import SourceFile
from anabranch.files.formats import FileFormat
from anabranch.files.json_reading import JsonReader
from anabranch.files.records import Block, Dialect, Record
from anabranch.server.json_values import is_read_by_value, read_values

__all__ = ["rows_of_objects"]

# Errors name where a row came from; it is no file here.
_SOURCE = SourceFile(root="request", path="rows", size=0, format=FileFormat.JSON)


def rows_of_objects(objects: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The objects as rows of those columns that any of them names.

    The columns that nobody names are left out, so that they get their defaults, or keep what they have.
    """
    named = {name for row in objects for name in row}
    if strangers := sorted(named - set(schema.names)):
        raise SchemaMismatchError(
            f"the rows have {', '.join(map(repr, strangers))}, and the columns are {', '.join(schema.names)}",
            hint="leave them out, or add the columns first",
        )
    wanted = pa.schema([field for field in schema if field.name in named])
    by_value = {field.name for field in wanted if is_read_by_value(field.type)}
    parsed = _parse(objects, pa.schema([field for field in wanted if field.name not in by_value]))
    columns = [
        read_values([row.get(field.name) for row in objects], field)
        if field.name in by_value
        else parsed.column(field.name)
        for field in wanted
    ]
    return pa.table(columns, schema=wanted) if columns else pa.table({"": pa.nulls(len(objects))}).select([])


def _parse(objects: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """What Arrow reads by itself."""
    names = schema.names
    records = tuple(
        Record(json.dumps({name: row[name] for name in names if name in row}).encode() + b"\n", number)
        for number, row in enumerate(objects, start=1)
    )
    block = Block("rows", b"".join(record.text for record in records), 1, Dialect.of_lines(), known=records)
    parsed = JsonReader().parse(_SOURCE, block, schema)
    if parsed.bad:
        first = parsed.bad[0]
        raise BadRecordError(f"row {first.line}: {first.reason}", hint="correct it; no row was taken")
    return parsed.table
