"""Merge three states of many tables: plan the steps, then count them or stage them on a branch.

The plan first decides for each table whether it is added, dropped, renamed or matched with the table of the source.
Matched tables are then planned one by one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from anabranch.format.staging import read_recipes
from anabranch.ids import BranchName, TableKey
from anabranch.repo.history.comparer import RowComparer
from anabranch.repo.history.diff import TableDiff
from anabranch.repo.history.table_history import match_tables
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import Changes, TableEntry, TableMap, is_same_state
from anabranch.repo.merge.apply import MergedTable, Stager, count_step, iter_step_conflicts
from anabranch.repo.merge.conflict_resolution import Resolution, SchemaDecider, TableResolution, check_names
from anabranch.repo.merge.conflict_types import Conflict, ConflictKind, ConflictLog, Unresolved
from anabranch.repo.merge.decisions import TableNames
from anabranch.repo.merge.matched_table import MatchedTable, open_sides
from anabranch.repo.merge.nested_cells import field_paths
from anabranch.repo.merge.steps import AddTable, DropTable, MergeSteps, RenameTable, TableMatch, TableState, TableStep
from anabranch.repo.snapshot import Table
from anabranch.repo.write.homes import refuse_shared_home, taken_homes
from anabranch.storage import in_parallel, iter_in_parallel

# The hint of operations with resolution arguments, which report their conflicts in the error.
DECIDE = "read the conflicts of this error, then pass a `strategy` or `resolvers`"

# Tables with more rows to read are merged one after the other, so that a merge of many tables needs about the memory
# of its largest table. The engine matches all rows of a table in memory.
_MOST_ROWS_IN_PARALLEL = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The tables of both sides of a merge, and of their common base."""

    base: TableMap
    source: TableMap
    target: TableMap

    @classmethod
    def of(cls, keys: Set[TableKey], *, base: Changes, source: Changes, target: TableMap) -> "Sides":
        """Return the states of some tables, which may be missing on a side, and all tables of the target."""
        before, after = (
            {key: entry for key in keys if (entry := side.get(key)) is not None} for side in (base, source)
        )
        return cls(base=before, source=after, target=target)


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
        """Return a copy that also calls a function for each conflict that a decision resolves."""
        decisions = replace(self.resolution.decisions, record=record)
        return replace(self, resolution=replace(self.resolution, decisions=decisions))

    def plan(self, sides: Sides) -> MergeSteps:
        """Return the steps that merge the tables. Nothing is written, and few rows are read."""
        planner = _TablePlanner(self, sides)

        def plan(table: PlannedTable) -> TableStep:
            if isinstance(table, AddTable) and not table.source.entry.rows:
                recipes = read_recipes(table.source.as_table(self.config).version_ref)
                return replace(table, wanted=tuple(sorted(recipes)))
            return self.plan_table(table) if isinstance(table, TableMatch) else table

        steps = tuple(in_parallel(plan, planner.tables, at_a_time=self.config.tables_at_a_time))
        return MergeSteps(steps=steps, conflicts=tuple(planner.conflicts))

    def check_resolvers(self, *given: Sides) -> None:
        """Raise InvalidInputError if a resolver is for a table or column that no side has.

        Several commits are checked together: their resolvers may be for a table of a later one. Without any, as in a
        rebase that applies no commit, no table is known to compare the names with.
        """
        if not given or not (self.resolution.resolvers or self.resolution.decisions):
            return
        # The tables that the source changed first: a resolver is most often for one of them.
        states = [side for sides in given for side in (sides.source, sides.target, sides.base)]
        keys = dict.fromkeys(key for side in states for key in sorted(side))
        check_names(self.resolution, {str(key): partial(self._list_paths, key, states) for key in keys})

    def _list_paths(self, key: TableKey, states: Sequence[TableMap]) -> list[str]:
        """Return the names of the columns that a table has in some states, and the paths of their fields."""
        entries = [entry for side in states if (entry := side.get(key)) is not None]
        fields = chain.from_iterable(Table(self.config, key, entry).schema for entry in entries)
        return list(dict.fromkeys(path for field in fields for path in field_paths(field)))

    def plan_table(self, match: TableMatch) -> TableStep:
        """Return the step that merges one table."""
        return MatchedTable(match, open_sides(match, self.config), self.comparer, self.resolution).plan()

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
        combined = self._walk(plan, Stager(self.config, self.branch, self.comparer, target).stage)
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
        # Small tables are applied in parallel. Resolver functions of the caller are never called concurrently: they
        # need not be safe for that.
        limit = -1 if any(map(callable, self.resolution.resolvers.values())) else _MOST_ROWS_IN_PARALLEL
        small_steps = [step for step in plan.steps if step.rows_read <= limit]
        small = iter_in_parallel(apply, small_steps, at_a_time=self.config.tables_at_a_time)
        tables = tuple(next(small) if step.rows_read <= limit else apply(step) for step in plan.steps)
        for merged in tables:
            conflicts.add_all(merged.conflicts)
        return Combination(tables=tables, conflicts=conflicts)


PlannedTable = AddTable | DropTable | RenameTable | TableMatch
# The states of a table in the base, the source and the target, None where it does not exist.
_States = tuple[TableState | None, TableState | None, TableState | None]


class _TablePlanner:
    """Decides on the tables that the source changed. `conflicts` are about whole tables."""

    def __init__(self, combiner: Combiner, sides: Sides) -> None:
        self._combiner = combiner
        self._target = sides.target
        self.tables: list[PlannedTable] = []
        self.conflicts: list[Conflict] = []
        # The names in the source of tables that both sides have, by their names in the target.
        self._source_keys: dict[TableKey, TableKey] = {}
        for states in _match_sides(combiner.config, sides):
            self._plan(*states)
        self._make_names_unique()
        self._name_matches()

    def _plan(self, base: TableState | None, source: TableState | None, target: TableState | None) -> None:
        if source is not None and target is not None:
            self._plan_match(base, source, target)
        elif base is None:
            if source is not None:
                self.tables.append(AddTable(key=source.key, source=source))
        elif source is not None or target is not None:
            self._plan_missing(base, source, target)

    def _plan_match(self, base: TableState | None, source: TableState, target: TableState) -> None:
        """Decide on a table that both sides have."""
        self._source_keys[target.key] = source.key
        is_unchanged = base is not None and is_same_state(base.entry, source.entry)
        # The source did not change the table, so the state of the target stays.
        if base is not None and base.key == source.key and is_unchanged:
            return
        key = source.key
        if base is not None:
            decider = self._decider_of(target.key, (base, source, target))
            key = decider.pick("both sides renamed it", base.key, source.key, target.key, column=None)
        if not is_unchanged and not is_same_state(source.entry, target.entry):
            self.tables.append(TableMatch(key=key, base=base, source=source, target=target))
        elif key != target.key:
            self.tables.append(RenameTable(key=key, target=target))

    def _plan_missing(self, base: TableState, source: TableState | None, target: TableState | None) -> None:
        """Decide on a table of the base that one of the sides dropped.

        The other side may have a new state with the same content: it compacted or indexed the table, or got it by an
        earlier merge. Then the table is dropped without a conflict.
        """
        if source is not None and self._is_unchanged(base, source):
            return
        is_kept_unchanged = target is not None and self._is_unchanged(base, target)
        if not is_kept_unchanged and self._decide_on_dropped(base, source, target) != "source":
            return
        if source is not None:
            self.tables.append(AddTable(key=source.key, source=source))
        elif target is not None:
            self.tables.append(DropTable(key=target.key, target=target))

    def _decide_on_dropped(self, base: TableState, source: TableState | None, target: TableState | None) -> str:
        """Return the side that wins if one side dropped a table and the other one changed it."""
        # The name that the table has if it is kept. Another table may have its name in the base now.
        name = (target or source or base).key
        dropped, changed = ("target", "source") if target is None else ("source", "target")
        problem = f"the {dropped} dropped it, the {changed} changed it"
        old, ours, theirs = (None if state is None else str(state.key) for state in (base, source, target))
        decider = self._decider_of(name, (base, source, target))
        return decider.decide(problem, (old, ours, theirs), kind=ConflictKind.DELETE_VS_UPDATE)

    def _decider_of(self, name: TableKey, states: _States) -> SchemaDecider:
        """Return the decider on the name or the existence of a table, which is reported by `name`."""
        base, source, target = (None if state is None else state.key for state in states)
        # A name that another table of the target has means that table.
        names = (key for key in (target, base, source) if key is not None)
        return self._decider(name, *(key for key in names if key not in self._target or key == target))

    def _decider(self, *names: TableKey) -> SchemaDecider:
        """Return the decider on a table with these names. Conflicts report the first name."""
        resolution = TableResolution(resolution=self._combiner.resolution, names=TableNames.of(names))
        return SchemaDecider(resolution=resolution, conflicts=self.conflicts)

    def _is_unchanged(self, base: TableState, now: TableState) -> bool:
        """Return whether a table has the name and the content that it has in the base."""
        if base.key != now.key:
            return False
        if is_same_state(base.entry, now.entry):
            return True
        combiner = self._combiner
        before, after = base.as_table(combiner.config), now.as_table(combiner.config)
        if before.primary_key != after.primary_key or not before.schema.equals(after.schema, check_metadata=True):
            return False
        return TableDiff(before.key, before=before, after=after, load_comparer=lambda: combiner.comparer).is_empty

    def _make_names_unique(self) -> None:
        """Decide on names that two tables would have: one was renamed, the other one added or renamed.

        A table that loses gets back the name that it has on the side that wins. It is left out if it does not exist
        there. If the name is that of another table, the same side wins again. All names of a side are different, so
        that this ends.
        """
        losers: dict[TableKey, str] = {}
        while (name := self._find_repeated_name()) is not None:
            tables = self._named(name)
            won = [losers[key] for table in tables if (key := _target_key(table)) in losers]
            # The target wins against a table that lost to the source, so that no table moves back and forth.
            wins = "target" if "target" in won else next(iter(won), None)
            wins = wins or self._decider(name).decide("two tables would have this name", (None, str(name), str(name)))
            winner_key = {"source": self._source_key, "target": _target_key}[wins]
            loser = next(table for table in tables if winner_key(table) != name)
            if (key := _target_key(loser)) is not None:
                losers[key] = wins
            self._rename_loser(loser, winner_key(loser))

    def _find_repeated_name(self) -> TableKey | None:
        # A table that is renamed or dropped by this merge frees its name for another one.
        leaving = {_target_key(table) for table in self.tables}
        names = Counter(table.key for table in self.tables if not isinstance(table, DropTable))
        found = (name for name, count in names.items() if count > 1 or (name in self._target and name not in leaving))
        return min(found, default=None)

    def _named(self, name: TableKey) -> Sequence[PlannedTable]:
        """Return the tables of the result that would have a name. One may be unchanged by the source."""
        found = [table for table in self.tables if table.key == name and not isinstance(table, DropTable)]
        if len(found) > 1:
            return found
        return [*found, RenameTable(key=name, target=TableState(name, self._target[name]))]

    def _source_key(self, table: PlannedTable) -> TableKey | None:
        if isinstance(table, AddTable | TableMatch):
            return table.source.key
        return self._source_keys.get(table.target.key)

    def _rename_loser(self, table: PlannedTable, name: TableKey | None) -> None:
        """Give a table of the result another name, or leave it out if there is none."""
        if table in self.tables:
            self.tables.remove(table)
        if isinstance(table, AddTable):
            return  # Only the source has it.
        if name is None:
            self.tables.append(DropTable(key=table.target.key, target=table.target))
        elif isinstance(table, TableMatch):
            self.tables.append(replace(table, key=name))
        elif name != table.target.key:
            self.tables.append(RenameTable(key=name, target=table.target))

    def _name_matches(self) -> None:
        """Give each matched table the names that resolvers may use for it: those that no other table has."""
        unchanged = self._target.keys() - {_target_key(table) for table in self.tables}
        names = unchanged | {table.key for table in self.tables if not isinstance(table, DropTable)}
        for number, table in enumerate(self.tables):
            if isinstance(table, TableMatch):
                states = (table.target, table.source, table.base)
                others = (state.key for state in states if state is not None and state.key not in names)
                self.tables[number] = replace(table, names=(table.key, *others))


def _target_key(table: PlannedTable) -> TableKey | None:
    return None if isinstance(table, AddTable) else table.target.key


def _match_sides(config: RepoConfig, sides: Sides) -> Iterator[_States]:
    """Yield each table of the base or the source with its state on every side. It may have another key on each side."""
    base, source, target = sides.base, sides.source, sides.target
    ours, theirs = (match_tables(config, base, side) for side in (source, target))
    for key in sorted(base):
        yield TableState(key, base[key]), _find_state(source, ours.get(key)), _find_state(target, theirs.get(key))
    new = target.keys() - theirs.values()
    for key in sorted(source.keys() - ours.values()):
        # Two new tables of one name are one table. Another table of the target that has the name competes for it.
        yield None, TableState(key, source[key]), _find_state(target, key if key in new else None)


def _find_state(tables: TableMap, key: TableKey | None) -> TableState | None:
    return None if key is None else TableState(key, tables[key])
