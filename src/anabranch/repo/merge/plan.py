"""The plan and the result of a merge as values. Nothing here reads or writes."""

from dataclasses import dataclass
from enum import StrEnum

from anabranch.errors import MergeConflictError
from anabranch.repo.history.comparing import TableCounts
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.merge.apply import MergedTable
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.tables import TableAction

__all__ = ["ConflictLog", "MergeOutcome", "MergePlan", "MergeResult", "TablePlan", "changes_table", "plan_of"]

_MAX_CONFLICTS_KEPT = 100


class MergeOutcome(StrEnum):
    """The outcome of a merge: nothing to do, the target had not changed, or both sides had changed."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """The change of one table of the target. `conflicts` is the number of unresolved conflicts."""

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
    """A merge before it is applied: its commits and bases, the change of each table, and the unresolved conflicts.

    `conflicts` has only the first ones. Use `repo.conflicts` to get all.
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
        """Whether there are no unresolved conflicts."""
        return not self.conflict_count


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The result of a merge. `commit` is None for a dry run, and if there was nothing to do."""

    plan: MergePlan
    commit: GraphCommit | None = None

    @property
    def outcome(self) -> MergeOutcome:
        """The outcome of the merge."""
        return self.plan.outcome


class ConflictLog:
    """Counts conflicts by table, and keeps the first ones."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[Conflict] = []
        self.by_table: dict[str, int] = {}

    def add(self, conflict: Conflict) -> None:
        self.count += 1
        self.by_table[conflict.table] = self.by_table.get(conflict.table, 0) + 1
        if len(self.first) < _MAX_CONFLICTS_KEPT:
            self.first.append(conflict)

    def check_none(self, what: str) -> None:
        """Raise MergeConflictError if there are conflicts."""
        if not self.count:
            return
        tables = ", ".join(f"'{table}' ({count})" for table, count in sorted(self.by_table.items()))
        number = "1 conflict" if self.count == 1 else f"{self.count} conflicts"
        raise MergeConflictError(
            f"{what} has {number}, in {tables}",
            hint="list them with conflicts(), then pass a strategy or resolvers, or change one side",
            conflicts=tuple(self.first),
            count=self.count,
        )


def plan_of(merged: MergedTable, conflicts: ConflictLog) -> TablePlan:
    """Return the plan of one merged table."""
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
    """Return whether a merge changes a table of the target, including its name."""
    merge = merged.merge
    if merge.source is None or merge.target is None or merge.action is not TableAction.MERGED:
        return True
    keys = {state.entry.primary_key for state in (merge.base, merge.target) if state is not None}
    is_rekeyed = merge.source.entry.primary_key not in keys
    columns = (*merged.added_columns, *merged.dropped_columns, *merged.altered_columns)
    return bool(merged.counts.total or columns or is_rekeyed or merge.key != merge.target.key)
