"""Compare a few rows in memory, with numpy and without a database: to start a query takes DuckDB 30 ms.

Keys are read first. The values of a row of a wide table are read only as far as they are needed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.format.compare.difference import ColumnPair
from anabranch.format.compare.matching import (
    Codes,
    Mask,
    Positions,
    can_compare,
    can_match,
    cancel_equal,
    differ,
    encode,
    full_join,
    left_join,
    order_of,
    take_or_null,
)
from anabranch.format.compare.parts import ROW_ADDRESS, ROW_ID, take_at
from anabranch.repo.history.comparer import (
    ColumnTriple,
    RowComparer,
    RowComparison,
    RowMerge,
    Rows,
    RowSide,
    TableCounts,
    row_type,
)
from anabranch.storage import in_parallel
from anabranch.storage.uris import is_local

__all__ = ["LocalComparer", "MemoryComparer", "can_compare_in_memory"]

# The number of values above which DuckDB is faster, or memory may not suffice.
_MOST_VALUES = 4_000_000
# In a remote store, the values of rows with more columns are read only where they are needed, with more requests.
_MOST_COLUMNS_AT_ONCE = 16
# The number of rows that are read to find out which columns of a wide table an update changed.
_MOST_PROBES = 4

_CHANGES = pa.array(["inserted", "updated", "deleted", None])
_INSERTED, _UPDATED, _DELETED, _UNCHANGED = range(4)
# Less than any code that `encode` returns, and than any row id or address.
_NO_CODE = -(1 << 63)


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
    if len(sides) < len(question.sides) or _count_values(question) > _MOST_VALUES:
        return False
    known = [dict(zip(schema.names, schema.types, strict=True)) if schema is not None else {} for schema in sides]

    def types(column: ColumnPair | ColumnTriple) -> list[pa.DataType]:
        names = _names(column) if isinstance(column, ColumnTriple) else (column.older, column.newer)
        return [side[name] for side, name in zip(known, names, strict=True) if name is not None and name in side]

    keys, columns = list(map(types, question.keys)), list(map(types, question.columns))
    if isinstance(question, RowComparison) and not keys and len(present) > 1:
        # Rows without a key are matched by all their values.
        return all(len(set(kinds)) == 1 and can_match(kinds[0]) for kinds in columns)
    if not all(len(kinds) == len(present) and len(set(kinds)) == 1 and can_match(kinds[0]) for kinds in keys):
        return False
    return all(len(set(kinds)) <= 1 and all(map(can_compare, set(kinds))) for kinds in columns)


def _count_values(question: RowComparison | RowMerge) -> int:
    """Return the number of values to read. Each number of a vector counts."""
    total = 0
    for side in question.sides:
        if side is not None and side.rows:
            sizes = (kind.list_size if pa.types.is_fixed_size_list(kind) else 1 for kind in side.schema.types)
            total += side.rows * sum(sizes)
    return total


def _names(triple: ColumnTriple) -> tuple[str | None, ...]:
    """Return the names of a column on the four sides of a merge."""
    return triple.base, triple.source, triple.base, triple.target


class _Held:
    """Rows of one side. Some columns are in memory; `load` reads all columns of some rows."""

    def __init__(self, side: RowSide | None, columns: Sequence[str] | None) -> None:
        self._side = side
        self.type = row_type(side)
        self.names: list[str] = self.type.names
        self._types = {field.name: field.type for field in self.type}
        # Where the rows are in `_loaded`. None if it has all rows.
        self._at: Positions | None = None
        self._loaded: pa.Table | None = None
        if side is None:
            self._read = pa.table({ROW_ID: pa.array([], pa.uint64()), ROW_ADDRESS: pa.array([], pa.uint64())})
            return
        wanted = [*(self.names if columns is None else columns), ROW_ADDRESS]
        wanted += [ROW_ID] if side.with_row_ids else []
        batches = list(replace(side, with_addresses=True).read(columns))
        if batches:
            self._read = pa.Table.from_batches([batch.select(wanted) for batch in batches]).combine_chunks()
        else:
            numbers = [pa.field(name, pa.uint64()) for name in (ROW_ID, ROW_ADDRESS)]
            self._read = pa.schema([*side.schema, *numbers]).empty_table().select(wanted)
        if columns is None:
            self._loaded = self._read

    def __len__(self) -> int:
        return len(self._read)

    @cached_property
    def addresses(self) -> pa.Array:
        return self._read.column(ROW_ADDRESS).combine_chunks()

    @cached_property
    def row_ids(self) -> pa.Array:
        if ROW_ID not in self._read.column_names:
            return pa.array(np.zeros(len(self), dtype=np.uint64))
        return self._read.column(ROW_ID).combine_chunks()

    def key(self, names: Sequence[str]) -> list[pa.Array]:
        return [self._read.column(name).combine_chunks() for name in names]

    @property
    def has_all(self) -> bool:
        """Whether all columns of all rows are in memory."""
        return self._loaded is not None and self._at is None

    def load(self, positions: Positions) -> None:
        """Read all columns of the rows at these positions, unless they are in memory. -1 is ignored."""
        wanted = np.unique(positions[positions >= 0])
        if self._loaded is None and len(wanted):
            self._at = np.full(len(self), -1, dtype=np.int64)
            self._at[wanted] = np.arange(len(wanted))
            self._loaded = self.read_again(wanted, self.names)

    def read_again(self, positions: Positions, columns: Sequence[str]) -> pa.Table:
        """Read columns of the rows at these positions from the store."""
        assert self._side is not None  # noqa: S101 - a side without rows has no positions
        addresses = self.addresses.to_numpy()[positions]
        side = self._side
        return take_at(side.version_ref, addresses, columns=columns, parts=side.parts).combine_chunks()

    def column(self, name: str | None, positions: Positions) -> pa.Array | None:
        """Return a column at positions in loaded rows, with nulls at -1. None if the side does not have it."""
        if name is None or self._loaded is None or name not in self._types:
            return None
        return take_or_null(_column(self._loaded, name), self._in_loaded(positions))

    def rows(self, positions: Positions) -> pa.StructArray:
        """Return loaded rows as structs, null at -1."""
        if self._loaded is None or not self.names:
            return pa.nulls(len(positions), self.type)
        at = self._in_loaded(positions)
        columns = [take_or_null(_column(self._loaded, name), at) for name in self.names]
        return pa.StructArray.from_arrays(columns, fields=list(self.type), mask=pa.array(at < 0))

    def _in_loaded(self, positions: Positions) -> Positions:
        return positions if self._at is None else _at(self._at, positions, missing=-1)


def _column(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _at(values: npt.NDArray[np.int64], positions: Positions, *, missing: int) -> npt.NDArray[np.int64]:
    """Return the values at positions, and `missing` at -1."""
    found = np.full(len(positions), missing, dtype=np.int64)
    is_there = positions >= 0
    found[is_there] = values[positions[is_there]]
    return found


_Pair = tuple[str | None, str | None]


def _find_changed(
    older: _Held, newer: _Held, older_rows: Positions, newer_rows: Positions, pairs: Sequence[_Pair]
) -> Mask:
    """Return which columns differ, for each pair of rows. If `older` is not in memory, at least one of them.

    Most updates change the same few columns of all rows. So all columns of one row are read, and then only those that
    differ there of the other rows. This is repeated for rows that do not differ in these columns.
    """
    changed = np.zeros((len(older_rows), len(pairs)), dtype=bool)

    def compare(rows: Positions, numbers: Sequence[int]) -> None:
        names = [name for number in numbers if (name := pairs[number][0]) is not None]
        table = older.read_again(older_rows[rows], names)
        for number in numbers:
            before, after = pairs[number]
            value = None if before is None else _column(table, before)
            changed[rows, number] = _differ(value, newer.column(after, newer_rows[rows]), len(rows))

    if older.has_all:
        for number, (before, after) in enumerate(pairs):
            values = older.column(before, older_rows), newer.column(after, newer_rows)
            changed[:, number] = _differ(*values, len(older_rows))
        return changed
    every, left = range(len(pairs)), np.arange(len(older_rows))
    for _ in range(_MOST_PROBES):
        if not len(left):
            return changed
        probe, left = left[:1], left[1:]
        compare(probe, every)
        found = np.flatnonzero(changed[probe[0]]).tolist()
        if found and len(left):
            compare(left, found)
            left = left[~changed[left].any(axis=1)]
    if len(left):
        compare(left, every)
    return changed


def _differ(one: pa.Array | None, other: pa.Array | None, rows: int) -> Mask:
    """Return where values differ. A column that a side does not have is null there."""
    if one is not None and other is not None:
        return differ(one, other)
    present = other if one is None else one
    if present is None:
        return np.zeros(rows, dtype=bool)
    return np.asarray(present.is_valid().to_numpy(zero_copy_only=False), dtype=bool)


def _lists(flags: Mask, values: pa.Array) -> pa.ListArray:
    """Return for each row the values whose flags are set."""
    ends = np.concatenate([[0], np.cumsum(flags.sum(axis=1))])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values.take(pa.array(np.nonzero(flags)[1])))


class MemoryComparer:
    """Compares rows that `can_compare_in_memory` accepts."""

    def count(self, comparison: RowComparison) -> TableCounts:
        return _Comparison(comparison, with_values=False).count()

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        schema = comparison.schema
        found = (_Comparison(comparison, with_values=True).to_batch(schema) for _ in range(1))
        return pa.RecordBatchReader.from_batches(schema, found)

    def merge(self, merge: RowMerge) -> pa.RecordBatchReader:
        schema = merge.schema
        found = (_Merge(merge).to_batch(schema) for _ in range(1))
        return pa.RecordBatchReader.from_batches(schema, found)


def _reads_keys_first(side: Rows | None) -> bool:
    """Return whether few values are read in several steps, or all in one. A remote store takes long to answer."""
    if not isinstance(side, RowSide):
        return False
    return len(side.schema) > _MOST_COLUMNS_AT_ONCE or is_local(side.version_ref.home.root)


def _read_sides(sides: Sequence[Rows | None], columns: Sequence[Sequence[str] | None]) -> list[_Held]:
    held = [side for side in sides if side is None or isinstance(side, RowSide)]
    return in_parallel(lambda given: _Held(*given), list(zip(held, columns, strict=True)))


class _Comparison:
    """The rows of two versions, in pairs. -1 stands for a row that a side does not have."""

    def __init__(self, comparison: RowComparison, *, with_values: bool) -> None:
        self._pairs = [(pair.older, pair.newer) for pair in comparison.columns]
        keys = [str(pair.older) for pair in comparison.keys], [str(pair.newer) for pair in comparison.keys]
        reads_keys = bool(comparison.keys) and not with_values and _reads_keys_first(comparison.older)
        self._older, self._newer = _read_sides(comparison.sides, [keys[0] if reads_keys else None, None])
        if comparison.keys:
            self._older_rows, self._newer_rows = full_join(*_encode_keys((self._older, self._newer), keys))
        else:
            self._older_rows, self._newer_rows = self._match_by_values(has_row_ids=comparison.has_row_ids)
        is_pair = (self._older_rows >= 0) & (self._newer_rows >= 0)
        self._changed = np.zeros((len(is_pair), len(self._pairs)), dtype=bool)
        pairs = self._older_rows[is_pair], self._newer_rows[is_pair]
        self._changed[is_pair] = _find_changed(self._older, self._newer, *pairs, self._pairs)

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
        return _at(older, found, missing=-1), _at(newer, other, missing=-1)

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
        changes = np.where(older < 0, _INSERTED, np.where(newer < 0, _DELETED, _UPDATED))
        names = pa.array([after or before for before, after in self._pairs], pa.string())
        arrays = [
            _CHANGES.take(pa.array(changes)),
            _lists(self._changed[is_kept], names),
            self._older.rows(older),
            self._newer.rows(newer),
        ]
        return pa.record_batch(arrays, schema=schema)


class _Merge:
    """The rows that the source of a merge may have changed, matched with those of the base and the target.

    The rows of the base are there twice: `o` are those that the source may have changed into `n`, `p` those that the
    target may have changed into `q`.
    """

    def __init__(self, merge: RowMerge) -> None:
        self._columns = merge.columns
        keys = [[str(name) for name in names] for names in zip(*map(_names, merge.keys), strict=True)] or [[]] * 4
        has_keys_only = _reads_keys_first(merge.base_of_source)
        columns = [keys[0] if has_keys_only else None, None, keys[2], keys[3]]
        self._o, self._n, self._p, self._q = _read_sides(merge.sides, columns)
        self._match(keys if merge.keys else None)
        self._ranks = order_of(self._n.key(keys[1]) if merge.keys and self._n.names else [self._n.row_ids])
        self._is_contested = (self._p_rows >= 0) | (self._q_rows >= 0)
        self._load_values(has_keys_only=has_keys_only)
        self._compare()

    def _match(self, keys: Sequence[Sequence[str]] | None) -> None:
        sides = self._o, self._n, self._p, self._q
        if keys is None:
            o, n, p, q = (side.row_ids.to_numpy().astype(np.int64) for side in sides)
        else:
            o, n, p, q = _encode_keys(sides, keys)
        o_rows, n_rows = full_join(o, n)
        # Without keys, a row that only the source has matches nothing: other rows may have its id elsewhere.
        own = _at(o, o_rows, missing=_NO_CODE)
        if keys is not None:
            own = np.where(n_rows >= 0, _at(n, n_rows, missing=_NO_CODE), own)
        rows, p_rows = left_join(own, p)
        again, q_rows = left_join(own[rows], q)
        self._o_rows, self._n_rows = o_rows[rows][again], n_rows[rows][again]
        self._p_rows, self._q_rows = p_rows[again], q_rows

    def _load_values(self, *, has_keys_only: bool) -> None:
        """Read the values of rows that both sides touched, and of other rows where all their columns are compared."""
        # Of other rows it suffices to know whether they changed, unless columns were added or dropped.
        has_same_columns = all(column.base and column.source and column.target for column in self._columns)
        is_probed = has_keys_only and has_same_columns
        self._is_compared = self._is_contested | (not is_probed)
        o_rows = self._o_rows[self._is_compared]
        todo = [(self._o, o_rows), (self._q, self._q_rows)]
        in_o = _at(self._o.addresses.to_numpy().astype(np.int64), self._o_rows, missing=-1)
        in_p = _at(self._p.addresses.to_numpy().astype(np.int64), self._p_rows, missing=-1)
        if np.array_equal(in_o[self._p_rows >= 0], in_p[self._p_rows >= 0]):
            # Rows of the base that both sides touched are read once.
            self._p, self._p_rows = self._o, np.where(self._p_rows >= 0, self._o_rows, -1)
        else:
            todo.append((self._p, self._p_rows))
        in_parallel(lambda given: given[0].load(given[1]), todo)

    def _compare(self) -> None:
        rows = len(self._o_rows)
        self._took = np.zeros((rows, len(self._columns)), dtype=bool)
        self._clashes = np.zeros_like(self._took)
        self._is_kept = (self._o_rows < 0) | (self._n_rows < 0)
        self._target_changes = np.full(rows, _UNCHANGED)
        self._compare_cells(np.flatnonzero(self._is_compared))
        left = np.flatnonzero(~self._is_compared & ~self._is_kept)
        pairs = [(column.base, column.source) for column in self._columns]
        self._took[left] = _find_changed(self._o, self._n, self._o_rows[left], self._n_rows[left], pairs)
        self._is_kept[left] = self._took[left].any(axis=1)

    def _compare_cells(self, rows: Positions) -> None:
        """Find what each side did to the cells of rows whose values are loaded."""
        if not len(rows):
            return
        o_rows, n_rows, p_rows, q_rows = (
            found[rows] for found in (self._o_rows, self._n_rows, self._p_rows, self._q_rows)
        )
        in_base, in_source, was_in_target, in_target = (found >= 0 for found in (o_rows, n_rows, p_rows, q_rows))
        is_update = in_base & in_source
        is_changed, is_filled, is_changed_in_target = (np.zeros(len(rows), dtype=bool) for _ in range(3))
        for number, column in enumerate(self._columns):
            o, n = self._o.column(column.base, o_rows), self._n.column(column.source, n_rows)
            p, q = self._p.column(column.base, p_rows), self._q.column(column.target, q_rows)
            by_source, by_target, between = (_differ(a, b, len(rows)) for a, b in ((o, n), (p, q), (n, q)))
            is_given = np.ones(len(rows), dtype=bool) if column.is_filled else by_source
            if column.source and column.base:
                is_changed |= by_source
            elif column.source:
                is_filled |= is_given
            if column.base and column.target:
                is_changed_in_target |= by_target
            if column.source and column.target:
                self._took[rows, number] = is_update & by_source & (~in_target | between)
                by_both = is_update & by_source & was_in_target & by_target
                self._clashes[rows, number] = in_source & in_target & (~in_base | by_both) & between
            elif column.source:
                self._took[rows, number] = in_source & is_given
        # A value in a new column does not keep a row that the other side deleted.
        self._is_kept[rows] |= is_changed | (is_filled & ~(was_in_target & ~in_target))
        updated = np.where(is_changed_in_target, _UPDATED, _UNCHANGED)
        only_in_one = np.where(in_target, _INSERTED, np.where(was_in_target, _DELETED, _UNCHANGED))
        self._target_changes[rows] = np.where(was_in_target & in_target, updated, only_in_one)

    def to_batch(self, schema: pa.Schema) -> pa.RecordBatch:
        rows = self._order(np.flatnonzero(self._is_kept))
        o_rows, n_rows, q_rows = self._o_rows[rows], self._n_rows[rows], self._q_rows[rows]
        changes = np.where(o_rows < 0, _INSERTED, np.where(n_rows < 0, _DELETED, _UPDATED))
        numbers = pa.array(np.arange(len(self._columns)), pa.int32())
        arrays = [
            _CHANGES.take(pa.array(changes)),
            _CHANGES.take(pa.array(self._target_changes[rows])),
            take_or_null(self._o.addresses, o_rows),
            take_or_null(self._q.addresses, q_rows),
            take_or_null(self._q.row_ids, q_rows),
            _lists(self._took[rows], numbers),
            _lists(self._clashes[rows], numbers),
            self._o.rows(np.where(self._is_contested[rows], o_rows, -1)),
            self._n.rows(n_rows),
            self._q.rows(q_rows),
        ]
        return pa.record_batch(arrays, schema=schema)

    def _order(self, rows: Positions) -> Positions:
        """Return rows in the order of their addresses in the base. New rows are last, in the order of their keys."""
        o_rows, n_rows, q_rows = self._o_rows[rows], self._n_rows[rows], self._q_rows[rows]
        addresses = _at(self._o.addresses.to_numpy().astype(np.int64), o_rows, missing=_NO_CODE)
        is_new = (o_rows < 0) & (q_rows < 0)
        return rows[np.lexsort((_at(self._ranks, n_rows, missing=0), addresses, o_rows < 0, is_new))]


def _encode_keys(sides: Sequence[_Held], keys: Sequence[Sequence[str]]) -> list[Codes]:
    """Return the codes of the keys of each side. A side that does not exist has no rows."""
    empty = next(side.key(names) for side, names in zip(sides, keys, strict=True) if side.names)
    empty = [column.slice(0, 0) for column in empty]
    columns = [side.key(names) if side.names else empty for side, names in zip(sides, keys, strict=True)]
    return encode(columns)
