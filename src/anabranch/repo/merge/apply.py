"""Merge one table: measure the result, or stage it on the target."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from anabranch.errors import SchemaMismatchError
from anabranch.format import staging
from anabranch.format.descent import descends_from
from anabranch.format.difference import Difference, compare_versions, find_filled, match_fragments
from anabranch.format.moving import copy_version
from anabranch.format.parts import Part, all_parts, take_at
from anabranch.format.staging import ColumnChange, Pin
from anabranch.format.staging.expressions import quoted_column
from anabranch.format.staging.incoming import cast_computed
from anabranch.format.staging.rows import Addresses, join_addresses
from anabranch.ids import BranchName, TableKey
from anabranch.repo.history.comparing import RowComparer, RowMerge, RowSide, TableCounts
from anabranch.repo.history.diff import RowChangeKind, TableDiff
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import TableMap
from anabranch.repo.merge.conflicts import Conflict, ConflictKind
from anabranch.repo.merge.notes import MergedNotes, merge_notes
from anabranch.repo.merge.resolve import Resolution
from anabranch.repo.merge.rows import RowMerger
from anabranch.repo.merge.shapes import SchemaSides, Shape, merge_shapes
from anabranch.repo.merge.tables import TableAction, TableMerge, TableState
from anabranch.repo.snapshot import Table
from anabranch.repo.write.homes import check_unique, draft_existing, draft_new
from anabranch.repo.write.staged_table import StagedTable, one_time_step

__all__ = ["MergedTable", "TableMerger"]

_NO_CHANGE = TableCounts(inserted=0, updated=0, deleted=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedTable:
    """The result of merging a table: changed rows and columns of the target, and the staged table, if it was staged."""

    merge: TableMerge
    counts: TableCounts
    added_columns: tuple[str, ...] = ()
    dropped_columns: tuple[str, ...] = ()
    altered_columns: tuple[str, ...] = ()
    draft: StagedTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMerger:
    """Merges tables into a branch, one by one. Passes every unresolved conflict to `on_conflict`."""

    context: RepoConfig
    branch: BranchName
    comparer: RowComparer
    resolution: Resolution
    on_conflict: Callable[[Conflict], None]

    def measure(self, merge: TableMerge) -> MergedTable:
        """Merge a table without staging anything, to count changes and conflicts."""
        if merge.action is TableAction.MERGED:
            return _TableRows(self, merge).measure()
        return MergedTable(merge=merge, counts=_whole_counts(merge))

    def stage(self, merge: TableMerge, taken: TableMap) -> MergedTable:
        """Merge a table and stage the result in the home of the branch. `taken` are the tables of the branch."""
        draft = None
        match merge.action:
            case TableAction.MERGED:
                return _TableRows(self, merge).stage()
            case TableAction.ADDED:
                draft = self._copy(merge, taken)
            case TableAction.RENAMED:
                draft = self.draft(merge)
        return MergedTable(merge=merge, counts=_whole_counts(merge), draft=draft)

    def iter_conflicts(self, merge: TableMerge) -> Iterator[Conflict]:
        """Yield the conflicts of a table. They are found while the caller iterates."""
        if merge.action is TableAction.MERGED:
            found: list[Conflict] = []
            merger = replace(self, on_conflict=found.append)
            for _ in _TableRows(merger, merge).iter_measured():
                yield from found
                found.clear()

    def draft(self, merge: TableMerge) -> StagedTable:
        assert merge.target is not None  # noqa: S101 - a merged or renamed table has a target
        found = draft_existing(self.context, self.branch, merge.target.key, merge.target.entry)
        return replace(found, key=merge.key)

    def table(self, state: TableState) -> Table:
        return Table(self.context, state.key, state.entry)

    def _copy(self, merge: TableMerge, taken: TableMap) -> StagedTable:
        assert merge.source is not None  # noqa: S101 - an added table comes from the source
        source = self.table(merge.source)
        draft = draft_new(
            self.context, self.branch, merge.key, schema=source.schema, primary_key=source.primary_key, taken=taken
        )
        return draft.then(one_time_step("merge", copy_version(source.pin, onto=draft.pin)))


class _TableRows:
    """A table that both sides have, to be merged row by row."""

    def __init__(self, merger: TableMerger, merge: TableMerge) -> None:
        assert merge.source is not None  # noqa: S101 - the action is MERGED
        assert merge.target is not None  # noqa: S101
        self._merger, self._merge = merger, merge
        self._key: TableKey = merge.key
        self._base = None if merge.base is None else merger.table(merge.base)
        self._source, self._target = merger.table(merge.source), merger.table(merge.target)
        self._side = merger.resolution.for_table(merge.key)
        self._conflicts = 0
        self._is_unmatched = False
        self._notes = MergedNotes()
        self._differences: dict[tuple[str, str | None, int], Difference] = {}

    def measure(self) -> MergedTable:
        *_, last = self.iter_measured()
        return last

    def iter_measured(self) -> Iterator[MergedTable]:
        """Yield the result so far: after the columns were merged, and after each batch of rows."""
        shape = self._merge_shapes()
        whole = self._merge_whole(shape)
        yield self._result(shape, whole or _NO_CHANGE)
        if whole is None:
            yield from self._measure_rows(shape)

    def _measure_rows(self, shape: Shape) -> Iterator[MergedTable]:
        rows = self._rows(shape, pa.schema([column.field for column in shape.columns]))
        touched = []
        try:
            for batch in rows.batches(self._merger.comparer):
                touched.append(batch.addresses)
                yield self._result(shape, rows.counts)
            if not self._conflicts:
                self._check_kept(shape, join_addresses(touched))
        except SchemaMismatchError as err:
            self._report_mismatch(shape, err)
            yield self._result(shape, rows.counts)

    def stage(self) -> MergedTable:
        shape = self._merge_shapes()
        whole = self._merge_whole(shape)
        if self._conflicts and whole is None:
            self._report_row_conflicts(shape)
        if self._conflicts or whole is _NO_CHANGE:  # identity: an empty table may replace an empty one
            return self._result(shape, _NO_CHANGE)
        draft = self._merger.draft(self._merge)
        if whole is not None:
            copied = copy_version(self._source.pin, onto=draft.pin)
            changed = replace(draft, primary_key=self._source.primary_key)
            return self._result(shape, whole, draft=changed.then(one_time_step("merge", copied)))
        try:
            staged, counts = self._stage(draft.pin, shape)
        except SchemaMismatchError as err:
            if not self._conflicts:
                self._report_row_conflicts(shape)
            if not self._conflicts:
                self._report_mismatch(shape, err)
            return self._result(shape, _NO_CHANGE)
        if staged != draft.pin or shape.primary_key != draft.primary_key:
            draft = replace(draft, primary_key=shape.primary_key).then(one_time_step("merge", staged))
        return self._result(shape, counts, draft=draft)

    def _result(self, shape: Shape, counts: TableCounts, *, draft: StagedTable | None = None) -> MergedTable:
        return MergedTable(
            merge=self._merge,
            counts=counts,
            added_columns=tuple(column.name for column in shape.columns if column.is_new),
            dropped_columns=tuple(shape.dropped),
            altered_columns=tuple(change.path for change in shape.altered),
            draft=draft,
        )

    def _merge_shapes(self) -> Shape:
        base = self._base
        sides = SchemaSides(
            base=base,
            source=self._source,
            target=self._target,
            of_source=() if base is None else self._difference(base, self._source).columns,
            of_target=() if base is None else self._difference(base, self._target).columns,
        )
        shape = merge_shapes(str(self._key), sides, side=self._side, is_used=self._is_used)
        self._notes = merge_notes(sides, shape.columns, self._decide_on_note)
        for conflict in shape.conflicts:
            self._report(conflict)
        return shape.loosened() if self._merger.resolution.any_cell is not None else shape

    def _decide_on_note(self, column: str | None, values: tuple[str | None, str | None, str | None]) -> str:
        """Return the side whose note is used. Report a conflict if no strategy decides."""
        if self._side is None:
            base, source, target = values
            conflict = self._conflict(ConflictKind.SCHEMA, "both sides changed this note")
            self._report(replace(conflict, column=column, base=base, source=source, target=target))
        return self._side or "target"

    def _is_used(self, table: Table, column: str) -> bool:
        """Return whether rows that changed since the base have new values in a column."""
        diff = TableDiff(str(self._key), before=self._base, after=table, load_comparer=lambda: self._merger.comparer)
        for row in diff.iter_rows():
            if row.change is RowChangeKind.UPDATED and column in row.columns:
                return True
            if row.change is RowChangeKind.INSERTED and row.after is not None and row.after[column] is not None:
                return True
        return False

    def _merge_whole(self, shape: Shape) -> TableCounts | None:
        """Return the counts of a table that is merged as a whole, or None if its rows can be matched one by one.

        If the target did not change the table and the source replaced all of its files, the result is the table of the
        source.
        """
        if self._merge.is_untouched:
            base = self._base
            is_new = base is None or (base.count_rows() and not match_fragments(base.pin, self._source.pin))
            # Rows without a key are identified by their row ids, which a copy of the table would lose.
            return self._replaced() if is_new and not self._can_match_ids() else None
        if shape.matched_by or self._can_match_ids():
            return None
        self._is_unmatched = self._only_appends()
        if self._is_unmatched:
            return None
        has_keys = bool(self._source.primary_key or self._target.primary_key)
        problem = "its key was changed, and rows on both sides" if has_keys else "its rows cannot be matched"
        if self._side is None and not shape.conflicts:
            self._report(self._conflict(ConflictKind.SCHEMA if has_keys else ConflictKind.KEYLESS, problem))
        return self._replaced() if self._side == "source" else _NO_CHANGE

    def _can_match_ids(self) -> bool:
        """Return whether rows without a key can be matched by row id: both sides must descend from the base."""
        if self._base is None or self._source.primary_key or self._target.primary_key:
            return False
        base = self._base.pin
        return descends_from(self._source.pin, base) and descends_from(self._target.pin, base)

    def _only_appends(self) -> bool:
        """Return whether the source only appended rows to a table without a key. Such rows need no match."""
        if self._base is None or self._base.primary_key or self._source.primary_key or self._target.primary_key:
            return False
        found = self._difference(self._base, self._source)
        return not found.older and not found.reshaped

    def _replaced(self) -> TableCounts:
        return TableCounts(inserted=self._source.count_rows(), updated=0, deleted=self._target.count_rows())

    def _stage(self, pin: Pin, shape: Shape) -> tuple[Pin, TableCounts]:
        """Stage the columns, then the rows, then the constraints that only hold with the merged rows."""
        if shape.dropped:
            pin = staging.drop_columns(pin, shape.dropped)
        lenient = [
            replace(change, nullable=None if change.nullable is False else change.nullable) for change in shape.altered
        ]
        if any(change != ColumnChange(path=change.path) for change in lenient):
            pin = staging.alter_columns(pin, [change for change in lenient if change != ColumnChange(path=change.path)])
        if shape.added:
            pin = staging.add_columns(pin, pa.schema([new.with_nullable(nullable=True) for new in shape.added]))
        if self._notes:
            pin = staging.annotate(pin, self._notes.table, columns=self._notes.columns)
        rows = self._rows(shape, pin.schema)
        pin = staging.replace_rows(pin, rows.batches(self._merger.comparer)).pin
        strict = [change.name or change.path for change in shape.altered if change.nullable is False]
        strict += [new.name for new in shape.added if not new.nullable]
        if strict and not self._conflicts:
            pin = staging.alter_columns(pin, [ColumnChange(path=name, nullable=False) for name in strict])
        if shape.primary_key != self._target.primary_key:
            check_unique(pin, shape.primary_key)
        return pin, rows.counts

    def _report_row_conflicts(self, shape: Shape) -> None:
        """Report the conflicts of rows if nothing is staged because of other conflicts."""
        for _ in self._measure_rows(shape):
            pass

    def _report_mismatch(self, shape: Shape, err: SchemaMismatchError) -> None:
        """Report values of one side that do not fit the columns of the other, unless a column conflict was reported."""
        if not shape.conflicts:
            self._report(self._conflict(ConflictKind.SCHEMA, err.problem))

    def _check_kept(self, shape: Shape, touched: Addresses) -> None:
        """Raise SchemaMismatchError if unchanged rows of the target do not fit the merged columns, as staging would."""
        for change in shape.altered:
            if change.type is not None:
                field = pa.field(change.path, change.type)
                for batch in self._target.scan(columns=[change.path]):
                    cast_computed(batch.column(0), field)
        strict = [change.path for change in shape.altered if change.nullable is False]
        replaced = take_at(self._target.pin, touched) if strict and len(touched) else None
        for name in strict:
            nulls = self._target.count_rows(f"{quoted_column(name)} IS NULL")
            _check_no_nulls(name, nulls - (0 if replaced is None else replaced.column(name).null_count))
        for new in shape.added:
            if not new.nullable:
                _check_no_nulls(new.name, self._target.count_rows() - len(touched))

    def _rows(self, shape: Shape, schema: pa.Schema) -> RowMerger:
        base = self._base
        return RowMerger(
            key=self._key,
            row_merge=self._row_merge(shape),
            columns=shape.columns,
            key_names=shape.primary_key if shape.matched_by else (),
            pin=self._target.pin,
            schema=schema,
            fragments={} if base is None else match_fragments(base.pin, self._target.pin),
            resolution=self._merger.resolution,
            on_conflict=self._report,
        )

    def _row_merge(self, shape: Shape) -> RowMerge:
        is_whole = bool(shape.restored)
        both_added = any(
            column.triple.base is None and column.triple.source and column.triple.target for column in shape.columns
        )
        older, source = self._sides(self._source, is_whole=is_whole, with_filled=True, by_ids=not shape.matched_by)
        base, target = (None, None)
        if not self._merge.is_untouched and not self._is_unmatched:
            base, target = self._sides(
                self._target, is_whole=False, with_filled=both_added, by_ids=not shape.matched_by
            )
        return RowMerge(
            base_of_source=older,
            source=source,
            base_of_target=base,
            target=target,
            columns=[column.triple for column in shape.columns],
            keys=shape.matched_by,
        )

    def _difference(self, base: Table, table: Table) -> Difference:
        """Return the difference between the base and a side. It is cached, because columns and rows both need it."""
        state = table.entry.dataset, table.entry.home, table.entry.version
        if state not in self._differences:
            self._differences[state] = compare_versions(base.pin, table.pin)
        return self._differences[state]

    def _sides(
        self, table: Table, *, is_whole: bool, with_filled: bool, by_ids: bool
    ) -> tuple[RowSide | None, RowSide]:
        """Return the rows of the base and of a side that may differ."""
        newer: tuple[Part, ...]
        if self._base is None or is_whole:
            older, newer = () if self._base is None else all_parts(self._base.pin), all_parts(table.pin)
        else:
            found = self._difference(self._base, table)
            # Ignore dropped columns: they have no values to merge.
            only_added = tuple(replace(part, dropped=()) for part in found.reshaped if part.added and with_filled)
            filled = find_filled(self._base.pin, table.pin, replace(found, reshaped=only_added))
            older = (*found.older, *(part for part, _ in filled))
            newer = (*found.newer, *(part for _, part in filled))
        before = None
        if self._base is not None:
            before = RowSide(pin=self._base.pin, parts=older, with_row_ids=by_ids, with_addresses=True)
        is_target = table is self._target
        return before, RowSide(pin=table.pin, parts=newer, with_row_ids=by_ids or is_target, with_addresses=is_target)

    def _conflict(self, kind: ConflictKind, problem: str) -> Conflict:
        return Conflict(table=str(self._key), kind=kind, problem=problem)

    def _report(self, conflict: Conflict) -> None:
        self._conflicts += 1
        self._merger.on_conflict(conflict)


def _check_no_nulls(column: str, number: int) -> None:
    if number:
        raise SchemaMismatchError(f"column {column!r} holds {number} nulls", hint="replace the nulls first")


def _whole_counts(merge: TableMerge) -> TableCounts:
    match merge.action:
        case TableAction.ADDED if merge.source is not None:
            return TableCounts(inserted=merge.source.entry.rows, updated=0, deleted=0)
        case TableAction.DROPPED if merge.target is not None:
            return TableCounts(inserted=0, updated=0, deleted=merge.target.entry.rows)
    return _NO_CHANGE
