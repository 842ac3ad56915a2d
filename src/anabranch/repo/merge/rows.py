"""Merge rows cell by cell: find the rows to replace, insert and delete in the target."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidInputError, KeyConflictError, SchemaMismatchError
from anabranch.format.parts import ROW_ID, take_at
from anabranch.format.python_values import python_values
from anabranch.format.staging import Pin, RowBatch, are_surely_unique
from anabranch.format.staging.incoming import cast_computed, fit_rows
from anabranch.ids import TableKey
from anabranch.repo.history.comparing import RowComparer, RowMerge, TableCounts
from anabranch.repo.merge.conflicts import Conflict, ConflictKind
from anabranch.repo.merge.resolve import Cells, Resolution
from anabranch.repo.merge.shapes import MergedColumn

__all__ = ["RowMerger"]

_Mask = npt.NDArray[np.bool_]
_OFFSET_BITS = np.uint64(32)
_OFFSET_MASK = np.uint64(0xFFFFFFFF)


@dataclass(slots=True, kw_only=True)
class RowMerger:
    """Merges the rows of one table.

    `pin` is the version of the target that was compared, `schema` the schema of the result. Each unresolved conflict is
    passed to `on_conflict`. After the first one no more rows are returned, because the merge will not be published.
    """

    key: TableKey
    row_merge: RowMerge
    columns: Sequence[MergedColumn]
    key_names: Sequence[str]
    pin: Pin
    schema: pa.Schema
    fragments: dict[int, int]
    resolution: Resolution
    on_conflict: Callable[[Conflict], None]
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    conflicts: int = 0
    _inserts_last: list[pa.Table] = field(default_factory=list)

    @property
    def counts(self) -> TableCounts:
        return TableCounts(inserted=self.inserted, updated=self.updated, deleted=self.deleted)

    def batches(self, comparer: RowComparer) -> Iterator[RowBatch]:
        """Yield the changes to the rows of the target. New rows come last."""
        for found in comparer.merge(self.row_merge):
            for batch in self._merge(_ChangedRows(found, self.fragments)):
                if not self.conflicts:
                    yield batch
            yield RowBatch(rows=None)  # Lets a caller that lists conflicts report those of this batch.
        for rows in self._inserts_last:
            if not self.conflicts:
                yield self._as_inserted(rows)

    def _merge(self, found: "_ChangedRows") -> Iterator[RowBatch]:
        if self.key_names:
            self._check_unique_keys(found)
        deleted = found.where("deleted", None)
        self.deleted += int(deleted.sum())
        if deleted.any():
            yield RowBatch(rows=None, addresses=found.addresses[deleted])
        replaced = found.where("updated", None, "updated") | found.where("inserted", "inserted", "updated")
        if replaced.any():
            yield from self._replace(found.filter(replaced))
        yield from self._decide_on_rows(found)
        fresh = found.where("inserted", None)
        if fresh.any():
            yield self._as_inserted(self._in_result(found.filter(fresh).source))

    def _check_unique_keys(self, found: "_ChangedRows") -> None:
        """Raise KeyConflictError if a key occurs more than once: writers can skip the check of unique keys.

        Such rows are matched twice, or an update or deletion meets an insertion.
        """
        named = {column.name: column.triple.source for column in self.columns}
        present = found.source.drop_null()
        keys = pa.table({name: pc.struct_field(present, [named[name]]) for name in self.key_names})
        is_mismatch = found.where("updated", "inserted") | found.where("deleted", "inserted")
        is_mismatch |= found.where("inserted", "deleted")
        repeated = list(self._keys(found.filter(is_mismatch)))
        if not are_surely_unique(keys):
            counted = keys.group_by(keys.column_names).aggregate([([], "count_all")])
            repeated += counted.filter(pc.greater(counted.column("count_all"), 1)).drop(["count_all"]).to_pylist()
        if repeated:
            raise KeyConflictError(
                f"the table '{self.key}' holds the key {repeated[0]} more than once on one side of the merge",
                hint="delete the repeated rows on that side",
            )

    # Rows that are on both sides

    def _replace(self, found: "_ChangedRows") -> Iterator[RowBatch]:
        found = found.with_targets(self.pin)
        took, clashes = found.flags(len(self.columns))
        changed: _Mask = np.any(took & ~clashes, axis=1)
        merged = []
        for number, column in enumerate(self.columns):
            values = self._merge_column(found, column, took[:, number] & ~clashes[:, number])
            if clashes[:, number].any():
                values, is_changed = self._decide_on_cells(found, column, values, clashes[:, number])
                changed |= is_changed
            merged.append(values)
        names = [column.name for column in self.columns]
        rows = pa.table(merged, names=names).filter(pa.array(changed))
        self.updated += len(rows)
        # If two columns would have the same name, the merge has a conflict and will not be published. Return no rows.
        if len(rows) and len(set(names)) == len(names):
            ordered = rows.select(self.schema.names)
            arrays = [cast_computed(ordered.column(field.name).combine_chunks(), field) for field in self.schema]
            yield RowBatch(
                rows=pa.table(arrays, schema=self.schema),
                addresses=found.addresses[changed],
                row_ids=found.row_ids[changed],
            )

    def _merge_column(self, found: "_ChangedRows", column: MergedColumn, is_taken: _Mask) -> pa.Array:
        kind, triple = column.field, column.triple
        target = _cells(found.target, triple.target, kind)
        if not is_taken.any():
            return target
        positions = np.arange(len(target))
        # Use `take`, because `if_else` does not support every type, for example UUIDs.
        both = pa.concat_arrays([target, _cells(found.source, triple.source, kind)])
        return both.take(pa.array(np.where(is_taken, positions + len(target), positions)))

    def _decide_on_cells(
        self, found: "_ChangedRows", column: MergedColumn, values: pa.Array, clash: _Mask
    ) -> tuple[pa.Array, _Mask]:
        """Put the decided values into a column. Return the column, and which rows now differ from the target."""
        part, positions = found.filter(clash), np.flatnonzero(clash)
        triple, kind = column.triple, column.field
        cells = Cells(
            column=column.name,
            base=_cells(part.base, triple.base, kind),
            source=_cells(part.source, triple.source, kind),
            target=_cells(part.target, triple.target, kind),
            source_rows=part.source,
            target_rows=part.target,
            conflicts=lambda: list(self._cell_conflicts(part, column, cells)),
        )
        decide = self.resolution.for_column(self.key, column.name)
        is_changed = np.zeros(len(values), dtype=bool)
        if decide is None:
            self._report(cells.conflicts())
            return values, is_changed
        decided, resolved = decide(cells)
        are_resolved = (
            np.ones(len(positions), dtype=bool) if resolved is None else resolved.to_numpy(zero_copy_only=False)
        )
        if not are_resolved.all():
            left = found.filter(_mask(len(values), positions[~are_resolved]))
            self._report(self._cell_conflicts(left, column, _sliced(cells, ~are_resolved)))
        is_changed[positions[are_resolved & _differ(decided, cells.target)]] = True
        chosen = np.arange(len(values))
        chosen[positions[are_resolved]] = len(values) + np.flatnonzero(are_resolved)
        return pa.concat_arrays([values, decided]).take(pa.array(chosen)), is_changed

    def _cell_conflicts(self, found: "_ChangedRows", column: MergedColumn, cells: Cells) -> Iterator[Conflict]:
        values = zip(*map(python_values, (cells.base, cells.source, cells.target)), strict=True)
        kinds = found.source_changes.to_pylist()
        for kind, key, (base, source, target) in zip(kinds, self._keys(found), values, strict=True):
            is_new = kind == "inserted"
            yield Conflict(
                table=str(self.key),
                kind=ConflictKind.DIVERGENT_INSERT if is_new else ConflictKind.DIVERGENT_UPDATE,
                key=key,
                column=column.name,
                base=base,
                source=source,
                target=target,
                problem="both sides inserted it" if is_new else "both sides changed it",
            )

    # Rows that one side deleted

    def _decide_on_rows(self, found: "_ChangedRows") -> Iterator[RowBatch]:
        decide = self.resolution.for_row(self.key)
        for is_contested, in_target in (
            (found.where("deleted", "updated"), True),
            (found.where("updated", "deleted"), False),
        ):
            if not is_contested.any():
                continue
            part = found.filter(is_contested)
            if callable(decide):
                yield from self._decide_by_function(part, decide, in_target=in_target)
            elif decide is None:
                self._report(self._row_conflicts(part))
            elif decide == "source" and in_target:
                self.deleted += len(part.addresses)
                yield RowBatch(rows=None, addresses=part.addresses)
            elif decide == "source":
                self._inserts_last.append(self._in_result(part.source))

    def _decide_by_function(
        self, found: "_ChangedRows", decide: Callable[[Conflict], Any], *, in_target: bool
    ) -> Iterator[RowBatch]:
        for number, conflict in enumerate(self._row_conflicts(found)):
            answer = decide(conflict)
            address = found.addresses[number : number + 1]
            if answer is NotImplemented:
                self._report([conflict])
            elif answer is conflict.target:
                continue
            elif answer is None and in_target:
                self.deleted += 1
                yield RowBatch(rows=None, addresses=address)
            elif answer is not None:
                is_taken = answer is conflict.source
                row = self._in_result(found.source.slice(number, 1)) if is_taken else self._as_row(answer, conflict)
                if in_target:  # Replace the existing row.
                    self.deleted += 1
                    yield RowBatch(rows=None, addresses=address)
                self._inserts_last.append(row)

    def _as_row(self, answer: Any, conflict: Conflict) -> pa.Table:
        """Return the answer of a resolver function for a row that one side deleted as a row of the result."""
        hint = f"return a dict of the columns {', '.join(self.schema.names)}, None, or NotImplemented"
        given = dict(answer) if isinstance(answer, Mapping) else {}
        if not given or any(name not in self.schema.names for name in given):
            raise InvalidInputError(f"the resolver of '{self.key}' must return a row, got {answer!r}", hint=hint)
        if {name: given.get(name) for name in self.key_names} != dict(conflict.key or {}) and self.key_names:
            raise InvalidInputError(
                f"the resolver of '{self.key}' returned {answer!r} for the row {conflict.key}",
                hint="return a row with the same key",
            )
        try:
            rows = pa.Table.from_pylist([given], schema=pa.schema([self.schema.field(name) for name in given]))
            return fit_rows(rows, self.schema).to_table()
        except (pa.ArrowException, SchemaMismatchError) as err:
            problem = f"the resolver of '{self.key}' returned a row that does not fit: {err}"
            raise InvalidInputError(problem, hint=hint) from err

    def _row_conflicts(self, found: "_ChangedRows") -> Iterator[Conflict]:
        rows = zip(*map(python_values, (found.base, found.source, found.target)), strict=True)
        for key, (base, source, target) in zip(self._keys(found), rows, strict=True):
            yield Conflict(
                table=str(self.key),
                kind=ConflictKind.DELETE_VS_UPDATE,
                key=key,
                base=base,
                source=source,
                target=target,
                problem="one side deleted the row, the other changed it",
            )

    # Rows that are new to the target

    def _in_result(self, rows: pa.StructArray) -> pa.Table:
        """Return rows of the source with the column names of the result. Columns that the source lacks are left out."""
        named = {c.name: c.triple.source for c in self.columns if c.triple.source is not None}
        return pa.table([pc.struct_field(rows, [source]) for source in named.values()], names=list(named))

    def _as_inserted(self, rows: pa.Table) -> RowBatch:
        self.inserted += len(rows)
        return RowBatch(rows=fit_rows(rows, self.schema).to_table())

    def _keys(self, found: "_ChangedRows") -> Iterator[dict[str, Any]]:
        """Yield the keys of rows, with the column names of the result. Without a key, yield row addresses."""
        if not self.key_names:
            yield from ({"_rowaddr": address} for address in found.addresses.tolist())
            return
        named = {column.name: column.triple for column in self.columns}
        triples = [(name, named[name]) for name in self.key_names]
        sides = zip(python_values(found.source), python_values(found.base), strict=True)
        for source, base in sides:
            if source is not None:
                yield {name: source[triple.source] for name, triple in triples if triple.source is not None}
            else:
                yield {name: base[triple.base] for name, triple in triples if triple.base is not None}

    def _report(self, conflicts: Sequence[Conflict] | Iterator[Conflict]) -> None:
        for conflict in conflicts:
            self.conflicts += 1
            self.on_conflict(conflict)


class _ChangedRows:
    """A batch of rows that the source changed, as the engine returned it."""

    def __init__(self, batch: pa.RecordBatch, fragments: dict[int, int]) -> None:
        self._batch = batch
        self._fragments = fragments
        self.source_changes: pa.Array = batch.column("source_change")
        self.base: pa.StructArray = batch.column("base")
        self.source: pa.StructArray = batch.column("source")
        self.target: pa.StructArray = batch.column("target")
        self.row_ids = _numbers(batch.column("target_row_id"))
        self.addresses = self._target_addresses()

    def _target_addresses(self) -> npt.NDArray[np.uint64]:
        """Return the row addresses in the target. Unchanged rows are in the same fragments as in the base."""
        found = _numbers(self._batch.column("target_address"))
        missing = np.flatnonzero(self._batch.column("target_address").is_null().to_numpy(zero_copy_only=False))
        base = _numbers(self._batch.column("base_address"))[missing]
        owners = np.array([self._fragments.get(owner, 0) for owner in (base >> _OFFSET_BITS).tolist()], dtype=np.uint64)
        found[missing] = owners << _OFFSET_BITS | base & _OFFSET_MASK
        return found

    def where(self, source: str, *target: str | None) -> _Mask:
        """Return the rows with this change of the source and one of these changes of the target."""
        theirs = self._batch.column("target_change")
        named = [change for change in target if change is not None]
        is_match = pc.is_in(theirs, pa.array(named, pa.string()))
        if None in target:
            is_match = pc.or_(is_match, theirs.is_null())
        found = pc.and_(pc.equal(self.source_changes, source), is_match)
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)

    def filter(self, mask: _Mask) -> "_ChangedRows":
        part = _ChangedRows(self._batch.filter(pa.array(mask)), self._fragments)
        part.row_ids = self.row_ids[mask]
        return part

    def flags(self, columns: int) -> tuple[_Mask, _Mask]:
        """Return which columns the source changed, and which are in conflict, for each row."""
        return tuple(_flags(self._batch.column(name), columns) for name in ("source_columns", "conflicts"))  # type: ignore[return-value]

    def with_targets(self, pin: Pin) -> "_ChangedRows":
        """Return the batch with the unchanged rows of the target, read by their addresses."""
        missing = self.target.is_null().to_numpy(zero_copy_only=False)
        if not missing.any():
            return self
        taken = take_at(pin, self.addresses[missing])
        row_ids = self.row_ids.copy()
        row_ids[missing] = taken.column(ROW_ID).to_numpy()
        present = self.target.filter(pa.array(~missing))
        # If the target changed nothing, the engine did not read it, so its columns come from the version.
        fields = [pa.field(field.name, field.type) for field in pin.schema]
        arrays = [taken.column(field.name).combine_chunks() for field in fields]
        if len(present):
            known = [pc.struct_field(present, [field.name]) for field in fields]
            arrays = [pa.concat_arrays(pair) for pair in zip(known, arrays, strict=True)]
        order = np.argsort(np.concatenate([np.flatnonzero(~missing), np.flatnonzero(missing)]))
        rows = pa.StructArray.from_arrays(arrays, fields=fields).take(pa.array(order))
        number = self._batch.schema.get_field_index("target")
        whole = _ChangedRows(self._batch.set_column(number, pa.field("target", rows.type), rows), self._fragments)
        whole.row_ids = row_ids
        return whole


def _flags(lists: pa.ListArray, columns: int) -> _Mask:
    found = np.zeros((len(lists), columns), dtype=bool)
    found[pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(lists).to_numpy()] = True
    return found


def _cells(rows: pa.StructArray, name: str | None, kind: pa.Field) -> pa.Array:
    """Return the cells of a column in the type of the result. Nulls if the side does not have the column."""
    if name is None or name not in rows.type.names:
        return pa.nulls(len(rows), kind.type)
    return cast_computed(pc.struct_field(rows, [name]), kind.with_nullable(nullable=True))


def _sliced(cells: Cells, mask: _Mask) -> Cells:
    chosen = pa.array(mask)
    return Cells(
        column=cells.column,
        base=cells.base.filter(chosen),
        source=cells.source.filter(chosen),
        target=cells.target.filter(chosen),
        source_rows=cells.source_rows.filter(chosen),
        target_rows=cells.target_rows.filter(chosen),
        conflicts=lambda: (),
    )


def _differ(one: pa.Array, other: pa.Array) -> _Mask:
    try:
        unequal = pc.fill_null(pc.not_equal(one, other), pa.scalar(value=False))
        found = pc.or_(unequal, pc.xor(one.is_null(), other.is_null())).to_numpy(zero_copy_only=False)
    except pa.ArrowNotImplementedError:  # Arrow cannot compare nested values.
        found = np.array([a != b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)], dtype=bool)
    return np.asarray(found, dtype=bool)


def _numbers(array: pa.Array) -> npt.NDArray[np.uint64]:
    filled = pc.fill_null(array, pa.scalar(0, pa.uint64()))
    return np.array(filled.to_numpy(zero_copy_only=False), dtype=np.uint64)


def _mask(length: int, positions: npt.NDArray[np.int64]) -> _Mask:
    found = np.zeros(length, dtype=bool)
    found[positions] = True
    return found
