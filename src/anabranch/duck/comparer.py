"""Rows of two versions matched and compared by DuckDB, inside this process."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.duck.engine import default_engine
from anabranch.duck.merger import MergeQuestion
from anabranch.duck.session import DUCK_ERRORS, Database, is_fatal, translate
from anabranch.duck.sides import Column, Pair, Side, is_same_key
from anabranch.repo.history.comparer import RowComparison, RowMerge, TableCounts

__all__ = ["BucketQuestion", "DuckComparer", "default_comparer", "single_comparer"]

_ROWS_PER_BATCH = 8192
_INSERTED, _UPDATED, _DELETED = range(3)
_CHANGES = pa.array(["inserted", "updated", "deleted"])


@functools.cache
def default_comparer() -> "DuckComparer":
    return DuckComparer(default_engine().database)


@functools.cache
def single_comparer() -> "DuckComparer":
    """A comparer for one of many processes that share a machine."""
    return DuckComparer(Database(threads=1))


class DuckComparer:
    """Compares rows; may be used from many threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def hashing(self) -> str:
        return f"DuckDB {duckdb.__version__}"

    def count(self, comparison: RowComparison) -> TableCounts:
        asked = _Question(comparison)
        with self._answering((asked.older, asked.newer)) as connection:
            source = asked.prepare(connection)
            rows = connection.execute(f"{asked.counting(source)} GROUP BY ALL").fetchall()
        found = dict.fromkeys(range(3), 0) | dict(rows)
        return TableCounts(inserted=found[_INSERTED], updated=found[_UPDATED], deleted=found[_DELETED])

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        asked = _Question(comparison)

        def batches() -> Iterator[pa.RecordBatch]:
            with self._answering((asked.older, asked.newer)) as connection:
                connection.execute(asked.reading(asked.prepare(connection)))
                for batch in connection.to_arrow_reader(_ROWS_PER_BATCH):
                    yield asked.answer(batch)

        return pa.RecordBatchReader.from_batches(asked.schema, batches())

    def merge(self, merge: RowMerge) -> pa.RecordBatchReader:
        asked = MergeQuestion(merge)

        def batches() -> Iterator[pa.RecordBatch]:
            with self._answering(asked.sides) as connection:
                connection.execute(asked.prepare(connection))
                for batch in connection.to_arrow_reader(_ROWS_PER_BATCH):
                    yield asked.answer(batch)

        return pa.RecordBatchReader.from_batches(asked.schema, batches())

    def find_buckets(self, question: RowComparison | RowMerge, *, side: int, buckets: int) -> pa.Array:
        asked = BucketQuestion(question, side=side, buckets=buckets)
        with self._answering((asked.side,)) as connection:
            asked.side.register(connection)
            found: pa.Table = connection.execute(asked.query).to_arrow_table()
        return found.column(0).combine_chunks()

    def cancel(self, comparison: RowComparison) -> Iterator[tuple[int, pa.RecordBatch]]:
        asked = _Question(comparison)
        sides = (asked.older, asked.newer)
        with self._answering(sides) as connection:
            asked.prepare(connection)
            for number, side in enumerate(sides):
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
                # DuckDB reports an error of the reader in its own words. The original names the table and the way out.
                if side.failure is not None:
                    raise side.failure from err
            if is_fatal(err):
                self._database.forget()
            raise translate(str(err)) from err
        finally:
            session.close()


class _Question:
    """A comparison as SQL, and what DuckDB answers as rows."""

    def __init__(self, comparison: RowComparison) -> None:
        self.schema = comparison.schema
        self.older, self.newer = Side("o", comparison.older), Side("n", comparison.newer)
        self._has_row_ids = comparison.has_row_ids
        pairs = {
            pair: Pair(
                name=pair.newer or pair.older or "", older=self.older.at(pair.older), newer=self.newer.at(pair.newer)
            )
            for pair in comparison.columns
        }
        self._pairs, self._keys = list(pairs.values()), [pairs[pair] for pair in comparison.keys]

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Show the rows to DuckDB; how they are matched, as a source for a query."""
        self.older.register(connection)
        self.newer.register(connection)
        if self._keys:
            return f"given_o o FULL JOIN given_n n ON {' AND '.join(map(_is_same_key, self._keys))}"
        # One side has no such table, so nothing can match.
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

    def leaving(self, side: Side) -> str:
        """The rows of a side that were not cancelled, if rows have no key."""
        asked = [*side.columns, f"{side.alias}.row_id"]
        return f"SELECT {', '.join(asked)} FROM left_{side.alias} {side.alias}"  # noqa: S608 - as above

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


def _is_same_key(pair: Pair) -> str:
    if pair.older is None or pair.newer is None:
        return "false"
    return is_same_key([pair.older], pair.newer)


class BucketQuestion:
    """The buckets of the rows of one side, as SQL."""

    def __init__(self, question: RowComparison | RowMerge, *, side: int, buckets: int) -> None:
        given = list(zip("onpq", question.sides, strict=False))
        sides = [Side(alias, rows) for alias, rows in given]
        self.side = sides[side]
        self._buckets = buckets
        # Every side must put a row into the same bucket, so only columns that all sides have, in comparable types, are
        # hashed.
        there = [number for number, (_, rows) in enumerate(given) if rows is not None]
        self._terms = []
        for names in _matched_names(question):
            columns = [found for n in there if (found := _find(sides[n], names[n]))]
            if len(columns) == len(there) and (terms := _hashable(columns)) is not None:
                self._terms.append(terms[there.index(side)])

    @property
    def query(self) -> str:
        bucket = f"hash({', '.join(self._terms)}) % {self._buckets}" if self._terms else "0"
        return f"SELECT ({bucket})::INTEGER FROM given_{self.side.alias} {self.side.alias}"  # noqa: S608 - of numbers


def _matched_names(question: RowComparison | RowMerge) -> list[tuple[str | None, ...]]:
    """What each column that rows are matched by is called on each side."""
    if isinstance(question, RowMerge):
        return [(key.base, key.source, key.base, key.target) for key in question.keys]
    return [(pair.older, pair.newer) for pair in question.keys or question.columns]


def _find(side: Side, name: str | None) -> Column | None:
    return side.column(name) if name is not None and name in side.schema.names else None


def _hashable(columns: Sequence[Column]) -> list[str] | None:
    """What is hashed of a column on each side; None if values that count as equal could have different hashes.

    Where types differ, numbers may be rounded before they are compared, and the texts of moments need not be the same.
    """
    kinds, given = [column.kind for column in columns], [column.given for column in columns]
    # DuckDB holds durations as numbers, which are different for equal durations in different units.
    if any(pa.types.is_duration(kind) and kind != given[0] for kind in given):
        return None
    if len(set(kinds)) == 1:
        return [column.sql for column in columns]
    # One type for all widths: the hash of 1 as INT differs from that of 1 as BIGINT.
    if all(map(pa.types.is_integer, kinds)):
        return [f"{column.sql}::HUGEINT" for column in columns]
    if any(pa.types.is_floating(kind) or pa.types.is_temporal(kind) or pa.types.is_nested(kind) for kind in kinds):
        return None
    return [column.text for column in columns]
