"""Arrow types and values as other engines, and Python, know them, and the columns of Lance blobs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.json_values import duration_text

if TYPE_CHECKING:
    import lance
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "WITH_BYTES",
    "bytes_field",
    "common_type",
    "find_blobs",
    "is_blob_type",
    "python_values",
    "read_blobs",
    "to_blobs",
    "with_bytes",
]

# The precision of decimal128, the widest decimal that most engines have.
_MOST_DIGITS = 38

# First match wins: what Lance stores, and the type that holds the same values and is known everywhere.
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
    """The type to show a column as: the same one, or a wider one; decimals of more than 38 digits stay as they are."""
    # An extension has a meaning beyond its storage, which a cast would lose.
    if isinstance(kind, pa.BaseExtensionType):
        return kind
    return next((change(kind) for is_kind, change in _TABLE if is_kind(kind)), kind)


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(common_type(field.type))


def _decimal(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(kind.precision, kind.scale) if kind.precision <= _MOST_DIGITS else kind


def _timestamp(kind: pa.DataType) -> pa.DataType:
    # With a time zone most engines know microseconds only, and would cut the rest off on their own after filtering.
    return pa.timestamp("us", kind.tz) if kind.tz is not None else kind


def python_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values in Python; times are text where one of their column is finer than microseconds or after 9999.

    The text is that of JSON: ISO 8601, times with a zone in UTC.
    """
    kind = values.type
    if _retyped(kind, _as_text) == kind:
        return list(values.to_pylist())
    # Field by field: a time that needs text in one field must not turn the others into text.
    if pa.types.is_struct(kind) and isinstance(values, pa.Array):
        columns = [python_values(column) for column in values.flatten()]
        rows = zip(*columns, strict=True)
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
    """Return what Arrow writes for a value of a type, with times and durations as ISO 8601 has them."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return value.replace(" ", "T")
    if pa.types.is_duration(kind):
        return duration_text(int(value), kind.unit)
    if pa.types.is_struct(kind):
        return {field.name: _iso_text(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
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
    """The type with other leaves."""
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
