"""Merge three states of many tables: stage the result on a branch, or only measure it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anabranch.ids import BranchName, TableKey
from anabranch.repo.history.comparing import RowComparer
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import Changes, TableEntry, TableMap
from anabranch.repo.merge.apply import MergedTable, TableMerger
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.plan import ConflictLog
from anabranch.repo.merge.resolve import Resolution
from anabranch.repo.merge.tables import TableAction, plan_tables
from anabranch.repo.write.homes import refuse_shared_home

__all__ = ["Combination", "Combiner", "Sides"]


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
            merge, draft = merged.merge, merged.draft
            if draft is None and merge.action is not TableAction.DROPPED:
                continue
            is_renamed = merge.target is not None and merge.target.key != merge.key
            if merge.target is not None and (draft is None or is_renamed):
                removed[merge.target.key] = None
            is_still = merge.target is not None and draft is not None and draft.is_still(merge.target.entry)
            if draft is not None and (is_renamed or not is_still):
                changes[merge.key] = draft.to_entry()
        # Changes win: a table may get the name that another one had.
        return {**removed, **changes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Combiner:
    """Merges states on one branch, with one engine and one way to resolve conflicts."""

    context: RepoConfig
    branch: BranchName
    comparer: RowComparer
    resolution: Resolution

    def stage(self, sides: Sides) -> Combination:
        """Merge the tables and stage the result. It must not be published if conflicts are left."""
        combined = self._combine(sides, lambda merger, merge: merger.stage(merge, sides.target))
        changes = combined.changes
        for key, entry in changes.items():
            if entry is not None:
                refuse_shared_home(key, entry, sides.target, besides=changes)
        return combined

    def measure(self, sides: Sides) -> Combination:
        """Merge the tables without staging anything, to count changes and conflicts."""
        return self._combine(sides, lambda merger, merge: merger.measure(merge))

    def iter_conflicts(self, sides: Sides) -> Iterator[Conflict]:
        """Yield all unresolved conflicts, table by table. Only those of one batch of rows are in memory."""
        merges, found = plan_tables(sides.base, sides.source, sides.target, self.resolution)
        yield from found
        for merge in merges:
            yield from self.merger(lambda _: None).iter_conflicts(merge)

    def _combine(self, sides: Sides, do: Callable[..., MergedTable]) -> Combination:
        conflicts = ConflictLog()
        merges, found = plan_tables(sides.base, sides.source, sides.target, self.resolution)
        for conflict in found:
            conflicts.add(conflict)
        merger = self.merger(conflicts.add)
        return Combination(tables=tuple(do(merger, merge) for merge in merges), conflicts=conflicts)

    def merger(self, on_conflict: Callable[[Conflict], None]) -> TableMerger:
        """Return a merger for single tables. It passes unresolved conflicts to `on_conflict`."""
        return TableMerger(
            context=self.context,
            branch=self.branch,
            comparer=self.comparer,
            resolution=self.resolution,
            on_conflict=on_conflict,
        )
