"""Rows of two versions matched and compared by DuckDB, inside this process."""

import functools
from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from anabranch.duck.duck_errors import DUCK_ERRORS, translate
from anabranch.duck.engine import default_engine
from anabranch.duck.session import Database
from anabranch.format.arrow_types import common_type
from anabranch.repo.comparing import RowComparison, RowSide

__all__ = ["DuckComparer", "default_comparer"]

_ROWS_PER_BATCH = 8192
_INSERTED, _UPDATED, _DELETED = range(3)
_CHANGES = pa.array(["inserted", "updated", "deleted"])


@functools.cache
def default_comparer() -> "DuckComparer":
    return DuckComparer(default_engine().database)


class DuckComparer:
    """Compares rows; may be used from many threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        older, newer = _Side("o", comparison.older), _Side("n", comparison.newer)
        pairs = {
            pair: _Pair(
                name=pair.newer or pair.older or "",
                older=None if pair.older is None else older.at(pair.older),
                newer=None if pair.newer is None else newer.at(pair.newer),
            )
            for pair in comparison.columns
        }
        columns, keys = list(pairs.values()), [pairs[pair] for pair in comparison.keys]
        schema = _answer_schema(older, newer)

        def batches() -> Iterator[pa.RecordBatch]:
            session = self._database.session()
            try:
                connection = session.connection
                older.register(connection)
                newer.register(connection)
                if keys:
                    source = _join_on_keys(keys)
                else:
                    source = _join_without_keys(connection, columns, has_row_ids=comparison.has_row_ids)
                connection.execute(_question(source, columns, older, newer))
                for batch in connection.to_arrow_reader(_ROWS_PER_BATCH):
                    yield _answer(batch, columns, older, newer, schema)
            except DUCK_ERRORS as err:
                raise translate(str(err)) from err
            finally:
                session.close()

        return pa.RecordBatchReader.from_batches(schema, batches())


class _Column:
    """A column of one side by its place: SQL would not tell names apart that differ in their case alone."""

    def __init__(self, sql: str, kind: pa.DataType) -> None:
        self.sql = sql
        self.kind = kind


class _Pair:
    """A column on both sides, under its newer name; on a side that does not have it, it is null."""

    def __init__(self, *, name: str, older: _Column | None, newer: _Column | None) -> None:
        self.name = name
        self.older = older
        self.newer = newer

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
        kinds = self.older.kind, self.newer.kind
        if kinds[0] == kinds[1] or all(map(_is_number, kinds)):
            return self.older.sql, self.newer.sql
        return f"CAST({self.older.sql} AS VARCHAR)", f"CAST({self.newer.sql} AS VARCHAR)"


class _Side:
    """The rows of one version, as a table of DuckDB whose columns are numbered."""

    def __init__(self, alias: str, side: RowSide | None) -> None:
        self._alias = alias
        self._side = side
        self.schema = pa.schema([]) if side is None else side.schema
        self.types = [common_type(kind) for kind in self.schema.types]
        names = [f"c{number}" for number in range(len(self.types))]
        self._shown = pa.schema([*zip(names, self.types, strict=True), ("row_id", pa.uint64())])

    @property
    def is_there(self) -> str:
        return f"({self._alias}.row_id IS NOT NULL)"

    @property
    def columns(self) -> list[str]:
        return [f"{self._alias}.c{number}" for number in range(len(self.types))]

    @property
    def struct(self) -> pa.DataType:
        return pa.struct(list(zip(self.schema.names, self.types, strict=True)))

    def at(self, name: str) -> _Column:
        number = self.schema.names.index(name)
        return _Column(f"{self._alias}.c{number}", self.types[number])

    def register(self, connection: duckdb.DuckDBPyConnection) -> None:
        reader = pa.RecordBatchReader.from_batches(self._shown, self._batches())
        connection.register(f"given_{self._alias}", reader)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in () if self._side is None else self._side.read():
            arrays = [*(batch.column(name) for name in self.schema.names), batch.column("_rowid")]
            yield pa.record_batch(_cast(arrays, self._shown.types), schema=self._shown)


def _join_on_keys(keys: Sequence[_Pair]) -> str:
    condition = " AND ".join(f"{pair.older.sql} = {pair.newer.sql}" for pair in keys if pair.older and pair.newer)
    return f"given_o o FULL JOIN given_n n ON {condition}"


def _join_without_keys(connection: duckdb.DuckDBPyConnection, pairs: Sequence[_Pair], *, has_row_ids: bool) -> str:
    """Take away the rows that are on both sides, as often as they are on both; the rest is matched by row ids."""
    for side in ("o", "n"):
        own = [column.sql for pair in pairs if (column := pair.older if side == "o" else pair.newer)]
        copy = f"row_number() OVER (PARTITION BY {', '.join(own)})" if own else "row_number() OVER ()"
        numbered = f"SELECT *, {copy} AS copy FROM given_{side} {side}"  # noqa: S608 - names are numbers here
        connection.execute(f"CREATE TEMP TABLE all_{side} AS {numbered}")
    same = " AND ".join(["o.copy = n.copy", *(pair.is_same for pair in pairs)])
    connection.execute(f"CREATE TEMP TABLE left_o AS FROM all_o o ANTI JOIN all_n n ON {same}")
    connection.execute(f"CREATE TEMP TABLE left_n AS FROM all_n n ANTI JOIN all_o o ON {same}")
    return f"left_o o FULL JOIN left_n n ON {'o.row_id = n.row_id' if has_row_ids else 'false'}"


def _question(source: str, pairs: Sequence[_Pair], older: _Side, newer: _Side) -> str:
    both = f"({older.is_there} AND {newer.is_there})"
    kind = f"CASE WHEN {both} THEN {_UPDATED} WHEN {newer.is_there} THEN {_INSERTED} ELSE {_DELETED} END"
    changed = ", ".join(f"CASE WHEN {both} AND {pair.differs} THEN {n} END" for n, pair in enumerate(pairs)) or "NULL"
    differs = " OR ".join(pair.differs for pair in pairs) or "false"
    asked = [kind, f"[x FOR x IN [{changed}] IF x IS NOT NULL]::INTEGER[]", *older.columns, *newer.columns]
    return f"SELECT {', '.join(asked)} FROM {source} WHERE NOT {both} OR {differs}"  # noqa: S608 - as above


def _answer_schema(older: _Side, newer: _Side) -> pa.Schema:
    return pa.schema(
        [
            ("change", pa.string()),
            ("columns", pa.list_(pa.string())),
            ("before", older.struct),
            ("after", newer.struct),
        ]
    )


def _answer(
    batch: pa.RecordBatch, pairs: Sequence[_Pair], older: _Side, newer: _Side, schema: pa.Schema
) -> pa.RecordBatch:
    kinds, numbers, *values = batch.columns
    names = pa.array([pair.name for pair in pairs], pa.string())
    columns = pa.ListArray.from_arrays(numbers.offsets, names.take(numbers.values))
    first = len(older.types)
    before = _struct(values[:first], older, kinds, missing=_INSERTED)
    after = _struct(values[first:], newer, kinds, missing=_DELETED)
    return pa.record_batch([_CHANGES.take(kinds), columns, before, after], schema=schema)


def _struct(values: Sequence[pa.Array], side: _Side, kinds: pa.Array, *, missing: int) -> pa.Array:
    if not values:
        return pa.nulls(len(kinds), side.struct)
    mask = pa.array([kind == missing for kind in kinds.to_pylist()])
    return pa.StructArray.from_arrays(_cast(values, side.types), fields=list(side.struct), mask=mask)


def _cast(arrays: Sequence[pa.Array], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    return [a if a.type == kind else a.cast(kind) for a, kind in zip(arrays, kinds, strict=True)]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
