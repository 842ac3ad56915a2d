"""JSON: one object a line, or one array of objects."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from anabranch.column_types import show_type
from anabranch.errors import DamagedFileError, InvalidInputError, SchemaMismatchError
from anabranch.files.records import (
    Block,
    Dialect,
    Part,
    Record,
    Refusal,
    iter_blocks,
    parse_by_parts,
    parsed_type,
    refuse_nulls,
)
from anabranch.files.sources import SourceFile, Watch, check_is_json, iter_text
from anabranch.format.arrow_types import is_list
from anabranch.json_values import value_from_json

# An array is read whole.
_LARGEST_ARRAY = 256 << 20
# Lines that are or begin with null: Arrow reads the former as rows, and crashes on the latter.
_NULL = re.compile(rb"\A\s*null|\n[ \t\r]*null[ \t\r]*(?:\n|\Z)")

# The day to which a time is added to be parsed.
_DAY = "1970-01-01T"
# Numbers that JSON or most of its readers cannot represent. They are text, as `json_value` writes them.
_NUMBER_TEXT = re.compile(rb'"(?:NaN|-?Infinity|[0-9]{19,20})"')
_NOT_FINITE_TEXTS = ("NaN", "Infinity", "-Infinity")
_LARGE_TEXT = re.compile("[0-9]{19,20}")


class JsonReader:
    def blocks(self, file: SourceFile, *, watch: Watch | None = None) -> Iterator[Block]:
        pieces = iter_text(file, watch=watch)
        if file.span is not None:
            yield from iter_blocks(pieces, Dialect.of_lines(), file=file.uri, line=file.span.line)
            return
        first = next((piece for piece in pieces if piece.strip()), b"")
        check_is_json(first, file.uri)
        everything = itertools.chain([first], pieces)
        if first.lstrip().startswith(b"["):
            yield _array(file, everything)
        else:
            yield from iter_blocks(everything, Dialect.of_lines(), file=file.uri)

    def parse(self, file: SourceFile, block: Block, schema: pa.Schema) -> Part:
        wanted = pa.schema([field.with_nullable(nullable=True) for field in schema])
        # Dates and times are read as text first and cast afterwards.
        written = pa.schema([pa.field(field.name, _written_type(field.type)) for field in wanted])

        def parse(data: bytes) -> pa.Table:
            table = _read_with_number_texts(data, written)
            unknown = list(_unknown_fields(table.schema, written))
            if unknown:
                raise SchemaMismatchError(
                    f"objects in {file.uri!r} have {', '.join(map(repr, unknown))}, and the columns are "
                    f"{', '.join(map(repr, wanted.names))}",
                    hint="leave them out, or add the columns first",
                )
            return pa.table([_cast(table.column(field.name), field) for field in wanted], schema=wanted)

        try:
            part = Part(block.file, parse(block.data), block.bad, block)
        except Refusal:
            part = parse_by_parts(block, parse)
        return refuse_nulls(part, schema)

    def guess(self, block: Block) -> list[pa.Schema]:
        """Return the columns and types that Arrow infers for a block; several schemas if records disagree."""
        schemas: list[pa.Schema] = []

        def parse(data: bytes) -> pa.Table:
            table = _read(data, None)
            schemas.append(table.schema)
            return table.select([]) if not data else pa.table({})

        try:
            parse(block.data)
        except Refusal:
            parse_by_parts(block, parse)
        return schemas


def _read(data: bytes, schema: pa.Schema | None) -> pa.Table:
    if not data.strip():
        return (schema or pa.schema([])).empty_table()
    if _NULL.search(data):
        raise Refusal("null is not an object")
    try:
        return pa_json.read_json(
            pa.BufferReader(data),
            # One block for all of the data: an object that is larger than a block is an error in Arrow.
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(data) + 2),
            parse_options=pa_json.ParseOptions(explicit_schema=schema),
        )
    except pa.ArrowNotImplementedError as err:
        raise _no_form(err) from None
    except pa.ArrowInvalid as err:
        # The row number of Arrow is that of the part, not of the file.
        raise Refusal(str(err).removeprefix("JSON parse error: ").replace(" in row 0", "")) from None


def _read_with_number_texts(data: bytes, schema: pa.Schema) -> pa.Table:
    """Read objects that may hold as text the floats NaN and Infinity, and integers beyond 64 signed bits."""
    try:
        return _read(data, schema)
    except Refusal:
        has_numbers = any(pa.types.is_floating(field.type) or pa.types.is_uint64(field.type) for field in schema)
        # Most blocks are refused for another reason. Try again only if the block has such a text.
        if not has_numbers or not _NUMBER_TEXT.search(data):
            raise
        return _read(_with_numbers(data, schema), schema)


def _with_numbers(data: bytes, schema: pa.Schema) -> bytes:
    """Replace texts of numbers, in columns of floats and of uint64, by the tokens that Arrow reads."""
    lines = []
    for line in data.splitlines():
        # Few lines have such a value. Only these are parsed in Python, the others go to Arrow as they are.
        if _NUMBER_TEXT.search(line):
            try:
                row = json.loads(line)
            except ValueError as err:
                raise Refusal(str(err)) from None
            if isinstance(row, dict):
                row |= {field.name: _number(row[field.name], field.type) for field in schema if field.name in row}
                line = json.dumps(row).encode()
        lines.append(line)
    return b"\n".join(lines) + b"\n"


def _number(value: Any, kind: pa.DataType) -> Any:
    """Return the number of a text in a column of numbers, and any other value as it is."""
    if pa.types.is_floating(kind) and value in _NOT_FINITE_TEXTS:
        return float(value)
    if pa.types.is_uint64(kind) and isinstance(value, str) and _LARGE_TEXT.fullmatch(value):
        return int(value)
    return value


def _unknown_fields(found: Iterable[pa.Field], wanted: Iterable[pa.Field], inside: str = "") -> Iterator[str]:
    """Yield the fields of objects that the schema does not have, also those of nested objects."""
    known = {field.name: field.type for field in wanted}
    for field in found:
        path, kind = f"{inside}{field.name}", field.type
        if field.name not in known:
            yield path
            continue
        other = known[field.name]
        # A list of lists of objects has its fields at the innermost level.
        while pa.types.is_list(kind) and is_list(other):
            kind, other = kind.value_type, other.value_type
        if pa.types.is_struct(kind) and pa.types.is_struct(other):
            yield from _unknown_fields(kind, other, f"{path}.")


def _written_type(kind: pa.DataType) -> pa.DataType:
    """Return the type to read with Arrow: text for dates, times and durations, which it would read as numbers."""
    if is_list(kind):
        # Arrow reads no other kinds of lists.
        return pa.list_(kind.value_field.with_type(_written_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_written_type(field.type)) for field in kind])
    is_text = pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind)
    return pa.string() if is_text else parsed_type(kind)


def _cast(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        if pa.types.is_time(field.type):
            # Arrow reads a time from text only as a part of a timestamp.
            values = pc.binary_join_element_wise(_DAY, values, "").cast(pa.timestamp("ns"))
        if pa.types.is_duration(field.type):
            texts = [value_from_json(text, field.type) for text in values.to_pylist()]
            values = pa.chunked_array([pa.array(texts, field.type)])
        return values.cast(field.type)
    except pa.ArrowNotImplementedError as err:
        raise _no_form(err) from None
    except ValueError as err:
        raise Refusal(f"column {field.name!r} takes {show_type(field.type)}: {str(err).replace(_DAY, '')}") from None


def _no_form(err: pa.ArrowNotImplementedError) -> SchemaMismatchError:
    return SchemaMismatchError(f"a column has a type that JSON has no form for: {err}", hint="load it from Parquet")


def _array(file: SourceFile, pieces: Iterator[bytes]) -> Block:
    held: list[bytes] = []
    for piece in pieces:
        held.append(piece)
        if sum(map(len, held)) > _LARGEST_ARRAY:
            raise InvalidInputError(
                f"{file.uri!r} is one array of more than {_LARGEST_ARRAY >> 20} MiB", hint="write one object a line"
            )
    try:
        text = b"".join(held).decode()
        records = tuple(_elements(text))
    except ValueError as err:
        raise DamagedFileError(f"{file.uri!r} is not a JSON array: {err}", hint="correct it") from err
    data = b"".join(record.text for record in records)
    return Block(file.uri, data, 1, Dialect.of_lines(), known=records)


def _elements(text: str) -> Iterator[Record]:
    decoder = json.JSONDecoder()
    at, line, counted = text.index("[") + 1, 1, 0
    while True:
        at = _after_space(text, at)
        if text[at : at + 1] == "]":
            if _after_space(text, at + 1) < len(text):
                raise ValueError(f"something follows its end at character {at + 1}")
            return
        # Parse element by element instead of all at once: each one needs the line where it begins.
        value, end = decoder.raw_decode(text, at)
        # Count lines from the last element: otherwise the cost would grow with the square of the file.
        line, counted = line + text.count("\n", counted, at), at
        yield Record(json.dumps(value).encode() + b"\n", line)
        at = _after_space(text, end)
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "]":
            raise ValueError(f"a comma is missing at character {at}")


def _after_space(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in " \t\r\n":
        at += 1
    return at


def unify_columns(schemas: Sequence[pa.Schema], given: pa.Schema) -> pa.Schema:
    """Return one type for each column of the blocks."""
    found: dict[str, pa.DataType] = {}
    for schema in schemas:
        for field in schema:
            # A given type needs no agreement of the records.
            if field.name in given.names:
                found.setdefault(field.name, field.type)
                continue
            found[field.name] = _unify(field.name, found.get(field.name, pa.null()), field.type)
    fields = [given.field(n) if n in given.names else pa.field(n, _table_type(kind)) for n, kind in found.items()]
    return pa.schema(fields)


def _unify(name: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    # Arrow reads text that looks like a time as a time. If other values do not look like one, all are text.
    if {pa.types.is_timestamp(one), pa.types.is_timestamp(other)} == {True, False} and pa.string() in (one, other):
        return pa.string()
    try:
        schemas = [pa.schema([(name, one)]), pa.schema([(name, other)])]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        raise SchemaMismatchError(
            f"column {name!r} is {one} in some records and {other} in others",
            hint=f"pass its type with `schema={{{name!r}: 'string'}}`, or correct the records",
        ) from None


def _table_type(kind: pa.DataType) -> pa.DataType:
    """Return a type for a table: text if all values are null, microseconds instead of seconds."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_list(kind):
        return pa.list_(_table_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _table_type(field.type)) for field in kind])
    return kind
