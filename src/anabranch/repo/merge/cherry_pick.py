"""Revert commits, or apply their changes to another branch.

A table that has not changed since then gets its other state by pointer. The rows of all other tables are merged.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import takewhile

from anabranch.errors import CommitNotFoundError, InvalidInputError, WriteConflictError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.collected import collected_errors, require_uncollected
from anabranch.repo.log.commits import CommitSpec, Inspect
from anabranch.repo.log.entries import (
    BranchEvent,
    Changes,
    CommitKind,
    CommitRecord,
    LogEntry,
    TableMap,
    is_same_state,
)
from anabranch.repo.log.store import RepoStore, View
from anabranch.repo.merge.combiner import Combiner
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.plan import CommitPlan
from anabranch.repo.merge.replay import (
    Change,
    Replayed,
    Tables,
    apply_changes,
    check_expected_head,
    check_names_of_changes,
    hold,
    iter_change_conflicts,
    make_commits,
    plan_changes,
)
from anabranch.repo.refs.protection import refuse_protected
from anabranch.repo.refs.resolve import is_made_by
from anabranch.repo.write.publish import Made, Published, move_branch, publish

_MAX_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The request to apply commits to a branch, or to revert them, in the given order.

    With `expected_head` the branch must be at that commit. `inspect` reads the result before it is published.
    """

    kind: CommitKind
    commits: tuple[CommitRecord, ...]
    combiner: Combiner
    message: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    expected_head: str | None = None
    inspect: Inspect | None = None

    @property
    def is_revert(self) -> bool:
        return self.kind is CommitKind.REVERT


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """The tables that a commit changed, before and after it. `followed` are those that followed main before it."""

    before: Tables
    after: Tables
    followed: frozenset[TableKey]


def pick_commit(repo_store: RepoStore, request: Pick) -> Published:
    """Apply or revert one commit, and publish the result.

    A table of a live branch that followed main before a reverted commit follows it again, if it was not changed since.
    """
    (record,) = request.commits
    sides = _sides(repo_store, record)
    change = _change(request, record, sides)
    expected = repo_store.heads.get(request.combiner.branch)
    released = _released(request, expected, record, sides, repo_store.commits.tables_of(expected.head))
    spec = replace(change.spec, inspect=request.inspect, released=released)

    def changes_on(entry: LogEntry) -> Changes:
        check_expected_head(entry, request.expected_head)
        # The released tables were found for a branch of the other mode, and only a live branch can release a table.
        if entry.state.mode is not expected.state.mode:
            raise WriteConflictError(
                f"branch '{entry.branch}' became {entry.state.mode} concurrently", hint="read the branch and try again"
            )
        tables = View.now(repo_store, entry).tables(repo_store.commits)
        # A table that was changed since must not follow main again, because that would lose the change.
        if not all(is_same_state(tables.get(key), change.before[key]) for key in spec.released):
            raise WriteConflictError(
                f"branch '{entry.branch}' moved concurrently", hint="read the branch and try again"
            )
        check_names_of_changes(tables, [change], request.combiner)
        what = f"the change on '{entry.branch}'"
        changes = apply_changes(tables, change, request.combiner, what=what, released=spec.released)
        if not changes and not spec.released:
            raise _nothing_to_change(request)
        return changes

    return publish(repo_store, expected=expected, changes=changes_on(expected), spec=spec, rebase=changes_on)


def pick_commits(repo_store: RepoStore, request: Pick) -> Replayed:
    """Apply or revert several commits, each by a commit, with one entry of the log: all of them or none."""
    changes = _changes(repo_store, request)
    made: list[CommitRecord] = []
    moved = Made()

    def decide(head: LogEntry) -> LogEntry:
        _check_head(request, head)
        own = head.state.own
        with _collected_errors(repo_store, request):
            if head.state.is_live:
                made[:], own = _make_live_commits(repo_store, head, request)
            else:
                made[:] = make_commits(repo_store, head, head.head, changes, request.combiner)
            moved.commits = made[1:]
        newest = made[-1]
        if len(made) == 1:
            raise _nothing_to_change(request)
        if request.inspect is not None:
            request.inspect(newest, repo_store.commits.tables_of(newest))
        repo_store.config.store.sync_all()  # One call for the files of all commits, instead of one call for each file.
        at = max(repo_store.config.clock(), newest.commit.created_at)
        return repo_store.heads.next_entry(head, BranchEvent.COMMITTED, at=at, head=newest, own=own)

    hold(repo_store, list(_iter_ids(request)))
    entry = move_branch(repo_store, request.combiner.branch, decide, made=moved, attempts=_MAX_ATTEMPTS)
    return Replayed(entry=entry, commits=tuple(record.commit for record in made[1:]))


def _make_live_commits(
    repo_store: RepoStore, head: LogEntry, request: Pick
) -> tuple[list[CommitRecord], tuple[TableKey, ...]]:
    """Stage changes on a live branch and store their commits. Return its head, the new commits, and its own tables.

    All of them are made on one state of main. A table that followed main before a reverted commit follows it again.
    """
    view = View.now(repo_store, head)
    made = [head.head]
    sides = [_sides(repo_store, record) for record in request.commits]
    changes = [_change(request, record, one) for record, one in zip(request.commits, sides, strict=True)]
    check_names_of_changes(view.tables(repo_store.commits), changes, request.combiner)
    for record, one, change in zip(request.commits, sides, changes, strict=True):
        tables = view.tables(repo_store.commits)
        released = _released(request, head, record, one, tables)
        what = f"commit {record.commit.graph_commit_id} on top of {made[-1].commit.graph_commit_id}"
        staged = apply_changes(tables, change, request.combiner, what=what, released=released)
        # The branch has this change already, and an empty commit would record nothing.
        if not staged and not released:
            continue
        below = view.without(released)
        spec = replace(change.spec, released=released)
        main = None if below.main is None else below.main.commit
        new, full_map = repo_store.commits.make(head, below.record, staged, spec, main=main)
        # The caller syncs once for all commits, before it puts the entry that refers to them.
        repo_store.commits.put(new, full_map, durable=False)
        made.append(new)
        view = replace(below, head=new, own=tuple(sorted({*below.own, *staged})))
    return made, view.own


def _released(
    request: Pick, head: LogEntry, record: CommitRecord, sides: _Sides, tables: TableMap
) -> frozenset[TableKey]:
    """Return the tables of a live branch that follow main again, because the commit that changed them is reverted."""
    # The commit of another branch did not decide what follows main on this one.
    commit = record.commit
    is_own = head.has_own(BranchName(commit.branch), commit.manifest_version)
    if not request.is_revert or not head.state.is_live or not is_own:
        return frozenset()
    return frozenset(key for key in sides.followed if is_same_state(tables.get(key), sides.after[key]))


def plan_picks(repo_store: RepoStore, request: Pick) -> tuple[CommitPlan, ...]:
    """Return what each commit would change, up to the first one with conflicts. Nothing is published."""
    changes = _changes(repo_store, request)
    head = repo_store.heads.get(request.combiner.branch)
    _check_head(request, head)
    with _collected_errors(repo_store, request):
        return plan_changes(View.now(repo_store, head).tables(repo_store.commits), changes, request.combiner)


def iter_pick_conflicts(repo_store: RepoStore, request: Pick) -> Iterator[Conflict]:
    """Yield the conflicts of the first commit that has any. Nothing is published."""
    changes = _changes(repo_store, request)
    head = repo_store.heads.get(request.combiner.branch)
    with _collected_errors(repo_store, request):
        tables = View.now(repo_store, head).tables(repo_store.commits)
        yield from iter_change_conflicts(tables, changes, request.combiner)


def _check_head(request: Pick, head: LogEntry) -> None:
    refuse_protected(head)
    check_expected_head(head, request.expected_head)


def _nothing_to_change(request: Pick) -> InvalidInputError:
    commits = [record.commit.graph_commit_id for record in request.commits]
    what = f"commit {commits[0]}" if len(commits) == 1 else f"{len(commits)} commits"
    return InvalidInputError(
        f"{what} would change nothing on branch '{request.combiner.branch}'",
        hint="the branch already has the result, so no commit is needed",
    )


def _iter_ids(request: Pick) -> Iterator[str]:
    return (record.commit.graph_commit_id for record in request.commits)


def _collected_errors(repo_store: RepoStore, request: Pick) -> AbstractContextManager[None]:
    return collected_errors(repo_store.config, lambda: _iter_ids(request))


def _changes(repo_store: RepoStore, request: Pick) -> list[Change]:
    return [_change(request, record, _sides(repo_store, record)) for record in request.commits]


def _change(request: Pick, record: CommitRecord, sides: _Sides) -> Change:
    commit = record.commit
    text = f"Revert {commit.message or commit.graph_commit_id}" if request.is_revert else commit.message
    spec = CommitSpec(
        message=request.message or text,
        kind=request.kind,
        metadata={**request.metadata, "commit": commit.graph_commit_id},
    )
    before, after = (sides.after, sides.before) if request.is_revert else (sides.before, sides.after)
    return Change(commit=commit, before=before, after=after, spec=spec)


def _sides(repo_store: RepoStore, record: CommitRecord) -> _Sides:
    """Return the tables before and after a commit.

    They come from the log of its branch: only the log has the view of a live branch at the time of the commit.
    """
    commit = record.commit
    if not commit.tables:
        raise InvalidInputError(
            f"commit {commit.graph_commit_id} changed no tables", hint="pass a commit that changed tables"
        )
    branch = BranchName(commit.branch)
    after = repo_store.heads.get_numbered(branch, commit.manifest_version)
    if not is_made_by(after, commit, repo_store):
        raise CommitNotFoundError(
            f"commit {commit.graph_commit_id} was never published", hint="list the commits of the branch"
        )
    if after.head.commit.graph_commit_id != commit.graph_commit_id:
        after = replace(
            after, head=repo_store.commits.get(commit.graph_commit_id)
        )  # A rebase published several commits in one log entry.
    before = repo_store.heads.get_numbered(branch, commit.manifest_version - 1)
    found = before.head
    if found.commit.graph_commit_id != commit.parent_commit_id and commit.parent_commit_id is not None:
        found = repo_store.commits.get(commit.parent_commit_id)
    elif before.state.is_live:
        found = View.of(before, View.of(after).find_main(repo_store.commits)).record
    # A table may get its old state by pointer, so the data of that state must not have been collected.
    require_uncollected(repo_store.config, found.commit.graph_commit_id)
    keys = [TableKey.parse(key) for key in commit.tables]
    # The entry may have published other commits below this one. Tables that these changed did not follow main.
    earlier = takewhile(
        lambda one: one.graph_commit_id != before.head.commit.graph_commit_id, repo_store.commits.iter_history(found)
    )
    changed = {key for one in earlier for key in one.tables} if before.state.is_live else set()
    return _Sides(
        before={key: repo_store.commits.find_table(found, key) for key in keys},
        after={key: repo_store.commits.find_table(after.head, key) for key in keys},
        followed=frozenset(key for key in keys if before.state.follows_main(key) and str(key) not in changed),
    )
