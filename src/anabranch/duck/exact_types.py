"""Arrow types as DuckDB holds them without losing anything: the values come back as they were."""

from collections.abc import Callable

import pyarrow as pa

__all__ = ["held", "held_type", "restored"]

# First match wins: what DuckDB does not know, or knows less exactly, and what stands for it there.
_TABLE: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (lambda kind: isinstance(kind, pa.BaseExtensionType), lambda kind: _plain_type(kind.storage_type)),
    (pa.types.is_null, lambda _: pa.int32()),
    (pa.types.is_float16, lambda _: pa.float32()),
    (pa.types.is_date64, lambda _: pa.int64()),
    (pa.types.is_duration, lambda _: pa.int64()),
    (pa.types.is_time32, lambda _: pa.time64("us")),
    # Zones are the column's, not the values'; with one DuckDB knows no nanoseconds.
    (pa.types.is_timestamp, lambda kind: pa.timestamp(kind.unit)),
    (pa.types.is_dictionary, lambda kind: _plain_type(kind.value_type)),
    (pa.types.is_fixed_size_binary, lambda _: pa.binary()),
    (pa.types.is_decimal256, lambda _: pa.string()),
    (pa.types.is_struct, lambda kind: pa.struct([_field(field) for field in kind])),
    (pa.types.is_fixed_size_list, lambda kind: pa.list_(_field(kind.value_field), kind.list_size)),
    (pa.types.is_large_list, lambda kind: pa.list_(_field(kind.value_field))),
    (pa.types.is_list, lambda kind: pa.list_(_field(kind.value_field))),
    # DuckDB's own maps have each key once.
    (pa.types.is_map, lambda kind: pa.list_(pa.struct([_field(kind.key_field), _field(kind.item_field)]))),
)


def held_type(kind: pa.DataType) -> pa.DataType:
    """The type that DuckDB is to hold values of another type as."""
    # DuckDB does not distinguish fields of a struct whose names differ in case only.
    return _with_names(_plain_type(kind), like=None)


def held(array: pa.Array) -> pa.Array:
    plain, kind = _plain_type(array.type), held_type(array.type)
    if array.type != plain:
        array = array.cast(plain)
    return array if plain == kind else array.view(kind)


def restored(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in the type they came from."""
    if array.type == kind:
        return array
    if pa.types.is_nested(array.type):
        array = array.view(_with_names(array.type, like=_plain_type(kind)))
    return _converted(array, kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return next((change(kind) for is_kind, change in _TABLE if is_kind(kind)), kind)


def _with_names(kind: pa.DataType, *, like: pa.DataType | None) -> pa.DataType:
    """The type with the names that the parts of structs have in another one, or else with numbers for names."""
    if pa.types.is_struct(kind):
        numbers = range(kind.num_fields)
        names = [str(number) if like is None else like.field(number).name for number in numbers]
        parts = [None if like is None else like.field(number).type for number in numbers]
        return pa.struct(
            [(names[number], _with_names(kind.field(number).type, like=parts[number])) for number in numbers]
        )
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        values = _with_names(kind.value_type, like=None if like is None else like.value_type)
        return pa.list_(values, kind.list_size) if pa.types.is_fixed_size_list(kind) else pa.list_(values)
    return kind


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not _holds_uncastable(kind):
        return array.cast(kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(array), kind)
    if pa.types.is_struct(kind):
        parts = [_converted(part, field.type) for part, field in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if pa.types.is_map(kind):
        keys, items = array.values.flatten()
        keys, items = _converted(keys, kind.key_type), _converted(items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=array.is_null())
    values = _converted(array.values, kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=array.is_null())
    lists = pa.ListArray.from_arrays(array.offsets, values, type=pa.list_(kind.value_field), mask=array.is_null())
    return lists if lists.type == kind else lists.cast(kind)


def _holds_uncastable(kind: pa.DataType) -> bool:
    """Whether there is a type inside that Arrow casts nothing to, or something that is never null."""
    if pa.types.is_null(kind) or pa.types.is_map(kind):
        return True
    inside = [kind.field(number) for number in range(kind.num_fields)]
    return any(not field.nullable or _holds_uncastable(field.type) for field in inside)


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type)).with_nullable(True).remove_metadata()  # noqa: FBT003 - Arrow's own
