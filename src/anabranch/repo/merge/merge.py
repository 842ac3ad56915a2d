"""One branch merged into another, as one commit with two parents."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from anabranch.errors import WriteConflictError
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.history.ancestry import Ancestry
from anabranch.repo.log.collected import collected_errors
from anabranch.repo.log.entries import BranchMode, Changes, CommitKind, CommitRecord, LogEntry, TableEntry
from anabranch.repo.log.making import CommitSpec, Guard, Inspect
from anabranch.repo.log.store import RepoStore
from anabranch.repo.merge.bases import Bases
from anabranch.repo.merge.combining import Combination, Combiner, Sides
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.plan import MergeOutcome, MergePlan, MergeResult, changes_table, plan_of
from anabranch.repo.merge.tables import is_same_state
from anabranch.repo.refs.live import shown
from anabranch.repo.write.publish import Published, publish

__all__ = ["BranchMerge", "MergedBranch", "iter_conflicts", "merge_branch", "plan_merge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchMerge:
    """What somebody wants merged: a state by its name, into a branch.

    With `expected_head` the branch must be on that commit. With `squash` the commit has one parent only.
    """

    name: str
    source: CommitRecord
    into: BranchName
    combiner: Combiner
    message: str | None = None
    metadata: Mapping[str, str] | None = None
    expected_head: str | None = None
    squash: bool = False
    inspect: Inspect | None = None
    guard: Guard | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedBranch:
    """How a merge ended, and what it published, if anything."""

    result: MergeResult
    published: Published | None = None


class _UpToDateError(Exception):
    """The target has all of the source meanwhile."""


def plan_merge(records: RepoStore, wanted: BranchMerge) -> MergePlan:
    """Find out what a merge comes to, and change nothing."""
    merging = _Merging(records, wanted)
    head = merging.head
    merging.refuse_other_head(head)
    if merging.is_up_to_date(head):
        return merging.plan(head, None)
    with merging.collected_errors(head):
        combination = wanted.combiner.measure(merging.sides(head))
    has_nothing = wanted.squash and not combination.conflicts.count and not any(map(changes_table, combination.tables))
    return merging.plan(head, None if has_nothing else combination)


def iter_conflicts(records: RepoStore, wanted: BranchMerge) -> Iterator[Conflict]:
    """Every conflict that a merge would have, found while they are asked for."""
    merging = _Merging(records, wanted)
    head = merging.head
    if not merging.is_up_to_date(head):
        with merging.collected_errors(head):
            yield from wanted.combiner.iter_conflicts(merging.sides(head))


def merge_branch(records: RepoStore, wanted: BranchMerge) -> MergedBranch:
    """Merge; where the target moves meanwhile, again on top of that."""
    merging = _Merging(records, wanted)
    head = merging.head
    try:
        changes = merging.changes_on(head)
        if wanted.squash and not changes:
            raise _UpToDateError
        published = publish(
            records,
            expected=head,
            changes=changes,
            spec=merging.spec,
            rebase=merging.changes_on,
            main=merging.main,
        )
    except _UpToDateError:
        return MergedBranch(result=MergeResult(plan=merging.plan(records.heads.get(wanted.into), None)))
    plan = merging.plan(merging.head, merging.combination)
    return MergedBranch(result=MergeResult(plan=plan, commit=published.commit), published=published)


class _Merging:
    def __init__(self, records: RepoStore, wanted: BranchMerge) -> None:
        self._records = records
        self._wanted = wanted
        self._ancestry = Ancestry(records)
        self.combination: Combination | None = None
        self.changes: Changes = {}
        self.head = records.heads.get(wanted.into)
        # What is under a live target is one state from the beginning to the end.
        is_live = self.head.state.mode is BranchMode.LIVE
        self.main = records.heads.get(BranchName(MAIN)).head if is_live else None

    @property
    def spec(self) -> CommitSpec:
        wanted, source = self._wanted, self._wanted.source
        main = None if source.saw is None else self._records.commits.get(source.saw).commit
        return CommitSpec(
            message=f"Merge {wanted.name} into {wanted.into}" if wanted.message is None else wanted.message,
            kind=CommitKind.MERGE,
            metadata=wanted.metadata or {},
            merged_parent=None if wanted.squash else source.commit,
            taken_from=None if wanted.squash else main,
            inspect=wanted.inspect,
            guard=wanted.guard,
        )

    def refuse_other_head(self, head: LogEntry) -> None:
        found, expected = head.head.commit.graph_commit_id, self._wanted.expected_head
        if expected is not None and found != expected:
            raise WriteConflictError(
                f"branch '{head.branch}' is on commit {found}, not on the expected {expected}",
                hint="look at what is new, then merge with the new head",
            )

    def is_up_to_date(self, head: LogEntry) -> bool:
        """Whether a branch has all of the source; what a live one shows of main counts, too."""
        source = self._wanted.source
        is_live = head.state.mode is BranchMode.LIVE
        if source.saw is not None and is_live and source.commit == head.head.commit:
            return True  # a live branch and itself
        if not self._ancestry.is_ancestor(source, head.head):
            return False
        seen = None if source.saw is None else self._records.commits.get(source.saw)
        if seen is None or self._ancestry.is_ancestor(seen, head.head):
            return True
        return self._ancestry.has_merged_live(source, seen, head.head)

    def changes_on(self, head: LogEntry) -> Changes:
        """Stage the merge on top of a head."""
        self.refuse_other_head(head)
        if self.is_up_to_date(head):
            raise _UpToDateError
        self.head = head
        with self.collected_errors(head):
            self.combination = self._wanted.combiner.stage(self.sides(head))
        self.combination.conflicts.refuse_any(f"the merge of '{self._wanted.name}' into '{head.branch}'")
        self.changes = self.combination.changes
        return self.changes

    def collected_errors(self, head: LogEntry) -> AbstractContextManager[None]:
        """Say so where what the sides parted from was collected; mostly nobody has to read it."""
        return collected_errors(self._records.context, lambda: self._iter_bases(self._target_on(head)))

    def _iter_bases(self, target: CommitRecord) -> Iterator[str]:
        source, tables_of = self._wanted.source, self._records.commits.tables_of
        yield from (base.graph_commit_id for base in self._ancestry.find_bases(source, target))
        for key in {*tables_of(source), *tables_of(target)}:
            found = self._ancestry.find_table_bases(source, target, key)
            yield from (base.commit.graph_commit_id for base in found)

    def _target_on(self, head: LogEntry) -> CommitRecord:
        # A branch that was live at the beginning may have been frozen since.
        main = self.main if head.state.mode is BranchMode.LIVE else None
        return head.head if main is None else shown(head, main).head

    def sides(self, head: LogEntry) -> Sides:
        target = self._target_on(head)
        ours, theirs = (self._records.commits.tables_of(record) for record in (self._wanted.source, target))
        bases = Bases(records=self._records, ancestry=self._ancestry, combiner=self._wanted.combiner)
        base: dict[TableKey, TableEntry] = {}
        for key in {*ours, *theirs, *self._former_keys(target)}:
            is_gone = key not in ours and key not in theirs
            if is_gone or not is_same_state(ours.get(key), theirs.get(key)):
                found = bases.find(self._wanted.source, target, key)
                if found is not None:
                    base[key] = found
        touched = {key for key in {*ours, *theirs} if key in base or not is_same_state(ours.get(key), theirs.get(key))}
        return Sides(base=base, source={key: ours[key] for key in ours if key in touched}, target=theirs)

    def _former_keys(self, target: CommitRecord) -> set[TableKey]:
        """What tables were called when the sides parted: both may have renamed them since."""
        commits, source = self._records.commits, self._wanted.source
        ids = {base.graph_commit_id for base in self._ancestry.find_bases(source, target)}
        ids |= {record.saw for record in (source, target) if record.saw is not None}
        return {key for commit_id in ids for key in commits.tables_of(commits.get(commit_id))}

    def plan(self, head: LogEntry, combination: Combination | None) -> MergePlan:
        source, target = self._wanted.source, head.head
        bases = self._ancestry.find_bases(source, target)
        plan = MergePlan(
            source=self._wanted.name,
            into=str(head.branch),
            source_commit_id=source.commit.graph_commit_id,
            target_commit_id=target.commit.graph_commit_id,
            base_commit_ids=tuple(base.graph_commit_id for base in bases),
            outcome=MergeOutcome.ALREADY_UP_TO_DATE,
        )
        if combination is None:
            return plan
        is_forward = plan.base_commit_ids == (plan.target_commit_id,)
        conflicts = combination.conflicts
        return replace(
            plan,
            outcome=MergeOutcome.FAST_FORWARD if is_forward else MergeOutcome.MERGED,
            tables=tuple(plan_of(merged, conflicts) for merged in combination.tables),
            conflict_count=conflicts.count,
            conflicts=tuple(conflicts.first),
        )
