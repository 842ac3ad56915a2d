"""Rows that only the source updated, in a table whose columns no side changed: the result has the rows of the source.

Most merges of a few rows are like this. They need no match of four sides, and no decision on any cell.
"""

import numpy as np
import pyarrow as pa

from anabranch.format.compare.matching import full_join
from anabranch.format.compare.parts import row_ids_at
from anabranch.format.staging import RowBatch
from anabranch.format.staging.incoming import cast_computed
from anabranch.repo.history.comparer import RowSide, TableCounts
from anabranch.repo.history.memory_comparer import can_compare_in_memory
from anabranch.repo.history.memory_merge import FEW_VALUES, touch_different_rows
from anabranch.repo.history.memory_rows import encode_keys, find_changed, read_sides
from anabranch.repo.merge.changed_rows import RowChanges, moved_addresses
from anabranch.repo.merge.steps import RowPlan

# More rows are left to the engine that the caller has chosen.
_MOST_ROWS = 10_000


def find_source_updates(plan: RowPlan) -> RowChanges | None:
    """Return the changes to the target if both sides only updated rows, and no row was updated by both. Else None."""
    base = plan.sides.base_of_source
    if not isinstance(base, RowSide) or not _are_updates_apart(plan):
        return None
    keys = [[str(column.base) for column in plan.sides.keys]] * 2
    reads_all = base.rows * len(base.schema) <= FEW_VALUES
    older, newer = read_sides(plan.sides.sides[:2], [None if reads_all else keys[0], None])
    older_rows, newer_rows = full_join(*encode_keys((older, newer), keys))
    # A key that is new in the source may be that of a row of the target. A repeated key multiplies rows.
    if len(older_rows) != len(older) or np.any(older_rows < 0) or np.any(newer_rows < 0):
        return None
    pairs = [(column.base, column.source) for column in plan.sides.columns]
    changed = np.flatnonzero(find_changed(older, newer, older_rows, newer_rows, pairs).any(axis=1))
    addresses = older.addresses.to_numpy()[older_rows[changed]]
    order = np.argsort(addresses)
    addresses, positions = moved_addresses(addresses[order], plan.fragments), newer_rows[changed[order]]
    counts = TableCounts(inserted=0, updated=len(changed), deleted=0)
    if not len(changed):
        return RowChanges(counts=counts)
    schema = plan.version_ref.schema
    values = newer.columns(schema.names, positions)
    arrays = [cast_computed(values[field.name], field) for field in schema]
    batch = RowBatch(
        rows=pa.table(arrays, schema=schema),
        addresses=addresses,
        # A replaced row keeps its id in the target.
        row_ids=row_ids_at(plan.version_ref, addresses),
    )
    return RowChanges(batch=batch, counts=counts)


def _are_updates_apart(plan: RowPlan) -> bool:
    """Return whether both sides may only have updated rows, each side other ones, of columns that no side changed.

    Whether the source also deleted and inserted the same number of rows is found when their keys are read.
    """
    sides = plan.sides
    base, source = sides.base_of_source, sides.source
    if not plan.has_same_schema or not plan.key_names or plan.strict_columns or base is None or source is None:
        return False
    if base.rows != source.rows or base.rows > _MOST_ROWS or plan.version_ref.blob_columns:
        return False
    return touch_different_rows(sides) and can_compare_in_memory(sides)
