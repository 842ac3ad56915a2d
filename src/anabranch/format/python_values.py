"""Arrow values as Python's, also where Python has no such time."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

__all__ = ["python_values"]


def python_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values in Python; times are text where one of their column is finer than microseconds or after 9999."""
    kind = values.type
    if _retyped(kind, _as_text) == kind:
        return list(values.to_pylist())
    if pa.types.is_struct(kind) and isinstance(values, pa.Array):
        columns = [python_values(column) for column in values.flatten()]
        rows = zip(*columns, strict=True)
        names = kind.names
        there = values.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if is_there else None for row, is_there in zip(rows, there, strict=True)
        ]
    try:
        return list(values.cast(_retyped(kind, _in_microseconds)).to_pylist())
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return list(values.cast(_retyped(kind, _as_text)).to_pylist())


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
