"""Check the constraints of merged rows: columns that do not allow nulls, and a key by which rows were not matched.

If one side made a column NOT NULL, the other side may have inserted rows with nulls there, or set cells to null. These
are decided on row by row. Nulls of the source are in rows that the merge writes. Nulls of the target may be in rows
that the source did not change, which would stay as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidInputError, KeyConflictError, SchemaMismatchError
from anabranch.format.arrow_types import python_values
from anabranch.format.compare.matching import Mask
from anabranch.format.compare.parts import row_ids_at
from anabranch.format.scan import count_rows, kept_keys
from anabranch.format.staging import KeyRows, RowBatch, refuse_repeated
from anabranch.format.staging.expressions import find_default, quoted_column
from anabranch.format.staging.incoming import cast_computed, fit_rows
from anabranch.format.staging.rows import Addresses, find_rows, join_addresses
from anabranch.repo.history.comparer import ColumnTriple, RowComparer, RowMerge, RowSide, TableCounts
from anabranch.repo.merge.cell_resolvers import Cells, choose, put_at
from anabranch.repo.merge.changed_rows import ChangedRows, RowChanges, cells_of, deletion_of, insertion_of, read_rows_at
from anabranch.repo.merge.conflict_types import Conflict, ConflictKind, Unresolved
from anabranch.repo.merge.shapes import MergedColumn, Shape
from anabranch.repo.merge.steps import MergeTable


def iter_without_nulls(
    step: MergeTable, changes: Iterator[RowChanges], schema: pa.Schema, comparer: RowComparer
) -> Iterator[RowChanges]:
    """Yield the changes of rows without nulls in columns that do not allow them, and the conflicts about such nulls.

    Rows of the target that the source did not change are decided on, too.
    """
    decider = _NullDecider(step=step, columns=step.shape.columns, schema=schema)
    where = _find_nulls(step)
    if where is None:
        for change in changes:
            yield from decider.decide(change)
        return
    touched: list[Addresses] = []
    inserts: list[RowChanges] = []
    for change in changes:
        touched.append(change.batch.addresses)
        if change.batch.rows is not None and not len(change.batch.row_ids):
            inserts.append(change)  # Rows that have row ids must be written before those that have none.
        else:
            yield from decider.decide(change)
    kept = _find_kept(step, where, join_addresses(touched), comparer)
    if kept is not None:
        # With the names of the columns in the target instead of those in the source.
        columns = tuple(replace(column, triple=_with_target(column.triple)) for column in step.shape.columns)
        yield from replace(decider, columns=columns, are_kept=True).decide(_as_changes(step, kept, schema))
    for change in inserts:
        yield from decider.decide(change)


def _find_nulls(step: MergeTable) -> str | None:
    """Return a predicate of the rows of the target with nulls in columns that do not allow them in the result.

    None if there are no such rows.
    """
    if step.match.is_untouched:
        return None  # The source has replaced the nulls.
    strict, schema = step.shape.strict_columns - step.shape.filled, step.version_ref.schema
    tests = []
    for column in step.shape.columns:
        if column.name in strict:
            name = column.triple.target
            # A new column has a value in the rows that the source has, and a null in all others.
            if name is None:
                return "true"
            if schema.field(name).nullable:
                tests.append(f"{quoted_column(name)} IS NULL")
    where = " OR ".join(tests)
    return where if tests and count_rows(step.version_ref, where) else None


def _with_target(triple: ColumnTriple) -> ColumnTriple:
    return ColumnTriple(base=triple.base, source=triple.target, target=triple.target)


def _as_changes(step: MergeTable, kept: ChangedRows, schema: pa.Schema) -> RowChanges:
    """Return unchanged rows of the target as rows of the result."""
    named = {column.name: column for column in step.shape.columns if column.triple.target is not None}
    arrays = [cells_of(kept.target, column.triple.target, column.field) for column in named.values()]
    # New columns with a default are filled.
    rows = fit_rows(pa.table(arrays, names=list(named)), step.shape.lenient_schema(schema)).to_table()
    return RowChanges(batch=RowBatch(rows=rows, addresses=kept.addresses, row_ids=kept.row_ids), origin=kept)


def _find_kept(step: MergeTable, where: str, touched: Addresses, comparer: RowComparer) -> ChangedRows | None:
    """Return the rows of the target that have such nulls and that the merge does not write."""
    addresses = np.setdiff1d(find_rows(step.version_ref, where), touched)
    if not len(addresses):
        return None
    rows = read_rows_at(step.version_ref, addresses)
    base = _find_base(step, addresses, comparer)
    is_new = base.is_null()
    batch = pa.table(
        {
            "source_change": pc.if_else(is_new, "inserted", "updated"),
            "target_change": pc.if_else(is_new, "inserted", "updated"),
            "base": base,
            "source": rows,
            "target": rows,
            "base_address": pa.nulls(len(rows), pa.uint64()),
            "target_address": pa.array(addresses, pa.uint64()),
            "target_row_id": pa.array(row_ids_at(step.version_ref, addresses), pa.uint64()),
        }
    )
    return ChangedRows(batch.to_batches()[0], step.fragments)


def _find_base(step: MergeTable, addresses: Addresses, comparer: RowComparer) -> pa.StructArray:
    """Return the rows of the base that rows of the target were made from. Null for rows that were inserted."""
    target, empty = step.rows.target, pa.nulls(len(addresses), pa.struct([]))
    if not isinstance(target, RowSide) or step.rows.base_of_target is None:
        return empty
    # Merge the target with itself. The result has the rows that the target changed since the base.
    same = RowMerge(
        base_of_source=step.rows.base_of_target,
        source=replace(target, with_row_ids=not step.shape.matched_names, with_addresses=False),
        base_of_target=step.rows.base_of_target,
        target=target,
        columns=[_with_target(column.triple) for column in step.shape.columns if column.triple.target is not None],
        keys=[_with_target(triple) for triple in step.rows.keys],
    )
    bases: list[pa.StructArray] = []
    at: list[Addresses] = []
    for batch in comparer.merge(same):
        found = ChangedRows(batch, step.fragments)
        found = found.filter(found.where("updated", "updated"))
        part = found.filter(np.isin(found.addresses, addresses))
        bases.append(part.base)
        at.append(part.addresses)
    if not sum(map(len, bases)):
        return empty
    known = pa.concat_arrays(bases)
    chosen = np.full(len(addresses), -1)
    chosen[np.searchsorted(addresses, join_addresses(at))] = np.arange(len(known))
    return known.take(pa.array(chosen, mask=chosen < 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _NullDecider:
    """Decides on nulls in rows that have the columns of the result.

    With `are_kept`, the rows are rows of the target that the source did not change: it has the cells of the base, or
    does not have the row.
    """

    step: MergeTable
    columns: tuple[MergedColumn, ...]
    schema: pa.Schema
    are_kept: bool = False

    def decide(self, change: RowChanges) -> Iterator[RowChanges]:
        rows = change.batch.rows
        if rows is None:
            yield change
            return
        is_open, is_dropped = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
        for column in self.columns:
            is_strict = column.name in self.step.shape.strict_columns - self.step.undecided_columns
            if not is_strict or not rows.column(column.name).null_count:
                continue
            # A row that was left out because of an earlier column needs no further decision.
            nulls = _Nulls(self, change, column, np.flatnonzero(_null_mask(rows.column(column.name)) & ~is_dropped))
            values, are_open, are_dropped = nulls.decide()
            is_dropped[nulls.positions[are_dropped]] = True
            is_open[nulls.positions[are_open]] = True
            number = rows.schema.get_field_index(column.name)
            whole = put_at(rows.column(number).combine_chunks(), nulls.positions, values)
            rows = rows.set_column(number, rows.schema.field(number), whole)
            if are_open.any():
                yield RowChanges(conflicts=nulls.unresolved(are_open))
        yield from self._result(change, rows, is_dropped=is_dropped, is_left=~(is_open | is_dropped))

    def _result(self, change: RowChanges, rows: pa.Table, *, is_dropped: Mask, is_left: Mask) -> Iterator[RowChanges]:
        batch = change.batch
        # A row that is in the target must be deleted there. A new one is only not written.
        if len(batch.row_ids) and is_dropped.any():
            yield deletion_of(batch.addresses[is_dropped])
        rows = pa.Table.from_arrays(rows.filter(pa.array(is_left)).columns, schema=self.schema)
        if not len(batch.row_ids):
            yield insertion_of(rows)
            return
        left = RowBatch(rows=rows, addresses=batch.addresses[is_left], row_ids=batch.row_ids[is_left])
        yield RowChanges(batch=left, counts=TableCounts(updated=len(rows)))


class _Nulls:
    """The nulls of one column in a batch of rows."""

    def __init__(
        self, decider: _NullDecider, change: RowChanges, column: MergedColumn, positions: npt.NDArray[np.int64]
    ) -> None:
        self._step, self._are_kept = decider.step, decider.are_kept
        self._change, self._column = change, column
        self.positions = positions
        mask = np.zeros(len(change.batch.rows or ()), dtype=bool)
        mask[positions] = True
        self._origin = None if change.origin is None else change.origin.filter(mask)
        if self._origin is not None and len(change.batch.row_ids):
            self._origin = self._origin.with_targets(self._step.version_ref)
        self._cells = self._find_cells()
        self._is_clash = np.zeros(len(positions), dtype=bool)
        if self._origin is not None and not self._are_kept:
            _, clashes = self._origin.flags(len(decider.columns))
            self._is_clash = clashes[:, decider.columns.index(column)]

    def decide(self) -> tuple[pa.Array, Mask, Mask]:
        """Return values instead of nulls, a mask of the undecided ones, and a mask of the rows to leave out.

        Decide by resolutions, resolvers or the strategy. Raise InvalidInputError if a decision sets a null.
        A side that does not have a row decides to leave it out. Cells that both sides changed and that nothing decides
        are reported as such already.
        """
        cells, column = self._cells, self._column.name
        values, are_resolved = self._step.resolution.for_column(column)(cells)
        is_null = _null_mask(values) & are_resolved
        is_dropped = np.zeros(len(self.positions), dtype=bool)
        if is_null.any():
            self._check_not_chosen(is_null)
            # Rows that are kept are those of the target, which the source may lack. Rows that are written are those of
            # the source, which the target may lack.
            absent = "source" if self._are_kept else "target"
            if self._origin is not None and self._step.resolution.find_cell_resolver(column) == absent:
                is_dropped = is_null & (self._are_new() if self._are_kept else _null_mask(self._origin.target))
        is_open = (~are_resolved & ~self._is_clash) | (is_null & ~is_dropped)
        return values, is_open, is_dropped

    def _check_not_chosen(self, is_null: Mask) -> None:
        """Raise InvalidInputError if a resolution or a function chose one of these nulls."""
        resolution, name = self._step.resolution, self._column.name
        is_function = callable(resolution.find_cell_resolver(name))
        decided = resolution.resolution.decisions.for_conflicts(resolution.names, name)
        for conflict in self._cells.filter(is_null).conflicts() if is_function or decided is not None else ():
            if is_function or (decided is not None and decided(conflict) is not NotImplemented):
                problem = f"the decision on the row {conflict.key} leaves a null in column {name!r}, which takes none"
                raise InvalidInputError(problem, hint="pass a value for the cell")

    def _find_cells(self) -> Cells:
        origin, triple, kind = self._origin, self._column.triple, self._column.field
        no_rows = pa.nulls(len(self.positions), pa.struct([]))
        rows = (no_rows, no_rows, no_rows) if origin is None else (origin.base, origin.source, origin.target)
        base, source, target = (cells_of(side, name, kind) for side, name in zip(rows, triple.sides, strict=True))
        if origin is not None and not self._are_kept:
            # The base of a row that the target did not change may not have been read. It has the cell of the target.
            base = choose(base, target, _null_mask(origin.base) & ~self._are_new())
        return Cells(
            column=self._column.name,
            base=base,
            source=base if self._are_kept else source,
            target=target,
            source_rows=rows[1],
            target_rows=rows[2],
            rows=np.arange(len(self.positions)),
            build=self._iter_conflicts,
        )

    # Conflicts

    def unresolved(self, mask: Mask) -> Unresolved:
        """Return the conflicts about some of the nulls."""
        left = self._cells.filter(mask)
        return Unresolved(len(left), lambda: self._iter_conflicts(left), self._hint)

    @property
    def _hint(self) -> str:
        """Return the hint if the side with the null should decide, which is not possible."""
        side = self._step.resolution.find_cell_resolver(self._column.name)
        if side not in ("source", "target"):
            return ""
        other = "target" if side == "source" else "source"
        return f"the {side} has a null in {self._column.name!r}; pass a value for the cell, or take the {other}"

    def _iter_conflicts(self, cells: Cells) -> Iterator[Conflict]:
        is_new = self._are_new()[cells.rows].tolist()
        sides = map(python_values, cells.sides)
        for key, new, base, source, target in zip(self._keys(cells.rows), is_new, *sides, strict=True):
            side = "target" if self._are_kept or source is not None else "source"
            yield Conflict(
                table=str(self._step.key),
                kind=ConflictKind.DIVERGENT_INSERT if new else ConflictKind.DIVERGENT_UPDATE,
                key=key,
                column=self._column.name,
                base=base,
                source=source,
                target=target,
                problem=f"the column takes no nulls, but the {side} has one",
                hint=self._hint,
            )

    def _are_new(self) -> Mask:
        if self._origin is None:
            return np.ones(len(self.positions), dtype=bool)
        return self._origin.where("inserted", None, "inserted", "updated", "deleted")

    def _keys(self, numbers: npt.NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """Yield the keys of rows. Without a key, yield addresses in the target, or new rows as they are."""
        batch, chosen = self._change.batch, self.positions[numbers]
        if not self._step.shape.matched_names and len(batch.row_ids):
            yield from ({"_rowaddr": address} for address in batch.addresses[chosen].tolist())
            return
        rows = pa.table({}) if batch.rows is None else batch.rows.take(pa.array(chosen))
        names = self._step.shape.matched_names or rows.column_names
        columns = [python_values(rows.column(name).combine_chunks()) for name in names]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))


def _null_mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    found = values.is_null()
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)


# Keys


def iter_with_unique_keys(step: MergeTable, changes: Iterator[RowChanges]) -> Iterator[RowChanges]:
    """Yield the changes of rows. Then check that they fit a new key, unless there are conflicts."""
    has_conflicts = bool(step.conflicts)
    written: list[pa.Table] = []
    replaced: list[Addresses] = []
    for change in changes:
        has_conflicts |= change.conflicts.count > 0
        replaced.append(change.batch.addresses)
        if change.batch.rows is not None:
            written.append(change.batch.rows.select(step.shape.primary_key))
        yield change
    if not has_conflicts:
        _check_keys(step, written, join_addresses(replaced))


def _check_keys(step: MergeTable, written: list[pa.Table], replaced: Addresses) -> None:
    """Raise SchemaMismatchError if the merged rows repeat a value of the key, or have nulls in it."""
    columns = {column.name: column for column in step.shape.columns}
    key = [columns[name] for name in step.shape.primary_key]
    kept = kept_keys(step.version_ref, [name for column in key if (name := column.triple.target) is not None], replaced)
    if kept.count:
        _check_filled(step.shape, key, kept.count)
    read = partial(_iter_keys, step.shape, key, kept, written)
    try:
        refuse_repeated(KeyRows(read=read, count=kept.count + sum(map(len, written))))
    except KeyConflictError as err:
        raise SchemaMismatchError(f"the rows do not fit the new key: {err.problem}", hint=err.hint) from err


def _check_filled(shape: Shape, key: list[MergedColumn], count: int) -> None:
    """Raise SchemaMismatchError if unchanged rows get nulls in a key column that the target does not have yet."""
    for column in key:
        if column.is_new and column.name not in shape.filled:
            problem = f"the rows do not fit the new key: {count} of the target have no value in {column.name!r}"
            raise SchemaMismatchError(problem, hint="merge the column first, fill it, and then change the key")


def _iter_keys(
    shape: Shape, key: list[MergedColumn], kept: KeyRows, written: list[pa.Table]
) -> Iterator[pa.RecordBatch]:
    """Yield the keys of the merged rows: those that the target keeps, then the written ones."""
    schema = pa.schema([column.field for column in key])
    for batch in kept.read():
        yield pa.record_batch([_key_values(shape, batch, column) for column in key], schema=schema)
    for rows in written:
        yield from rows.cast(schema).to_batches()


def _key_values(shape: Shape, kept: pa.RecordBatch, column: MergedColumn) -> pa.Array:
    """Return a column of the key for rows of the target. A column that it does not have yet has its default."""
    if column.triple.target is not None:
        return cast_computed(kept.column(column.triple.target), column.field.with_nullable(nullable=True))
    compute = find_default(column.field, columns=shape.schema.names)
    return pa.nulls(len(kept), column.field.type) if compute is None else compute(len(kept)).cast(column.field.type)
