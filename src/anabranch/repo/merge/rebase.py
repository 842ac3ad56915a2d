"""Rebase a branch: apply its own commits again on top of another state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from anabranch.errors import InvalidInputError
from anabranch.ids import TableKey
from anabranch.repo.history.ancestry import Ancestry
from anabranch.repo.log.commits import CommitSpec, Inspect
from anabranch.repo.log.entries import BranchEvent, CommitKind, CommitRecord, GraphCommit, LogEntry
from anabranch.repo.log.store import RepoStore, View
from anabranch.repo.merge.combiner import Combiner
from anabranch.repo.merge.conflicts import Conflict
from anabranch.repo.merge.plan import CommitPlan
from anabranch.repo.merge.replay import (
    Change,
    NewCommits,
    Replayed,
    check_expected_head,
    hold,
    iter_change_conflicts,
    iter_own_commits,
    make_commits,
    plan_changes,
    publish_commits,
)
from anabranch.repo.refs.protection import refuse_protected

REBASED_FROM = "rebased_from"


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

    def make(head: LogEntry) -> NewCommits | None:
        changes = _find_changes(repo_store, request, head)
        if changes is None:
            return None
        # A concurrent reset may make these commits unreachable while their rows are read.
        hold(repo_store, [change.commit.graph_commit_id for change in changes])
        onto = View(head=request.onto)
        return make_commits(repo_store, head, onto, changes, request.combiner, by_pointer=False)

    branch = request.combiner.branch
    return publish_commits(repo_store, branch, make, event=BranchEvent.REBASED, inspect=request.inspect)


def iter_rebase_conflicts(repo_store: RepoStore, request: Rebase) -> Iterator[Conflict]:
    """Yield the conflicts of the first own commit that has any. Nothing is published."""
    changes = _find_changes(repo_store, request, repo_store.heads.get(request.combiner.branch)) or []
    tables = repo_store.commits.tables_of(request.onto)
    yield from iter_change_conflicts(repo_store, tables, changes, request.combiner)


def plan_rebase(repo_store: RepoStore, request: Rebase) -> tuple[CommitPlan, ...]:
    """Return what each own commit would change, up to the first one with conflicts. Nothing is published."""
    changes = _find_changes(repo_store, request, repo_store.heads.get(request.combiner.branch))
    if changes is None:
        return ()
    return plan_changes(repo_store, repo_store.commits.tables_of(request.onto), changes, request.combiner)


def _find_changes(repo_store: RepoStore, request: Rebase, head: LogEntry) -> list[Change] | None:
    """Return the changes of the own commits of a branch, oldest first.

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
    own = [*iter_own_commits(repo_store, ancestry, head.head, onto)][::-1]
    return [_change(repo_store, request, _before(repo_store, ancestry, commit, onto), commit) for commit in own]


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
    sources = (before.commit.graph_commit_id, commit.commit.graph_commit_id)
    return Change(
        commit=commit.commit, before=old, after=new, spec=_spec(commit.commit, request.metadata), sources=sources
    )


def _spec(commit: GraphCommit, metadata: Mapping[str, str]) -> CommitSpec:
    # The rebased commit has one parent, so that it is not a merge any more.
    kind = CommitKind.CHANGE if commit.kind is CommitKind.MERGE else commit.kind
    return CommitSpec(
        message=commit.message,
        kind=kind,
        metadata={**commit.metadata, **metadata, REBASED_FROM: commit.graph_commit_id},
    )
