"""Apply the changes of several commits on top of a state, one after the other.

A cherry-pick, a revert and a rebase are such lists of changes. Each change becomes a commit, and all commits are
published by one entry of the log, so that readers see all of them or none.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from anabranch.errors import WriteConflictError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.history.ancestry import Ancestry
from anabranch.repo.history.table_history import with_other_names
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import Changes, CommitRecord, GraphCommit, LogEntry, TableEntry, TableMap, is_same_state
from anabranch.repo.log.store import RepoStore
from anabranch.repo.merge.combiner import DECIDE, Combiner, Sides
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.plan import CommitPlan, table_plans
from anabranch.storage import in_parallel

Tables = Mapping[TableKey, TableEntry | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change to apply for one commit: the tables before and after it, and the commit to make of it."""

    commit: GraphCommit
    before: Tables
    after: Tables
    spec: CommitSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The log entry that published the new commits, oldest first. The entry is None if nothing had to be done."""

    entry: LogEntry | None
    commits: tuple[GraphCommit, ...] = ()


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


def make_commits(
    repo_store: RepoStore,
    head: LogEntry,
    onto: CommitRecord,
    changes: Sequence[Change],
    combiner: Combiner,
    *,
    by_pointer: bool = True,
) -> list[CommitRecord]:
    """Stage changes on top of a state and store their commits. Return the state and the new commits.

    With `by_pointer`, unchanged tables of the branch get their other state without a merge. See `apply_changes`.
    A change that the state already has is left out. Raise MergeConflictError if one has conflicts.
    """
    made = [onto]
    check_names_of_changes(repo_store.commits.tables_of(onto), changes, combiner)
    for change in changes:
        tables = repo_store.commits.tables_of(made[-1])
        what = f"commit {change.commit.graph_commit_id} on top of {made[-1].commit.graph_commit_id}"
        staged = apply_changes(tables, change, combiner, what=what, by_pointer=by_pointer)
        if staged:
            record, full_map = repo_store.commits.make(head, made[-1], staged, change.spec)
            repo_store.commits.put(record, full_map, durable=False)
            made.append(record)
    return made


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
    sides = _sides(change, keys, tables)
    return {**moved, **combiner.merge(sides, what, hint=DECIDE)}


def _sides(change: Change, keys: Set[TableKey], target: TableMap) -> Sides:
    base, source = (
        {key: entry for key in keys if (entry := side.get(key)) is not None} for side in (change.before, change.after)
    )
    return Sides(base=base, source=source, target=target)


def check_names_of_changes(tables: TableMap, changes: Sequence[Change], combiner: Combiner) -> None:
    """Raise InvalidInputError if a resolver is for a table or column that no change and no table has."""
    combiner.check_resolvers(*(_sides(change, change.after.keys(), tables) for change in changes))


def iter_change_conflicts(tables: TableMap, changes: Sequence[Change], combiner: Combiner) -> Iterator[Conflict]:
    """Yield the conflicts of the first change that has any. Those of later ones depend on how these are decided."""
    check_names_of_changes(tables, changes, combiner)
    for number, change in enumerate(changes, start=1):
        sides = _sides(change, change.after.keys(), tables)
        is_clean = True
        for conflict in combiner.iter_conflicts(combiner.plan(sides)):
            is_clean = False
            yield conflict
        if not is_clean:
            return
        if number < len(changes):
            tables = _tables_after(tables, change, sides, combiner)


def _tables_after(tables: TableMap, change: Change, sides: Sides, combiner: Combiner) -> TableMap:
    """Stage a change without conflicts, and return the tables after it. Garbage collection removes what was staged."""
    staged = combiner.merge(sides, f"commit {change.commit.graph_commit_id}", hint=DECIDE)
    return {key: entry for key, entry in {**tables, **staged}.items() if entry is not None}


def plan_changes(tables: TableMap, changes: Sequence[Change], combiner: Combiner) -> tuple[CommitPlan, ...]:
    """Return the plan of each change, up to the first one with conflicts. Nothing is published.

    A change is planned on top of the changes before it, which are staged for that. Garbage collection removes what was
    staged. So the plan of a single change writes nothing.
    """
    check_names_of_changes(tables, changes, combiner)
    plans: list[CommitPlan] = []
    for number, change in enumerate(changes, start=1):
        sides = _sides(change, change.after.keys(), tables)
        counted = combiner.count(combiner.plan(sides))
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
        if number < len(changes):
            tables = _tables_after(tables, change, sides, combiner)
    return tuple(plans)


def _movable(branch: BranchName, tables: TableMap, before: Tables, after: Tables) -> dict[TableKey, TableEntry | None]:
    """Return the tables that are unchanged and only need a pointer to another version in a home of the branch."""
    unchanged = [key for key in after if is_same_state(tables.get(key), before[key])]
    found = {key: after[key] for key in unchanged if _can_hold(branch, after[key])}
    # The home may belong to another table by now, because tables can be renamed. Two tables must not share a home.
    homes = Counter((entry.dataset, entry.home) for entry in {**tables, **found}.values() if entry is not None)
    movable = {key for key, entry in found.items() if entry is None or homes[entry.dataset, entry.home] == 1}
    # Merge both names of a renamed table together. Alone, one name is a dropped table, and the other one is a new one.
    merged = with_other_names((key for key in after if key not in movable), before, after)
    return {key: entry for key, entry in found.items() if key not in merged}


def _can_hold(branch: BranchName, entry: TableEntry | None) -> bool:
    """Return whether a branch can have a state without copying data: the version is in one of its own homes."""
    return entry is None or owns(branch, entry.home)
