"""Merge three states of many tables: plan the steps, then count them or stage them on a branch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from anabranch.format.staging import read_recipes
from anabranch.format.staging.notes import without_column_ids
from anabranch.ids import BranchName, TableKey
from anabranch.repo.history.comparer import RowComparer
from anabranch.repo.history.diff import TableDiff
from anabranch.repo.history.table_history import match_tables
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import Changes, TableEntry, TableMap
from anabranch.repo.merge.apply import MergedTable, Stager, count_step, iter_step_conflicts
from anabranch.repo.merge.conflicts import Conflict, ConflictLog, Unresolved
from anabranch.repo.merge.matched_table import plan_matched_table
from anabranch.repo.merge.paths import field_paths
from anabranch.repo.merge.resolve import Resolution, check_names
from anabranch.repo.merge.steps import AddTable, DropTable, MergeSteps, TableMatch, TableState, TableStep
from anabranch.repo.merge.tables import PlannedTable, plan_tables
from anabranch.repo.snapshot import Table
from anabranch.repo.write.homes import refuse_shared_home, taken_homes
from anabranch.storage import in_parallel, iter_in_parallel

# The hint of operations that take the ways to decide, and report their conflicts in the error.
DECIDE = "read the conflicts of this error, then pass a `strategy` or `resolvers`"

# Tables of which more rows are read are merged one after the other, so that a merge of many tables needs about the
# memory of its largest table. The engine matches all rows of a table in memory.
_MOST_ROWS_IN_PARALLEL = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The tables of both sides of a merge, and of their common base."""

    base: TableMap
    source: TableMap
    target: TableMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """The result of merging three states: the changed tables of the target, and the unresolved conflicts."""

    tables: tuple[MergedTable, ...]
    conflicts: ConflictLog

    @property
    def changes(self) -> Changes:
        """The entries of the staged tables. A dropped table, and the old name of a renamed one, is None."""
        removed: dict[TableKey, TableEntry | None] = {}
        changes: dict[TableKey, TableEntry | None] = {}
        for merged in self.tables:
            step = merged.step
            if isinstance(step, DropTable):
                removed[step.key] = None
            elif merged.entry is not None:
                changes[step.key] = merged.entry
                if step.renamed_from is not None:
                    removed[step.renamed_from] = None
        # Changes win: a table may get the name that another one had.
        return {**removed, **changes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Combiner:
    """Merges states on one branch, with one engine and one way to resolve conflicts."""

    config: RepoConfig
    branch: BranchName
    comparer: RowComparer
    resolution: Resolution

    def recording(self, record: Callable[[Conflict], None]) -> "Combiner":
        """Return the same, which also calls a function for each conflict that a decision decides."""
        return replace(self, resolution=self.resolution.recording(record))

    def plan(self, sides: Sides) -> MergeSteps:
        """Return the steps that merge the tables. Nothing is written, and few rows are read."""
        planned = plan_tables(
            sides.base,
            sides.source,
            sides.target,
            self.resolution,
            match=partial(match_tables, self.config),
            has_same_content=self._has_same_content,
        )

        def plan(table: PlannedTable) -> TableStep:
            if isinstance(table, AddTable) and not table.source.entry.rows:
                source = Table(self.config, table.source.key, table.source.entry)
                return replace(table, wanted=tuple(sorted(read_recipes(source.version_ref))))
            return self.plan_table(table) if isinstance(table, TableMatch) else table

        steps = tuple(in_parallel(plan, planned.tables, at_a_time=self.config.tables_at_a_time))
        return MergeSteps(steps=steps, conflicts=tuple(planned.conflicts))

    def check_resolvers(self, *given: Sides) -> None:
        """Raise InvalidInputError if a resolver is for a table or column that no side has.

        Several commits are checked together: their resolvers may be for a table of a later one.
        """
        if not self.resolution.resolvers and not self.resolution.decisions:
            return
        # The tables that the source changed first: a resolver is most often for one of them.
        states = [side for sides in given for side in (sides.source, sides.target, sides.base)]
        keys = dict.fromkeys(key for side in states for key in sorted(side))

        def columns_of(key: TableKey) -> list[str]:
            entries = (side.get(key) for side in states)
            found = [Table(self.config, key, entry).schema for entry in entries if entry is not None]
            return list(dict.fromkeys(path for schema in found for field in schema for path in field_paths(field)))

        check_names(self.resolution, {str(key): partial(columns_of, key) for key in keys})

    def _has_same_content(self, one: TableState, other: TableState) -> bool:
        before, after = (Table(self.config, state.key, state.entry) for state in (one, other))
        # The identity of a column may be noted in one of two equal schemas only.
        schema, other_schema = without_column_ids(before.schema), without_column_ids(after.schema)
        if before.primary_key != after.primary_key or not schema.equals(other_schema, check_metadata=True):
            return False
        return TableDiff(str(one.key), before=before, after=after, load_comparer=lambda: self.comparer).is_empty

    def plan_table(self, match: TableMatch) -> TableStep:
        """Return the step that merges one table."""
        return plan_matched_table(match, config=self.config, comparer=self.comparer, resolution=self.resolution)

    def count(self, plan: MergeSteps) -> Combination:
        """Count the rows that a merge changes, and its conflicts. Nothing is written."""
        return self._walk(plan, lambda step: count_step(step, self.comparer))

    def iter_conflicts(self, plan: MergeSteps) -> Iterator[Conflict]:
        """Yield all unresolved conflicts, table by table. Only those of one batch of rows are in memory."""
        yield from plan.conflicts
        for step in plan.steps:
            yield from iter_step_conflicts(step, self.comparer)

    def stage(self, plan: MergeSteps, target: TableMap) -> Combination:
        """Stage the merged tables beside the tables of the target. Nothing is staged if the plan has conflicts.

        The result must not be published if conflicts are left.
        """
        if plan.has_conflicts:
            return self.count(plan)
        stager = Stager(config=self.config, branch=self.branch, comparer=self.comparer, taken=target)
        combined = self._walk(plan, stager.stage)
        changes = combined.changes
        # Two tables must not write to one home: the ordinary versions there would be those of both.
        taken = taken_homes(target, besides=changes)
        for key, entry in changes.items():
            if entry is not None:
                refuse_shared_home(key, entry, taken)
        return combined

    def merge(self, sides: Sides, what: str, *, hint: str) -> Changes:
        """Plan and stage a merge. Raise MergeConflictError, which names `what` was merged, if conflicts are left."""
        combined = self.stage(self.plan(sides), sides.target)
        combined.conflicts.check_none(what, hint=hint)
        return combined.changes

    def _walk(self, plan: MergeSteps, apply: Callable[[TableStep], MergedTable]) -> Combination:
        conflicts = ConflictLog()
        for conflict in plan.conflicts:
            conflicts.add(conflict.table, Unresolved.of([conflict]))
        tables = tuple(self._apply_each(plan.steps, apply))
        for merged in tables:
            conflicts.add_all(merged.conflicts)
        return Combination(tables=tables, conflicts=conflicts)

    def _apply_each(
        self, steps: Sequence[TableStep], apply: Callable[[TableStep], MergedTable]
    ) -> Iterator[MergedTable]:
        """Apply steps and yield the results in their order. Small tables are applied in parallel."""
        # Resolver functions of the caller are never called concurrently: they need not be safe for that.
        limit = -1 if self.resolution.has_functions else _MOST_ROWS_IN_PARALLEL
        small_steps = [step for step in steps if step.rows_read <= limit]
        small = iter_in_parallel(apply, small_steps, at_a_time=self.config.tables_at_a_time)
        for step in steps:
            yield next(small) if step.rows_read <= limit else apply(step)
