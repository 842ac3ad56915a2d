"""Rows of versions as tables of DuckDB, and their columns as SQL that compares them exactly."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from anabranch.duck.exact_types import held, held_type, restored
from anabranch.errors import AnabranchError
from anabranch.format.compare.parts import ROW_ADDRESS, ROW_ID
from anabranch.repo.history.comparer import Rows, row_type

__all__ = ["Column", "Pair", "Side", "is_same_key"]

_NO_ID = pa.scalar(0, pa.uint64())


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one side by its position, because SQL does not distinguish names by case."""

    sql: str
    kind: pa.DataType

    @property
    def text(self) -> str:
        """Its values as text; of numbers without what is behind the point, if that is nothing."""
        text = f"CAST({self.sql} AS VARCHAR)"
        return f"regexp_replace({text}, '[.]0*$|([.][0-9]*[1-9])0+$', '\\1')" if _is_number(self.kind) else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A column on both sides, under its newer name; on a side that does not have it, it is null."""

    name: str
    older: Column | None
    newer: Column | None

    @property
    def differs(self) -> str:
        """Whether the values differ; nulls and NaNs are equal to themselves."""
        return "({} IS DISTINCT FROM {})".format(*self._operands())

    @property
    def is_same(self) -> str:
        return "({} IS NOT DISTINCT FROM {})".format(*self._operands())

    def _operands(self) -> tuple[str, str]:
        if self.older is None or self.newer is None:
            return "NULL" if self.older is None else self.older.sql, "NULL" if self.newer is None else self.newer.sql
        older, newer = _comparable([self.older, self.newer])
        return older, newer


def is_same_key(one: Sequence[Column], other: Column) -> str:
    """Whether a key column has the value that the first of some others has that is not null."""
    *ones, last = _comparable([*one, other])
    return f"(coalesce({', '.join(ones)}) = {last})" if len(ones) > 1 else f"({ones[0]} = {last})"


def _comparable(columns: Sequence[Column]) -> list[str]:
    """Columns as SQL can compare them: where types differ, text is what every value can be made without an error."""
    kinds = [column.kind for column in columns]
    if len(set(kinds)) == 1 or all(map(_is_plain_number, kinds)) or all(map(pa.types.is_timestamp, kinds)):
        return [column.sql for column in columns]
    return [column.text for column in columns]


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

    @property
    def struct(self) -> pa.DataType:
        return row_type(self._side)

    def at(self, name: str | None) -> Column | None:
        return None if name is None else self.column(name)

    def column(self, name: str) -> Column:
        number = self.schema.names.index(name)
        return Column(f"{self.alias}.c{number}", self._held[number])

    def register(self, connection: duckdb.DuckDBPyConnection) -> None:
        reader = pa.RecordBatchReader.from_batches(self._shown, self._batches())
        connection.register(f"given_{self.alias}", reader)

    def rows(self, values: Sequence[pa.Array], *, are_missing: pa.Array) -> pa.Array:
        """The rows that DuckDB found on this side."""
        if not values:
            return pa.nulls(len(are_missing), self.struct)
        arrays = [restored(array, kind) for array, kind in zip(values, self.schema.types, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(self.struct), mask=are_missing)

    def batch(self, values: Sequence[pa.Array], row_ids: pa.Array) -> pa.RecordBatch:
        """Rows that DuckDB holds of this side, as they were read."""
        arrays = [restored(array, kind) for array, kind in zip(values, self.schema.types, strict=True)]
        return pa.record_batch([*arrays, row_ids], names=[*self.schema.names, ROW_ID])

    def _batches(self) -> Iterator[pa.RecordBatch]:
        # DuckDB makes an error of its own of whatever is raised here.
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


def _is_plain_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_number(kind: pa.DataType) -> bool:
    return _is_plain_number(kind) or bool(pa.types.is_decimal(kind))
