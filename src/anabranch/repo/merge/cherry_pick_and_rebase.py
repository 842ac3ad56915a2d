"""Apply the changes of commits to another branch, revert them, or rebase them onto another state.

A table that has not changed since then gets its other state by pointer, except in a rebase. The rows of all other
tables are merged.
"""

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import ClassVar

from anabranch.errors import CommitNotFoundError, InvalidInputError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.history.ancestry import Ancestry
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.entries import BranchEvent, CommitKind, CommitRecord, LogEntry
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.merge.replay import Change, Replay, iter_own_commits
from anabranch.repo.refs.resolve import is_made_by

REBASED_FROM = "rebased_from"


# Cherry-pick and revert


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick(Replay):
    """The request to apply commits to a branch, or to revert them, in the given order.

    A table of a live branch that followed main before a reverted commit follows it again, if it was not changed since.
    """

    kind: CommitKind
    commits: tuple[CommitRecord, ...]
    message: str | None = None

    event: ClassVar[BranchEvent] = BranchEvent.COMMITTED
    by_pointer: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for commit in (record.commit for record in self.commits if not record.commit.tables):
            hint = "pass a commit that changed tables"
            raise InvalidInputError(f"commit {commit.graph_commit_id} changed no tables", hint=hint)

    def find_changes(self, repo_store: RepoStore, head: LogEntry) -> tuple[View, list[Change]]:
        return View.now(repo_store, head), [_picked(repo_store, self, record) for record in self.commits]


def _picked(repo_store: RepoStore, request: Pick, record: CommitRecord) -> Change:
    """Return the change that a commit made, or, for a revert, that undoes it.

    The tables come from the log of its branch: only the log has the view of a live branch at the time of the commit.
    """
    commit = record.commit
    branch, is_revert = BranchName(commit.branch), request.kind is CommitKind.REVERT
    after = repo_store.heads.get_numbered(branch, commit.manifest_version)
    if not is_made_by(after, commit, repo_store):
        hint = "list the commits of the branch"
        raise CommitNotFoundError(f"commit {commit.graph_commit_id} was never published", hint=hint)
    if after.head.commit.graph_commit_id != commit.graph_commit_id:
        # A rebase published several commits in one log entry.
        after = replace(after, head=repo_store.commits.get(commit.graph_commit_id))
    before = repo_store.heads.get_numbered(branch, commit.manifest_version - 1)
    parent = _parent_of(repo_store, before, after)
    # A table may get its old state by pointer, so the data of that state must not have been collected.
    require_uncollected(repo_store.config, parent.commit.graph_commit_id)
    text = f"Revert {commit.message or commit.graph_commit_id}" if is_revert else commit.message
    metadata = {**request.metadata, "commit": commit.graph_commit_id}
    spec = CommitSpec(message=request.message or text, kind=request.kind, metadata=metadata)
    change = _change_between(repo_store, parent, after.head, spec)
    if is_revert:
        followed = _followed(repo_store, change, before, parent)
        change = replace(change, before=change.after, after=change.before, followed=followed)
    return change


def _parent_of(repo_store: RepoStore, before: LogEntry, after: LogEntry) -> CommitRecord:
    """Return the state on which the head of an entry was made, with the tables of main that a live branch had then."""
    parent_id = after.head.commit.parent_commit_id
    if parent_id is not None and parent_id != before.head.commit.graph_commit_id:
        return repo_store.commits.get(parent_id)
    if before.state.is_live:
        return View.of(before, View.of(after).find_main(repo_store.commits)).record
    return before.head


def _followed(repo_store: RepoStore, change: Change, before: LogEntry, parent: CommitRecord) -> frozenset[TableKey]:
    """Return the tables of a change that followed main before it, if it was made on a live branch."""
    if not before.state.is_live:
        return frozenset()
    # The entry may have published other commits below this one. Tables that these changed did not follow main.
    last_id = before.head.commit.graph_commit_id
    earlier = takewhile(lambda one: one.graph_commit_id != last_id, repo_store.commits.iter_history(parent))
    changed = {key for one in earlier for key in one.tables}
    return frozenset(key for key in change.after if before.state.follows_main(key) and str(key) not in changed)


def _change_between(repo_store: RepoStore, before: CommitRecord, after: CommitRecord, spec: CommitSpec) -> Change:
    """Return the change of the tables of a commit, compared with another one, usually its parent."""
    keys = [TableKey.parse(key) for key in after.commit.tables]
    old, new = ({key: repo_store.commits.find_table(side, key) for key in keys} for side in (before, after))
    sources = before.commit.graph_commit_id, after.commit.graph_commit_id
    return Change(commit=after.commit, before=old, after=new, spec=spec, sources=sources)


# Rebase


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebase(Replay):
    """The request to put the own commits of a branch on top of another state.

    A commit whose change the other state already has is left out.
    """

    onto: CommitRecord

    event: ClassVar[BranchEvent] = BranchEvent.REBASED
    by_pointer: ClassVar[bool] = False

    def find_changes(self, repo_store: RepoStore, head: LogEntry) -> tuple[View, list[Change]] | None:
        if head.state.is_live:
            hint = "freeze it first, or merge main into it"
            raise InvalidInputError(f"branch '{head.branch}' is live and follows main already", hint=hint)
        ancestry = Ancestry(repo_store)
        if ancestry.is_ancestor(self.onto, head.head):
            return None
        own = [*iter_own_commits(repo_store, ancestry, head.head, self.onto)][::-1]
        return View(head=self.onto), [_rebased(repo_store, ancestry, commit, self) for commit in own]


def _rebased(repo_store: RepoStore, ancestry: Ancestry, record: CommitRecord, request: Rebase) -> Change:
    commit = record.commit
    before = repo_store.commits.get(commit.parent_commit_id or "")
    # If a merge merged a state that `onto` already has, only its own changes are applied. A merge of a live branch also
    # took tables of main, which the merged commit does not have.
    if commit.merged_parent_commit_id is not None and record.taken_from is None:
        merged = repo_store.commits.get(commit.merged_parent_commit_id)
        if ancestry.is_ancestor(merged, request.onto):
            before = merged
    # The rebased commit has one parent, so that it is not a merge any more.
    kind = CommitKind.CHANGE if commit.kind is CommitKind.MERGE else commit.kind
    metadata = {**commit.metadata, **request.metadata, REBASED_FROM: commit.graph_commit_id}
    spec = CommitSpec(message=commit.message, kind=kind, metadata=metadata)
    return _change_between(repo_store, before, record, spec)
