"""Rebase a branch: apply its own commits again on top of another state."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from anabranch.errors import InvalidInputError
from anabranch.ids import TableKey
from anabranch.repo.history.ancestry import Ancestry
from anabranch.repo.log.collected import collected_errors, require_uncollected
from anabranch.repo.log.entries import BranchEvent, CommitKind, CommitRecord, GraphCommit, LogEntry
from anabranch.repo.log.making import CommitSpec, make_record
from anabranch.repo.log.store import RepoStore
from anabranch.repo.log.view import View
from anabranch.repo.merge.combiner import DECIDE, Combiner, Sides
from anabranch.repo.refs.protection import refuse_protected
from anabranch.repo.write.publish import move_branch
from anabranch.storage import in_parallel

__all__ = ["REBASED_FROM", "Rebased", "rebase_branch"]

REBASED_FROM = "rebased_from"
_MAX_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebased:
    """The log entry of a rebase, and the new commits, oldest first. The entry is None if nothing had to be done."""

    entry: LogEntry | None
    commits: tuple[GraphCommit, ...]


def rebase_branch(repo_store: RepoStore, onto: CommitRecord, combiner: Combiner) -> Rebased:
    """Apply each own commit of a branch again on top of another state, with one entry of its log.

    If one commit has conflicts, nothing changes. A commit whose change the other state already has is left out.
    """
    made: list[CommitRecord] = []

    def decide(head: LogEntry) -> LogEntry | None:
        refuse_protected(head)
        if head.state.is_live:
            raise InvalidInputError(
                f"branch '{head.branch}' is live and follows main already",
                hint="freeze it first, or merge main into it",
            )
        ancestry = Ancestry(repo_store)
        if ancestry.is_ancestor(onto, head.head):
            made.clear()
            return None
        own = [
            (_before(repo_store, ancestry, commit, onto), commit)
            for commit in _own_commits(repo_store, ancestry, head, onto)
        ]
        _hold(repo_store, [commit.commit.graph_commit_id for _, commit in own])
        with collected_errors(repo_store.config, partial(_iter_ids, own)):
            made[:] = _replay(repo_store, head, onto, own, combiner)
        repo_store.config.store.sync_all()  # One call for the files of all commits, instead of one call for each file.
        newest = made[-1]
        at = max(repo_store.config.clock(), newest.commit.created_at)
        return repo_store.heads.next_entry(head, BranchEvent.REBASED, at=at, head=newest.pinned())

    entry = move_branch(repo_store, combiner.branch, decide, made=lambda: made[1:], attempts=_MAX_ATTEMPTS)
    if not made:
        return Rebased(entry=None, commits=())
    return Rebased(entry=entry, commits=tuple(record.commit for record in made[1:]))


def _hold(repo_store: RepoStore, commits: list[str]) -> None:
    """Protect commits from garbage collection: the new commits may point to their table versions."""
    if repo_store.lease is not None:
        repo_store.lease.hold(commits)
    in_parallel(partial(require_uncollected, repo_store.config), commits)


def _iter_ids(commits: list[tuple[CommitRecord, CommitRecord]]) -> Iterator[str]:
    return (record.commit.graph_commit_id for both in commits for record in both)


def _own_commits(repo_store: RepoStore, ancestry: Ancestry, head: LogEntry, onto: CommitRecord) -> list[CommitRecord]:
    """Return the commits of a branch that another state does not have, oldest first."""
    own = []
    for commit in repo_store.commits.iter_history(head.head):
        record = repo_store.commits.get(commit.graph_commit_id)
        if ancestry.is_ancestor(record, onto):
            break
        own.append(record)
    return own[::-1]


def _before(repo_store: RepoStore, ancestry: Ancestry, commit: CommitRecord, onto: CommitRecord) -> CommitRecord:
    """Return the commit to compare a commit with, usually its parent.

    For a merge of a state that `onto` already has, it is the merged state, so that only the own changes are applied.
    """
    merged = commit.commit.merged_parent_commit_id
    if merged is not None and commit.taken_from is None:
        record = repo_store.commits.get(merged)
        if ancestry.is_ancestor(record, onto):
            return record
    return repo_store.commits.get(commit.commit.parent_commit_id or "")


def _replay(
    repo_store: RepoStore,
    head: LogEntry,
    onto: CommitRecord,
    commits: list[tuple[CommitRecord, CommitRecord]],
    combiner: Combiner,
) -> list[CommitRecord]:
    """Apply commits, each given with the commit before it, on top of `onto`. Return `onto` and the new commits."""
    made = [onto]
    for before, commit in commits:
        tables = repo_store.commits.tables_of(made[-1])
        keys = [TableKey.parse(key) for key in commit.commit.tables]
        base, source = (
            {key: entry for key in keys if (entry := repo_store.commits.find_table(side, key)) is not None}
            for side in (before, commit)
        )
        what = f"commit {commit.commit.graph_commit_id} on top of {onto.commit.graph_commit_id}"
        changes = combiner.merge(Sides(base=base, source=source, target=tables), what, hint=DECIDE)
        if changes:
            view = View(head=made[-1])
            record, full_map = make_record(repo_store, head, view, changes, _spec(commit.commit))
            repo_store.commits.put(record, full_map, durable=False)
            made.append(record)
    return made


def _spec(commit: GraphCommit) -> CommitSpec:
    kind = CommitKind.CHANGE if commit.kind is CommitKind.MERGE else commit.kind
    return CommitSpec(
        message=commit.message, kind=kind, metadata={**commit.metadata, REBASED_FROM: commit.graph_commit_id}
    )
