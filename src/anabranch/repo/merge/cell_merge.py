"""Merge rows cell by cell, and decide on their conflicts: find the rows to replace, insert and delete in the target.

The comparers find the cells that both sides changed: `clashes`, in `duck/comparer.py` and `history/memory_comparer.py`.
Here, a strategy or a resolver decides on each, or it becomes a conflict.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidInputError, KeyConflictError, SchemaMismatchError
from anabranch.format.arrow_types import bytes_field, python_values
from anabranch.format.compare.matching import Mask, differ
from anabranch.format.compare.parts import row_ids_at
from anabranch.format.staging import RowBatch, are_surely_unique
from anabranch.format.staging.incoming import cast_computed, fit_rows
from anabranch.hints import suggest
from anabranch.repo.history.comparer import TableCounts
from anabranch.repo.merge.cell_resolvers import Cells, choose, decided_value, first_of, put_at
from anabranch.repo.merge.changed_rows import (
    ChangedRows,
    FoundRows,
    RowChanges,
    cells_of,
    deletion_of,
    fields_of,
    insertion_of,
)
from anabranch.repo.merge.conflict_types import Conflict, ConflictKind, Unresolved
from anabranch.repo.merge.decisions import JsonValue
from anabranch.repo.merge.nested_cells import has_paths, merge_by_path
from anabranch.repo.merge.shapes import MergedColumn
from anabranch.repo.merge.steps import MergeTable


def iter_row_changes(step: MergeTable, found: FoundRows, schema: pa.Schema) -> Iterator[RowChanges]:
    """Yield the changes to the rows of the target, in the schema of the result. New rows come last.

    If there are conflicts, they are all returned, but not all rows: such a merge is not published.

    The rows may have nulls in columns of the result that do not allow them.
    """
    if isinstance(found, RowChanges):
        yield found
        return
    merger = _RowMerger(step, schema)
    has_conflicts = False
    for batch in found:
        for changes in merger.merge(ChangedRows(batch, step.fragments)):
            has_conflicts |= changes.conflicts.count > 0
            yield changes
    # A merge with conflicts is not published, so that these rows need not be written.
    if not has_conflicts:
        yield from map(merger.insert, merger.inserts_last)


class _RowMerger:
    """Merges the rows of one table, batch by batch."""

    def __init__(self, step: MergeTable, schema: pa.Schema) -> None:
        self._step = step
        self._strict_schema = schema
        self._schema = step.shape.lenient_schema(schema)
        self._key = step.key
        # The columns that rows are matched by, with their names in the result.
        self._keys = dict(zip(step.shape.matched_names, step.shape.matched_by, strict=True))
        self._columns = step.shape.columns
        self._takes_whole_rows = step.has_same_schema or _have_same_columns(step)
        # Rows that a resolver keeps although one side deleted them. They have no row id, so they are written last.
        self.inserts_last: list[pa.Table] = []

    def merge(self, found: ChangedRows) -> Iterator[RowChanges]:
        if self._keys:
            self._check_unique_keys(found)
        deleted = found.where("deleted", None)
        if deleted.any():
            yield deletion_of(found.addresses[deleted])
        replaced = found.where("updated", None, "updated") | found.where("inserted", "inserted", "updated")
        if len(self._step.rows.columns) > len(self._columns):
            # Some rows differ only in a column that the result does not have.
            replaced &= np.any(np.logical_or(*found.flags(len(self._columns))), axis=1)
        if replaced.any():
            yield from self._replace(found.filter(replaced))
        yield from self._decide_on_rows(found)
        # Written last: rows with row ids must come before rows without.
        fresh = found.where("inserted", None)
        if fresh.any():
            part = found.filter(fresh)
            yield self.insert(self._in_result(part.source, "source"), part)

    def insert(self, rows: pa.Table, origin: ChangedRows | None = None) -> RowChanges:
        """Return the insertion of rows that have the column names of the result."""
        # As where a row is replaced, numbers of a wider type may be narrowed, if none changes.
        fields = [self._schema.field(name).with_nullable(nullable=True) for name in rows.column_names]
        columns = [cast_computed(column.combine_chunks(), f) for column, f in zip(rows.columns, fields, strict=True)]
        rows = pa.table(columns, names=rows.column_names)
        return insertion_of(fit_rows(rows, self._schema).to_table(), origin)

    def _check_unique_keys(self, found: ChangedRows) -> None:
        """Raise KeyConflictError if a key occurs more than once: writers can skip the check of unique keys.

        Such rows are matched twice, or an update or deletion meets an insertion.
        """
        keys = pa.table({name: pc.struct_field(found.source, [key.source]) for name, key in self._keys.items()})
        # A row that the source deleted has no key on that side.
        if found.source.null_count:
            keys = keys.filter(found.source.is_valid())
        is_mismatch = found.where("updated", "inserted") | found.where("deleted", "inserted")
        is_mismatch |= found.where("inserted", "deleted")
        repeated = list(self._iter_keys(found.filter(is_mismatch))) if is_mismatch.any() else []
        # Grouping takes a hash table of all keys, so that a cheaper test comes first.
        if not are_surely_unique(keys):
            counted = keys.group_by(keys.column_names).aggregate([([], "count_all")])
            repeated += counted.filter(pc.greater(counted.column("count_all"), 1)).drop(["count_all"]).to_pylist()
        if repeated:
            problem = f"the table '{self._key}' holds the key {repeated[0]} more than once on one side of the merge"
            raise KeyConflictError(problem, hint="delete the repeated rows on that side")

    # Rows of both sides

    def _replace(self, found: ChangedRows) -> Iterator[RowChanges]:
        """Replace rows of the target.

        Where the target did not change a row, and all sides have the same columns, the row of the source is the result.
        Only the other rows of the target are read.
        """
        row_ids = found.row_ids.copy()
        is_copied = found.where("updated", None) & self._takes_whole_rows
        is_in_place = is_copied & found.is_target_missing
        # The engine did not read these rows of the target, and a replaced row keeps its id.
        row_ids[is_in_place] = row_ids_at(self._step.version_ref, found.addresses[is_in_place])
        rows = self._in_result(found.filter(is_copied).source, "source")
        is_changed = np.ones(len(found), dtype=bool)
        if not is_copied.all():
            part = found.filter(~is_copied).with_targets(self._step.version_ref)
            row_ids[~is_copied] = part.row_ids
            merged, is_changed[~is_copied], conflicts = self._merge_cells(part)
            yield from (RowChanges(conflicts=each) for each in conflicts)
            order = np.argsort(np.concatenate([np.flatnonzero(is_copied), np.flatnonzero(~is_copied)]))
            rows = pa.concat_tables([rows, merged]).take(pa.array(order)) if is_copied.any() else merged
        if not is_changed.any():
            return
        rows = rows if is_changed.all() else rows.filter(pa.array(is_changed))
        addresses = found.addresses[is_changed]
        batch = RowBatch(rows=self._in_schema(rows), addresses=addresses, row_ids=row_ids[is_changed])
        has_nulls = any(rows.column(name).null_count for name in self._step.shape.strict_columns)
        origin = found.filter(is_changed) if has_nulls else None
        yield RowChanges(batch=batch, counts=TableCounts(updated=len(addresses)), origin=origin)

    def _in_schema(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns of the result, in their order and types."""
        # `combine_chunks` copies a column even if it has only one chunk.
        chunked = rows.select(self._schema.names).columns
        columns = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in chunked]
        arrays = [cast_computed(column, field) for column, field in zip(columns, self._schema, strict=True)]
        return pa.table(arrays, schema=self._schema)

    def _merge_cells(self, found: ChangedRows) -> tuple[pa.Table, Mask, list[Unresolved]]:
        """Return the merged rows, which of them differ from the target, and the conflicts that are left."""
        took, clashes = found.flags(len(self._columns))
        is_changed: Mask = np.any(took & ~clashes, axis=1)
        merged, conflicts = [], []
        for number, column in enumerate(self._columns):
            values = cells_of(found.target, column.triple.target, column.field)
            is_taken = took[:, number] & ~clashes[:, number]
            if is_taken.any():
                values = choose(values, cells_of(found.source, column.triple.source, column.field), is_taken)
            if clashes[:, number].any():
                values, is_decided, left = self._decide_on_cells(found, column, values, clashes[:, number])
                is_changed |= is_decided
                conflicts.append(left)
            if values.null_count and column.name in self._step.shape.strict_columns:
                # The rows must be decided on, although the target may have these nulls already.
                is_changed |= values.is_null().to_numpy(zero_copy_only=False)
            merged.append(values)
        return pa.table(merged, names=[column.name for column in self._columns]), is_changed, conflicts

    def _decide_on_cells(
        self, found: ChangedRows, column: MergedColumn, values: pa.Array, clash: Mask
    ) -> tuple[pa.Array, Mask, Unresolved]:
        """Put the decided values into a column.

        Return the column, which rows now differ from the target, and the conflicts that are left.
        """
        part, positions = found.filter(clash), np.flatnonzero(clash)
        triple, kind = column.triple, column.field
        cells = Cells(
            column=column.name,
            base=cells_of(part.base, triple.base, kind),
            source=cells_of(part.source, triple.source, kind),
            target=cells_of(part.target, triple.target, kind),
            source_rows=part.source,
            target_rows=part.target,
            rows=np.arange(len(part)),
            build=partial(self._iter_conflicts, part),
        )
        left: list[Cells] = []
        decided, are_resolved = self._decide(cells, left)
        is_changed = np.zeros(len(values), dtype=bool)
        is_changed[positions[are_resolved & differ(decided, cells.target)]] = True
        conflicts = Unresolved(sum(map(len, left)), lambda: (one for part in left for one in part.build(part)))
        values = put_at(values, positions[are_resolved], decided.filter(pa.array(are_resolved)))
        return values, is_changed, conflicts

    def _decide(self, cells: Cells, left: list[Cells]) -> tuple[pa.Array, Mask]:
        """Return the values of cells, and a mask of the resolved ones. The others are added to `left`.

        Structs and JSON are merged by path, except where a decision is for the whole cell.
        """

        def decide(leaf: Cells) -> tuple[pa.Array, Mask]:
            values, resolved = self._step.resolution.for_column(leaf.column, leaf.path)(leaf)
            if not resolved.all():
                left.append(leaf.filter(~resolved))
            return values, resolved

        if not has_paths(cells.target.type):
            return decide(cells)
        # A decision for the whole cell comes first: it was made on all of its fields together.
        decided = self._step.resolution.for_decided(cells.column)
        return first_of(decided, partial(merge_by_path, decide=decide))(cells)

    def _iter_conflicts(self, found: ChangedRows, cells: Cells | None = None) -> Iterator[Conflict]:
        """Yield the conflicts about cells that both sides changed, or about rows that one side deleted."""
        part, sides = found, (found.base, found.source, found.target)
        if cells is not None:
            part, sides = found.filter(np.isin(np.arange(len(found)), cells.rows)), cells.sides
        values = zip(*map(python_values, sides), strict=True)
        changes = part.source_changes.to_pylist()
        for change, key, (base, source, target) in zip(changes, self._iter_keys(part), values, strict=True):
            kind, problem = ConflictKind.DIVERGENT_UPDATE, "both sides changed it"
            if cells is None:
                kind, problem = ConflictKind.DELETE_VS_UPDATE, "one side deleted the row, the other changed it"
            elif change == "inserted":
                kind, problem = ConflictKind.DIVERGENT_INSERT, "both sides inserted it"
            yield Conflict(
                table=str(self._key),
                kind=kind,
                key=key,
                column=None if cells is None else cells.column,
                path=None if cells is None else cells.path,
                base=base,
                source=source,
                target=target,
                problem=problem,
            )

    # Rows that one side deleted

    def _decide_on_rows(self, found: ChangedRows) -> Iterator[RowChanges]:
        contested = (found.where("deleted", "updated"), True), (found.where("updated", "deleted"), False)
        for is_contested, in_target in contested:
            if not is_contested.any():
                continue
            part = found.filter(is_contested)
            decide = self._step.resolution.for_row()
            if callable(decide):
                yield from self._decide_by_function(part, decide, in_target=in_target)
            elif decide is None:
                yield RowChanges(conflicts=Unresolved(len(part), partial(self._iter_conflicts, part)))
            elif decide == "source" and in_target:
                yield deletion_of(part.addresses)
            elif decide == "source":
                self.inserts_last.append(self._in_result(part.source, "source"))

    def _decide_by_function(
        self, found: ChangedRows, decide: Callable[[Conflict], Any], *, in_target: bool
    ) -> Iterator[RowChanges]:
        for number, conflict in enumerate(self._iter_conflicts(found)):
            answer = decide(conflict)
            if answer is NotImplemented:
                yield RowChanges(conflicts=Unresolved.of([conflict]))
            elif answer is not conflict.target:
                row = None if answer is None else self._row_of(answer, conflict, found, number)
                if in_target:  # Delete or replace the existing row.
                    yield deletion_of(found.addresses[number : number + 1])
                if row is not None:
                    self.inserts_last.append(row)

    def _row_of(self, answer: Any, conflict: Conflict, found: ChangedRows, number: int) -> pa.Table:
        """Return the row that a resolver or decision gave for a row that one side deleted as a row of the result."""
        if answer is conflict.source:
            return self._in_result(found.source.slice(number, 1), "source")
        if answer is conflict.base:
            return self._in_result(found.base.slice(number, 1), "base")
        given, giver = answer, f"the resolver of '{self._key}' returned"
        hint = f"pass a dict of the columns {', '.join(self._schema.names)}, None, or NotImplemented"
        if isinstance(answer, JsonValue):
            given, giver = answer.value, f"the decision on a row of '{self._key}' gives"
            hint = f"give an object of the columns {', '.join(self._schema.names)}, or null"
        if not isinstance(given, Mapping) or not given:
            raise InvalidInputError(f"{giver} {given!r}, which is not a row", hint=hint)
        named = {self._result_name(name, hint): value for name, value in given.items()}
        try:
            row = self._fit_row(named, conflict, is_json=isinstance(answer, JsonValue))
        except (pa.ArrowException, OverflowError, ValueError, SchemaMismatchError) as err:
            raise InvalidInputError(f"{giver} a row that does not fit: {err}", hint=hint) from err
        # A row with another key would not be the one that was decided on, and could repeat the key of a third row.
        if not self._has_key(row, named, conflict):
            raise InvalidInputError(f"{giver} {given!r} for the row {conflict.key}", hint="use a row with the same key")
        return row

    def _fit_row(self, named: dict[str, Any], conflict: Conflict, *, is_json: bool) -> pa.Table:
        fields = [bytes_field(self._schema.field(name)) for name in named]
        if is_json:
            named = {f.name: decided_value(JsonValue(named[f.name]), f, conflict) for f in fields}
        return fit_rows(pa.Table.from_pylist([named], schema=pa.schema(fields)), self._strict_schema).to_table()

    def _has_key(self, row: pa.Table, named: Container[str], conflict: Conflict) -> bool:
        """Return whether a row was given with the key of a conflict. Always True for a table without a key."""
        found = {name: python_values(row.column(name))[0] for name in self._keys if name in named}
        return not self._keys or found == conflict.key

    def _result_name(self, name: Any, hint: str) -> str:
        """Return the name in the result of a column that may be given by its name before a rename."""
        names = self._schema.names
        for known in self._step.resolution.names.of_column(str(name)):
            if known in names:
                return str(known)
        raise InvalidInputError(f"table '{self._key}' has no column {name!r}", hint=suggest(str(name), names, hint))

    # Keys and columns

    def _in_result(self, rows: pa.StructArray, side: Literal["base", "source"]) -> pa.Table:
        """Return rows of a side with the column names of the result. Columns that the side lacks are left out."""
        named = {c.name: name for c in self._columns if (name := getattr(c.triple, side)) is not None}
        found = fields_of(rows)
        return pa.table([found[name] for name in named.values()], names=list(named))

    def _iter_keys(self, found: ChangedRows) -> Iterator[dict[str, Any]]:
        """Yield the keys of rows, with the column names of the result. Without a key, yield row addresses."""
        if not self._keys:
            yield from ({"_rowaddr": address} for address in found.addresses.tolist())
            return
        for source, base in zip(python_values(found.source), python_values(found.base), strict=True):
            # A row that the source deleted has its key in the base.
            yield {name: base[key.base] if source is None else source[key.source] for name, key in self._keys.items()}


def _have_same_columns(step: MergeTable) -> bool:
    """Return whether the base and both sides have all columns of the result, with the same types."""
    base, source = step.rows.base_of_source, step.rows.source
    if base is None or source is None:
        return False
    schemas = base.schema, source.schema, step.version_ref.row_schema
    sides = [dict(zip(schema.names, schema.types, strict=True)) for schema in schemas]
    return all(
        side.get(name) == bytes_field(column.field).type
        for column in step.shape.columns
        for side, name in zip(sides, column.triple.sides, strict=True)
    )
