"""Rebase a branch: apply its own commits again on top of another state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from anabranch.errors import InvalidInputError
from anabranch.ids import TableKey
from anabranch.repo.history.ancestry import Ancestry
from anabranch.repo.log.collected import collected_errors
from anabranch.repo.log.commits import CommitSpec, Inspect
from anabranch.repo.log.entries import BranchEvent, CommitKind, CommitRecord, GraphCommit, LogEntry
from anabranch.repo.log.store import RepoStore
from anabranch.repo.merge.combiner import Combiner
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.plan import CommitPlan
from anabranch.repo.merge.replay import (
    Change,
    Replayed,
    check_expected_head,
    hold,
    iter_change_conflicts,
    iter_own_commits,
    make_commits,
    plan_changes,
)
from anabranch.repo.refs.protection import refuse_protected
from anabranch.repo.write.publish import Made, move_branch

REBASED_FROM = "rebased_from"
_MAX_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebase:
    """The request to put the own commits of a branch on top of another state.

    With `expected_head` the branch must be at that commit. `inspect` reads the result before it is published.
    """

    onto: CommitRecord
    combiner: Combiner
    metadata: Mapping[str, str] = field(default_factory=dict)
    expected_head: str | None = None
    inspect: Inspect | None = None


def rebase_branch(repo_store: RepoStore, request: Rebase) -> Replayed:
    """Apply each own commit of a branch again on top of another state, with one entry of its log.

    If one commit has conflicts, nothing changes. A commit whose change the other state already has is left out.
    """
    made: list[CommitRecord] = []
    moved = Made()

    def decide(head: LogEntry) -> LogEntry | None:
        own = _find_own(repo_store, request, head)
        if own is None:
            made.clear()
            moved.commits = ()
            return None
        # A concurrent reset may make these commits unreachable while their rows are read.
        hold(repo_store, [commit.commit.graph_commit_id for _, commit in own])
        changes = [_change(repo_store, request, before, commit) for before, commit in own]
        with collected_errors(repo_store.config, partial(_iter_ids, own)):
            made[:] = make_commits(repo_store, head, request.onto, changes, request.combiner, by_pointer=False)
            moved.commits = made[1:]
        newest = made[-1]
        if request.inspect is not None:
            request.inspect(newest, repo_store.commits.tables_of(newest))
        repo_store.config.store.sync_all()  # One call for the files of all commits, instead of one call for each file.
        at = max(repo_store.config.clock(), newest.commit.created_at)
        return repo_store.heads.next_entry(head, BranchEvent.REBASED, at=at, head=newest.pinned())

    entry = move_branch(repo_store, request.combiner.branch, decide, made=moved, attempts=_MAX_ATTEMPTS)
    if not made:
        return Replayed(entry=None)
    return Replayed(entry=entry, commits=tuple(record.commit for record in made[1:]))


def iter_rebase_conflicts(repo_store: RepoStore, request: Rebase) -> Iterator[Conflict]:
    """Yield the conflicts of the first own commit that has any. Nothing is published."""
    own = _find_own(repo_store, request, repo_store.heads.get(request.combiner.branch)) or []
    changes = [_change(repo_store, request, before, commit) for before, commit in own]
    with collected_errors(repo_store.config, partial(_iter_ids, own)):
        yield from iter_change_conflicts(repo_store.commits.tables_of(request.onto), changes, request.combiner)


def plan_rebase(repo_store: RepoStore, request: Rebase) -> tuple[CommitPlan, ...]:
    """Return what each own commit would change, up to the first one with conflicts. Nothing is published."""
    own = _find_own(repo_store, request, repo_store.heads.get(request.combiner.branch))
    if own is None:
        return ()
    changes = [_change(repo_store, request, before, commit) for before, commit in own]
    with collected_errors(repo_store.config, partial(_iter_ids, own)):
        return plan_changes(repo_store.commits.tables_of(request.onto), changes, request.combiner)


def _find_own(repo_store: RepoStore, request: Rebase, head: LogEntry) -> list[tuple[CommitRecord, CommitRecord]] | None:
    """Return the commits to apply, oldest first, each after the commit to compare it with.

    Return None if the branch is on top of the other state already.
    """
    refuse_protected(head)
    check_expected_head(head, request.expected_head)
    if head.state.is_live:
        raise InvalidInputError(
            f"branch '{head.branch}' is live and follows main already",
            hint="freeze it first, or merge main into it",
        )
    ancestry, onto = Ancestry(repo_store), request.onto
    if ancestry.is_ancestor(onto, head.head):
        return None
    own = _own_commits(repo_store, ancestry, head, onto)
    return [(_before(repo_store, ancestry, commit, onto), commit) for commit in own]


def _iter_ids(commits: list[tuple[CommitRecord, CommitRecord]]) -> Iterator[str]:
    return (record.commit.graph_commit_id for both in commits for record in both)


def _own_commits(repo_store: RepoStore, ancestry: Ancestry, head: LogEntry, onto: CommitRecord) -> list[CommitRecord]:
    """Return the commits of a branch that another state does not have, oldest first."""
    return [*iter_own_commits(repo_store, ancestry, head.head, onto)][::-1]


def _before(repo_store: RepoStore, ancestry: Ancestry, commit: CommitRecord, onto: CommitRecord) -> CommitRecord:
    """Return the commit to compare a commit with, usually its parent.

    For a merge of a state that `onto` already has, it is the merged state, so that only the own changes are applied.
    """
    merged = commit.commit.merged_parent_commit_id
    # A merge of a live branch also took tables of main, which the merged commit does not have.
    if merged is not None and commit.taken_from is None:
        record = repo_store.commits.get(merged)
        if ancestry.is_ancestor(record, onto):
            return record
    return repo_store.commits.get(commit.commit.parent_commit_id or "")


def _change(repo_store: RepoStore, request: Rebase, before: CommitRecord, commit: CommitRecord) -> Change:
    keys = [TableKey.parse(key) for key in commit.commit.tables]
    old, new = ({key: repo_store.commits.find_table(side, key) for key in keys} for side in (before, commit))
    return Change(commit=commit.commit, before=old, after=new, spec=_spec(commit.commit, request.metadata))


def _spec(commit: GraphCommit, metadata: Mapping[str, str]) -> CommitSpec:
    # The rebased commit has one parent, so that it is not a merge any more.
    kind = CommitKind.CHANGE if commit.kind is CommitKind.MERGE else commit.kind
    return CommitSpec(
        message=commit.message,
        kind=kind,
        metadata={**commit.metadata, **metadata, REBASED_FROM: commit.graph_commit_id},
    )
