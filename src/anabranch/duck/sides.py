"""Rows of versions as tables of DuckDB, and their columns as types and SQL that keep and compare values exactly."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from anabranch.errors import AnabranchError
from anabranch.format.arrow_types import is_list
from anabranch.format.compare.parts import ROW_ADDRESS, ROW_ID
from anabranch.repo.history.comparer import Rows, row_type

# The first match counts: a type that DuckDB lacks or represents less exactly, and its replacement.
_TABLE: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (lambda kind: isinstance(kind, pa.BaseExtensionType), lambda kind: _plain_type(kind.storage_type)),
    (pa.types.is_null, lambda _: pa.int32()),
    (pa.types.is_float16, lambda _: pa.float32()),
    (pa.types.is_date64, lambda _: pa.int64()),
    (pa.types.is_duration, lambda _: pa.int64()),
    (pa.types.is_time32, lambda _: pa.time64("us")),
    # A zone belongs to the column, not to its values. DuckDB has no nanoseconds with a zone.
    (pa.types.is_timestamp, lambda kind: pa.timestamp(kind.unit)),
    (pa.types.is_dictionary, lambda kind: _plain_type(kind.value_type)),
    (pa.types.is_fixed_size_binary, lambda _: pa.binary()),
    (pa.types.is_decimal256, lambda _: pa.string()),
    (pa.types.is_struct, lambda kind: pa.struct([_field(field) for field in kind])),
    (pa.types.is_fixed_size_list, lambda kind: pa.list_(_field(kind.value_field), kind.list_size)),
    (is_list, lambda kind: pa.list_(_field(kind.value_field))),
    # DuckDB's own maps do not allow repeated keys.
    (pa.types.is_map, lambda kind: pa.list_(pa.struct([_field(kind.key_field), _field(kind.item_field)]))),
)


def held_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which DuckDB stores values of a type."""
    # DuckDB does not distinguish fields of a struct whose names differ in case only.
    return _with_names(_plain_type(kind), like=None)


def held(array: pa.Array) -> pa.Array:
    plain, kind = _plain_type(array.type), held_type(array.type)
    if array.type != plain:
        array = array.cast(plain)
    # Only names of nested fields differ, so the memory is shared.
    return array if plain == kind else array.view(kind)


def restored(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values in their original type."""
    if array.type == kind:
        return array
    if pa.types.is_nested(array.type):
        array = array.view(_with_names(array.type, like=_plain_type(kind)))
    return _converted(array, kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return next((change(kind) for is_kind, change in _TABLE if is_kind(kind)), kind)


def _with_names(kind: pa.DataType, *, like: pa.DataType | None) -> pa.DataType:
    """Return the type with the names of struct fields from another type, or by default with numbers as names."""
    numbers = range(kind.num_fields)
    inner = [_with_names(kind.field(n).type, like=None if like is None else like.field(n).type) for n in numbers]
    if pa.types.is_struct(kind):
        names = [str(n) if like is None else like.field(n).name for n in numbers]
        return pa.struct([*zip(names, inner, strict=True)])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(inner[0], kind.list_size)
    return pa.list_(inner[0]) if pa.types.is_list(kind) else kind


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not _holds_uncastable(kind):
        return array.cast(kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(array), kind)
    if pa.types.is_struct(kind):
        # A struct cannot be cast to one with fields that are never null. It is built from its parts.
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
    """Return whether a type contains a type to which Arrow cannot cast, or a part that is never null."""
    if pa.types.is_null(kind) or pa.types.is_map(kind):
        return True
    inside = [kind.field(number) for number in range(kind.num_fields)]
    return any(not field.nullable or _holds_uncastable(field.type) for field in inside)


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type)).with_nullable(True).remove_metadata()  # noqa: FBT003 - Arrow's own


_NO_ID = pa.scalar(0, pa.uint64())
_NANOSECONDS = {"day": 86_400_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one side by its position, because SQL does not distinguish names by case.

    `kind` is the type in DuckDB, `given` that of the table.
    """

    sql: str
    kind: pa.DataType
    given: pa.DataType

    @property
    def text(self) -> str:
        """Return its values as text. Numbers without a fraction have no decimal point."""
        text = f"CAST({self.sql} AS VARCHAR)"
        return f"regexp_replace({text}, '[.]0*$|([.][0-9]*[1-9])0+$', '\\1')" if _is_number(self.given) else text

    @property
    def nanoseconds(self) -> str:
        """Its durations or dates as nanoseconds. DuckDB stores durations and `date64` as numbers in their units."""
        unit = "day" if pa.types.is_date32(self.given) else "ms" if pa.types.is_date64(self.given) else self.given.unit
        number = f"({self.sql} - DATE '1970-01-01')" if unit == "day" else self.sql
        return f"({number}::HUGEINT * {_NANOSECONDS[unit]})"

    @property
    def moment(self) -> str:
        """Return its dates or timestamps as nanoseconds since 1970."""
        if pa.types.is_date(self.given):
            return self.nanoseconds
        function, factor = ("epoch_ns", 1) if self.given.unit == "ns" else ("epoch_us", _NANOSECONDS["us"])
        return f"({function}({self.sql})::HUGEINT * {factor})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A column on both sides. It is null on a side that lacks it."""

    older: Column | None
    newer: Column | None

    @property
    def differs(self) -> str:
        """Return the condition that the values differ. Nulls and NaNs are equal to themselves."""
        return "({} IS DISTINCT FROM {})".format(*self._operands())

    @property
    def is_same(self) -> str:
        return "({} IS NOT DISTINCT FROM {})".format(*self._operands())

    def _operands(self) -> tuple[str, str]:
        if self.older is None or self.newer is None:
            return "NULL" if self.older is None else self.older.sql, "NULL" if self.newer is None else self.newer.sql
        older, newer = _comparable([self.older, self.newer])
        return older, newer


def is_same_key(ones: Sequence[Column | None], other: Column | None) -> str:
    """Compare a key column with the first non-null value of others. A side without rows has no column."""
    known = [column for column in ones if column is not None]
    if other is None or not known:
        return "false"
    *first, last = _comparable([*known, other])
    return f"(coalesce({', '.join(first)}) = {last})" if len(first) > 1 else f"({first[0]} = {last})"


def _comparable(columns: Sequence[Column]) -> list[str]:
    """Return columns in a form that SQL can compare: as text if their types differ, which never fails."""
    if _are_comparable(columns):
        return [column.sql for column in columns]
    given = [column.given for column in columns]
    if all(map(pa.types.is_duration, given)):
        return [column.nanoseconds for column in columns]
    if all(map(_is_moment, given)):
        return [column.moment for column in columns]
    return [column.text for column in columns]


def _are_comparable(columns: Sequence[Column]) -> bool:
    """Return whether DuckDB can compare the columns directly. With others, a cast could raise an error."""
    kinds, given = {column.kind for column in columns}, {column.given for column in columns}
    # DuckDB stores durations as numbers of their units.
    if all(map(pa.types.is_duration, given)):
        return len(given) == 1
    return len(kinds) == 1 or all(map(_is_plain_number, kinds))


class Side:
    """The rows of one version, as a table of DuckDB whose columns are numbered."""

    def __init__(self, alias: str, side: Rows | None) -> None:
        self.alias = alias
        self._side = side
        self.failure: AnabranchError | None = None
        self.schema = pa.schema([]) if side is None else side.schema
        self._held = [held_type(kind) for kind in self.schema.types]
        names = [f"c{number}" for number in range(len(self._held))]
        locations = [("row_id", pa.uint64()), ("address", pa.uint64())]
        self._shown = pa.schema([*zip(names, self._held, strict=True), *locations])

    @property
    def is_there(self) -> str:
        return f"({self.alias}.row_id IS NOT NULL)"

    @property
    def columns(self) -> list[str]:
        return [f"{self.alias}.c{number}" for number in range(len(self._held))]

    def find(self, name: str | None) -> Column | None:
        """Return a column, or None if the side does not have it."""
        if name is None or name not in self.schema.names:
            return None
        number = self.schema.names.index(name)
        return Column(f"{self.alias}.c{number}", self._held[number], self.schema.types[number])

    def register(self, connection: duckdb.DuckDBPyConnection) -> None:
        reader = pa.RecordBatchReader.from_batches(self._shown, self._batches())
        connection.register(f"given_{self.alias}", reader)

    def rows(self, values: Sequence[pa.Array], *, are_missing: pa.Array) -> pa.Array:
        """Return the rows that DuckDB found on this side."""
        struct = row_type(self._side)
        if not values:
            return pa.nulls(len(are_missing), struct)
        arrays = [restored(array, kind) for array, kind in zip(values, self.schema.types, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(struct), mask=are_missing)

    def batch(self, values: Sequence[pa.Array], row_ids: pa.Array) -> pa.RecordBatch:
        """Return rows of this side that DuckDB stores, as they were read."""
        arrays = [restored(array, kind) for array, kind in zip(values, self.schema.types, strict=True)]
        return pa.record_batch([*arrays, row_ids], names=[*self.schema.names, ROW_ID])

    def _batches(self) -> Iterator[pa.RecordBatch]:
        # DuckDB replaces every error that is raised here by one of its own.
        try:
            for batch in () if self._side is None else self._side.read():
                values = [held(batch.column(name)) for name in self.schema.names]
                locations = [
                    batch.column(name) if name in batch.schema.names else pa.repeat(_NO_ID, len(batch))
                    for name in (ROW_ID, ROW_ADDRESS)
                ]
                yield pa.record_batch([*values, *locations], schema=self._shown)
        except AnabranchError as err:
            self.failure = err
            raise


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _is_plain_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_number(kind: pa.DataType) -> bool:
    return _is_plain_number(kind) or bool(pa.types.is_decimal(kind))
