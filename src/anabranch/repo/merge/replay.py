"""Apply the changes of several commits on top of a state, one after the other.

A cherry-pick, a revert and a rebase are such lists of changes. Each change becomes a commit, and all commits are
published by one entry of the log, so that readers see all of them or none.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from anabranch.errors import InvalidInputError, WriteConflictError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.history.ancestry import Ancestry
from anabranch.repo.history.table_history import with_other_names
from anabranch.repo.log.collected import collected_errors, require_uncollected
from anabranch.repo.log.commits import CommitSpec, Inspect
from anabranch.repo.log.config import check_clock, owns
from anabranch.repo.log.entries import (
    BranchEvent,
    Changes,
    CommitRecord,
    GraphCommit,
    LogEntry,
    TableEntry,
    TableMap,
    is_same_state,
)
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.merge.combiner import DECIDE, Combiner, Sides
from anabranch.repo.merge.conflict_types import Conflict
from anabranch.repo.merge.plan import CommitPlan, table_plans
from anabranch.repo.merge.steps import MergeSteps
from anabranch.repo.refs.protection import refuse_protected
from anabranch.repo.write.publish import Made, move_branch, refuse_removed_files
from anabranch.storage import in_parallel

_MAX_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change to apply for one commit: the tables before and after it, and the commit to make of it.

    `sources` are the ids of the commits that the tables come from. `followed` are tables that follow main again on a
    live branch, because the change reverts a commit of that branch that changed them first.
    """

    commit: GraphCommit
    before: Changes
    after: Changes
    spec: CommitSpec
    sources: tuple[str, ...]
    followed: frozenset[TableKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(ABC):
    """The request to apply the changes of commits to a branch.

    With `expected_head` the branch must be at that commit. `inspect` reads the result before it is published. With
    `by_pointer`, unchanged tables of the branch get their other state without a merge. See `_apply`.
    """

    combiner: Combiner
    metadata: Mapping[str, str] = field(default_factory=dict)
    expected_head: str | None = None
    inspect: Inspect | None = None

    event: ClassVar[BranchEvent]
    by_pointer: ClassVar[bool]

    @abstractmethod
    def find_changes(self, repo_store: RepoStore, head: LogEntry) -> tuple[View, Sequence[Change]] | None:
        """Return the state to build on, and the changes, oldest first. None if the branch has the result already."""

    def check_head(self, head: LogEntry) -> None:
        refuse_protected(head)
        check_expected_head(head, self.expected_head)


def check_expected_head(head: LogEntry, expected: str | None) -> None:
    """Raise WriteConflictError if a branch is not on the commit that the caller expects."""
    check_expected(f"branch '{head.branch}'", head.head.commit, expected, "expected_head")


def check_expected(what: str, commit: GraphCommit, expected: str | None, argument: str) -> None:
    """Raise WriteConflictError if a ref is not on the commit that the caller passed as an argument."""
    if expected is not None and commit.graph_commit_id != expected:
        raise WriteConflictError(
            f"{what} is on commit {commit.graph_commit_id}, not on the expected {expected}",
            hint=f"read the new commits, then try again with the new head as `{argument}`",
        )


def iter_own_commits(
    repo_store: RepoStore, ancestry: Ancestry, newer: CommitRecord, older: CommitRecord
) -> Iterator[CommitRecord]:
    """Yield the commits of a state that another one does not have, along first parents, newest first."""
    for commit in repo_store.commits.iter_history(newer):
        record = repo_store.commits.get(commit.graph_commit_id)
        if ancestry.is_ancestor(record, older):
            return
        yield record


def replay(repo_store: RepoStore, request: Replay) -> tuple[LogEntry | None, tuple[GraphCommit, ...]]:
    """Apply changes, and publish the new commits with one entry of the log: all of them or none.

    The commits are made again for each head that another writer puts first. If one change has conflicts, nothing
    changes. Return the entry, None if nothing had to be done, and the new commits, oldest first.
    """
    made = Made()
    is_moved = False

    def decide(head: LogEntry) -> LogEntry | None:
        nonlocal is_moved
        is_moved, made.commits = False, ()
        request.check_head(head)
        found = request.find_changes(repo_store, head)
        if found is None:
            return None
        view, changes = found
        held = [change.commit.graph_commit_id for change in changes]
        # A concurrent reset may make these commits unreachable while they are read.
        if repo_store.lease is not None:
            repo_store.lease.hold(held)
        # After the lease names them: a collection marks first and reads the leases then, so that one of the two sees
        # the other.
        in_parallel(partial(require_uncollected, repo_store.config), held)
        view, made.commits = _make_commits(repo_store, head, view, changes, request)
        newest = view.head
        # A rebase moves the branch also without new commits.
        if newest is head.head:
            what = f"commit {held[0]}" if len(held) == 1 else f"{len(held)} commits"
            hint = "the branch already has the result, so no commit is needed"
            raise InvalidInputError(f"{what} would change nothing on branch '{head.branch}'", hint=hint)
        if request.inspect is not None:
            request.inspect(newest, repo_store.commits.tables_of(newest))
        repo_store.config.store.sync_all()  # One call for the files of all commits, instead of one call for each file.
        at = max(repo_store.config.clock(), newest.commit.created_at)
        repo_store.check_lease()
        is_moved = True
        if head.state.is_live:
            return repo_store.heads.next_entry(head, request.event, at=at, head=newest, own=view.own)
        return repo_store.heads.next_entry(head, request.event, at=at, head=replace(newest, main_id=None))

    entry = move_branch(repo_store, request.combiner.branch, decide, made=made, attempts=_MAX_ATTEMPTS)
    return (entry, tuple(record.commit for record in made.commits)) if is_moved else (None, ())


def _make_commits(
    repo_store: RepoStore, head: LogEntry, view: View, changes: Sequence[Change], request: Replay
) -> tuple[View, tuple[CommitRecord, ...]]:
    """Stage changes on top of a view, and store their commits, which follow a head.

    Return the view of the branch with them. A change that it already has is left out.
    """
    made: list[CommitRecord] = []
    combiner, tables = request.combiner, view.tables(repo_store.commits)
    combiner.check_resolvers(*(_sides(change, tables) for change in changes))
    for change in changes:
        tables = view.tables(repo_store.commits)
        released = _find_released(head, change, tables)
        what = f"commit {change.commit.graph_commit_id} on top of {view.commit.graph_commit_id}"
        with collected_errors(repo_store.config, partial(tuple, change.sources)):
            staged = _apply(tables, change, combiner, what, released=released, by_pointer=request.by_pointer)
        # The branch has this change already, and an empty commit would record nothing.
        if not staged and not released:
            continue
        if request.by_pointer:  # to an old state, whose files native cleanup may have removed
            refuse_removed_files(repo_store.config, head.home_branch, staged)
        below = view.without(released)
        main = None if below.main is None else below.main.commit
        spec = replace(change.spec, released=released)
        record, full_map = repo_store.commits.make(head, below.record, staged, spec, main=main)
        # They are synced once for all commits, before the entry that refers to them is put.
        check_clock(repo_store.config, repo_store.commits.put(record, full_map, durable=False))
        made.append(record)
        view = replace(below, head=record, own=tuple(sorted({*below.own, *staged})))
    if changes:  # A rebase may apply no commit.
        combiner.resolution.decisions.check_met()
    return view, tuple(made)


def _find_released(head: LogEntry, change: Change, tables: TableMap) -> frozenset[TableKey]:
    """Return the tables of a live branch that follow main again with a change, if they were not changed since."""
    commit = change.commit
    # The commit of another branch did not decide what follows main on this one.
    if not head.state.is_live or not head.has_own(BranchName(commit.branch), commit.manifest_version):
        return frozenset()
    return frozenset(key for key in change.followed if is_same_state(tables.get(key), change.before[key]))


def _apply(
    tables: TableMap, change: Change, combiner: Combiner, what: str, *, released: Set[TableKey], by_pointer: bool
) -> Changes:
    """Stage a change on tables of a branch, except for `released` tables. Return the new entries.

    With `by_pointer`, a table that is as it was before the change gets its other state by pointer, if that is in a home
    of the branch. Raise MergeConflictError, which names `what` is applied, if conflicts are left.
    """
    after = {key: entry for key, entry in change.after.items() if key not in released}
    moved = _movable(combiner.branch, tables, change.before, after) if by_pointer else {}
    keys = {key for key in after if key not in moved}
    if not keys:
        return moved
    return {**moved, **combiner.merge(_sides(change, tables, keys), what, hint=DECIDE)}


def _sides(change: Change, target: TableMap, keys: Set[TableKey] | None = None) -> Sides:
    keys = change.after.keys() if keys is None else keys
    return Sides.of(keys, base=change.before, source=change.after, target=target)


# Without publishing anything


def iter_replay_conflicts(repo_store: RepoStore, request: Replay) -> Iterator[Conflict]:
    """Yield the conflicts of the first change that has any. Those of later ones depend on how these are decided."""
    with _planned(repo_store, request, repo_store.heads.get(request.combiner.branch)) as planned:
        for _, steps in planned:
            is_clean = True
            for conflict in request.combiner.iter_conflicts(steps):
                is_clean = False
                yield conflict
            if not is_clean:
                return


def plan_replay(repo_store: RepoStore, request: Replay) -> tuple[CommitPlan, ...]:
    """Return the plan of each change, up to the first one with conflicts. The plan of a single one writes nothing."""
    head = repo_store.heads.get(request.combiner.branch)
    request.check_head(head)
    plans: list[CommitPlan] = []
    with _planned(repo_store, request, head) as planned:
        for change, steps in planned:
            counted = request.combiner.count(steps)
            plan = CommitPlan(
                commit_id=change.commit.graph_commit_id,
                message=change.commit.message,
                tables=table_plans(counted.tables, counted.conflicts),
                conflict_count=counted.conflicts.count,
                conflicts=tuple(counted.conflicts.first),
                strategy_gaps=counted.conflicts.strategy_gaps,
            )
            plans.append(plan)
            if not plan.is_clean:
                break
    if plans and plans[-1].is_clean:
        request.combiner.resolution.decisions.check_met()
    return tuple(plans)


@contextmanager
def _planned(repo_store: RepoStore, request: Replay, head: LogEntry) -> Iterator[Iterator[tuple[Change, MergeSteps]]]:
    """Provide the steps of each change on top of the changes before it.

    These are staged when the next steps are requested, so they must have no conflicts. Garbage collection removes the
    staged files.
    """
    view, changes = request.find_changes(repo_store, head) or (View.of(head), ())

    def steps() -> Iterator[tuple[Change, MergeSteps]]:
        tables, combiner = view.tables(repo_store.commits), request.combiner
        combiner.check_resolvers(*(_sides(change, tables) for change in changes))
        for number, change in enumerate(changes, start=1):
            planned = combiner.plan(_sides(change, tables))
            yield change, planned
            if number < len(changes):
                staged = combiner.stage(planned, tables).changes
                tables = {key: entry for key, entry in {**tables, **staged}.items() if entry is not None}

    # A context around the loop of the caller, because rows are read there, too.
    with collected_errors(repo_store.config, lambda: [each for change in changes for each in change.sources]):
        yield steps()


def _movable(branch: BranchName, tables: TableMap, before: Changes, after: Changes) -> Changes:
    """Return the tables that are unchanged and only need a pointer to another version in a home of the branch."""
    found: dict[TableKey, TableEntry | None] = {}
    for key, entry in after.items():
        # The version is in one of the branch's own homes, so that no data is copied.
        is_own = entry is None or owns(branch, entry.home)
        if is_own and is_same_state(tables.get(key), before[key]):
            found[key] = entry
    movable = _with_own_homes(found, tables)
    # Merge both names of a renamed table together. Alone, one name is a dropped table, and the other one is a new one.
    merged = with_other_names((key for key in after if key not in movable), before, after)
    return {key: entry for key, entry in movable.items() if key not in merged}


def _with_own_homes(found: Changes, tables: TableMap) -> Changes:
    """Return the changes, without those that give a table the home of another one."""
    # The home may belong to another table by now, because tables can be renamed. Two tables must not share a home.
    homes = Counter((entry.dataset, entry.home) for entry in {**tables, **found}.values() if entry is not None)
    return {key: entry for key, entry in found.items() if entry is None or homes[entry.dataset, entry.home] == 1}
