"""Convert Arrow types and values for other engines and Python, and read the columns of Lance blobs.

Rows come in as Python values, too: a list of dicts, a dict of lists, or a pandas frame.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.column_types import show_type
from anabranch.errors import InvalidInputError, SchemaMismatchError
from anabranch.format.arguments import unknown_column
from anabranch.json_values import duration_text

if TYPE_CHECKING:
    import lance
    import numpy as np
    import numpy.typing as npt


# The precision of decimal128, the widest decimal that most engines have.
_MOST_DIGITS = 38

# The first match counts: a type that Lance stores, and the common type that holds the same values.
_TABLE: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (pa.types.is_float16, lambda _: pa.float32()),
    (pa.types.is_date64, lambda _: pa.date32()),
    (pa.types.is_time32, lambda _: pa.time64("us")),
    (pa.types.is_dictionary, lambda kind: common_type(kind.value_type)),
    (pa.types.is_fixed_size_binary, lambda _: pa.binary()),
    (pa.types.is_decimal256, lambda kind: _decimal(kind)),
    (pa.types.is_timestamp, lambda kind: _timestamp(kind)),
    (pa.types.is_struct, lambda kind: pa.struct([_field(field) for field in kind])),
    (pa.types.is_fixed_size_list, lambda kind: pa.list_(_field(kind.value_field), kind.list_size)),
    (pa.types.is_large_list, lambda kind: pa.large_list(_field(kind.value_field))),
    (pa.types.is_list, lambda kind: pa.list_(_field(kind.value_field))),
    (pa.types.is_map, lambda kind: pa.map_(_field(kind.key_field), _field(kind.item_field))),
)


def common_type(kind: pa.DataType) -> pa.DataType:
    """Return the type to show a column as: the same or a wider one. Decimals of over 38 digits are not changed."""
    # An extension has a meaning beyond its storage, which a cast would lose.
    if isinstance(kind, pa.BaseExtensionType):
        return kind
    return next((change(kind) for is_kind, change in _TABLE if is_kind(kind)), kind)


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(common_type(field.type))


def _decimal(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(kind.precision, kind.scale) if kind.precision <= _MOST_DIGITS else kind


def _timestamp(kind: pa.DataType) -> pa.DataType:
    # With a time zone, most engines support microseconds only, and would truncate values after filtering.
    return pa.timestamp("us", kind.tz) if kind.tz is not None else kind


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list of any kind."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def python_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return Python values. Times are text if a value of the column is finer than microseconds or after 9999.

    The text is that of JSON: ISO 8601, times with a zone in UTC.
    """
    kind = values.type
    if _retyped(kind, _as_text) == kind:
        return list(values.to_pylist())
    # Field by field: a time that needs text in one field must not turn the others into text.
    if pa.types.is_struct(kind) and isinstance(values, pa.Array):
        rows = zip(*map(python_values, values.flatten()), strict=True)
        names = kind.names
        there = values.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if is_there else None for row, is_there in zip(rows, there, strict=True)
        ]
    try:
        # The cast is safe: it fails if a value is finer than Python's microseconds, or has no date in Python.
        return list(values.cast(_retyped(kind, _in_microseconds)).to_pylist())
    except (pa.ArrowInvalid, OverflowError, ValueError):
        texts = values.cast(_retyped(kind, _in_utc)).cast(_retyped(kind, _as_text))
        return [_iso_text(text, kind) for text in texts.to_pylist()]


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def _iso_text(value: Any, kind: pa.DataType) -> Any:
    """Return a value as text in Arrow's form, with times and durations in ISO 8601."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return value.replace(" ", "T")
    if pa.types.is_duration(kind):
        return duration_text(int(value), kind.unit)
    if pa.types.is_struct(kind):
        return {field.name: _iso_text(value[field.name], field.type) for field in kind}
    if is_list(kind):
        return [_iso_text(item, kind.value_type) for item in value]
    return value


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    return pa.time64("us") if pa.types.is_time64(kind) else kind


def _as_text(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_temporal(kind) else kind


def _retyped(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_retyped(field.type, leaf)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_retyped(kind.value_type, leaf), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(_retyped(kind.value_type, leaf))
    if pa.types.is_large_list(kind):
        return pa.large_list(_retyped(kind.value_type, leaf))
    return leaf(kind)


# A scan returns where the bytes of Lance blobs are stored, which differs for equal values. Rows that are compared,
# merged or written again are read with the bytes, in the schema of `with_bytes`.

# The options of a scan that reads bytes. Few rows at a time, because each may have many megabytes.
WITH_BYTES: dict[str, Any] = {"blob_handling": "all_binary", "batch_size": 64}
_BLOB = "lance.blob.v2"
# Files before Lance's version 2.2 have blobs as binary columns with this note.
_NOTE = b"lance-encoding:blob"


def is_blob_type(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == _BLOB


def find_blobs(schema: pa.Schema) -> tuple[str, ...]:
    """Return the names of the blob columns."""
    return tuple(field.name for field in schema if is_blob_type(field.type) or _NOTE in (field.metadata or ()))


def bytes_field(field: pa.Field) -> pa.Field:
    """Return a field as rows are read with bytes: a blob is binary, all other types are the same."""
    return field.with_type(pa.large_binary()) if is_blob_type(field.type) else field


def with_bytes(schema: pa.Schema) -> pa.Schema:
    """Return the schema of rows that are read with bytes."""
    return pa.schema(list(map(bytes_field, schema)), metadata=schema.metadata)


def read_blobs(dataset: "lance.LanceDataset", name: str, addresses: "npt.NDArray[np.uint64]") -> pa.Array:
    """Return the bytes of a blob column at row addresses, in their order."""
    found = dataset.read_blobs(name, addresses=addresses.tolist(), preserve_order=True) if len(addresses) else []
    return pa.array([value for _, value in found], pa.large_binary())


def to_blobs(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return bytes as values of a blob type, to be written."""
    assert isinstance(kind, pa.BaseExtensionType)  # noqa: S101 - `is_blob_type` is true
    storage = kind.storage_type
    arrays = [
        values.cast(field.type) if field.name == "data" else pa.nulls(len(values), field.type) for field in storage
    ]
    made = pa.StructArray.from_arrays(arrays, fields=list(storage), mask=values.is_null())
    return pa.ExtensionArray.from_storage(kind, made)


Fits = Callable[[pa.DataType, pa.DataType], bool]

_LONGEST_VALUE = 80
_SAME_KEYS = "give every row the same keys, with None for null"
# What Arrow raises for Python values that it cannot convert.
_FAILURES = (pa.ArrowException, ValueError, TypeError, OverflowError, NotImplementedError)


def find_rows_table(data: Any, schema: pa.Schema | None, *, fits: Fits) -> pa.Table | None:
    """Return rows of Python values as a table, or None for data of another kind.

    With a schema, values take the types of its columns if `fits` allows it, and other columns are refused. Otherwise
    Arrow infers the types. The columns of a pandas frame have types of their own.
    """
    pandas = sys.modules.get("pandas")  # a frame cannot exist before pandas is loaded
    # Checked first: a frame also has the stream protocol, which keeps an unnamed index as a column.
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return _read_pandas(data)
    if hasattr(data, "__arrow_c_stream__"):
        return None
    if isinstance(data, Mapping):
        return _read_columns(data, schema, fits)
    if isinstance(data, list | tuple):
        return _read_dicts(data, schema, fits)
    return None


def has_own_types(data: Any) -> bool:
    """Return whether data has column types. Only plain Python values have none."""
    return hasattr(data, "__arrow_c_stream__") or not isinstance(data, Mapping | list | tuple)


def shorten(value: object) -> str:
    """Return the repr of a value, shortened for a message."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _read_pandas(frame: Any) -> pa.Table:
    """Return the columns of a frame. Named levels of its index become columns, unnamed ones are dropped."""
    # Arrow keeps an unnamed index as `__index_level_0__` unless it is a plain range. After a filter it is not.
    named = [name for name in frame.index.names if name is not None]
    try:
        flat = frame.reset_index(level=named) if named else frame
        table = pa.Table.from_pandas(flat, preserve_index=False)
    except _FAILURES as err:
        raise SchemaMismatchError(
            f"the pandas frame cannot be read: {_first_line(err)}", hint="rename or convert the column or the index"
        ) from err
    # Arrow adds a description of the frame, which would become part of the schema of the table.
    return table.replace_schema_metadata(None)


def _read_dicts(rows: Sequence[Any], schema: pa.Schema | None, fits: Fits) -> pa.Table:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidInputError(
                f"row {number} of the data is {shorten(row)}, not a dict", hint="pass a list such as [{'id': 1}]"
            )
    first: Mapping[Any, Any] = next(iter(rows), {})
    for number, row in enumerate(rows):
        # A missing key may be misspelled, so it does not count as null.
        for name in (*first, *row):
            if (name in row) != (name in first):
                without, other = (number, 0) if name not in row else (0, number)
                raise SchemaMismatchError(
                    f"row {without} of the data has no key {name!r}, which row {other} has", hint=_SAME_KEYS
                )
    return _read_columns({name: [row[name] for row in rows] for name in first}, schema, fits)


def _read_columns(columns: Mapping[Any, Any], schema: pa.Schema | None, fits: Fits) -> pa.Table:
    for name, values in columns.items():
        _check_column(name, values, schema)
    if not columns:
        return pa.schema([] if schema is None else schema).empty_table()
    arrays = {
        name: _read_column(name, values, None if schema is None else schema.field(name).type, fits)
        for name, values in columns.items()
    }
    lengths = {name: len(array) for name, array in arrays.items()}
    first, *others = lengths
    for name in others:
        if lengths[name] != lengths[first]:
            raise SchemaMismatchError(
                f"column {name!r} has {lengths[name]} values, and column {first!r} has {lengths[first]}",
                hint="give every column the same number of values",
            )
    return pa.table(arrays)


def _check_column(name: object, values: object, schema: pa.Schema | None) -> None:
    if not isinstance(name, str):
        raise InvalidInputError(f"{name!r} is not the name of a column", hint="use strings as keys")
    if schema is not None and name not in schema.names:
        raise unknown_column(name, schema.names)
    # A string has a length too, and would become a column of characters.
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        raise InvalidInputError(
            f"the values of column {name!r} are {shorten(values)}, not a list",
            hint="pass a dict of lists such as {'id': [1, 2]}, or a list of dicts such as [{'id': 1}]",
        )


def _read_column(name: str, values: Any, kind: pa.DataType | None, fits: Fits) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        found = _infer(values, kind)
    except _FAILURES as err:
        # A map given as pairs, for example, has a type that Arrow does not infer.
        if not _can_only_be_typed(kind):
            raise _no_common_type(name, values, kind, fits, err) from err
        return _convert(name, values, kind)
    if kind is None or fits(found.type, kind):
        return found
    if not _fits(found.type, kind, fits):
        raise _mismatch(name, values, kind, fits)
    made = _convert(name, values, kind)
    # Arrow turns a number that is too large for the narrower type into infinity.
    if pa.types.is_floating(kind) and pc.sum(pc.is_inf(made)) != pc.sum(pc.is_inf(found)):
        raise SchemaMismatchError(
            f"a value of column {name!r} is too large for {show_type(kind)}",
            hint="correct the value, or change the column's type",
        )
    return made


def _infer(values: Any, kind: pa.DataType | None) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError:
        # Arrow infers int64 for whole numbers, even for those that only uint64 can hold.
        if kind is None or not pa.types.is_uint64(kind):
            raise
        return pa.array(values, kind)


def _fits(found: pa.DataType, kind: pa.DataType, fits: Fits) -> bool:
    """Return whether Python values may be converted from the type that Arrow infers to another one."""
    # More conversions are allowed than for Arrow data: Python has one float type, and a dict may be a map or lack keys
    # of a struct.
    if pa.types.is_floating(found) and pa.types.is_floating(kind):
        return True
    if pa.types.is_dictionary(kind):
        return _fits(found, kind.value_type, fits)
    if is_list(found) and is_list(kind):
        return _fits(found.value_type, kind.value_type, fits)
    if pa.types.is_struct(found):
        return _struct_fits(found, kind, fits)
    return fits(found, kind) or _can_only_be_typed(kind)


def _struct_fits(found: pa.StructType, kind: pa.DataType, fits: Fits) -> bool:
    if pa.types.is_struct(kind):
        known = {field.name: field.type for field in kind}
        return all(field.name in known and _fits(field.type, known[field.name], fits) for field in found)
    if pa.types.is_map(kind):
        return all(_fits(field.type, kind.item_type, fits) for field in found)
    return fits(found, kind) or _can_only_be_typed(kind)


def _can_only_be_typed(kind: pa.DataType | None) -> bool:
    return kind is not None and (pa.types.is_map(kind) or isinstance(kind, pa.BaseExtensionType))


def _convert(name: str, values: Any, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except _FAILURES as err:
        raise SchemaMismatchError(
            f"the values of column {name!r} cannot be converted to {show_type(kind)}: {_first_line(err)}",
            hint="convert them first, or change the column's type",
        ) from err


def _no_common_type(
    name: str, values: Any, kind: pa.DataType | None, fits: Fits, cause: BaseException
) -> SchemaMismatchError:
    """Return the error for values without an inferred type: the first wrong value, or values of different types."""
    if kind is not None:
        return _mismatch(name, values, kind, fits)
    if isinstance(cause, OverflowError):
        return SchemaMismatchError(
            f"a whole number of column {name!r} is too large for int64",
            hint="create the table with a schema, such as decimal128(38, 0), or give text",
        )
    return SchemaMismatchError(
        f"the values of column {name!r} have no common type: {_first_line(cause)}",
        hint="convert them first, or create the table with a schema",
    )


def _mismatch(name: str, values: Any, kind: pa.DataType, fits: Fits) -> SchemaMismatchError:
    hint = "correct the value, or change the column's type first"
    # Arrow's error does not name the row. One array for each value is slow, but runs only before an error.
    for number, value in enumerate(values):
        try:
            is_wrong = not _fits(_infer([value], kind).type, kind, fits)
        except _FAILURES:
            is_wrong = True
        if is_wrong:
            # A float such as 0.1 is not exactly that decimal.
            if isinstance(value, float) and pa.types.is_decimal(kind):
                hint = f"pass a decimal.Decimal, such as Decimal('{value}')"
            problem = f"cannot convert {shorten(value)} to {show_type(kind)} (column {name!r}, row {number})"
            return SchemaMismatchError(problem, hint=hint)
    return SchemaMismatchError(f"cannot convert the values of column {name!r} to {show_type(kind)}", hint=hint)


def _first_line(err: BaseException) -> str:
    return (str(err) or type(err).__name__).splitlines()[0]
