"""Compare and merge a few rows in memory, with numpy and without a database: to start a query takes DuckDB 30 ms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anabranch.format.compare.difference import ColumnPair
from anabranch.format.compare.matching import (
    NO_CODE,
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
from anabranch.repo.history.comparer import (
    ColumnTriple,
    RowComparer,
    RowComparison,
    RowMerge,
    Rows,
    RowSide,
    TableCounts,
)
from anabranch.repo.history.memory_rows import (
    HeldRows,
    at_positions,
    encode_keys,
    find_changed,
    flagged_lists,
    older_columns,
    read_sides,
    reads_keys_first,
    touch_different_rows,
    values_differ,
)

# The number of values above which DuckDB is faster, or memory may not suffice.
_MOST_VALUES = 4_000_000
# Up to this number of values of the base, to read all at once is faster than the keys first and then some values.
FEW_VALUES = 64

_CHANGES = pa.array(["inserted", "updated", "deleted", None])
_INSERTED, _UPDATED, _DELETED, _UNCHANGED = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalComparer:
    """Compares in this process: a few rows in memory, more rows with an engine that takes longer to start."""

    load_engine: Callable[[], RowComparer]

    def count(self, comparison: RowComparison) -> TableCounts:
        if can_compare_in_memory(comparison):
            return _Comparison(comparison, with_values=False).count()
        return self.load_engine().count(comparison)

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        if not can_compare_in_memory(comparison):
            return self.load_engine().compare(comparison)
        schema = comparison.schema
        # A generator, so that nothing is read until the caller reads the first batch.
        found = (_Comparison(comparison, with_values=True).to_batch(schema) for _ in range(1))
        return pa.RecordBatchReader.from_batches(schema, found)

    def merge(self, merge: RowMerge) -> pa.RecordBatchReader:
        if not can_compare_in_memory(merge):
            return self.load_engine().merge(merge)
        schema = merge.schema
        found = (MatchedRows(merge).to_batch(schema) for _ in range(1))
        return pa.RecordBatchReader.from_batches(schema, found)


def can_compare_in_memory(question: RowComparison | RowMerge) -> bool:
    """Return whether rows are few, and of types that match here: the same on all sides, and plain ones in keys."""
    # A side that is not a `RowSide` cannot be read by address.
    if not all(isinstance(side, RowSide | None) for side in question.sides) or _count_values(question) > _MOST_VALUES:
        return False
    if isinstance(question, RowMerge) and _have_same_columns(question):
        return True
    return _can_match_keys(question) and _can_compare_columns(question)


def _have_same_columns(merge: RowMerge) -> bool:
    """Return whether all sides have the same columns of types that match here, which most merges do."""
    if merge.source is None or not merge.keys or not _have_same_schema(merge):
        return False
    if not all(column.base == column.source == column.target for column in merge.columns):
        return False
    keys, schema = {column.base for column in merge.keys}, merge.source.schema
    kinds = zip(schema.names, schema.types, strict=True)
    return all(can_match(kind) if name in keys else can_compare(kind) for name, kind in kinds)


def _can_match_keys(question: RowComparison | RowMerge) -> bool:
    sides = sum(side is not None for side in question.sides)
    keys = _list_types(question.keys, question.sides)
    return all(len(kinds) == sides and _are_all(can_match, kinds) for kinds in keys)


def _can_compare_columns(question: RowComparison | RowMerge) -> bool:
    # Rows without a key are matched by all their values.
    is_by_values = isinstance(question, RowComparison) and not question.keys and None not in question.sides
    is_supported = can_match if is_by_values else can_compare
    return all(not kinds or _are_all(is_supported, kinds) for kinds in _list_types(question.columns, question.sides))


def _list_types(
    columns: Sequence[ColumnPair] | Sequence[ColumnTriple], sides: Sequence[Rows | None]
) -> list[list[pa.DataType]]:
    """Return the types of each column on the sides that have it."""
    known = [{} if side is None else dict(zip(side.schema.names, side.schema.types, strict=True)) for side in sides]
    return [[types[name] for types, name in zip(known, each.names, strict=True) if name in types] for each in columns]


def _are_all(is_supported: Callable[[pa.DataType], bool], kinds: list[pa.DataType]) -> bool:
    """Return whether types are the same, and of a supported kind."""
    # Not a set: extension types of Python have no hash.
    return bool(kinds) and all(kind == kinds[0] for kind in kinds[1:]) and is_supported(kinds[0])


def _count_values(question: RowComparison | RowMerge) -> int:
    """Return the number of values to read. Each number of a vector counts: they dominate the memory of their tables."""
    return sum(
        side.rows * sum(kind.list_size if pa.types.is_fixed_size_list(kind) else 1 for kind in side.schema.types)
        for side in question.sides
        if side is not None and side.rows
    )


def _key_names(keys: Sequence[ColumnPair] | Sequence[ColumnTriple]) -> list[list[str]]:
    """Return the names of the key columns on each side. Without a key, return no sides."""
    return [[str(name) for name in names] for names in zip(*(column.names for column in keys), strict=True)]


class _Comparison:
    """The rows of two versions, in pairs. -1 means a row that a side does not have."""

    def __init__(self, comparison: RowComparison, *, with_values: bool) -> None:
        self._pairs = [(pair.older, pair.newer) for pair in comparison.columns]
        keys, sides = _key_names(comparison.keys), comparison.sides
        columns = older_columns(comparison, with_values=with_values)
        is_narrow = with_values and columns is not None
        if is_narrow:
            sides = tuple(replace(side, with_row_ids=True) if isinstance(side, RowSide) else side for side in sides)
        self._older, self._newer = read_sides(sides, [columns, None])
        if keys:
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
        changes = np.where(older < 0, _INSERTED, np.where(newer < 0, _DELETED, _UPDATED))
        names = pa.array([after or before for before, after in self._pairs], pa.string())
        arrays = [
            _CHANGES.take(pa.array(changes)),
            flagged_lists(self._changed[is_kept], names),
            self._older.rows(older),
            self._newer.rows(newer),
        ]
        return pa.record_batch(arrays, schema=schema)


class MatchedRows:
    """The rows that the source of a merge may have changed, matched with those of the base and the target.

    The rows of the base are there twice: the source may have changed `o` into `n`, and the target `p` into `q`.
    """

    def __init__(self, merge: RowMerge) -> None:
        self._columns = merge.columns
        keys = _key_names(merge.keys)
        has_keys_only = reads_keys_first(merge.base_of_source)
        # Of rows that only the source touched, only a change must be known, unless columns were added or dropped.
        has_same_columns = all(all(column.names) for column in self._columns)
        self._is_probed = has_keys_only and has_same_columns
        self._has_same_schema = self._is_probed and _have_same_schema(merge)
        of_base, _, of_target, target = keys or [[]] * 4
        self._read(merge, keys, [of_base if has_keys_only else None, None, of_target, target])
        self._ranks = order_of(self._n.key(keys[1]) if keys and self._n.names else [self._n.row_ids])
        self._is_contested = (self._p_rows >= 0) | (self._q_rows >= 0)
        self._compare()

    def _read(self, merge: RowMerge, keys: Sequence[Sequence[str]], columns: Sequence[Sequence[str] | None]) -> None:
        """Read the sides and match their rows. Those of the target are not read if the source cannot meet them."""
        if not (keys and self._has_same_schema and touch_different_rows(merge)):
            self._o, self._n, self._p, self._q = read_sides(merge.sides, columns)
            self._match(keys)
            return
        base = merge.base_of_source
        reads_all = base is not None and base.rows * len(base.schema) <= FEW_VALUES
        self._o, self._n = read_sides(merge.sides[:2], [None if reads_all else columns[0], columns[1]])
        self._p, self._q = (HeldRows.without_rows(*side) for side in zip(merge.sides[2:], columns[2:], strict=True))
        self._match(keys)
        # The target still has each row of the base that the source touched, under the same key. So only a key that is
        # new in the source may be that of a row that the target changed.
        if np.any(self._o_rows < 0):
            self._p, self._q = read_sides(merge.sides[2:], columns[2:])
            self._match(keys)

    def _match(self, keys: Sequence[Sequence[str]]) -> None:
        sides = self._o, self._n, self._p, self._q
        if not keys:
            o, n, p, q = (side.row_ids.to_numpy().astype(np.int64) for side in sides)
        else:
            o, n, p, q = encode_keys(sides, keys)
        o_rows, n_rows = full_join(o, n)
        # Without keys, a row that only the source has matches nothing: other rows may have its id elsewhere.
        own = at_positions(o, o_rows, missing=NO_CODE)
        if keys:
            own = np.where(n_rows >= 0, at_positions(n, n_rows, missing=NO_CODE), own)
        rows, p_rows = left_join(own, p)
        # A repeated key multiplies rows in a join, so they are mapped through both. `_check_unique_keys` reports it.
        again, q_rows = left_join(own[rows], q)
        self._o_rows, self._n_rows = o_rows[rows][again], n_rows[rows][again]
        self._p_rows, self._q_rows = p_rows[again], q_rows

    def _compare(self) -> None:
        rows = len(self._o_rows)
        self._took = np.zeros((rows, len(self._columns)), dtype=bool)
        self._clashes = np.zeros_like(self._took)
        self._is_kept = (self._o_rows < 0) | (self._n_rows < 0)
        self._target_changes = np.full(rows, _UNCHANGED)
        has_one_base = self._read_base_once()
        self._q.load(self._q_rows)
        is_compared = self._is_contested | (not self._is_probed)
        if self._has_same_schema and has_one_base:
            is_updated = (self._o_rows >= 0) & (self._n_rows >= 0) & (self._p_rows >= 0) & (self._q_rows >= 0)
            is_compared[self._compare_updates(np.flatnonzero(is_updated))] = False
        self._o.load(self._o_rows[is_compared])
        if not has_one_base:
            self._p.load(self._p_rows)
        self._compare_cells(np.flatnonzero(is_compared))
        # Rows that only the source touched: the merge takes the whole row, so it only matters whether it changed.
        left = np.flatnonzero(~self._is_contested & self._is_probed & ~self._is_kept)
        pairs = [(column.base, column.source) for column in self._columns]
        self._took[left] = find_changed(self._o, self._n, self._o_rows[left], self._n_rows[left], pairs)
        self._is_kept[left] = self._took[left].any(axis=1)

    def _read_base_once(self) -> bool:
        """Return whether rows of the base that both sides touched are the same ones. They are read once then."""
        has_p = self._p_rows >= 0
        in_o = at_positions(self._o.addresses.to_numpy().astype(np.int64), self._o_rows, missing=-1)
        in_p = at_positions(self._p.addresses.to_numpy().astype(np.int64), self._p_rows, missing=-1)
        if not np.array_equal(in_o[has_p], in_p[has_p]):
            return False
        # Both sides touched the same rows of the base, so that one copy of their values serves both comparisons.
        self._p, self._p_rows = self._o, np.where(has_p, self._o_rows, -1)
        return True

    def _compare_updates(self, rows: Positions) -> Positions:
        """Find what both sides did to the cells of rows that both updated, and return the rows that are decided.

        Only columns in which the sides differ are read from the base. That does not suffice for rows that one side may
        have left as they were in these columns, nor for conflicts, which show the whole row.
        """
        if not len(rows):
            return rows
        sources = self._n.columns([column.source for column in self._columns], self._n_rows[rows])
        targets = self._q.columns([column.target for column in self._columns], self._q_rows[rows])
        between = {
            number: found
            for number, column in enumerate(self._columns)
            if (found := differ(sources[str(column.source)], targets[str(column.target)])).any()
        }
        if not between:
            return rows[:0]
        bases = self._o.read_again(self._o_rows[rows], [str(self._columns[number].base) for number in between])
        by_source, by_target = np.zeros((2, len(rows), len(self._columns)), dtype=bool)
        for base, number in zip(bases.columns, between, strict=True):
            column = self._columns[number]
            by_source[:, number] = differ(base, sources[str(column.source)])
            by_target[:, number] = differ(base, targets[str(column.target)])
            self._took[rows, number] = by_source[:, number] & between[number]
        # Where one side seems unchanged, it may have changed in columns that were not read because both sides have the
        # same value there. Such rows are compared in full.
        decided: Mask = np.any(by_source, axis=1) & np.any(by_target, axis=1) & ~np.any(by_source & by_target, axis=1)
        self._is_kept[rows[decided]] = True
        self._target_changes[rows[decided]] = _UPDATED
        return rows[decided]

    def _compare_cells(self, rows: Positions) -> None:
        """Find what each side did to the cells of rows whose values are loaded."""
        if not len(rows):
            return
        at = [found[rows] for found in (self._o_rows, self._n_rows, self._p_rows, self._q_rows)]
        in_base, in_source, was_in_target, in_target = (found >= 0 for found in at)
        names = zip(*(column.names for column in self._columns), strict=True)
        sides = zip((self._o, self._n, self._p, self._q), names, at, strict=True)
        loaded = [side.columns(columns, found) for side, columns, found in sides]
        is_update = in_base & in_source
        is_changed, is_filled, is_changed_in_target = (np.zeros(len(rows), dtype=bool) for _ in range(3))
        for number, column in enumerate(self._columns):
            o, n, p, q = (side.get(name or "") for side, name in zip(loaded, column.names, strict=True))
            by_source, by_target, between = (values_differ(a, b, len(rows)) for a, b in ((o, n), (p, q), (n, q)))
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
            flagged_lists(self._took[rows], numbers),
            flagged_lists(self._clashes[rows], numbers),
            self._o.rows(np.where(self._is_contested[rows], o_rows, -1)),
            self._n.rows(n_rows),
            self._q.rows(q_rows),
        ]
        return pa.record_batch(arrays, schema=schema)

    def _order(self, rows: Positions) -> Positions:
        """Return rows in the order of their addresses in the base. New rows are last, in the order of their keys."""
        o_rows, n_rows, q_rows = self._o_rows[rows], self._n_rows[rows], self._q_rows[rows]
        addresses = at_positions(self._o.addresses.to_numpy().astype(np.int64), o_rows, missing=NO_CODE)
        is_new = (o_rows < 0) & (q_rows < 0)
        return rows[np.lexsort((at_positions(self._ranks, n_rows, missing=0), addresses, o_rows < 0, is_new))]


def _have_same_schema(merge: RowMerge) -> bool:
    """Return whether columns have the same names and types on all sides, and take nulls on all sides or on none."""
    first, *others = [None if side is None else side.schema for side in merge.sides]
    return first is not None and all(other is not None and first.equals(other) for other in others)
