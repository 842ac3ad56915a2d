"""Merge one branch into another, as one commit with two parents, and find the common base of each table."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import WriteConflictError
from anabranch.ids import TableKey
from anabranch.repo.history.ancestry import Ancestry, TableBase
from anabranch.repo.history.table_history import match_tables
from anabranch.repo.log.collected import collected_errors
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.entries import Changes, CommitRecord, LogEntry, TableEntry, TableMap, is_same_state
from anabranch.repo.log.repo_store import RepoStore, View, find_main
from anabranch.repo.merge.cell_resolvers import Cells, choose, resolved_by
from anabranch.repo.merge.combiner import Combination, Combiner, Sides
from anabranch.repo.merge.conflict_resolution import Resolution, Strategy
from anabranch.repo.merge.conflict_types import Conflict
from anabranch.repo.merge.plan import MergeOutcome, MergePlan, MergeResult, changes_table, table_plans
from anabranch.repo.merge.replay import check_expected_head
from anabranch.repo.merge.steps import MergeSteps, TableMatch, TableState
from anabranch.repo.write.publish import Published, publish


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchMerge:
    """The request to merge a state, with its name, into the branch of a combiner.

    `spec` is what the commit will record, without its parents. With its `once` nothing is published if the branch has
    the commit of this merge already. With `expected_head` the branch must be at that commit. With `squash` the commit
    has one parent only. With `ff_only` the branch must not have commits that the source does not have.
    """

    name: str
    source: View
    combiner: Combiner
    spec: CommitSpec
    expected_head: str | None = None
    squash: bool = False
    ff_only: bool = False


class _UpToDateError(Exception):
    """The target already has all commits of the source."""


def plan_merge(repo_store: RepoStore, request: BranchMerge) -> MergePlan:
    """Return the plan of a merge without changing anything."""
    merger = _BranchMerger(repo_store, request)
    head = merger.head
    check_expected_head(head, request.expected_head)
    if merger.is_up_to_date(head):
        return merger.plan(head, None)
    merger.check_fast_forward(head)
    with merger.collected_errors(head):
        combination = request.combiner.count(request.combiner.plan(merger.sides(head)))
    if not combination.conflicts.count:
        request.combiner.resolution.decisions.check_met()
    # A squash commit has no second parent, so that without changes there is nothing to record.
    is_empty = request.squash and not combination.conflicts.count and not any(map(changes_table, combination.tables))
    return merger.plan(head, None if is_empty else combination)


def iter_conflicts(repo_store: RepoStore, request: BranchMerge) -> Iterator[Conflict]:
    """Yield all conflicts of a merge. They are found while the caller iterates."""
    merger = _BranchMerger(repo_store, request)
    head = merger.head
    if not merger.is_up_to_date(head):
        with merger.collected_errors(head):
            yield from request.combiner.iter_conflicts(request.combiner.plan(merger.sides(head)))


def merge_branch(repo_store: RepoStore, request: BranchMerge) -> tuple[MergeResult, Published | None]:
    """Merge and publish. If the target moves concurrently, merge again on top of its new head.

    Return the result, and the commit that this call published, if any.
    """
    merger = _BranchMerger(repo_store, request)
    head = merger.head
    # Search before the merge, which may have conflicts with its own result.
    once = request.spec.once
    if once is not None and (earlier := repo_store.find_once(once, head)) is not None:
        return MergeResult(plan=merger.plan(head, None), commit=earlier), None
    try:
        changes = merger.changes_on(head)
        published = publish(
            repo_store, expected=head, changes=changes, spec=merger.spec, rebase=merger.changes_on, main=merger.main
        )
    except _UpToDateError:
        return MergeResult(plan=merger.plan(repo_store.heads.get(request.combiner.branch), None)), None
    if published.is_earlier:
        return MergeResult(plan=merger.plan(published.entry, None), commit=published.commit), None
    return MergeResult(plan=merger.plan(merger.head, merger.combination), commit=published.commit), published


class _BranchMerger:
    """One merge of a source into a branch, planned or applied on a head of the branch."""

    def __init__(self, repo_store: RepoStore, request: BranchMerge) -> None:
        self._repo_store = repo_store
        self._request = request
        self._ancestry = Ancestry(repo_store)
        self.combination: Combination | None = None
        self.head = repo_store.heads.get(request.combiner.branch)
        # Use one state of main below a live target for the whole merge, even if main moves.
        self.main = find_main(repo_store, self.head)
        self._source = request.source.record

    @property
    def spec(self) -> CommitSpec:
        spec, source = self._request.spec, self._request.source
        if self._request.squash:
            return spec
        main = source.find_main(self._repo_store.commits)
        # A live source also brings tables of main that none of its own commits has. Without this record, the next
        # merge would search for their base in the wrong commits.
        return replace(spec, merged_parent=source.commit, taken_from=None if main is None else main.commit)

    def check_fast_forward(self, head: LogEntry) -> None:
        """Raise WriteConflictError if only a fast-forward is wanted, and the target has commits of its own."""
        if not self._request.ff_only or self._ancestry.is_ancestor(head.head, self._source):
            return
        name = self._request.name
        problem = f"branch '{head.branch}' has commits that '{name}' does not have, so it is not a fast-forward"
        raise WriteConflictError(problem, hint=f"rebase '{name}' on '{head.branch}' first, or merge without `ff_only`")

    def is_up_to_date(self, head: LogEntry) -> bool:
        """Return whether a branch has all commits of the source, including those of main below a live source."""
        source = self._request.source
        if source.main_id is not None and head.state.is_live and source.commit == head.head.commit:
            return True  # A live branch merged into itself.
        if not self._ancestry.is_ancestor(source.head, head.head):
            return False
        main = source.find_main(self._repo_store.commits)
        # A live source shows tables of main, so that the target must have that state of main, too.
        if main is None or self._ancestry.is_ancestor(main, head.head):
            return True
        return self._ancestry.has_merged_live(source.head, main, head.head)

    def changes_on(self, head: LogEntry) -> Changes:
        """Stage the merge on top of a head. Raise MergeConflictError if conflicts are left."""
        check_expected_head(head, self._request.expected_head)
        if self.is_up_to_date(head):
            raise _UpToDateError
        self.check_fast_forward(head)
        self.head = head
        combiner = self._request.combiner
        with self.collected_errors(head):
            sides = self.sides(head)
            self.combination = combiner.stage(combiner.plan(sides), sides.target)
        listed = f"conflicts({self._request.name!r}, into={str(head.branch)!r})"
        self.combination.conflicts.check_none(
            f"the merge of '{self._request.name}' into '{head.branch}'",
            hint=f"nothing was merged; list the conflicts with `{listed}`, then merge again with `resolvers`,"
            " `resolutions` or `strategy`",
        )
        changes = self.combination.changes
        # Other merges without changes are published: their second parent is the base of the next merge.
        if self._request.squash and not changes:
            raise _UpToDateError
        combiner.resolution.decisions.check_met()
        return changes

    def collected_errors(self, head: LogEntry) -> AbstractContextManager[None]:
        """Convert NotFound errors into CollectedError if the data of a merge base was collected.

        The check runs only after an error: most merges need not read the data of the bases.
        """

        def iter_bases() -> Iterator[str]:
            source, target = self._source, View.of(head, self.main).record
            tables_of = self._repo_store.commits.tables_of
            yield from (base.graph_commit_id for base in self._ancestry.find_merge_bases(source, target))
            for key in {*tables_of(source), *tables_of(target)}:
                found = self._ancestry.find_table_bases(source, target, key)
                yield from (base.commit.graph_commit_id for base in found)

        return collected_errors(self._repo_store.config, iter_bases)

    def sides(self, head: LogEntry) -> Sides:
        """Return the tables to merge: those that differ between the sides, and all tables of the target.

        Raise InvalidInputError if a resolver is for a table or column that no side has.
        """
        target = View.of(head, self.main).record
        ours, theirs = map(self._repo_store.commits.tables_of, (self._source, target))
        base = self._with_bases_of_renamed(self._find_bases(ours, theirs, target), target)
        touched = {key for key in ours if key in base or not is_same_state(ours[key], theirs.get(key))}
        missing = {entry.dataset for entry in base.values()} - {ours[key].dataset for key in touched}
        # Both sides may have the same state of a table that has another name in the base. It is not dropped.
        source = {key: entry for key, entry in ours.items() if key in touched or entry.dataset in missing}
        sides = Sides(base=base, source=source, target=theirs)
        self._request.combiner.check_resolvers(sides)
        return sides

    def _find_bases(self, ours: TableMap, theirs: TableMap, target: CommitRecord) -> TableMap:
        """Return the bases of the tables that differ between the sides, and of those that both sides removed."""
        bases: dict[TableKey, TableEntry] = {}
        for key in {*ours, *theirs, *self._former_keys(target)}:
            # Both sides may have renamed the table, and only its state in the base shows that these two are one.
            is_removed = key not in ours and key not in theirs
            if is_removed or not is_same_state(ours.get(key), theirs.get(key)):
                base = self._find_base(self._source, target, key)
                if base is not None:
                    bases[key] = base
        return bases

    def _with_bases_of_renamed(self, found: TableMap, target: CommitRecord) -> TableMap:
        """Return the bases, with those of tables that a live branch renamed and changed by the new name."""
        tables_of, config = self._repo_store.commits.tables_of, self._repo_store.config
        sides = self._source, target
        if all(side.main_id is None for side in sides):
            return found
        # By its old name, such a table would be the one of main, which may be newer than the state that was renamed.
        ours, theirs = (match_tables(config, found, tables_of(side)) for side in sides)
        renamed = {key for key in found if ours.get(key, key) != key or theirs.get(key, key) != key}
        bases = dict(found)
        for key in renamed:
            bases[key] = self._find_base(*sides, key, names=(ours.get(key), theirs.get(key))) or found[key]
        return bases

    def _former_keys(self, target: CommitRecord) -> set[TableKey]:
        """Return the table keys of the merge bases. Both sides may have renamed these tables since."""
        commits, source = self._repo_store.commits, self._source
        ids = {base.graph_commit_id for base in self._ancestry.find_merge_bases(source, target)}
        ids |= {record.main_id for record in (source, target) if record.main_id is not None}
        return {key for commit_id in ids for key in commits.tables_of(commits.get(commit_id))}

    def _find_base(
        self,
        source: CommitRecord,
        target: CommitRecord,
        key: TableKey,
        *,
        names: tuple[TableKey | None, TableKey | None] = (None, None),
        like: TableEntry | None = None,
    ) -> TableEntry | None:
        """Return the base of a table, or None if no common ancestor has a table of that name.

        `names` are the keys of the table on both sides, if it was renamed since the base. `like` is one of its states,
        by which it is found in bases where it has another name.

        If both sides were merged with each other before, a table may have several bases. These are merged into a
        virtual base. A cell on which the bases disagree gets a value that neither has, so that the merge sees a change
        on both sides.
        """
        bases = self._ancestry.find_table_bases(source, target, key, names=names)
        like = like or next((base.entry for base in bases if base.entry is not None), None)
        if like is None:
            return None
        first, *others = self._with_other_names(bases, source, target, key, like) or bases
        entry = first.entry
        for other in others:
            lower = self._find_base(self._record(other), self._record(first), key, like=like)
            entry = self._merge_two(key, base=lower, source=other.entry, target=entry)
        return entry

    def _with_other_names(
        self, bases: Sequence[TableBase], source: CommitRecord, target: CommitRecord, key: TableKey, like: TableEntry
    ) -> list[TableBase]:
        """Return the common ancestors that have a table, under this name or another one, with its state there."""
        found = [base for base in bases if base.entry is not None]
        known = {base.commit.graph_commit_id for base in found}
        commits = [base.commit for base in bases]
        # A base in which the table has another name seems to be older than one that has a table of this name.
        if len(plain := self._ancestry.find_merge_bases(source, target)) > 1:
            commits += plain
        for commit in commits:
            if commit.graph_commit_id not in known:
                known.add(commit.graph_commit_id)
                tables = self._repo_store.commits.tables_of(self._repo_store.commits.get(commit.graph_commit_id))
                other = match_tables(self._repo_store.config, {key: like}, tables).get(key)
                found += () if other is None else (TableBase(commit=commit, entry=tables[other]),)
        return found

    def _record(self, base: TableBase) -> CommitRecord:
        return self._repo_store.commits.get(base.commit.graph_commit_id)

    def _merge_two(
        self, key: TableKey, *, base: TableEntry | None, source: TableEntry | None, target: TableEntry | None
    ) -> TableEntry | None:
        """Merge two states of a table into a third one, which is staged and never published."""
        if source is None:
            return target
        if target is None:
            return source
        if is_same_state(base, source) or is_same_state(source, target):
            return target
        if base is not None and source.dataset != target.dataset:
            # On one side, another table got this name. The rows of two tables must not be mixed.
            return source if target.dataset == base.dataset else target
        match = TableMatch(
            key=key,
            base=None if base is None else TableState(key, base),
            source=TableState(key, source),
            target=TableState(key, target),
        )
        # Where the ancestors disagree, the base gets a null, so that both sides count as changed there. With the value
        # of one ancestor, a value that one side put back would be lost.
        combiner = replace(self._request.combiner, resolution=_NEITHER)
        combined = combiner.stage(MergeSteps(steps=(combiner.plan_table(match),)), {})
        what = f"the common base of '{key}', merged from several ancestors,"
        combined.conflicts.check_none(what, hint="change one side")
        return combined.changes.get(key, target)

    def plan(self, head: LogEntry, combination: Combination | None) -> MergePlan:
        """Return the plan of a merge on a head. Without a combination the target is up to date."""
        source, target = self._source, head.head
        bases = self._ancestry.find_merge_bases(source, target)
        plan = MergePlan(
            source=self._request.name,
            into=str(head.branch),
            source_commit_id=source.commit.graph_commit_id,
            target_commit_id=target.commit.graph_commit_id,
            base_commit_ids=tuple(base.graph_commit_id for base in bases),
            outcome=MergeOutcome.ALREADY_UP_TO_DATE,
        )
        if combination is None:
            return plan
        is_fast_forward = plan.base_commit_ids == (plan.target_commit_id,)
        conflicts = combination.conflicts
        return replace(
            plan,
            outcome=MergeOutcome.FAST_FORWARD if is_fast_forward else MergeOutcome.MERGED,
            tables=table_plans(combination.tables, conflicts),
            conflict_count=conflicts.count,
            conflicts=tuple(conflicts.first),
            strategy_gaps=conflicts.strategy_gaps,
        )


def _neither(cells: Cells) -> pa.Array:
    nulls = pa.nulls(len(cells.target), cells.target.type)
    has_null = pc.or_(cells.source.is_null(), cells.target.is_null()).to_numpy(zero_copy_only=False)
    return choose(nulls, cells.base, has_null)


def _only_the_key(conflict: Conflict) -> Any:
    key = conflict.key or {}
    return key if "_rowaddr" not in key else conflict.target


# Where two bases disagree, the virtual base has a cell or a row that differs from both: null, or the value of the base
# if one of the sides is null; a row with only its key, or the row of the target if the table has no key.
_NEITHER = Resolution(strategy=Strategy.TARGET, resolvers={}, any_cell=resolved_by(_neither), any_row=_only_the_key)
