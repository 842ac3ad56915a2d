"""Rows of two versions matched and compared by DuckDB, inside this process."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.duck.duck_errors import DUCK_ERRORS, is_fatal, translate
from anabranch.duck.engine import default_engine
from anabranch.duck.exact_types import held, held_type, restored
from anabranch.duck.session import Database
from anabranch.errors import AnabranchError
from anabranch.repo.comparing import RowComparison, RowSide, TableCounts

__all__ = ["DuckComparer", "default_comparer"]

_ROWS_PER_BATCH = 8192
_INSERTED, _UPDATED, _DELETED = range(3)
_CHANGES = pa.array(["inserted", "updated", "deleted"])
_ROW_ID = "_rowid"


@functools.cache
def default_comparer() -> "DuckComparer":
    return DuckComparer(default_engine().database)


class DuckComparer:
    """Compares rows; may be used from many threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def count(self, comparison: RowComparison) -> TableCounts:
        asked = _Question(comparison)
        with self._answering(asked) as connection:
            source = asked.prepare(connection)
            rows = connection.execute(f"{asked.counting(source)} GROUP BY ALL").fetchall()
        found = dict.fromkeys(range(3), 0) | dict(rows)
        return TableCounts(inserted=found[_INSERTED], updated=found[_UPDATED], deleted=found[_DELETED])

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        asked = _Question(comparison)

        def batches() -> Iterator[pa.RecordBatch]:
            with self._answering(asked) as connection:
                connection.execute(asked.reading(asked.prepare(connection)))
                for batch in connection.to_arrow_reader(_ROWS_PER_BATCH):
                    yield asked.answer(batch)

        return pa.RecordBatchReader.from_batches(asked.schema, batches())

    @contextmanager
    def _answering(self, asked: "_Question") -> Iterator[duckdb.DuckDBPyConnection]:
        session = self._database.session()
        try:
            yield session.connection
        except DUCK_ERRORS as err:
            for side in (asked.older, asked.newer):
                if side.failure is not None:
                    raise side.failure from err
            if is_fatal(err):
                self._database.forget()
            raise translate(str(err)) from err
        finally:
            session.close()


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of one side by its place: SQL would not tell names apart that differ in their case alone."""

    sql: str
    kind: pa.DataType

    @property
    def text(self) -> str:
        """Its values as text; of numbers without what is behind the point, if that is nothing."""
        text = f"CAST({self.sql} AS VARCHAR)"
        return f"regexp_replace({text}, '[.]0*$|([.][0-9]*[1-9])0+$', '\\1')" if _is_number(self.kind) else text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A column on both sides, under its newer name; on a side that does not have it, it is null."""

    name: str
    older: _Column | None
    newer: _Column | None

    @property
    def differs(self) -> str:
        """Whether the values differ; nulls and NaNs are equal to themselves."""
        return "({} IS DISTINCT FROM {})".format(*self._operands())

    @property
    def is_same(self) -> str:
        return "({} IS NOT DISTINCT FROM {})".format(*self._operands())

    @property
    def is_same_key(self) -> str:
        return "({} = {})".format(*self._operands())

    def _operands(self) -> tuple[str, str]:
        if self.older is None or self.newer is None:
            return "NULL" if self.older is None else self.older.sql, "NULL" if self.newer is None else self.newer.sql
        kinds = self.older.kind, self.newer.kind
        # Where types differ, text is what every value can be made without an error.
        if kinds[0] == kinds[1] or all(map(_is_plain_number, kinds)) or all(map(pa.types.is_timestamp, kinds)):
            return self.older.sql, self.newer.sql
        return self.older.text, self.newer.text


class _Side:
    """The rows of one version, as a table of DuckDB whose columns are numbered."""

    def __init__(self, alias: str, side: RowSide | None) -> None:
        self._alias = alias
        self._side = side
        self.failure: AnabranchError | None = None
        self.schema = pa.schema([]) if side is None else side.schema
        self._held = [held_type(kind) for kind in self.schema.types]
        names = [f"c{number}" for number in range(len(self._held))]
        self._shown = pa.schema([*zip(names, self._held, strict=True), ("row_id", pa.uint64())])

    @property
    def is_there(self) -> str:
        return f"({self._alias}.row_id IS NOT NULL)"

    @property
    def columns(self) -> list[str]:
        return [f"{self._alias}.c{number}" for number in range(len(self._held))]

    @property
    def struct(self) -> pa.DataType:
        # A column may be null here that never is in the table: in rows that are not there.
        return pa.struct([(field.name, field.type) for field in self.schema])

    def at(self, name: str | None) -> _Column | None:
        if name is None:
            return None
        number = self.schema.names.index(name)
        return _Column(f"{self._alias}.c{number}", self._held[number])

    def register(self, connection: duckdb.DuckDBPyConnection) -> None:
        reader = pa.RecordBatchReader.from_batches(self._shown, self._batches())
        connection.register(f"given_{self._alias}", reader)

    def rows(self, values: Sequence[pa.Array], *, are_missing: pa.Array) -> pa.Array:
        """The rows that DuckDB found on this side."""
        if not values:
            return pa.nulls(len(are_missing), self.struct)
        arrays = [restored(array, kind) for array, kind in zip(values, self.schema.types, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(self.struct), mask=are_missing)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        # DuckDB makes an error of its own of whatever is raised here.
        try:
            for batch in () if self._side is None else self._side.read():
                has_row_ids = _ROW_ID in batch.schema.names
                row_ids = batch.column(_ROW_ID) if has_row_ids else pa.repeat(pa.scalar(0, pa.uint64()), len(batch))
                values = [held(batch.column(name)) for name in self.schema.names]
                yield pa.record_batch([*values, row_ids], schema=self._shown)
        except AnabranchError as err:
            self.failure = err
            raise


class _Question:
    """A comparison as SQL, and what DuckDB answers as rows."""

    def __init__(self, comparison: RowComparison) -> None:
        self.older, self.newer = _Side("o", comparison.older), _Side("n", comparison.newer)
        self._has_row_ids = comparison.has_row_ids
        pairs = {
            pair: _Pair(
                name=pair.newer or pair.older or "", older=self.older.at(pair.older), newer=self.newer.at(pair.newer)
            )
            for pair in comparison.columns
        }
        self._pairs, self._keys = list(pairs.values()), [pairs[pair] for pair in comparison.keys]

    @property
    def schema(self) -> pa.Schema:
        columns = pa.list_(pa.string())
        fields = [("change", pa.string()), ("columns", columns)]
        return pa.schema([*fields, ("before", self.older.struct), ("after", self.newer.struct)])

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Show the rows to DuckDB; how they are matched, as a source for a query."""
        self.older.register(connection)
        self.newer.register(connection)
        if self._keys:
            return f"given_o o FULL JOIN given_n n ON {' AND '.join(pair.is_same_key for pair in self._keys)}"
        if not self.older.columns or not self.newer.columns:
            return "given_o o FULL JOIN given_n n ON false"
        return self._cancel(connection)

    def counting(self, source: str) -> str:
        return f"SELECT {self._kind}, count(*) FROM {source} WHERE {self._condition}"  # noqa: S608 - as below

    def reading(self, source: str) -> str:
        changed = [f"CASE WHEN {self._both} AND {pair.differs} THEN {n} END" for n, pair in enumerate(self._pairs)]
        numbers = f"[x FOR x IN [{', '.join(changed) or 'NULL'}] IF x IS NOT NULL]::INTEGER[]"
        asked = [self._kind, numbers, *self.older.columns, *self.newer.columns]
        return f"SELECT {', '.join(asked)} FROM {source} WHERE {self._condition}"  # noqa: S608 - names are numbers here

    def answer(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        kinds, numbers, *values = batch.columns
        names = pa.array([pair.name for pair in self._pairs], pa.string())
        columns = pa.ListArray.from_arrays(numbers.offsets, names.take(numbers.values))
        first = len(self.older.columns)
        before = self.older.rows(values[:first], are_missing=pc.equal(kinds, _INSERTED))
        after = self.newer.rows(values[first:], are_missing=pc.equal(kinds, _DELETED))
        return pa.record_batch([_CHANGES.take(kinds), columns, before, after], schema=self.schema)

    @property
    def _both(self) -> str:
        return f"({self.older.is_there} AND {self.newer.is_there})"

    @property
    def _kind(self) -> str:
        there = self.newer.is_there
        return f"CASE WHEN {self._both} THEN {_UPDATED} WHEN {there} THEN {_INSERTED} ELSE {_DELETED} END"

    @property
    def _condition(self) -> str:
        return f"NOT {self._both} OR {' OR '.join(pair.differs for pair in self._pairs) or 'false'}"

    def _cancel(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Take away the rows that are on both sides, as often as they are on both; the rest is matched by row ids.

        Rows that are equal and have one id go first: of several equal rows, the one that changed is left.
        """
        same = " AND ".join(pair.is_same for pair in self._pairs) or "true"
        by_id = "o.row_id = n.row_id" if self._has_row_ids else "false"
        for side in ("o", "n"):
            connection.execute(f"CREATE TEMP TABLE all_{side} AS FROM given_{side}")
        for side, other in (("o", "n"), ("n", "o")):
            own = [column.sql for pair in self._pairs if (column := pair.older if side == "o" else pair.newer)]
            copy = f"row_number() OVER (PARTITION BY {', '.join(own)} ORDER BY {side}.row_id)"
            moved = f"all_{side} {side} ANTI JOIN all_{other} {other} ON {by_id} AND {same}"
            connection.execute(f"CREATE TEMP TABLE moved_{side} AS SELECT *, {copy} AS copy FROM {moved}")  # noqa: S608
        for side, other in (("o", "n"), ("n", "o")):
            left = f"moved_{side} {side} ANTI JOIN moved_{other} {other} ON o.copy = n.copy AND {same}"
            connection.execute(f"CREATE TEMP TABLE left_{side} AS FROM {left}")
        return f"left_o o FULL JOIN left_n n ON {by_id}"


def _is_plain_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_number(kind: pa.DataType) -> bool:
    return _is_plain_number(kind) or bool(pa.types.is_decimal(kind))
