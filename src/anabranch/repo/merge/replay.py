"""Apply the changes of several commits on top of a state, one after the other.

A cherry-pick, a revert and a rebase are such lists of changes. Each change becomes a commit, and all commits are
published by one entry of the log, so that readers see all of them or none.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from anabranch.errors import WriteConflictError
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
from anabranch.repo.log.store import RepoStore, View
from anabranch.repo.merge.combiner import DECIDE, Combiner, Sides
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.plan import CommitPlan, table_plans
from anabranch.repo.merge.steps import MergeSteps
from anabranch.repo.write.publish import Made, move_branch
from anabranch.storage import in_parallel

Tables = Mapping[TableKey, TableEntry | None]
_MAX_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change to apply for one commit: the tables before and after it, and the commit to make of it.

    `sources` are the ids of the commits that the tables come from. `followed` are tables that follow main again on a
    live branch, because the change reverts a commit of that branch that changed them first.
    """

    commit: GraphCommit
    before: Tables
    after: Tables
    spec: CommitSpec
    sources: tuple[str, ...]
    followed: frozenset[TableKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The log entry that published the new commits, oldest first. The entry is None if nothing had to be done."""

    entry: LogEntry | None
    commits: tuple[GraphCommit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommits:
    """New commits on top of a state, oldest first, and what their branch shows with them."""

    view: View
    commits: tuple[CommitRecord, ...] = ()


def check_expected_head(head: LogEntry, expected: str | None) -> None:
    """Raise WriteConflictError if a branch is not on the commit that the caller expects."""
    found = head.head.commit.graph_commit_id
    if expected is not None and found != expected:
        raise WriteConflictError(
            f"branch '{head.branch}' is on commit {found}, not on the expected {expected}",
            hint="read the new commits, then try again with the new head as `expected_head`",
        )


def check_expected_source(name: str, commit: GraphCommit, expected: str | None) -> None:
    """Raise WriteConflictError if the source of a merge is not on the commit that the caller expects."""
    if expected is not None and commit.graph_commit_id != expected:
        raise WriteConflictError(
            f"the source '{name}' is on commit {commit.graph_commit_id}, not on the expected {expected}",
            hint="read the new commits, then try again with the new head as `expected_source`",
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


def hold(repo_store: RepoStore, commits: Sequence[str]) -> None:
    """Protect commits from garbage collection: the new commits may point to their table versions."""
    if repo_store.lease is not None:
        repo_store.lease.hold(list(commits))
    # After the lease names them: a collection marks first and reads the leases then, so that one of the two sees the
    # other.
    in_parallel(partial(require_uncollected, repo_store.config), commits)


def publish_commits(
    repo_store: RepoStore,
    branch: BranchName,
    make: Callable[[LogEntry], NewCommits | None],
    *,
    event: BranchEvent,
    inspect: Inspect | None,
) -> Replayed:
    """Publish new commits with one entry of the log: all of them or none.

    `make` stores them on top of a head, again for each head that another writer puts first. It returns None if nothing
    is to be done. `inspect` reads the result before it is published.
    """
    made = Made()
    latest: list[NewCommits] = []

    def decide(head: LogEntry) -> LogEntry | None:
        found = make(head)
        latest[:] = [] if found is None else [found]
        made.commits = () if found is None else found.commits
        if found is None:
            return None
        newest = found.view.head
        if inspect is not None:
            inspect(newest, repo_store.commits.tables_of(newest))
        repo_store.config.store.sync_all()  # One call for the files of all commits, instead of one call for each file.
        at = max(repo_store.config.clock(), newest.commit.created_at)
        repo_store.check_lease()
        if head.state.is_live:
            return repo_store.heads.next_entry(head, event, at=at, head=newest, own=found.view.own)
        return repo_store.heads.next_entry(head, event, at=at, head=newest.pinned())

    entry = move_branch(repo_store, branch, decide, made=made, attempts=_MAX_ATTEMPTS)
    if not latest:
        return Replayed(entry=None)
    return Replayed(entry=entry, commits=tuple(record.commit for record in made.commits))


def make_commits(
    repo_store: RepoStore,
    head: LogEntry,
    view: View,
    changes: Sequence[Change],
    combiner: Combiner,
    *,
    by_pointer: bool = True,
) -> NewCommits:
    """Stage changes on top of what a view shows, and store their commits, which follow a head.

    With `by_pointer`, unchanged tables of the branch get their other state without a merge. See `apply_changes`.
    A change that the branch already has is left out. Raise MergeConflictError if one has conflicts.
    """
    made: list[CommitRecord] = []
    check_resolvers(view.tables(repo_store.commits), changes, combiner)
    for change in changes:
        tables = view.tables(repo_store.commits)
        released = find_released(head, change, tables)
        what = f"commit {change.commit.graph_commit_id} on top of {view.commit.graph_commit_id}"
        with _collected_errors(repo_store, [change]):
            staged = apply_changes(tables, change, combiner, what=what, released=released, by_pointer=by_pointer)
        # The branch has this change already, and an empty commit would record nothing.
        if not staged and not released:
            continue
        below = view.without(released)
        main = None if below.main is None else below.main.commit
        record, full_map = repo_store.commits.make(
            head, below.record, staged, replace(change.spec, released=released), main=main
        )
        # They are synced once for all commits, before the entry that refers to them is put.
        check_clock(repo_store.config, repo_store.commits.put(record, full_map, durable=False))
        made.append(record)
        view = replace(below, head=record, own=tuple(sorted({*below.own, *staged})))
    return NewCommits(view=view, commits=tuple(made))


def find_released(head: LogEntry, change: Change, tables: TableMap) -> frozenset[TableKey]:
    """Return the tables of a live branch that follow main again with a change, if they were not changed since."""
    commit = change.commit
    # The commit of another branch did not decide what follows main on this one.
    if not head.state.is_live or not head.has_own(BranchName(commit.branch), commit.manifest_version):
        return frozenset()
    return frozenset(key for key in change.followed if is_same_state(tables.get(key), change.before[key]))


def apply_changes(
    tables: TableMap,
    change: Change,
    combiner: Combiner,
    *,
    what: str,
    released: Set[TableKey] = frozenset(),
    by_pointer: bool = True,
) -> Changes:
    """Stage a change on tables of a branch, except for `released` tables. Return the new entries.

    With `by_pointer`, a table that is as it was before the change gets its other state by pointer, if that is in a home
    of the branch.
    """
    after = {key: entry for key, entry in change.after.items() if key not in released}
    moved = _movable(combiner.branch, tables, change.before, after) if by_pointer else {}
    keys = {key for key in after if key not in moved}
    if not keys:
        return moved
    return {**moved, **combiner.merge(_sides(change, keys, tables), what, hint=DECIDE)}


def _sides(change: Change, keys: Set[TableKey], target: TableMap) -> Sides:
    base, source = (
        {key: entry for key in keys if (entry := side.get(key)) is not None} for side in (change.before, change.after)
    )
    return Sides(base=base, source=source, target=target)


def check_resolvers(tables: TableMap, changes: Sequence[Change], combiner: Combiner) -> None:
    """Raise InvalidInputError if a resolver is for a table or column that no change and no table has."""
    combiner.check_resolvers(*(_sides(change, change.after.keys(), tables) for change in changes))


def _collected_errors(repo_store: RepoStore, changes: Sequence[Change]) -> AbstractContextManager[None]:
    return collected_errors(repo_store.config, lambda: [each for change in changes for each in change.sources])


# Without publishing anything


def iter_change_conflicts(
    repo_store: RepoStore, tables: TableMap, changes: Sequence[Change], combiner: Combiner
) -> Iterator[Conflict]:
    """Yield the conflicts of the first change that has any. Those of later ones depend on how these are decided."""
    with _collected_errors(repo_store, changes):
        for _, steps in _iter_steps(tables, changes, combiner):
            is_clean = True
            for conflict in combiner.iter_conflicts(steps):
                is_clean = False
                yield conflict
            if not is_clean:
                return


def plan_changes(
    repo_store: RepoStore, tables: TableMap, changes: Sequence[Change], combiner: Combiner
) -> tuple[CommitPlan, ...]:
    """Return the plan of each change, up to the first one with conflicts. The plan of a single one writes nothing."""
    plans: list[CommitPlan] = []
    with _collected_errors(repo_store, changes):
        for change, steps in _iter_steps(tables, changes, combiner):
            counted = combiner.count(steps)
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
    return tuple(plans)


def _iter_steps(tables: TableMap, changes: Sequence[Change], combiner: Combiner) -> Iterator[tuple[Change, MergeSteps]]:
    """Yield the steps of each change on top of the changes before it.

    These are staged when the next steps are asked for, so they must have no conflicts. Garbage collection removes what
    was staged.
    """
    check_resolvers(tables, changes, combiner)
    for number, change in enumerate(changes, start=1):
        steps = combiner.plan(_sides(change, change.after.keys(), tables))
        yield change, steps
        if number < len(changes):
            staged = combiner.stage(steps, tables).changes
            tables = {key: entry for key, entry in {**tables, **staged}.items() if entry is not None}


def _movable(branch: BranchName, tables: TableMap, before: Tables, after: Tables) -> dict[TableKey, TableEntry | None]:
    """Return the tables that are unchanged and only need a pointer to another version in a home of the branch."""
    unchanged = [key for key in after if is_same_state(tables.get(key), before[key])]
    # The version is in one of the branch's own homes, so that no data is copied.
    found = {key: entry for key in unchanged if (entry := after[key]) is None or owns(branch, entry.home)}
    # The home may belong to another table by now, because tables can be renamed. Two tables must not share a home.
    homes = Counter((entry.dataset, entry.home) for entry in {**tables, **found}.values() if entry is not None)
    movable = {key for key, entry in found.items() if entry is None or homes[entry.dataset, entry.home] == 1}
    # Merge both names of a renamed table together. Alone, one name is a dropped table, and the other one is a new one.
    merged = with_other_names((key for key in after if key not in movable), before, after)
    return {key: entry for key, entry in found.items() if key not in merged}
