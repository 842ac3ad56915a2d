"""Apply the steps of a merge, in one of two ways: count what they change, or stage it on a branch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from typing import Any, assert_never

import pyarrow as pa

from anabranch.errors import SchemaMismatchError
from anabranch.format import staging
from anabranch.format.clone.clone import copy_version
from anabranch.format.scan import iter_batches
from anabranch.format.staging import ColumnChange, RowBatch, VersionRef
from anabranch.format.staging.incoming import cast_computed
from anabranch.ids import BranchName
from anabranch.repo.history.comparer import AutoComparer, RowComparer, TableCounts
from anabranch.repo.history.memory_comparer import LocalComparer
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import TableEntry, TableMap
from anabranch.repo.merge.cell_merge import iter_row_changes
from anabranch.repo.merge.changed_rows import FoundRows, RowChanges, find_source_updates
from anabranch.repo.merge.conflict_types import Conflict, ConflictKind, ConflictLog, Unresolved
from anabranch.repo.merge.constraints import iter_with_unique_keys, iter_without_nulls
from anabranch.repo.merge.shapes import Shape
from anabranch.repo.merge.steps import (
    NO_ROWS,
    AddTable,
    DropTable,
    KeepTable,
    MergeTable,
    RenameTable,
    ReplaceTable,
    TableStep,
)
from anabranch.repo.snapshot import Table
from anabranch.repo.write.homes import stage_new
from anabranch.repo.write.staged_table import StagedTable, Step, stage_existing
from anabranch.storage import at_once, in_parallel


@dataclass(slots=True, kw_only=True)
class MergedTable:
    """The result of a step: the number of changed rows, the unresolved conflicts, and, if it was staged, the new entry.

    The entry is None if nothing was staged, and if the table is dropped or stays as it was.
    """

    step: TableStep
    counts: TableCounts = NO_ROWS
    conflicts: ConflictLog = field(default_factory=ConflictLog)
    entry: TableEntry | None = None

    def add(self, changes: RowChanges) -> None:
        self.counts += changes.counts
        self.conflicts.add(str(self.step.key), changes.conflicts)

    def iter_batches(self, found: Iterator[RowChanges]) -> Iterator[RowBatch]:
        """Yield the batches to write, until the first conflict. The conflicts after it are counted, too."""
        for changes in found:
            self.add(changes)
            if not self.conflicts.count:
                yield changes.batch


# Count


def count_step(step: TableStep, comparer: RowComparer) -> MergedTable:
    """Count the rows that a step changes, and its conflicts. Nothing is written."""
    merged = MergedTable(step=step)
    for changes in _iter_counted(merged, comparer):
        merged.add(changes)
    return merged


def iter_step_conflicts(step: TableStep, comparer: RowComparer) -> Iterator[Conflict]:
    """Yield the conflicts of a step. They are found while the caller iterates."""
    for changes in _iter_counted(MergedTable(step=step), comparer):
        yield from changes.conflicts.build()


def _iter_counted(merged: MergedTable, comparer: RowComparer) -> Iterator[RowChanges]:
    """Yield the changes and conflicts of a step, to add to its result.

    The result gets another step if the rows cannot be merged and a resolver or a resolution names a side.
    """
    step = merged.step
    yield RowChanges(counts=step.counts, conflicts=Unresolved.of(step.conflicts))
    if not isinstance(step, MergeTable):
        return
    has_conflicts = bool(step.conflicts)
    try:
        for changes in _iter_rows(step, _find_rows(step, comparer), step.shape.schema, comparer):
            has_conflicts |= changes.conflicts.count > 0
            yield changes
        # With conflicts nothing is staged, and their decisions may change which values are left to fit.
        if not has_conflicts:
            _check_kept_rows(step)
    except SchemaMismatchError as err:
        # Conflicts that are left would be hidden if the whole table were taken from one side.
        side = None if has_conflicts else step.resolution.for_misfit()
        if side is not None:
            taken = ReplaceTable if side == "source" else KeepTable
            merged.step = taken(match=step.match, shape=Shape())
            merged.counts = merged.step.counts
            return
        if step.shape.conflicts:
            return  # a conflict about a column is the cause
        hint = "change the values on one side, or name the side to take the whole table from (a resolver for the table)"
        found = Conflict(table=str(step.key), kind=ConflictKind.SCHEMA, problem=err.problem, hint=hint)
        yield RowChanges(conflicts=Unresolved.of([found]))


def _iter_rows(step: MergeTable, found: FoundRows, schema: pa.Schema, comparer: RowComparer) -> Iterator[RowChanges]:
    """Yield the changes of rows and their conflicts. Raise SchemaMismatchError if the rows do not fit a new key."""
    changes = iter_row_changes(step, found, schema)
    if step.shape.strict_columns:
        changes = iter_without_nulls(step, changes, schema, comparer)
    return iter_with_unique_keys(step, changes) if step.shape.needs_key_check else changes


def _check_kept_rows(step: MergeTable) -> None:
    """Raise SchemaMismatchError if rows of the target do not fit the new types of columns, as staging would."""
    for change in step.shape.altered:
        if change.type is not None:
            field = pa.field(change.path, change.type)
            for batch in iter_batches(step.version_ref, columns=[change.path]):
                cast_computed(batch.column(0), field)


# Stage


@dataclass(frozen=True, slots=True)
class Stager:
    """Stages steps in the homes of a branch. `taken` are the tables of the branch."""

    config: RepoConfig
    branch: BranchName
    comparer: RowComparer
    taken: TableMap

    def stage(self, step: TableStep) -> MergedTable:
        """Stage a step that has no conflicts. Conflicts between rows may be found; nothing is staged then."""
        match step:
            case MergeTable():
                return self._merge(step)
            case AddTable():
                staged: StagedTable | None = self._copy(step)
            case ReplaceTable():
                staged = self._replace(step)
            # The name of a table is merged even if its rows are not.
            case RenameTable() | KeepTable():
                staged = None if step.renamed_from is None else self._staged_table(step)
            case DropTable():
                staged = None
            case other:
                assert_never(other)
        entry = None if staged is None else _find_change(step, staged)
        return MergedTable(step=step, counts=step.counts, entry=entry)

    def _copy(self, step: AddTable) -> StagedTable:
        source = step.source.as_table(self.config)
        taken = {entry.dataset for entry in self.taken.values()}
        staged_table = stage_new(
            self.config,
            self.branch,
            step.key,
            schema=source.schema,
            primary_key=source.primary_key,
            is_taken=taken.__contains__,
        )
        return staged_table.then(Step("merge", _copy_all(source, onto=staged_table.version_ref)))

    def _replace(self, step: ReplaceTable) -> StagedTable:
        source, staged_table = step.match.source.as_table(self.config), self._staged_table(step)
        copied = _copy_all(source, onto=staged_table.version_ref)
        return replace(staged_table, primary_key=source.primary_key).then(Step("merge", copied))

    def _merge(self, step: MergeTable) -> MergedTable:
        merged = MergedTable(step=step)
        try:
            # Both wait for the store, so they do so at once.
            todo: list[Callable[[], Any]] = [lambda: self._staged_table(step), lambda: _find_rows(step, self.comparer)]
            staged_table, found = in_parallel(lambda do: do(), todo, at_a_time=at_once(self.config.root))
            version_ref = _stage_columns(step, staged_table.version_ref)
            changes = _iter_rows(step, found, version_ref.schema, self.comparer)
            replaced = staging.replace_rows(version_ref, merged.iter_batches(changes))
            version_ref = replaced.version_ref
            # No entry names the files written so far, so garbage collection removes them.
            if merged.conflicts.count:
                return merged
            # These constraints hold only with the merged rows.
            if strict := step.shape.new_constraints:
                changed = [ColumnChange(path=name, nullable=False) for name in strict]
                version_ref = staging.alter_columns(version_ref, changed)
            version_ref = _stage_indices(step, version_ref, before=staged_table.version_ref)
        except SchemaMismatchError:
            # Staging stops at the first value that does not fit. Count from the start, to find all conflicts.
            counted = count_step(step, self.comparer)
            # A resolver of the table takes it from one side, because the rows do not fit together.
            if counted.step is not step:
                return self.stage(counted.step)
            if not counted.conflicts.count:
                raise
            return counted
        # A table without a change keeps its version, so that the commit does not list it.
        if version_ref != staged_table.version_ref or step.shape.primary_key != staged_table.primary_key:
            rows = step.target.entry.rows + replaced.inserted - replaced.deleted
            staged_table = replace(staged_table, primary_key=step.shape.primary_key)
            staged_table = staged_table.then(Step("merge", version_ref), rows=rows)
        merged.entry = _find_change(step, staged_table)
        return merged

    def _staged_table(self, step: RenameTable | KeepTable | ReplaceTable | MergeTable) -> StagedTable:
        return replace(stage_existing(self.config, self.branch, step.target.key, step.target.entry), key=step.key)


def _find_change(step: TableStep, staged_table: StagedTable) -> TableEntry | None:
    # A renamed table needs an entry under its new name, even if it is unchanged.
    before = None if isinstance(step, AddTable) or step.target.key != step.key else step.target.entry
    return staged_table.find_change(before)


def _find_rows(step: MergeTable, comparer: RowComparer) -> FoundRows:
    """Match the rows that the source changed with those of the base and the target. The first batch is read at once."""
    # An engine that the caller has chosen, such as Spark, matches all rows.
    local = comparer.load_local() if isinstance(comparer, AutoComparer) else comparer
    updates = find_source_updates(step) if isinstance(local, LocalComparer) else None
    if updates is not None:
        return updates
    left = iter(comparer.merge(step.rows))
    # The first batch starts the query of the engine, which then runs beside the fork of the home.
    return chain(list(islice(left, 1)), left)


def _stage_columns(step: MergeTable, version_ref: VersionRef) -> VersionRef:
    shape, notes = step.shape, step.notes
    last: list[str] = []
    if set(shape.dropped) == set(version_ref.schema.names):
        # A table has at least one column, so one of them is dropped last. Its name may be that of a new column.
        taken = {*shape.dropped, *(column.name for column in shape.columns)}
        last = [next(name for number in count() if (name := f"dropped_{number}") not in taken)]
        version_ref = staging.alter_columns(version_ref, [ColumnChange(path=shape.dropped[0], name=last[0])])
    # Drop columns first: a renamed or added column may take the name of a dropped one.
    if first := shape.dropped[len(last) :]:
        version_ref = staging.drop_columns(version_ref, first)
    if shape.lenient_changes:
        version_ref = staging.alter_columns(version_ref, shape.lenient_changes)
    version_ref = _add_columns(shape, version_ref)
    if last:
        version_ref = staging.drop_columns(version_ref, last)
    if notes:
        version_ref = staging.annotate(version_ref, notes.table, columns=notes.columns)
    return version_ref


def _add_columns(shape: Shape, version_ref: VersionRef) -> VersionRef:
    """Stage the new columns. They allow nulls until the rows are merged, and have nulls or the default."""
    empty = [new.with_nullable(nullable=True) for new in shape.added if new.name not in shape.filled]
    if empty:
        version_ref = staging.add_columns(version_ref, pa.schema(empty))
    filled = [new for new in shape.added if new.name in shape.filled]
    return staging.add_defaults(version_ref, filled) if filled else version_ref


def _stage_indices(step: MergeTable, version_ref: VersionRef, *, before: VersionRef) -> VersionRef:
    """Drop and build indices. Indices that stay cover only the old rows. New rows are found without them."""
    altered = step.shape.altered
    if any(change.type is not None for change in altered):
        names = {change.path: change.name for change in altered if change.name is not None}
        version_ref = staging.keep_indices(version_ref, of=before, names=names)
    existing = staging.read_recipes(version_ref) if step.dropped_indices else {}
    for name in step.dropped_indices:
        if name in existing:  # it may have been dropped with its column
            version_ref = staging.drop_index(version_ref, name)
    version_ref = staging.build_indices(version_ref, step.built_indices)
    # The merge may add the first rows since an index was recorded.
    return version_ref if step.target.entry.rows else staging.build_wanted(version_ref)


def _copy_all(source: Table, *, onto: VersionRef) -> VersionRef:
    """Copy the rows, columns and notes of a table over another one, and build its indices."""
    copied = copy_version(source.version_ref, onto=onto)
    return staging.build_indices(copied, tuple(staging.read_recipes(source.version_ref).values()))
