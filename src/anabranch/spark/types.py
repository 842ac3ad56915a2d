"""Convert Arrow types to types of Spark and back.

Spark has fewer types than Lance. A column is shown as the narrowest type of Spark that can represent all its values.
Rows of Spark are cast to the column's own type again. Only times are truncated to microseconds, because Spark has no
finer type.
"""

import json
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type
from pyspark.sql.types import StructField, StructType

from anabranch.column_types import show_type
from anabranch.errors import SchemaMismatchError
from anabranch.format.arrow_types import common_type, is_list

# The key in a column's metadata for the common length of all its lists, as in vectors.
LIST_SIZE = "anabranch.list_size"

_UTC = "UTC"
_MOST_DIGITS = 38

# Types that Spark lacks, and the next wider type of Spark.
_WIDER: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (pa.types.is_uint8, lambda _: pa.int16()),
    (pa.types.is_uint16, lambda _: pa.int32()),
    (pa.types.is_uint32, lambda _: pa.int64()),
    (pa.types.is_uint64, lambda _: pa.decimal128(20, 0)),
    (pa.types.is_time, lambda _: pa.time64("ns")),
    (pa.types.is_timestamp, lambda kind: pa.timestamp("us", None if kind.tz is None else _UTC)),
    (pa.types.is_duration, lambda _: pa.duration("us")),
    (pa.types.is_large_string, lambda _: pa.string()),
    (pa.types.is_large_binary, lambda _: pa.binary()),
    (pa.types.is_struct, lambda kind: pa.struct([_shown_field(field) for field in kind])),
    (pa.types.is_map, lambda kind: pa.map_(_shown_field(kind.key_field), _shown_field(kind.item_field))),
    (is_list, lambda kind: pa.list_(_shown_field(kind.value_field))),
)


def shown_schema(schema: pa.Schema) -> StructType:
    """Return the columns as Spark shows them. Refuse a type that Spark does not have."""
    return StructType([_spark_field(field) for field in schema])


def shown_columns(shown: StructType) -> pa.Schema:
    """Return the columns in the types in which Spark accepts rows from Python."""
    return to_arrow_schema(shown, timezone=_UTC)


def as_shown(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Convert rows of a table to the types that `shown_columns` asks for. Fields of structs may be left out."""
    for batch in batches:
        if not schema.names:  # the rows are only counted
            yield batch.select([])
            continue
        # Unsafe only for nanoseconds, which are truncated. All other types become wider or stay.
        arrays = [pc.cast(batch.column(field.name), field.type, safe=False) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def struct_from_json(text: str) -> StructType:
    """Read columns from the JSON that Spark writes."""
    return StructType.fromJson(json.loads(text))


def new_columns(given: StructType, existing: pa.Schema | None = None, *, keep_nullability: bool = False) -> pa.Schema:
    """Return the columns of a table for rows of Spark.

    A column that the table has already, and that Spark cannot distinguish from the given one, stays unchanged. Others
    are nullable, unless `keep_nullability` is set: NOT NULL of a CREATE TABLE is meant, that of a DataFrame is a guess.
    """
    columns = []
    for field in given:
        column = _kept_field(field, existing) or _new_field(field)
        columns.append(column.with_nullable(field.nullable) if keep_nullability else column)
    return pa.schema(columns)


def as_columns(batches: Iterator[pa.RecordBatch], given: StructType, columns: pa.Schema) -> pa.RecordBatchReader:
    """Return rows of Spark in the types of the columns of a table. Refuse a wrong type before a row is read."""
    target = pa.schema([_target_field(field, columns) for field in given])
    casted = (
        pa.RecordBatch.from_arrays([_cast(batch.column(n), field) for n, field in enumerate(target)], schema=target)
        for batch in batches
    )
    return pa.RecordBatchReader.from_batches(target, casted)


def _spark_field(field: pa.Field) -> StructField:
    kind = _shown_type(field.type)
    if _is_too_wide(kind):
        raise _unshown(field)
    metadata = {LIST_SIZE: field.type.list_size} if pa.types.is_fixed_size_list(field.type) else {}
    try:
        return StructField(field.name, from_arrow_type(kind), field.nullable, metadata)
    except PySparkException:
        raise _unshown(field) from None


def _shown_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _shown_type(kind.storage_type)
    common = common_type(kind)
    return next((change(common) for is_kind, change in _WIDER if is_kind(common)), common)


def _shown_field(field: pa.Field) -> pa.Field:
    return field.with_type(_shown_type(field.type))


def _kept_field(given: StructField, existing: pa.Schema | None) -> pa.Field | None:
    if existing is None or given.name not in existing.names:
        return None
    field = existing.field(given.name)
    # Kept if Spark cannot distinguish its type from the given one. Nullability does not count.
    return field if _normal(_shown_type(field.type)) == _given_type(given) else None


def _given_type(given: StructField) -> pa.DataType:
    try:
        return _normal(to_arrow_type(given.dataType, timezone=_UTC))
    except PySparkException:
        raise _unknown(given) from None


def _normal(kind: pa.DataType) -> pa.DataType:
    """Return a type in which all parts are nullable, and those of lists and maps have the usual names."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _normal(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_normal(kind.key_type), _normal(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_normal(kind.value_type))
    return kind


def _new_field(given: StructField) -> pa.Field:
    kind = _given_type(given)
    # PySpark converts a variant to a struct of bytes without an error, and a table would never show a variant again.
    if "variant" in given.dataType.simpleString() or pa.types.is_null(kind):
        raise _unknown(given)
    size = given.metadata.get(LIST_SIZE)
    # Spark has no lists of a fixed size, so the size is in the metadata of the column.
    if isinstance(size, int) and pa.types.is_list(kind):
        kind = pa.list_(kind.value_type, size)
    return pa.field(given.name, kind)


def _target_field(given: StructField, columns: pa.Schema) -> pa.Field:
    """Return the column of a table for a given one, in a type that the write accepts or refuses with a good error."""
    kept = _kept_field(given, columns)
    if kept is not None:
        # Nulls are counted, and named, when the rows are written.
        return pa.field(kept.name, kept.type)
    return _new_field(given) if given.dataType.simpleString() != "void" else pa.field(given.name, pa.null())


def _cast(values: pa.Array, field: pa.Field) -> pa.Array:
    if values.type == field.type:
        return values
    try:
        return pc.cast(values, field.type, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as err:
        raise SchemaMismatchError(
            f"column {field.name!r} takes {show_type(field.type)}, and a value of the given {show_type(values.type)} "
            f"does not fit: {err}",
            hint="correct the value, or change the column's type first",
        ) from None


def _is_too_wide(kind: pa.DataType) -> bool:
    """Return whether a type is or contains a decimal with more digits than Spark has."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision > _MOST_DIGITS)
    return any(_is_too_wide(kind.field(n).type) for n in range(kind.num_fields))


def _unshown(field: pa.Field) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {field.name!r} is {show_type(field.type)}, which Spark has no type for",
        hint="leave it out with the option 'columns', or change its type",
    )


def _unknown(given: StructField) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {given.name!r} is {given.dataType.simpleString()}, which no table can hold",
        hint="cast it to another type, or leave it out",
    )
