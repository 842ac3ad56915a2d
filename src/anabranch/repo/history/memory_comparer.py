"""Compare a few rows in memory, with numpy and without a database: to start a query takes DuckDB 30 ms."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anabranch.format.compare.difference import ColumnPair
from anabranch.format.compare.matching import Positions, can_compare, can_match, cancel_equal, encode, full_join
from anabranch.repo.history.comparer import ColumnTriple, RowComparer, RowComparison, RowMerge, RowSide, TableCounts
from anabranch.repo.history.memory_merge import CHANGES, DELETED, INSERTED, UPDATED, MatchedRows
from anabranch.repo.history.memory_rows import (
    at_positions,
    encode_keys,
    find_changed,
    flagged_lists,
    read_sides,
    reads_keys_first,
)

# The number of values above which DuckDB is faster, or memory may not suffice.
_MOST_VALUES = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalComparer:
    """Compares in this process: a few rows in memory, more rows with an engine that takes longer to start."""

    load_engine: Callable[[], RowComparer]

    def count(self, comparison: RowComparison) -> TableCounts:
        return self._choose(comparison).count(comparison)

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        return self._choose(comparison).compare(comparison)

    def merge(self, merge: RowMerge) -> pa.RecordBatchReader:
        return self._choose(merge).merge(merge)

    def _choose(self, question: RowComparison | RowMerge) -> RowComparer:
        return MemoryComparer() if can_compare_in_memory(question) else self.load_engine()


def can_compare_in_memory(question: RowComparison | RowMerge) -> bool:
    """Return whether rows are few, and of types that match here: the same on all sides, and plain ones in keys."""
    sides = [
        None if side is None else side.schema for side in question.sides if side is None or isinstance(side, RowSide)
    ]
    present = [schema for schema in sides if schema is not None]
    # A side that is not a `RowSide` cannot be read by address.
    if len(sides) < len(question.sides) or _count_values(question) > _MOST_VALUES:
        return False
    if isinstance(question, RowMerge) and _have_same_columns(question, present):
        return True
    known = [dict(zip(schema.names, schema.types, strict=True)) if schema is not None else {} for schema in sides]

    def types(column: ColumnPair | ColumnTriple) -> list[pa.DataType]:
        names = column.names if isinstance(column, ColumnTriple) else (column.older, column.newer)
        return [side[name] for side, name in zip(known, names, strict=True) if name is not None and name in side]

    keys, columns = list(map(types, question.keys)), list(map(types, question.columns))
    if isinstance(question, RowComparison) and not keys and len(present) > 1:
        # Rows without a key are matched by all their values.
        return all(_are_same(kinds) and can_match(kinds[0]) for kinds in columns)
    if not all(len(kinds) == len(present) and _are_same(kinds) and can_match(kinds[0]) for kinds in keys):
        return False
    return all(not kinds or (_are_same(kinds) and can_compare(kinds[0])) for kinds in columns)


def _have_same_columns(merge: RowMerge, schemas: list[pa.Schema]) -> bool:
    """Return whether all sides have the same columns of types that match here, which most merges do."""
    first, *others = schemas
    if not merge.keys or len(schemas) < len(merge.sides) or not all(first.equals(other) for other in others):
        return False
    if not all(column.base == column.source == column.target for column in merge.columns):
        return False
    keys = {column.base for column in merge.keys}
    kinds = zip(first.names, first.types, strict=True)
    return all(can_match(kind) if name in keys else can_compare(kind) for name, kind in kinds)


def _are_same(kinds: list[pa.DataType]) -> bool:
    # Not a set: extension types of Python have no hash.
    return bool(kinds) and all(kind == kinds[0] for kind in kinds[1:])


def _count_values(question: RowComparison | RowMerge) -> int:
    """Return the number of values to read. Each number of a vector counts."""
    total = 0
    for side in question.sides:
        if side is not None and side.rows:
            # Vectors dominate the memory of tables that have them.
            sizes = (kind.list_size if pa.types.is_fixed_size_list(kind) else 1 for kind in side.schema.types)
            total += side.rows * sum(sizes)
    return total


class MemoryComparer:
    """Compares rows that `can_compare_in_memory` accepts."""

    def count(self, comparison: RowComparison) -> TableCounts:
        return _Comparison(comparison, with_values=False).count()

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        schema = comparison.schema
        # A generator, so that nothing is read until the caller reads the first batch.
        found = (_Comparison(comparison, with_values=True).to_batch(schema) for _ in range(1))
        return pa.RecordBatchReader.from_batches(schema, found)

    def merge(self, merge: RowMerge) -> pa.RecordBatchReader:
        schema = merge.schema
        found = (MatchedRows(merge).to_batch(schema) for _ in range(1))
        return pa.RecordBatchReader.from_batches(schema, found)


class _Comparison:
    """The rows of two versions, in pairs. -1 means a row that a side does not have."""

    def __init__(self, comparison: RowComparison, *, with_values: bool) -> None:
        self._pairs = [(pair.older, pair.newer) for pair in comparison.columns]
        keys = [str(pair.older) for pair in comparison.keys], [str(pair.newer) for pair in comparison.keys]
        reads_keys = bool(comparison.keys) and not with_values and reads_keys_first(comparison.older)
        is_narrow = with_values and bool(comparison.unchanged) and bool(comparison.keys)
        sides, columns = comparison.sides, keys[0] if reads_keys else None
        if is_narrow and comparison.older is not None:
            # The other columns are the same in the newer rows.
            names = comparison.older.schema.names
            columns = [name for name in names if name in keys[0] or name not in comparison.unchanged]
            sides = tuple(replace(side, with_row_ids=True) if isinstance(side, RowSide) else side for side in sides)
        self._older, self._newer = read_sides(sides, [columns, None])
        if comparison.keys:
            self._older_rows, self._newer_rows = full_join(*encode_keys((self._older, self._newer), keys))
            if is_narrow:
                self._older = self._older.completed(self._newer, self._older_rows, self._newer_rows)
        else:
            self._older_rows, self._newer_rows = self._match_by_values(has_row_ids=comparison.has_row_ids)
        is_pair = (self._older_rows >= 0) & (self._newer_rows >= 0)
        self._changed = np.zeros((len(is_pair), len(self._pairs)), dtype=bool, order="F")
        pairs = self._older_rows[is_pair], self._newer_rows[is_pair]
        self._changed[is_pair] = find_changed(self._older, self._newer, *pairs, self._pairs)

    def _match_by_values(self, *, has_row_ids: bool) -> tuple[Positions, Positions]:
        """Match rows without a key by their row ids, after equal rows were removed."""
        sides = self._older, self._newer
        ids = [side.row_ids.to_numpy().astype(np.int64) for side in sides]
        rows = [np.arange(len(side)) for side in sides]
        if all(map(len, sides)):
            values = [self._values(number) for number in range(2)]
            rows = cancel_equal(encode(values, nulls_match=True), ids if has_row_ids else None)
        older, newer = rows
        # Without ids that match, no two rows do.
        codes = (ids[0][older], ids[1][newer]) if has_row_ids else (older, -1 - newer)
        found, other = full_join(*codes)
        return at_positions(older, found, missing=-1), at_positions(newer, other, missing=-1)

    def _values(self, number: int) -> list[pa.Array]:
        """Return all columns of a side, those that it does not have as nulls."""
        sides = self._older, self._newer
        arrays = []
        for pair in self._pairs:
            own, other = pair[number], pair[1 - number]
            found = None if own is None else sides[number].key([own])[0]
            if found is None and other is not None:
                found = pa.nulls(len(sides[number]), sides[1 - number].key([other])[0].type)
            arrays.append(found)
        return arrays

    def count(self) -> TableCounts:
        return TableCounts(
            inserted=int(np.count_nonzero(self._older_rows < 0)),
            updated=int(np.count_nonzero(self._changed.any(axis=1))),
            deleted=int(np.count_nonzero(self._newer_rows < 0)),
        )

    def to_batch(self, schema: pa.Schema) -> pa.RecordBatch:
        is_kept = (self._older_rows < 0) | (self._newer_rows < 0) | self._changed.any(axis=1)
        older, newer = self._older_rows[is_kept], self._newer_rows[is_kept]
        changes = np.where(older < 0, INSERTED, np.where(newer < 0, DELETED, UPDATED))
        names = pa.array([after or before for before, after in self._pairs], pa.string())
        arrays = [
            CHANGES.take(pa.array(changes)),
            flagged_lists(self._changed[is_kept], names),
            self._older.rows(older),
            self._newer.rows(newer),
        ]
        return pa.record_batch(arrays, schema=schema)
