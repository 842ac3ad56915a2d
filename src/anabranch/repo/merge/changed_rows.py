"""Rows that the source of a merge changed, and the changes to the target that follow."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.format.arrow_types import bytes_field
from anabranch.format.compare.matching import Mask, full_join
from anabranch.format.compare.parts import row_ids_at, take_at
from anabranch.format.staging import RowBatch, VersionRef
from anabranch.format.staging.incoming import cast_computed
from anabranch.repo.history.comparer import RowSide, TableCounts
from anabranch.repo.history.memory_comparer import FEW_VALUES, can_compare_in_memory
from anabranch.repo.history.memory_rows import HeldRows, encode_keys, find_changed, read_sides, touch_different_rows
from anabranch.repo.merge.cell_resolvers import put_at
from anabranch.repo.merge.conflict_types import NO_CONFLICTS, Unresolved
from anabranch.repo.merge.steps import NO_ROWS, MergeTable

_CHANGES = pa.array(["inserted", "updated", "deleted"])
_CODES = {"inserted": 0, "updated": 1, "deleted": 2, None: 3}
_OFFSET_BITS = np.uint64(32)
_OFFSET_MASK = np.uint64(0xFFFFFFFF)


class ChangedRows:
    """The rows, with the change of each side. `RowComparer.merge` describes the columns of the batch."""

    def __init__(self, batch: pa.RecordBatch, fragments: Mapping[int, int]) -> None:
        self._batch = batch
        self._fragments = fragments
        self.source_changes: pa.Array = batch.column("source_change")
        self._source_codes, self._target_codes = map(_codes, (self.source_changes, batch.column("target_change")))
        self.base: pa.StructArray = batch.column("base")
        self.source: pa.StructArray = batch.column("source")
        self.target: pa.StructArray = batch.column("target")
        self.row_ids = _numbers(batch.column("target_row_id"))
        # Unchanged rows are in the same fragments as in the base.
        self.addresses = _numbers(batch.column("target_address"))
        missing = np.flatnonzero(batch.column("target_address").is_null().to_numpy(zero_copy_only=False))
        self.addresses[missing] = moved_addresses(_numbers(batch.column("base_address"))[missing], fragments)

    def __len__(self) -> int:
        return len(self._batch)

    def where(self, source: str, *target: str | None) -> Mask:
        """Return the rows with this change of the source and one of these changes of the target."""
        found: Mask = self._source_codes == _CODES[source]
        if found.any():
            found &= np.isin(self._target_codes, [_CODES[change] for change in target])
        return found

    def filter(self, mask: Mask) -> "ChangedRows":
        return self if mask.all() else ChangedRows(self._batch.filter(pa.array(mask)), self._fragments)

    def flags(self, columns: int) -> tuple[Mask, Mask]:
        """Return for each row the columns that the source changed, and those in conflict."""
        return _flags(self._batch.column("source_columns"), columns), _flags(self._batch.column("conflicts"), columns)

    @property
    def is_target_missing(self) -> Mask:
        """Where the row of the target was not read: it is unchanged, or it does not exist."""
        return np.asarray(self.target.is_null().to_numpy(zero_copy_only=False), dtype=bool)

    def with_targets(self, version_ref: VersionRef) -> "ChangedRows":
        """Return the batch with the unchanged rows of the target, read by their addresses."""
        missing = self.is_target_missing
        if not missing.any():
            return self
        rows = read_rows_at(version_ref, self.addresses[missing])
        # If the target changed nothing, the engine did not read it, so its columns come from the version.
        if not missing.all():
            rows = put_at(self.target, np.flatnonzero(missing), rows)
        row_ids = self.row_ids.copy()
        row_ids[missing] = row_ids_at(version_ref, self.addresses[missing])
        batch = self._batch
        for name, values in (("target", rows), ("target_row_id", pa.array(row_ids))):
            batch = batch.set_column(batch.schema.get_field_index(name), pa.field(name, values.type), values)
        return ChangedRows(batch, self._fragments)


def read_rows_at(version_ref: VersionRef, addresses: npt.NDArray[np.uint64]) -> pa.StructArray:
    """Read whole rows by their addresses."""
    taken = take_at(version_ref, addresses)
    fields = [pa.field(field.name, field.type) for field in version_ref.row_schema]
    return pa.StructArray.from_arrays([taken.column(field.name).combine_chunks() for field in fields], fields=fields)


def moved_addresses(base: npt.NDArray[np.uint64], fragments: Mapping[int, int]) -> npt.NDArray[np.uint64]:
    """Return the addresses in the target of rows of the base. `fragments` maps those of the base to the same ones."""
    owners, numbers = np.unique(base >> _OFFSET_BITS, return_inverse=True)
    # Rows of a fragment that the target does not have any more keep their address, so that no two rows share one.
    moved = np.array([fragments.get(owner, owner) for owner in owners.tolist()], dtype=np.uint64)
    addresses: npt.NDArray[np.uint64] = moved[numbers] << _OFFSET_BITS | base & _OFFSET_MASK
    return addresses


def fields_of(rows: pa.StructArray) -> dict[str, pa.Array]:
    """Return the columns of rows by name, null where the whole row is null."""
    return dict(zip(rows.type.names, rows.flatten(), strict=True))


def cells_of(rows: pa.StructArray, name: str | None, kind: pa.Field) -> pa.Array:
    """Return the cells of a column in the type of the result, blobs as binary. Nulls if the side lacks the column."""
    kind = bytes_field(kind)
    if name is None or name not in rows.type.names:
        return pa.nulls(len(rows), kind.type)
    return cast_computed(pc.struct_field(rows, [name]), kind.with_nullable(nullable=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """Changes to rows of the target: the rows to write, the number of changed rows, and the unresolved conflicts."""

    batch: RowBatch = field(default_factory=lambda: RowBatch(rows=None))
    counts: TableCounts = NO_ROWS
    conflicts: Unresolved = NO_CONFLICTS
    # The changes from which the rows of the batch were made, if they have nulls in a column that does not allow them.
    # None if they were made by a decision on whole rows.
    origin: ChangedRows | None = None


# The rows that the source changed, as `RowComparer.merge` returns them, or the changes, if these are known already.
FoundRows = Iterable[pa.RecordBatch] | RowChanges


def deletion_of(addresses: npt.NDArray[np.uint64]) -> RowChanges:
    return RowChanges(batch=RowBatch(rows=None, addresses=addresses), counts=TableCounts(deleted=len(addresses)))


def insertion_of(rows: pa.Table, origin: ChangedRows | None = None) -> RowChanges:
    return RowChanges(batch=RowBatch(rows=rows), counts=TableCounts(inserted=len(rows)), origin=origin)


def _codes(changes: pa.Array) -> npt.NDArray[np.int32]:
    found = pc.fill_null(pc.index_in(changes, _CHANGES), _CODES[None])
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int32)


def _flags(lists: pa.ListArray, columns: int) -> Mask:
    """Return the flags of the first columns. Those after them were compared too, but are not in the result."""
    found = np.zeros((len(lists), columns), dtype=bool)
    rows, numbers = pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(lists).to_numpy()
    is_known = numbers < columns
    found[rows[is_known], numbers[is_known]] = True
    return found


def _numbers(array: pa.Array) -> npt.NDArray[np.uint64]:
    filled = pc.fill_null(array, pa.scalar(0, pa.uint64()))
    return np.array(filled.to_numpy(zero_copy_only=False), dtype=np.uint64)


# Rows that only the source updated, in a table whose columns no side changed. The result has the rows of the source.
# This is the usual merge of a few rows. It needs no match of four sides, and no decision on cells.

# More rows are left to the engine.
_MOST_ROWS = 10_000


def find_source_updates(step: MergeTable) -> RowChanges | None:
    """Return the changes to the target if both sides only updated rows, and no row was updated by both. Else None."""
    base = step.rows.base_of_source
    if not isinstance(base, RowSide) or not _are_updates_apart(step, base):
        return None
    keys = [[str(column.base) for column in step.rows.keys]] * 2
    reads_all = base.rows * len(base.schema) <= FEW_VALUES
    older, newer = read_sides(step.rows.sides[:2], [None if reads_all else keys[0], None])
    older_rows, newer_rows = full_join(*encode_keys((older, newer), keys))
    # A key that is new in the source may be that of a row of the target. A repeated key multiplies rows.
    if len(older_rows) != len(older) or np.any(older_rows < 0) or np.any(newer_rows < 0):
        return None
    pairs = [(column.base, column.source) for column in step.rows.columns]
    changed = np.flatnonzero(find_changed(older, newer, older_rows, newer_rows, pairs).any(axis=1))
    addresses = older.addresses.to_numpy()[older_rows[changed]]
    order = np.argsort(addresses)
    return _replacement_of(step, moved_addresses(addresses[order], step.fragments), newer, newer_rows[changed[order]])


def _replacement_of(
    step: MergeTable, addresses: npt.NDArray[np.uint64], newer: HeldRows, positions: npt.NDArray[np.int64]
) -> RowChanges:
    """Return the change that replaces the rows at addresses in the target with some rows of the source."""
    if not len(addresses):
        return RowChanges()
    schema = step.version_ref.schema
    values = newer.columns(schema.names, positions)
    arrays = [cast_computed(values[field.name], field) for field in schema]
    # A replaced row keeps its id in the target.
    row_ids = row_ids_at(step.version_ref, addresses)
    batch = RowBatch(rows=pa.table(arrays, schema=schema), addresses=addresses, row_ids=row_ids)
    return RowChanges(batch=batch, counts=TableCounts(updated=len(addresses)))


def _are_updates_apart(step: MergeTable, base: RowSide) -> bool:
    """Return whether both sides may have only updated different rows, and changed no columns.

    Whether the source also deleted and inserted the same number of rows is found when their keys are read.
    """
    sides, source = step.rows, step.rows.source
    if not (step.has_same_schema and sides.keys) or step.shape.strict_columns or source is None:
        return False
    if base.rows != source.rows or base.rows > _MOST_ROWS or step.version_ref.blob_columns:
        return False
    return touch_different_rows(sides) and can_compare_in_memory(sides)
