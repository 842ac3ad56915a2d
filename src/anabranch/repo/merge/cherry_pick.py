"""Revert commits, or apply their changes to another branch.

A table that has not changed since then gets its other state by pointer. The rows of all other tables are merged.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile

from anabranch.errors import CommitNotFoundError, InvalidInputError, WriteConflictError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.commits import CommitSpec, Inspect
from anabranch.repo.log.entries import (
    BranchEvent,
    Changes,
    CommitKind,
    CommitRecord,
    LogEntry,
    is_same_state,
)
from anabranch.repo.log.store import RepoStore, View
from anabranch.repo.merge.combiner import Combiner
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.plan import CommitPlan
from anabranch.repo.merge.replay import (
    Change,
    NewCommits,
    Replayed,
    apply_changes,
    check_expected_head,
    check_resolvers,
    find_released,
    hold,
    iter_change_conflicts,
    make_commits,
    plan_changes,
    publish_commits,
)
from anabranch.repo.refs.protection import refuse_protected
from anabranch.repo.refs.resolve import is_made_by
from anabranch.repo.write.publish import Published, publish


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


def pick_commit(repo_store: RepoStore, request: Pick) -> Published:
    """Apply or revert one commit, and publish the result.

    A table of a live branch that followed main before a reverted commit follows it again, if it was not changed since.
    """
    (record,) = request.commits
    change = _change(repo_store, request, record)
    expected = repo_store.heads.get(request.combiner.branch)
    released = find_released(expected, change, repo_store.commits.tables_of(expected.head))
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
        check_resolvers(tables, [change], request.combiner)
        what = f"the change on '{entry.branch}'"
        changes = apply_changes(tables, change, request.combiner, what=what, released=spec.released)
        if not changes and not spec.released:
            raise _nothing_to_change(request)
        return changes

    return publish(repo_store, expected=expected, changes=changes_on(expected), spec=spec, rebase=changes_on)


def pick_commits(repo_store: RepoStore, request: Pick) -> Replayed:
    """Apply or revert several commits, each by a commit, with one entry of the log: all of them or none."""
    changes = _changes(repo_store, request)

    def make(head: LogEntry) -> NewCommits:
        _check_head(request, head)
        made = make_commits(repo_store, head, View.now(repo_store, head), changes, request.combiner)
        if not made.commits:
            raise _nothing_to_change(request)
        return made

    hold(repo_store, [record.commit.graph_commit_id for record in request.commits])
    branch = request.combiner.branch
    return publish_commits(repo_store, branch, make, event=BranchEvent.COMMITTED, inspect=request.inspect)


def plan_picks(repo_store: RepoStore, request: Pick) -> tuple[CommitPlan, ...]:
    """Return what each commit would change, up to the first one with conflicts. Nothing is published."""
    changes = _changes(repo_store, request)
    head = repo_store.heads.get(request.combiner.branch)
    _check_head(request, head)
    tables = View.now(repo_store, head).tables(repo_store.commits)
    return plan_changes(repo_store, tables, changes, request.combiner)


def iter_pick_conflicts(repo_store: RepoStore, request: Pick) -> Iterator[Conflict]:
    """Yield the conflicts of the first commit that has any. Nothing is published."""
    changes = _changes(repo_store, request)
    head = repo_store.heads.get(request.combiner.branch)
    tables = View.now(repo_store, head).tables(repo_store.commits)
    yield from iter_change_conflicts(repo_store, tables, changes, request.combiner)


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


def _changes(repo_store: RepoStore, request: Pick) -> list[Change]:
    return [_change(repo_store, request, record) for record in request.commits]


def _change(repo_store: RepoStore, request: Pick, record: CommitRecord) -> Change:
    """Return the change that a commit made, or, for a revert, that undoes it.

    The tables come from the log of its branch: only the log has the view of a live branch at the time of the commit.
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
    old, new = ({key: repo_store.commits.find_table(side, key) for key in keys} for side in (found, after.head))
    text = f"Revert {commit.message or commit.graph_commit_id}" if request.is_revert else commit.message
    spec = CommitSpec(
        message=request.message or text,
        kind=request.kind,
        metadata={**request.metadata, "commit": commit.graph_commit_id},
    )
    sources = (found.commit.graph_commit_id, commit.graph_commit_id)
    if not request.is_revert:
        return Change(commit=commit, before=old, after=new, spec=spec, sources=sources)
    followed = frozenset(key for key in keys if before.state.follows_main(key) and str(key) not in changed)
    return Change(commit=commit, before=new, after=old, spec=spec, sources=sources, followed=followed)
