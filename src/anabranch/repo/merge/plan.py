"""The counted plan and the result of a merge, as users see them. Nothing here reads or writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape

from anabranch.display import MAX_ROWS, html_table, text_table
from anabranch.repo.history.comparer import TableCounts
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.merge.apply import MergedTable
from anabranch.repo.merge.conflict_types import Conflict, ConflictLog, StrategyGap
from anabranch.repo.merge.shapes import Shape
from anabranch.repo.merge.steps import NO_ROWS, KeepTable, MatchedStep, MergeTable, ReplaceTable, TableAction


class MergeOutcome(StrEnum):
    """The outcome of a merge: nothing to do, the target had not changed, or both sides had changed."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """The change of one table of the target. `conflicts` is the number of unresolved conflicts.

    `taken_from` is the side, `source` or `target`, that the whole table is taken from because its rows cannot be
    merged. The changes of the other side are left out then. `wanted_indices` cannot be built because no rows are left:
    they are recorded, and the next commit with rows builds them.
    """

    table: str
    action: str
    counts: TableCounts
    renamed_from: str | None = None
    taken_from: str | None = None
    added_columns: tuple[str, ...] = ()
    dropped_columns: tuple[str, ...] = ()
    altered_columns: tuple[str, ...] = ()
    built_indices: tuple[str, ...] = ()
    dropped_indices: tuple[str, ...] = ()
    wanted_indices: tuple[str, ...] = ()
    conflicts: int = 0

    @property
    def action_text(self) -> str:
        """The action for people, which also names the side that a whole table is taken from."""
        return self.action if self.taken_from is None else f"taken from {self.taken_from}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """A merge before it is applied: its commits and bases, the change of each table, and the unresolved conflicts.

    `conflicts` has only the first ones. Use `repo.conflicts` to get all. `strategy_gaps` are those that the strategy
    does not decide, with what to do instead.
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
    strategy_gaps: tuple[StrategyGap, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether there are no unresolved conflicts."""
        return not self.conflict_count

    def __repr__(self) -> str:
        table = text_table(*self._cells(), title=self._title(), more=len(self.tables) - MAX_ROWS)
        return "\n".join([table, *map(gap_text, self.strategy_gaps)])

    def _repr_html_(self) -> str:
        table = html_table(*self._cells(), title=self._title(), more=len(self.tables) - MAX_ROWS)
        return table + "".join(f"<p>{escape(gap_text(gap))}</p>" for gap in self.strategy_gaps)

    def _title(self) -> str:
        conflicts = "1 conflict" if self.conflict_count == 1 else f"{self.conflict_count} conflicts"
        return f"Merge of {self.source} into {self.into}: {self.outcome}, {conflicts}"

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
        rows = [
            (one.table, one.action_text, one.counts.inserted, one.counts.updated, one.counts.deleted, one.conflicts)
            for one in self.tables[:MAX_ROWS]
        ]
        return ("table", "action", "inserted", "updated", "deleted", "conflicts"), [*rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The result of a merge. `commit` is None for a dry run, and if there was nothing to do."""

    plan: MergePlan
    commit: GraphCommit | None = None

    def __repr__(self) -> str:
        commit = None if self.commit is None else self.commit.graph_commit_id
        return f"{self.plan!r}\ncommit: {commit}"

    def _repr_html_(self) -> str:
        return self.plan._repr_html_()

    @property
    def outcome(self) -> MergeOutcome:
        """The outcome of the merge."""
        return self.plan.outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """What a commit would change on a branch: each table, and the unresolved conflicts, of which the first are listed.

    `commit_id` and `message` are those of the commit to apply, or to revert.
    """

    commit_id: str
    message: str
    tables: tuple[TablePlan, ...] = ()
    conflict_count: int = 0
    conflicts: tuple[Conflict, ...] = ()
    strategy_gaps: tuple[StrategyGap, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether there are no unresolved conflicts."""
        return not self.conflict_count


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of a cherry-pick, a revert or a rebase: the new commits, oldest first.

    A dry run has no commits, but a plan for each commit to apply, up to the first one with conflicts.
    """

    commits: tuple[GraphCommit, ...] = ()
    plan: tuple[CommitPlan, ...] = ()

    @property
    def commit(self) -> GraphCommit | None:
        """The newest of the new commits. None for a dry run, and if there was nothing to do."""
        return self.commits[-1] if self.commits else None

    @property
    def is_clean(self) -> bool:
        """Whether the plan has no unresolved conflicts."""
        return all(each.is_clean for each in self.plan)


def gap_text(gap: StrategyGap) -> str:
    """Return a sentence about the conflicts of a table that the strategy does not decide, with the next step."""
    number = "1 conflict" if gap.conflicts == 1 else f"{gap.conflicts} conflicts"
    return f"The strategy does not decide {number} of {gap.table}: {gap.hint}"


def table_plans(merged: Sequence[MergedTable], conflicts: ConflictLog) -> tuple[TablePlan, ...]:
    """Return the plans of the merged tables, and of those whose name or existence is not decided."""
    planned = [_plan_of(table, conflicts) for table in merged]
    # Such a conflict may be the only thing about a table, so that no step names it.
    undecided = sorted(conflicts.by_table.keys() - {plan.table for plan in planned})
    action = TableAction.UNDECIDED.value
    planned += (
        TablePlan(table=key, action=action, counts=NO_ROWS, conflicts=conflicts.by_table[key]) for key in undecided
    )
    return tuple(planned)


def _plan_of(merged: MergedTable, conflicts: ConflictLog) -> TablePlan:
    step = merged.step
    shape = step.shape if isinstance(step, MatchedStep) else Shape()
    built: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    wanted = step.wanted
    if isinstance(step, MergeTable):
        built, dropped = tuple(recipe.name for recipe in step.built_indices), step.dropped_indices
        # Lance builds no index if there are no rows. It is recorded then.
        if step.target.entry.rows + merged.counts.inserted <= merged.counts.deleted:
            built, wanted = (), built
    return TablePlan(
        table=str(step.key),
        action=step.action.value,
        counts=merged.counts,
        renamed_from=None if step.renamed_from is None else str(step.renamed_from),
        taken_from=step.taken_from if isinstance(step, KeepTable | ReplaceTable) else None,
        added_columns=tuple(column.name for column in shape.added),
        dropped_columns=shape.dropped,
        altered_columns=tuple(change.path for change in shape.altered),
        built_indices=built,
        dropped_indices=dropped,
        wanted_indices=wanted,
        # A conflict about the whole table is not in the log of its step.
        conflicts=conflicts.by_table.get(str(step.key), 0),
    )


def changes_table(merged: MergedTable) -> bool:
    """Return whether a merge changes a table of the target, including its name and its notes."""
    step = merged.step
    if isinstance(step, MergeTable):
        return bool(merged.counts.total or step.built_indices) or step.changes_columns
    return not isinstance(step, KeepTable) or step.renamed_from is not None
