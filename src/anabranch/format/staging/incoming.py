"""Convert incoming rows to the columns of a table, or refuse them with the name of the column."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from anabranch.column_types import show_type
from anabranch.errors import InvalidInputError, SchemaMismatchError
from anabranch.format.arguments import unknown_column
from anabranch.format.arrow_types import find_rows_table, is_blob_type, is_list, shorten, to_blobs
from anabranch.format.staging.expressions import find_default
from anabranch.hints import suggest

# The alignment of Rust's 128-bit integers, in which Lance reads decimals.
_BYTES = 16


def aligned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with copies of the columns that make Lance panic: decimals that are not aligned to 16 bytes.

    Spark and other senders of Arrow's stream format align to 8 bytes only.
    """
    for number, column in enumerate(batch.columns):
        if _has_decimals(column.type) and any(b is not None and b.address % _BYTES for b in column.buffers()):
            copied = pa.concat_arrays([column, column.slice(0, 0)])  # a single array would not be copied
            batch = batch.set_column(number, batch.schema.field(number), copied)
    return batch


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimals(kind.field(n).type) for n in range(kind.num_fields))


# The precision of Arrow's decimal256.
_MOST_DIGITS = 76


def as_reader(data: Any, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """Read rows from Arrow data, a frame, a list of dicts or a dict of lists.

    Python values take the types of `schema`, which has the columns of the table; all other data has types of its own.
    """
    match data:
        case pa.RecordBatchReader():
            return data
        case pa.RecordBatch():
            return pa.RecordBatchReader.from_batches(data.schema, [data])
        case pads.Dataset():
            return data.scanner().to_reader()
        case pads.Scanner():
            return data.to_reader()
    table = find_rows_table(data, schema, fits=_is_castable)
    if table is not None:
        return table.to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    hint = (
        "pass a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a pandas or polars frame, or a list of dicts"
    )
    if type(data).__name__ == "LazyFrame":
        hint = "collect it first, and pass the frame"
    if isinstance(data, str):
        hint = f"{hint}; `load()` reads files"
    raise InvalidInputError(f"cannot read rows from {shorten(data)} ({type(data).__name__})", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows that can be read once, in batches of one schema."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, schema=self.schema)

    @contextmanager
    def reading(self) -> Iterator[pa.RecordBatchReader]:
        """Return a reader for Lance. An error of the reader is raised as it was, not as Lance reports it."""
        # Lance turns an error of the reader into one of its own, without the type and the hint.
        failures: list[Exception] = []

        def watched() -> Iterator[pa.RecordBatch]:
            try:
                yield from map(aligned, self.batches)
            except Exception as err:
                failures.append(err)
                raise

        try:
            yield pa.RecordBatchReader.from_batches(self.schema, watched())
        except Exception:
            if failures:
                raise failures[0] from None
            raise


def read_rows(data: Any) -> Rows:
    """Return rows in their own schema."""
    reader = as_reader(data)
    return Rows(schema=reader.schema, batches=iter(reader))


def fit_rows(data: Any, schema: pa.Schema, *, columns: Sequence[str] | None = None) -> Rows:
    """Convert rows to the order and the types of a schema.

    Columns that are missing get their default, or become null. Types are widened if no value changes, and narrowed only
    between integers whose values fit. With `columns`, only these columns of the schema are returned.
    """
    reader = as_reader(data, schema)
    _require_known(reader.schema, schema)
    target = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    casts = [_plan_column(reader.schema, field, schema.names) for field in target]
    batches = (pa.RecordBatch.from_arrays([cast(batch) for cast in casts], schema=target) for batch in reader)
    return Rows(schema=target, batches=batches)


def require_columns(schema: pa.Schema, names: Sequence[str]) -> None:
    """Refuse a missing column."""
    for name in names:
        if name not in schema.names:
            raise unknown_column(name, schema.names)


def cast_column(values: pa.Array, field: pa.Field) -> pa.Array:
    """Cast without changing a value. Refuse nulls if the column does not allow them."""
    if is_blob_type(field.type) and _is_bytes(values.type):
        values = to_blobs(values, field.type)
    if values.type != field.type:
        if not _is_castable(values.type, field.type):
            raise _mismatch(field, values.type)
        try:
            values = pc.cast(_before_cast(values, field.type), field.type, safe=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as err:
            raise SchemaMismatchError(
                f"column {field.name!r} takes {show_type(field.type)}, and a value of the given "
                f"{show_type(values.type)} does not fit: {err}",
                hint="correct the value, or change the column's type first",
            ) from None
    if not field.nullable and values.null_count:
        raise SchemaMismatchError(
            f"column {field.name!r} takes no nulls, and {values.null_count} of the given values are null",
            hint="fill them, or make the column nullable first",
        )
    return values


def _before_cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values in a type from which Arrow casts to the given one."""
    plain = _plain_type(kind)
    if isinstance(values, pa.DictionaryArray):
        # Cast only the distinct values: Arrow does not select views of text by index, which categories of Polars have.
        return pa.DictionaryArray.from_arrays(values.indices, pc.cast(values.dictionary, plain))
    if plain != kind:
        return pc.cast(values, plain).dictionary_encode()
    # Whole numbers become long decimals first: Arrow asks for room for any value of their type.
    if pa.types.is_integer(values.type) and pa.types.is_decimal(kind):
        return pc.cast(values, pa.decimal256(_MOST_DIGITS, kind.scale))
    return values


def cast_computed(values: pa.Array, field: pa.Field) -> pa.Array:
    """Cast the result of an expression. Arithmetic widens numbers, so they may be narrowed again."""
    given, kind = values.type, field.type
    if given != kind and _is_number(given) and _is_number(kind) and not _is_castable(given, kind):
        try:
            values = pc.cast(values, field.type, safe=True)
        except pa.ArrowInvalid as err:
            raise SchemaMismatchError(
                f"column {field.name!r} takes {show_type(field.type)}, and a computed {show_type(values.type)} "
                f"does not fit: {err}",
                hint="correct the expression, or change the column's type first",
            ) from None
    return cast_column(values, field)


def require_computable(found: pa.DataType, field: pa.Field) -> None:
    """Refuse an expression whose type does not fit the column, before it is computed."""
    if not (_is_castable(found, field.type) or (_is_number(found) and _is_number(field.type))):
        raise _mismatch(field, found)


def _require_known(given: pa.Schema, schema: pa.Schema) -> None:
    for name in given.names:
        if given.names.count(name) > 1:
            raise SchemaMismatchError(f"column {name!r} is given more than once", hint="keep one of them")
        if name not in schema.names:
            raise SchemaMismatchError(
                f"column {name!r} (found {show_type(given.field(name).type)}) is not expected: the columns are "
                f"{', '.join(map(repr, schema.names))}",
                hint=suggest(name, schema.names, "drop it from the data, or add the column to the table first"),
            )


def _plan_column(given: pa.Schema, field: pa.Field, columns: Sequence[str]) -> Callable[[pa.RecordBatch], pa.Array]:
    if field.name not in given.names:
        default = find_default(field, columns=columns)
        if default is not None:
            return lambda batch: cast_computed(default(batch.num_rows), field)
        if not field.nullable:
            raise SchemaMismatchError(
                f"column {field.name!r} is expected ({show_type(field.type)}, not null) and was not found",
                hint="add it to the data, or make the column nullable first",
            )
        return lambda batch: pa.nulls(batch.num_rows, field.type)
    found = given.field(field.name).type
    # Refused before a row is read, so that nothing is written.
    if not _is_castable(found, field.type):
        raise _mismatch(field, found)
    return lambda batch: cast_column(batch.column(field.name), field)


def _mismatch(field: pa.Field, found: pa.DataType) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {field.name!r} was expected to be {show_type(field.type)} and was found to be {show_type(found)}",
        hint="cast the data, or change the column's type first",
    )


def _is_castable(found: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether one type may be cast to another. Single values are checked by the cast."""
    # A column of nulls only, such as one of an empty file, fits every type.
    if found == expected or pa.types.is_null(found):
        return True
    if is_blob_type(expected):
        return _is_bytes(found)
    # A dictionary is only an encoding of values: pandas and polars use it for categories.
    if pa.types.is_dictionary(found) or pa.types.is_dictionary(expected):
        return _is_castable(_plain_type(found), _plain_type(expected))
    if pa.types.is_nested(found):
        return _are_parts_castable(found, expected)
    return any(takes(found) and gives(expected) for takes, gives in _FAMILIES)


def _are_parts_castable(found: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether a type is nested in the same way as the expected one, and each part may be cast."""
    if is_list(found) and is_list(expected):
        return _is_castable(found.value_type, expected.value_type)
    are_structs = pa.types.is_struct(found) and pa.types.is_struct(expected)
    if not are_structs or found.num_fields != expected.num_fields:
        return False
    return all(a.name == b.name and _is_castable(a.type, b.type) for a, b in zip(found, expected, strict=True))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


# The allowed casts, if each value fits. Text is not read as numbers, nor floats as integers: both would hide mistakes.
_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...] = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_integer, pa.types.is_decimal),
    # Floats are only widened.
    (pa.types.is_float16, pa.types.is_floating),
    (pa.types.is_float32, pa.types.is_float64),
    (_is_text, _is_text),
    (_is_bytes, _is_bytes),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_date, pa.types.is_date),
    (pa.types.is_date, pa.types.is_timestamp),
    (pa.types.is_timestamp, pa.types.is_timestamp),
    (pa.types.is_time, pa.types.is_time),
    (pa.types.is_duration, pa.types.is_duration),
)
