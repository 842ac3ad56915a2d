"""Three states of many tables brought together: staged on a branch, or only looked at."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anabranch.ids import BranchName, TableKey
from anabranch.repo.history.comparing import RowComparer
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import Changes, TableEntry, TableMap
from anabranch.repo.merge.applying import MergedTable, TableMerger
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.plan import ConflictLog
from anabranch.repo.merge.resolving import Resolution
from anabranch.repo.merge.tables import TableAction, plan_tables
from anabranch.repo.write.homes import refuse_shared_home

__all__ = ["Combination", "Combiner", "Sides"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The tables on each side of a merge, and what they were when the sides parted."""

    base: TableMap
    source: TableMap
    target: TableMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """What three states come to: what to do to the target's tables, and the conflicts that are left."""

    tables: tuple[MergedTable, ...]
    conflicts: ConflictLog

    @property
    def changes(self) -> Changes:
        """The entries of the tables that were staged; a table that goes, or goes by another name, is None."""
        gone: dict[TableKey, TableEntry | None] = {}
        changes: dict[TableKey, TableEntry | None] = {}
        for merged in self.tables:
            merge, draft = merged.merge, merged.draft
            if draft is None and merge.action is not TableAction.DROPPED:
                continue
            is_renamed = merge.target is not None and merge.target.key != merge.key
            if merge.target is not None and (draft is None or is_renamed):
                gone[merge.target.key] = None
            is_still = merge.target is not None and draft is not None and draft.is_still(merge.target.entry)
            if draft is not None and (is_renamed or not is_still):
                changes[merge.key] = draft.to_entry()
        return {**gone, **changes}  # one table may come by the name that another one goes from


@dataclass(frozen=True, slots=True, kw_only=True)
class Combiner:
    """Brings states together on one branch, by one engine and one way to resolve conflicts."""

    context: RepoConfig
    branch: BranchName
    comparer: RowComparer
    resolution: Resolution

    def stage(self, sides: Sides) -> Combination:
        """Stage what the tables come to; where conflicts are left, it is of no use."""
        combined = self._combine(sides, lambda merger, merge: merger.stage(merge, sides.target))
        changes = combined.changes
        for key, entry in changes.items():
            if entry is not None:
                refuse_shared_home(key, entry, sides.target, besides=changes)
        return combined

    def measure(self, sides: Sides) -> Combination:
        """Find out what the tables come to, and stage nothing."""
        return self._combine(sides, lambda merger, merge: merger.measure(merge))

    def iter_conflicts(self, sides: Sides) -> Iterator[Conflict]:
        """Every conflict that is left, table by table; those of one batch of rows are in memory at a time."""
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
        """One that stages single tables; conflicts that are left go to `on_conflict`."""
        return TableMerger(
            context=self.context,
            branch=self.branch,
            comparer=self.comparer,
            resolution=self.resolution,
            on_conflict=on_conflict,
        )
