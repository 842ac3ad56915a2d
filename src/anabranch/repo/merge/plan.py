"""What a merge comes to, as values: nothing here reads or writes."""

from dataclasses import dataclass
from enum import StrEnum

from anabranch.errors import MergeConflictError
from anabranch.repo.history.comparing import TableCounts
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.merge.applying import MergedTable
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.tables import TableAction

__all__ = ["ConflictLog", "MergeOutcome", "MergePlan", "MergeResult", "TablePlan", "changes_table", "plan_of"]

_CONFLICTS_KEPT = 100


class MergeOutcome(StrEnum):
    """How a merge ends: there is nothing to do, the target had not moved, or both sides had."""

    ALREADY_UP_TO_DATE = "AlreadyUpToDate"
    FAST_FORWARD = "FastForward"
    MERGED = "Merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """What becomes of one table of the target. `conflicts` are those that nobody resolves."""

    table: str
    action: str
    counts: TableCounts
    renamed_from: str | None = None
    added_columns: tuple[str, ...] = ()
    dropped_columns: tuple[str, ...] = ()
    altered_columns: tuple[str, ...] = ()
    conflicts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """A merge as it was found: what it is of, its bases, what it does to each table, and how many conflicts are left.

    `conflicts` are the first of them; `repo.conflicts` gives all.
    """

    source: str
    into: str
    source_commit_id: str
    target_commit_id: str
    base_commit_ids: tuple[str, ...]
    outcome: MergeOutcome
    tables: tuple[TablePlan, ...] = ()
    conflict_count: int = 0
    conflicts: tuple[Conflict, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether no conflict is left."""
        return not self.conflict_count


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """How a merge ended; a dry run, and one that had nothing to do, made no commit."""

    plan: MergePlan
    commit: GraphCommit | None = None

    @property
    def outcome(self) -> MergeOutcome:
        """What came of the merge."""
        return self.plan.outcome


class ConflictLog:
    """Counts conflicts by table, and keeps the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[Conflict] = []
        self.by_table: dict[str, int] = {}

    def add(self, conflict: Conflict) -> None:
        self.count += 1
        self.by_table[conflict.table] = self.by_table.get(conflict.table, 0) + 1
        if len(self.first) < _CONFLICTS_KEPT:
            self.first.append(conflict)

    def refuse_any(self, what: str) -> None:
        """Raise if there are conflicts."""
        if not self.count:
            return
        tables = ", ".join(f"'{table}' ({count})" for table, count in sorted(self.by_table.items()))
        number = "1 conflict" if self.count == 1 else f"{self.count} conflicts"
        raise MergeConflictError(
            f"{what} has {number}, in {tables}",
            hint="look at them with conflicts, then give a strategy or resolvers, or change one side",
            conflicts=tuple(self.first),
            count=self.count,
        )


def plan_of(merged: MergedTable, conflicts: ConflictLog) -> TablePlan:
    merge = merged.merge
    target = merge.target
    return TablePlan(
        table=str(merge.key),
        action=merge.action.value,
        counts=merged.counts,
        renamed_from=None if target is None or target.key == merge.key else str(target.key),
        added_columns=merged.added_columns,
        dropped_columns=merged.dropped_columns,
        altered_columns=merged.altered_columns,
        conflicts=conflicts.by_table.get(str(merge.key), 0),
    )


def changes_table(merged: MergedTable) -> bool:
    """Whether anything of a table, its name included, will be another than it is on the target."""
    merge = merged.merge
    if merge.source is None or merge.target is None or merge.action is not TableAction.MERGED:
        return True
    keys = {place.entry.primary_key for place in (merge.base, merge.target) if place is not None}
    is_rekeyed = merge.source.entry.primary_key not in keys
    columns = (*merged.added_columns, *merged.dropped_columns, *merged.altered_columns)
    return bool(merged.counts.total or columns or is_rekeyed or merge.key != merge.target.key)
