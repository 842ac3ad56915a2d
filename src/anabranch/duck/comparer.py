"""Compare and merge rows of versions by DuckDB, inside this process."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.duck.engine import DUCK_ERRORS, Database, default_engine, is_fatal, translate
from anabranch.duck.sides import Column, Pair, Side, is_same_key
from anabranch.repo.history.comparer import ColumnTriple, RowComparison, RowMerge, TableCounts

_ROWS_PER_BATCH = 8192
_INSERTED, _UPDATED, _DELETED = range(3)
_CHANGES = pa.array(["inserted", "updated", "deleted"])


@functools.cache
def default_comparer() -> "DuckComparer":
    return DuckComparer(default_engine().database)


@functools.cache
def single_comparer() -> "DuckComparer":
    """Return a comparer for one of many processes that share a machine."""
    return DuckComparer(Database(threads=1))


class DuckComparer:
    """Compares rows; may be used from many threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def hashing(self) -> str:
        return f"DuckDB {duckdb.__version__}"

    def count(self, comparison: RowComparison) -> TableCounts:
        asked = _Comparison(comparison)
        with self._answering(asked.sides) as connection:
            rows = connection.execute(asked.counting(connection)).fetchall()
        found = dict.fromkeys(range(3), 0) | dict(rows)
        return TableCounts(inserted=found[_INSERTED], updated=found[_UPDATED], deleted=found[_DELETED])

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        return self._read(_Comparison(comparison))

    def merge(self, merge: RowMerge) -> pa.RecordBatchReader:
        return self._read(_Merge(merge))

    def _read(self, asked: "_Comparison | _Merge") -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            with self._answering(asked.sides) as connection:
                connection.execute(asked.query(connection))
                for batch in connection.to_arrow_reader(_ROWS_PER_BATCH):
                    yield asked.answer(batch)

        return pa.RecordBatchReader.from_batches(asked.schema, batches())

    def find_buckets(self, question: RowComparison | RowMerge, *, side: int, buckets: int) -> pa.Array:
        named = enumerate(zip("onpq", question.sides, strict=False))
        sides = {number: Side(alias, rows) for number, (alias, rows) in named if rows is not None}
        own = sides[side]
        matched = question.keys if isinstance(question, RowMerge) else question.keys or question.columns
        terms = [_find_hashed(column.names, sides, own) for column in matched]
        hashed = [term for term in terms if term is not None]
        bucket = f"hash({', '.join(hashed)}) % {buckets}" if hashed else "0"
        with self._answering([own]) as connection:
            own.register(connection)
            query = f"SELECT ({bucket})::INTEGER FROM given_{own.alias} {own.alias}"  # noqa: S608 - of numbers
            answer: pa.Table = connection.execute(query).to_arrow_table()
        return answer.column(0).combine_chunks()

    def cancel(self, comparison: RowComparison) -> Iterator[tuple[int, pa.RecordBatch]]:
        asked = _Comparison(comparison)
        with self._answering(asked.sides) as connection:
            asked.match(connection)
            for number, side in enumerate(asked.sides):
                connection.execute(asked.leaving(side))
                for batch in connection.to_arrow_reader(_ROWS_PER_BATCH):
                    *values, row_ids = batch.columns
                    yield number, side.batch(values, row_ids)

    @contextmanager
    def _answering(self, sides: Sequence[Side]) -> Iterator[duckdb.DuckDBPyConnection]:
        session = self._database.session()
        try:
            yield session.connection
        except DUCK_ERRORS as err:
            for side in sides:
                # DuckDB replaces an error of the reader by one of its own. The original has a hint.
                if side.failure is not None:
                    raise side.failure from err
            if is_fatal(err):
                self._database.forget()
            raise translate(str(err)) from err
        finally:
            session.close()


def _find_hashed(names: Sequence[str | None], sides: Mapping[int, Side], own: Side) -> str | None:
    """Return the SQL to hash a column on one side. None if a side lacks it, or has a type that is hashed differently.

    Every side must put a row into the same bucket, so only columns that all sides have are hashed.
    """
    columns = {side.alias: found for number, side in sides.items() if (found := side.find(names[number]))}
    return _hashable(columns[own.alias], [*columns.values()]) if len(columns) == len(sides) else None


def _hashable(column: Column, columns: Sequence[Column]) -> str | None:
    """Return the SQL to hash a column, one of those of all sides. None if equal values could have different hashes."""
    kinds, given = [each.kind for each in columns], [each.given for each in columns]
    # DuckDB holds durations as numbers, which are different for equal durations in different units.
    if any(pa.types.is_duration(kind) and kind != given[0] for kind in given):
        return None
    if len(set(kinds)) == 1:
        return column.sql
    # One type for all widths: the hash of 1 as INT differs from that of 1 as BIGINT.
    if all(map(pa.types.is_integer, kinds)):
        return f"{column.sql}::HUGEINT"
    return None if any(map(_has_ambiguous_text, kinds)) else column.text


def _has_ambiguous_text(kind: pa.DataType) -> bool:
    """Return whether equal values of two types may have two texts: numbers are rounded, and times have many forms."""
    return bool(pa.types.is_floating(kind) or pa.types.is_temporal(kind) or pa.types.is_nested(kind))


def _change(older: Side, newer: Side) -> str:
    """Return the SQL of the number of a row's change."""
    both = f"{older.is_there} AND {newer.is_there}"
    return f"CASE WHEN {both} THEN {_UPDATED} WHEN {newer.is_there} THEN {_INSERTED} ELSE {_DELETED} END"


def _numbers(conditions: Sequence[str]) -> str:
    """Return the SQL of the numbers of the conditions that are true."""
    chosen = [f"CASE WHEN {condition} THEN {number} END" for number, condition in enumerate(conditions)]
    return f"[x FOR x IN [{', '.join(chosen) or 'NULL'}] IF x IS NOT NULL]::INTEGER[]"


class _Comparison:
    """The rows of two versions: `o` are the older ones, `n` the newer ones."""

    def __init__(self, comparison: RowComparison) -> None:
        self.schema = comparison.schema
        self._older, self._newer = self.sides = Side("o", comparison.older), Side("n", comparison.newer)
        self._has_row_ids = comparison.has_row_ids
        self._names = pa.array([pair.newer or pair.older for pair in comparison.columns], pa.string())
        pairs = {
            pair: Pair(older=self._older.find(pair.older), newer=self._newer.find(pair.newer))
            for pair in comparison.columns
        }
        self._pairs, self._keys = list(pairs.values()), [pairs[pair] for pair in comparison.keys]
        self._both = f"({self._older.is_there} AND {self._newer.is_there})"
        self._condition = f"NOT {self._both} OR {' OR '.join(pair.differs for pair in self._pairs) or 'false'}"

    def match(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Register the rows with DuckDB, and return what a query selects from: the matched rows."""
        for side in self.sides:
            side.register(connection)
        if self._keys:
            keys = [is_same_key([pair.older], pair.newer) for pair in self._keys]
            return f"given_o o FULL JOIN given_n n ON {' AND '.join(keys)}"
        # One side has no such table, so nothing can match.
        if not self._older.columns or not self._newer.columns:
            return "given_o o FULL JOIN given_n n ON false"
        return self._cancel(connection)

    def counting(self, connection: duckdb.DuckDBPyConnection) -> str:
        change, source = _change(self._older, self._newer), self.match(connection)
        return f"SELECT {change}, count(*) FROM {source} WHERE {self._condition} GROUP BY ALL"  # noqa: S608 - as below

    def query(self, connection: duckdb.DuckDBPyConnection) -> str:
        changed = _numbers([f"{self._both} AND {pair.differs}" for pair in self._pairs])
        asked = [_change(self._older, self._newer), changed, *self._older.columns, *self._newer.columns]
        return f"SELECT {', '.join(asked)} FROM {self.match(connection)} WHERE {self._condition}"  # noqa: S608 - names are numbers here

    def leaving(self, side: Side) -> str:
        """Return the rows of a side that were not cancelled, if rows have no key."""
        asked = [*side.columns, f"{side.alias}.row_id"]
        return f"SELECT {', '.join(asked)} FROM left_{side.alias} {side.alias}"  # noqa: S608 - as above

    def answer(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        kinds, numbers, *values = batch.columns
        columns = pa.ListArray.from_arrays(numbers.offsets, self._names.take(numbers.values))
        first = len(self._older.columns)
        before = self._older.rows(values[:first], are_missing=pc.equal(kinds, _INSERTED))
        after = self._newer.rows(values[first:], are_missing=pc.equal(kinds, _DELETED))
        return pa.record_batch([_CHANGES.take(kinds), columns, before, after], schema=self.schema)

    def _cancel(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Remove the rows that both sides have, as often as both have them. The rest is matched by row ids.

        Equal rows with one id are removed first: of several equal rows, the changed one is left.
        """
        same = " AND ".join(pair.is_same for pair in self._pairs)
        by_id = "o.row_id = n.row_id" if self._has_row_ids else "false"
        for side in ("o", "n"):
            # The rows are a stream that can be read once, and the steps below read them several times.
            connection.execute(f"CREATE TEMP TABLE all_{side} AS FROM given_{side}")
        for side, other in (("o", "n"), ("n", "o")):
            own = [column.sql for pair in self._pairs if (column := pair.older if side == "o" else pair.newer)]
            # Equal rows are numbered on each side, so that the join removes as many as both sides have, not all of
            # them.
            copy = f"row_number() OVER (PARTITION BY {', '.join(own)} ORDER BY {side}.row_id)"
            moved = f"all_{side} {side} ANTI JOIN all_{other} {other} ON {by_id} AND {same}"
            connection.execute(f"CREATE TEMP TABLE moved_{side} AS SELECT *, {copy} AS copy FROM {moved}")  # noqa: S608
        for side, other in (("o", "n"), ("n", "o")):
            left = f"moved_{side} {side} ANTI JOIN moved_{other} {other} ON o.copy = n.copy AND {same}"
            connection.execute(f"CREATE TEMP TABLE left_{side} AS FROM {left}")
        return f"left_o o FULL JOIN left_n n ON {by_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """A column of a merge as pairs: the changes of each side, and the difference between both sides."""

    triple: ColumnTriple
    by_source: Pair
    by_target: Pair
    between: Pair

    @property
    def is_of_both(self) -> bool:
        return self.triple.source is not None and self.triple.target is not None

    @property
    def is_given(self) -> str:
        """Return the condition that the source has a value of its own in a row."""
        return "true" if self.triple.is_filled else self.by_source.differs


class _Merge:
    """The rows that both sides of a merge changed.

    The rows of the base are used twice: the source may have changed `o` to `n`, and the target `p` to `q`.
    """

    def __init__(self, merge: RowMerge) -> None:
        self.schema = merge.schema
        self.sides = [Side(alias, rows) for alias, rows in zip("onpq", merge.sides, strict=True)]
        self._older, self._source, self._base, self._target = self.sides
        self._keys = [self._find(triple) for triple in merge.keys]
        self._columns = []
        for triple in merge.columns:
            o, n, p, q = self._find(triple)
            by_source, by_target, between = (Pair(older=one, newer=other) for one, other in ((o, n), (p, q), (n, q)))
            self._columns.append(_Compared(triple=triple, by_source=by_source, by_target=by_target, between=between))
        self._source_has_both = f"({self._older.is_there} AND {self._source.is_there})"

    def _find(self, triple: ColumnTriple) -> list[Column | None]:
        return [side.find(name) for side, name in zip(self.sides, triple.names, strict=True)]

    def query(self, connection: duckdb.DuckDBPyConnection) -> str:
        for side in self.sides:
            side.register(connection)
        asked = [
            _change(self._older, self._source),
            self._target_change,
            "o.address",
            "q.address",
            "q.row_id",
            _numbers([f"({self._took(column)})" for column in self._columns]),
            _numbers([f"({self._clash(column)})" for column in self._columns]),
            *self._older.columns,
            *self._source.columns,
            *self._target.columns,
        ]
        return f"SELECT {', '.join(asked)} FROM {self._matched} WHERE {self._condition} ORDER BY {self._order}"  # noqa: S608 - names are numbers

    def answer(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        source_change, target_change, base_address, address, row_id, took, clashes, *values = batch.columns
        first = len(self._older.columns)
        second = first + len(self._source.columns)
        return pa.record_batch(
            [
                _CHANGES.take(source_change),
                _CHANGES.take(target_change),
                base_address,
                address,
                row_id,
                took,
                clashes,
                self._older.rows(values[:first], are_missing=pc.equal(source_change, _INSERTED)),
                self._source.rows(values[first:second], are_missing=pc.equal(source_change, _DELETED)),
                self._target.rows(values[second:], are_missing=pc.is_null(address)),
            ],
            schema=self.schema,
        )

    @property
    def _order(self) -> str:
        """Sort new rows last, because replaced rows are written first. The order is always the same."""
        keys = [n.sql for _, n, _, _ in self._keys if n is not None]
        known = f"{self._older.is_there} OR {self._target.is_there} DESC"
        return ", ".join([known, "o.address", *(keys or ["n.row_id"])])

    @property
    def _matched(self) -> str:
        if not self._keys:
            return (
                "given_o o FULL JOIN given_n n ON o.row_id = n.row_id "
                "LEFT JOIN given_p p ON p.row_id = o.row_id LEFT JOIN given_q q ON q.row_id = o.row_id"
            )
        of_source = [is_same_key([o], n) for o, n, _, _ in self._keys]
        of_base = [is_same_key([n, o], p) for o, n, p, _ in self._keys]
        of_target = [is_same_key([n, o], q) for o, n, _, q in self._keys]
        return (
            f"given_o o FULL JOIN given_n n ON {' AND '.join(of_source)} "
            f"LEFT JOIN given_p p ON {' AND '.join(of_base)} LEFT JOIN given_q q ON {' AND '.join(of_target)}"
        )

    @property
    def _target_change(self) -> str:
        base, target = self._base.is_there, self._target.is_there
        changed = [column.by_target.differs for column in self._columns if column.triple.base and column.triple.target]
        return (
            f"CASE WHEN {base} AND {target} THEN CASE WHEN {' OR '.join(changed) or 'false'} THEN {_UPDATED} END "
            f"WHEN {target} THEN {_INSERTED} WHEN {base} THEN {_DELETED} END"
        )

    @property
    def _condition(self) -> str:
        ours = [column for column in self._columns if column.triple.source is not None]
        changed = [column.by_source.differs for column in ours if column.triple.base is not None]
        # A value in a new column does not keep a row that the other side deleted.
        added = [column.is_given for column in ours if column.triple.base is None]
        is_kept = f"NOT ({self._base.is_there} AND NOT {self._target.is_there})"
        return (
            f"NOT {self._source_has_both} OR {' OR '.join(changed) or 'false'} "
            f"OR (({' OR '.join(added) or 'false'}) AND {is_kept})"
        )

    def _took(self, column: _Compared) -> str:
        """Return the condition that the source gave a column a value that the target does not have."""
        if column.triple.source is None:
            return "false"
        if not column.is_of_both:
            return f"{self._source.is_there} AND {column.is_given}"
        # If both sides made the same change, there is nothing to write and no conflict.
        is_news = f"(NOT {self._target.is_there} OR {column.between.differs})"
        return f"{self._source_has_both} AND {column.by_source.differs} AND {is_news}"

    def _clash(self, column: _Compared) -> str:
        if not column.is_of_both:
            return "false"
        # Both changed the value, or both added the row. Different cells of one row do not clash.
        by_both = f"{column.by_source.differs} AND {self._base.is_there} AND {column.by_target.differs}"
        is_new = f"(NOT {self._older.is_there} OR ({self._source_has_both} AND {by_both}))"
        return f"{self._source.is_there} AND {self._target.is_there} AND {is_new} AND {column.between.differs}"
