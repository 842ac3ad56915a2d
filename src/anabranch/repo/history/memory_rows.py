"""Rows of one side of a comparison in memory. Keys are read first, values only as far as they are needed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.format.compare.matching import Codes, Mask, Positions, differ, encode
from anabranch.format.compare.parts import ROW_ADDRESS, ROW_ID, are_apart, are_in_parts, join_parts, take_at
from anabranch.format.staging import VersionRef
from anabranch.repo.history.comparer import RowComparison, RowMerge, Rows, RowSide, row_type
from anabranch.storage import at_once, in_parallel
from anabranch.storage.uris import is_local

# In a remote store, the values of rows with more columns are read only where they are needed, with more requests.
_MOST_COLUMNS_AT_ONCE = 16
# The number of rows that are read to find out which columns of a wide table an update changed.
_MOST_PROBES = 4
# The number of columns of the first probe. Each following one reads twice as many.
_FIRST_COLUMNS = 16

_NO_ROWS = pa.record_batch([pa.array([], pa.uint64())] * 2, names=[ROW_ID, ROW_ADDRESS])


class HeldRows:
    """Rows of one side. Some columns are in memory; `load` reads all columns of some rows."""

    def __init__(self, side: RowSide | None, read: pa.RecordBatch, *, has_values: bool) -> None:
        self._side = side
        self.names: list[str] = [] if side is None else side.schema.names
        self._read = read
        self._loaded = read if has_values else None
        # Where the rows are in `_loaded`. None if it has all rows.
        self._at: Positions | None = None

    @classmethod
    def read(cls, side: RowSide | None, columns: Sequence[str] | None) -> "HeldRows":
        """Read columns of all rows, or all columns. A side that is None has no rows."""
        if side is None:
            return cls(None, _NO_ROWS, has_values=False)
        return cls(side, _read(side, columns), has_values=columns is None)

    @classmethod
    def without_rows(cls, side: Rows | None, columns: Sequence[str] | None) -> "HeldRows":
        """Return the columns of a side without any of its rows, as if they were not to be read."""
        if not isinstance(side, RowSide):
            return cls.read(None, columns)
        schema = side.schema
        wanted = [schema.field(name) for name in (schema.names if columns is None else columns)]
        arrays = [pa.nulls(0, field.type) for field in wanted] + _NO_ROWS.columns
        batch = pa.RecordBatch.from_arrays(arrays, names=[*(field.name for field in wanted), *_NO_ROWS.schema.names])
        return cls(side, batch, has_values=columns is None)

    def __len__(self) -> int:
        return len(self._read)

    @cached_property
    def addresses(self) -> pa.Array:
        return self._read.column(ROW_ADDRESS)

    @cached_property
    def row_ids(self) -> pa.Array:
        if ROW_ID not in self._read.schema.names:
            return pa.array(np.zeros(len(self), dtype=np.uint64))
        return self._read.column(ROW_ID)

    def key(self, names: Sequence[str]) -> list[pa.Array]:
        return [self._read.column(name) for name in names]

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

    def completed(self, newer: "HeldRows", rows: Positions, newer_rows: Positions) -> "HeldRows":
        """Return these rows with all columns. Those that were not read come from the newer rows with the same row ids.

        `rows` and `newer_rows` are pairs of positions. If the pairs are not one row each, all columns are read.
        """
        ids, other_ids = self.row_ids.to_numpy(), newer.row_ids.to_numpy()
        at = np.full(len(self), -1, dtype=np.int64)
        is_pair = (rows >= 0) & (newer_rows >= 0)
        # A key may be in several rows, which are paired with each other. Only those with the same id are one row.
        is_pair[is_pair] = ids[rows[is_pair]] == other_ids[newer_rows[is_pair]]
        at[rows[is_pair]] = newer_rows[is_pair]
        if (at < 0).any():
            return HeldRows.read(self._side, None)
        known = set(self._read.schema.names)
        filled = newer.columns([name for name in self.names if name not in known], at)
        names = [*self.names, *(name for name in self._read.schema.names if name not in self.names)]
        arrays = [self._read.column(name) if name in known else filled[name] for name in names]
        return HeldRows(self._side, pa.RecordBatch.from_arrays(arrays, names=names), has_values=True)

    def read_again(self, positions: Positions, columns: Sequence[str]) -> pa.RecordBatch:
        """Read columns of the rows at these positions from the store."""
        assert self._side is not None  # noqa: S101 - a side without rows has no positions
        addresses = self.addresses.to_numpy()[positions]
        side = self._side
        return _as_batch(take_at(side.version_ref, addresses, columns=columns, parts=side.parts))

    def columns(self, names: Sequence[str | None], positions: Positions) -> dict[str, pa.Array]:
        """Return columns at positions in loaded rows, with nulls at -1. Those that the side does not have are left out.

        Values of rows that are not loaded are null.
        """
        if self._loaded is None:
            return {}
        own = frozenset(self.names)
        known = [name for name in dict.fromkeys(names) if name is not None and name in own]
        taken = _take(self._loaded.select(known), self._in_loaded(positions))
        return dict(zip(known, taken.columns, strict=True))

    def rows(self, positions: Positions) -> pa.StructArray:
        """Return loaded rows as structs, null at -1."""
        if self._loaded is None or not self.names:
            return pa.nulls(len(positions), row_type(self._side))
        at = self._in_loaded(positions)
        taken = _take(self._loaded.select(self.names), at)
        return pa.StructArray.from_arrays(taken.columns, names=self.names, mask=pa.array(at < 0))

    def _in_loaded(self, positions: Positions) -> Positions:
        return positions if self._at is None else at_positions(self._at, positions, missing=-1)


def _take(rows: pa.RecordBatch, positions: Positions) -> pa.RecordBatch:
    """Return the rows at positions, with nulls at -1. If these are all rows in order, nothing is copied."""
    if len(positions) == len(rows) and np.array_equal(positions, np.arange(len(rows))):
        return rows
    is_missing = positions < 0
    return rows.take(pa.array(positions, mask=is_missing) if is_missing.any() else pa.array(positions))


def _read(side: RowSide, columns: Sequence[str] | None) -> pa.RecordBatch:
    """Read columns of all rows, with their addresses, and their ids if the side has them."""
    wanted = [*(side.schema.names if columns is None else columns), ROW_ADDRESS]
    wanted += [ROW_ID] if side.with_row_ids else []
    batches = list(replace(side, with_addresses=True).read(columns))
    if len(batches) == 1:
        return batches[0].select(wanted)
    if batches:
        return _as_batch(pa.Table.from_batches([batch.select(wanted) for batch in batches]))
    numbers = [pa.field(name, pa.uint64()) for name in (ROW_ID, ROW_ADDRESS)]
    return _as_batch(pa.schema([*side.schema, *numbers]).empty_table().select(wanted))


def _as_batch(table: pa.Table) -> pa.RecordBatch:
    """Return all rows as one batch, even if there are none."""
    # `combine_chunks` copies a column even if it has only one chunk.
    columns = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in table.columns]
    if not columns:
        return table.to_batches()[0]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def at_positions(values: npt.NDArray[np.int64], positions: Positions, *, missing: int) -> npt.NDArray[np.int64]:
    """Return the values at positions, and `missing` at -1."""
    found = np.full(len(positions), missing, dtype=np.int64)
    is_there = positions >= 0
    found[is_there] = values[positions[is_there]]
    return found


def reads_keys_first(side: Rows | None) -> bool:
    """Return whether few values are read in several steps, or all in one. A remote store takes long to answer."""
    if not isinstance(side, RowSide):
        return False
    return len(side.schema) > _MOST_COLUMNS_AT_ONCE or is_local(side.version_ref.home.root)


def older_columns(comparison: RowComparison, *, with_values: bool) -> list[str] | None:
    """Return the columns of the older side to read before rows are matched, None for all."""
    older, keys = comparison.older, [str(pair.older) for pair in comparison.keys]
    if older is None or not keys:
        return None
    if not with_values:
        return keys if reads_keys_first(older) else None
    # Unchanged columns are the same in the newer rows.
    unchanged = comparison.unchanged.difference(keys)
    return [name for name in older.schema.names if name not in unchanged] if comparison.unchanged else None


def touch_different_rows(merge: RowMerge) -> bool:
    """Return whether both sides only changed rows of the base on a local disk, and no row was changed by both.

    In a remote store, all sides are read at once, and to read two of them later would take longer.
    """
    source, base, target = merge.base_of_source, merge.base_of_target, merge.target
    if not (isinstance(source, RowSide) and isinstance(base, RowSide) and isinstance(target, RowSide)):
        return False
    # If the target has more or fewer rows, some were inserted or deleted, and may repeat a key.
    is_update = base.rows == target.rows and is_local(base.version_ref.home.root)
    return is_update and are_apart(source.parts, base.parts)


def read_sides(sides: Sequence[Rows | None], columns: Sequence[Sequence[str] | None]) -> list[HeldRows]:
    """Read all sides. `columns` are those of each side, None for all.

    The same columns of rows of the same version are read together, such as the keys of the base for both sides.
    """
    held = [side for side in sides if side is None or isinstance(side, RowSide)]
    groups = _group_alike(held, columns)

    def read(numbers: Sequence[int]) -> list[HeldRows]:
        return _read_together([held[number] for number in numbers], columns[numbers[0]])

    root = next(side.version_ref.home.root for side in held if side is not None)
    found = in_parallel(read, groups, at_a_time=at_once(root))
    by_number = dict(zip(chain.from_iterable(groups), chain.from_iterable(found), strict=True))
    return [by_number[number] for number in range(len(held))]


def _group_alike(sides: Sequence[RowSide | None], columns: Sequence[Sequence[str] | None]) -> list[list[int]]:
    """Group the numbers of the sides: in one group, the same columns of one version are read."""
    groups: dict[tuple[VersionRef, tuple[str, ...]] | int, list[int]] = {}
    for number, (side, names) in enumerate(zip(sides, columns, strict=True)):
        # The base is a side twice, with overlapping rows. Its keys are read once and then divided.
        group = number if side is None or not names else (side.version_ref, tuple(names))
        groups.setdefault(group, []).append(number)
    return list(groups.values())


def _read_together(group: Sequence[RowSide | None], columns: Sequence[str] | None) -> list[HeldRows]:
    if len(group) == 1:
        return [HeldRows.read(group[0], columns)]
    sides = [side for side in group if side is not None]
    parts = join_parts([part for side in sides for part in side.parts])
    read = _read(replace(sides[0], parts=parts, with_row_ids=any(side.with_row_ids for side in sides)), columns)
    addresses = read.column(ROW_ADDRESS).to_numpy()
    return [HeldRows(side, read.filter(are_in_parts(addresses, side.parts)), has_values=False) for side in sides]


def encode_keys(sides: Sequence[HeldRows], keys: Sequence[Sequence[str]]) -> list[Codes]:
    """Return the codes of the keys of each side. A side that does not exist has no rows."""
    empty = next(side.key(names) for side, names in zip(sides, keys, strict=True) if side.names)
    empty = [column.slice(0, 0) for column in empty]
    return encode([side.key(names) if side.names else empty for side, names in zip(sides, keys, strict=True)])


def find_changed(
    older: HeldRows,
    newer: HeldRows,
    older_rows: Positions,
    newer_rows: Positions,
    pairs: Sequence[tuple[str | None, str | None]],
) -> Mask:
    """Return which columns differ, for each pair of rows. If `older` is not in memory, at least one of them."""
    compared = _ComparedRows(
        older=older,
        newer=newer,
        older_rows=older_rows,
        newer_rows=newer_rows,
        pairs=pairs,
        # In the order of columns, because it is written column by column.
        changed=np.zeros((len(older_rows), len(pairs)), dtype=bool, order="F"),
    )
    left = np.arange(len(older_rows))
    # Most updates change the same few columns of all rows. So columns of one row are read until some differ, and then
    # only these of the other rows. Rows that do not differ in them need another probe, for other updates.
    for _ in range(0 if older.has_all else _MOST_PROBES):
        left = compared.compare_like_first(left)
    compared.compare(left, range(len(pairs)))
    return compared.changed


@dataclass(frozen=True, slots=True, kw_only=True)
class _ComparedRows:
    """Pairs of rows, and which columns of them were found to differ."""

    older: HeldRows
    newer: HeldRows
    older_rows: Positions
    newer_rows: Positions
    pairs: Sequence[tuple[str | None, str | None]]
    changed: Mask

    def compare(self, rows: Positions, numbers: Sequence[int]) -> None:
        """Compare some columns of some rows."""
        if not len(rows) or not len(numbers):
            return
        names, other_names = zip(*(self.pairs[number] for number in numbers), strict=True)
        before = self._older_columns(names, self.older_rows[rows])
        after = self.newer.columns(other_names, self.newer_rows[rows])
        for number, name, other in zip(numbers, names, other_names, strict=True):
            values = None if name is None else before.get(name), None if other is None else after.get(other)
            self.changed[rows, number] = values_differ(*values, len(rows))

    def _older_columns(self, names: Sequence[str | None], rows: Positions) -> dict[str, pa.Array]:
        known = [name for name in names if name is not None]
        if self.older.has_all or not known:
            return self.older.columns(known, rows)
        return dict(zip(known, self.older.read_again(rows, known).columns, strict=True))

    def compare_like_first(self, rows: Positions) -> Positions:
        """Compare the columns in which the first row differs. Return the rows that do not differ in them."""
        first, rest = rows[:1], rows[1:]
        numbers, start, size = range(len(self.pairs)), 0, _FIRST_COLUMNS
        while start < len(numbers) and not self.changed[first].any():
            self.compare(first, numbers[start : start + size])
            start, size = start + size, size * 2
        found = np.flatnonzero(self.changed[first].any(axis=0)).tolist()
        if not found:
            return rest
        self.compare(rest, found)
        return rest[~self.changed[rest].any(axis=1)]


def values_differ(one: pa.Array | None, other: pa.Array | None, rows: int) -> Mask:
    """Return where values differ. A column that a side does not have is null there."""
    if one is not None and other is not None:
        return differ(one, other)
    present = other if one is None else one
    if present is None:
        return np.zeros(rows, dtype=bool)
    return np.asarray(present.is_valid().to_numpy(zero_copy_only=False), dtype=bool)


def flagged_lists(flags: Mask, values: pa.Array) -> pa.ListArray:
    """Return for each row the values whose flags are set."""
    ends = np.concatenate([[0], np.cumsum(flags.sum(axis=1))])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values.take(pa.array(np.nonzero(flags)[1])))
