"""Rows of a request as Arrow's, in the types of a table."""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import BadRecordError, SchemaMismatchError
from anabranch.files.finding import SourceFile
from anabranch.files.formats import FileFormat
from anabranch.files.json_reading import JsonReader
from anabranch.files.records import Block, Dialect, Record

__all__ = ["rows_of_objects"]

# Errors name where a row came from; it is no file here.
_SOURCE = SourceFile(root="request", path="rows", size=0, format=FileFormat.JSON)


def rows_of_objects(objects: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The objects as rows of those columns that any of them names; bytes are in base 64.

    The columns that nobody names are left out, so that they get their defaults, or keep what they have.
    """
    named = {name for row in objects for name in row}
    if strangers := sorted(named - set(schema.names)):
        raise SchemaMismatchError(
            f"the rows have {', '.join(map(repr, strangers))}, and the columns are {', '.join(schema.names)}",
            hint="leave them out, or add the columns first",
        )
    wanted = pa.schema([field for field in schema if field.name in named])
    read_as = pa.schema([field.with_type(pa.string()) if _is_bytes(field.type) else field for field in wanted])
    records = tuple(Record(json.dumps(row).encode() + b"\n", number) for number, row in enumerate(objects, start=1))
    block = Block("rows", b"".join(record.text for record in records), 1, Dialect.of_lines(), known=records)
    parsed = JsonReader().parse(_SOURCE, block, read_as)
    if parsed.bad:
        first = parsed.bad[0]
        raise BadRecordError(f"row {first.line}: {first.reason}", hint="correct it; no row was taken")
    columns = [_decoded(parsed.table.column(field.name), field) for field in wanted]
    return pa.table(columns, schema=wanted)


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _decoded(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if not _is_bytes(field.type):
        return values
    try:
        decoded = [None if text is None else base64.b64decode(text, validate=True) for text in values.to_pylist()]
        return pa.chunked_array([pa.array(decoded, field.type)])
    except (binascii.Error, pa.ArrowInvalid) as err:
        raise BadRecordError(f"column {field.name!r} takes bytes in base 64: {err}", hint="correct it") from None
