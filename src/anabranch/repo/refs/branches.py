"""Branches of the repository: made, listed, deleted and brought back, each by one more entry of their log."""

from dataclasses import dataclass, replace
from datetime import timedelta

from anabranch.errors import (
    AnabranchError,
    BranchExistsError,
    BranchInUseError,
    BranchNotFoundError,
    BusyError,
    InvalidInputError,
)
from anabranch.ids import MAIN, BranchName, TagName
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.entries import BranchEvent, BranchMode, BranchState, LogEntry, Parent
from anabranch.repo.log.making import record_view
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.protection import refuse_protected
from anabranch.repo.refs.resolve import Resolved
from anabranch.repo.refs.schema_lock import refuse_locked
from anabranch.repo.refs.tags import is_tag

__all__ = [
    "BranchInfo",
    "create_branch",
    "delete_branch",
    "list_branches",
    "refuse_in_use",
    "refuse_orphan",
    "restore_branch",
    "take_back",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchInfo:
    """A branch as it is now. The parent is the branch it was made from, None if it was made from a commit.

    `own_tables` are those that a live branch has a copy of, or hides by a drop; all others follow main.
    """

    name: str
    mode: BranchMode
    parent: str | None
    parent_commit_id: str | None
    head_commit_id: str
    version: int
    created_at: int
    created_by: str | None
    description: str
    expires_at: int | None
    own_tables: tuple[str, ...] = ()
    is_protected: bool = False
    checks: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, entry: LogEntry) -> "BranchInfo":
        state, parent = entry.state, entry.state.parent
        return cls(
            name=str(entry.branch),
            mode=state.mode,
            parent=None if parent is None or parent.branch is None else str(parent.branch),
            parent_commit_id=None if parent is None else parent.commit,
            head_commit_id=entry.head.commit.graph_commit_id,
            version=entry.number,
            created_at=state.created_at,
            created_by=state.created_by,
            description=state.description,
            expires_at=state.expires_at,
            own_tables=tuple(str(key) for key in state.own),
            is_protected=state.is_protected,
            checks=state.checks,
        )


def list_branches(records: RepoStore, *, internal: bool = False) -> tuple[BranchInfo, ...]:
    entries = records.heads.list(internal=internal)
    return tuple(BranchInfo.of(entry) for entry in entries if not entry.state.is_deleted)


def create_branch(
    records: RepoStore,
    name: BranchName,
    *,
    source: Resolved,
    mode: BranchMode = BranchMode.PINNED,
    description: str = "",
    expires_at: int | None = None,
) -> BranchInfo:
    """Add a branch at a commit: one small object, whatever the number of tables.

    The parent may be deleted at the same moment, a tag take the name, or a schema change begin. All sides write first
    and then look, so one of them notices.
    """
    refuse_locked(records)
    _refuse_name_of_tag(records, name)
    if mode is BranchMode.LIVE and (str(source.branch) != MAIN or not source.is_head):
        raise InvalidInputError(
            f"live branch '{name}' can only follow main as it is now", hint="make it from 'main', or make it pinned"
        )
    record, parent = source.record, source.branch
    if source.is_old and parent is not None and _is_gone(records, parent):
        parent = None
    now = max(records.context.clock(), record.commit.created_at)
    entry = LogEntry(
        branch=name,
        number=1,
        event=BranchEvent.CREATED,
        at=now,
        actor=records.context.actor,
        state=BranchState(
            mode=mode,
            parent=Parent(branch=parent, commit=record.commit.graph_commit_id),
            created_at=now,
            created_by=records.context.actor,
            created_as=1,
            description=description,
            expires_at=expires_at,
        ),
        head=replace(record, saw=None) if source.is_recorded else record,
    )
    entry = _append_first(records, entry, is_recorded=source.is_recorded)
    try:
        _refuse_created(records, entry, source)
    except AnabranchError:  # also one of the store: a branch that nobody looked at is not to stay
        take_back(records, entry)
        raise
    return BranchInfo.of(entry)


def _refuse_created(records: RepoStore, entry: LogEntry, source: Resolved) -> None:
    """Look, after the put, whether something happened at the same moment that the branch must not be beside."""
    parent = None if entry.state.parent is None else entry.state.parent.branch
    if parent is not None and _is_gone(records, parent):
        raise BranchNotFoundError(f"branch '{parent}' was deleted meanwhile", hint="branch from another one")
    _refuse_name_of_tag(records, entry.branch)
    refuse_locked(records)
    # The head of a branch is kept for a while after it moved on.
    is_late = (records.context.clock() - entry.state.created_at) * timedelta(microseconds=1) > records.context.lease
    if is_late or not source.is_head:
        require_uncollected(records.context, source.record.commit.graph_commit_id)


def _append_first(records: RepoStore, entry: LogEntry, *, is_recorded: bool) -> LogEntry:
    """Create a branch; where the name was in use before, after the tombstone."""
    first = entry if is_recorded else record_view(records, entry, message=f"Branch {entry.branch}")
    if records.heads.append(first):
        return first
    before = records.heads.find(entry.branch)
    if before is not None and before.state.is_deleted:
        number, at = before.number + 1, max(entry.at, before.at)
        entry = replace(entry, number=number, at=at, state=replace(entry.state, created_as=number))
        first = entry if is_recorded else record_view(records, entry, message=f"Branch {entry.branch}")
        if records.heads.append(first):
            return first
    raise BranchExistsError(
        f"there is a branch '{entry.branch}' already", hint="choose another name, or delete it first"
    )


def delete_branch(records: RepoStore, name: BranchName) -> LogEntry:
    """Put a tombstone on a branch that nothing hangs on; what it held stays until garbage collection."""
    if str(name) == MAIN:
        raise InvalidInputError("branch 'main' cannot be deleted", hint="delete another branch")
    entry = records.heads.get(name)
    refuse_protected(entry)
    refuse_in_use(records, name)
    tombstone = _append_event(records, entry, BranchEvent.DELETED, is_deleted=True)
    try:
        refuse_in_use(records, name)
    except AnabranchError:  # also one of the store: somebody may have branched from it at the last moment
        _append_event(records, tombstone, BranchEvent.RESTORED, is_deleted=False)
        raise
    return tombstone


def restore_branch(records: RepoStore, name: BranchName) -> BranchInfo:
    """Bring a deleted branch back as it was."""
    entry = records.heads.find(name)
    if entry is None:
        raise BranchNotFoundError(f"there never was a branch '{name}'", hint="list the branches to see which exist")
    if not entry.state.is_deleted:
        raise BranchExistsError(f"branch '{name}' is not deleted", hint="there is nothing to restore")
    refuse_orphan(records, entry)
    require_uncollected(records.context, entry.head.commit.graph_commit_id)
    restored = _append_event(records, entry, BranchEvent.RESTORED, is_deleted=False)
    try:
        refuse_orphan(records, entry)
        require_uncollected(records.context, entry.head.commit.graph_commit_id)
    except AnabranchError:
        take_back(records, restored)
        raise
    return BranchInfo.of(restored)


def take_back(records: RepoStore, came: LogEntry) -> None:
    """Put a tombstone on a branch that should not have come; who wrote to it meanwhile comes before the tombstone."""
    newest: LogEntry | None = came
    while newest is not None and not newest.state.is_deleted and newest.state.created_as == came.state.created_as:
        try:
            _append_event(records, newest, BranchEvent.DELETED, is_deleted=True)
            return
        except BusyError:
            newest = records.heads.find(came.branch)


def _append_event(records: RepoStore, before: LogEntry, event: BranchEvent, *, is_deleted: bool) -> LogEntry:
    entry = replace(
        before,
        number=before.number + 1,
        event=event,
        at=max(records.context.clock(), before.at),
        actor=records.context.actor,
        state=replace(before.state, is_deleted=is_deleted),
    )
    if not records.heads.append(entry):
        raise BusyError(f"branch '{before.branch}' moved meanwhile", hint="look at it and try again")
    return entry


def refuse_orphan(records: RepoStore, entry: LogEntry) -> None:
    """Refuse to bring back a branch whose source is gone, or whose name a tag has taken."""
    _refuse_name_of_tag(records, entry.branch)
    parent = entry.state.parent
    if parent is not None and parent.branch is not None and _is_gone(records, parent.branch):
        raise BranchNotFoundError(
            f"branch '{entry.branch}' was made from '{parent.branch}', which was deleted too",
            hint=f"restore '{parent.branch}' first, or branch from {entry.head.commit.graph_commit_id}",
        )


def _refuse_name_of_tag(records: RepoStore, name: BranchName) -> None:
    if "/" not in str(name) and not name.is_internal and is_tag(records, TagName(str(name))):
        raise InvalidInputError(
            f"'{name}' is the name of a tag", hint="choose another name for the branch, or delete the tag first"
        )


def _is_gone(records: RepoStore, branch: BranchName) -> bool:
    entry = records.heads.find(branch)
    return entry is None or entry.state.is_deleted


def refuse_in_use(records: RepoStore, name: BranchName) -> None:
    """Refuse to end a branch that others were made from, or that a living run works for."""
    for other in records.heads.list():
        parent = other.state.parent
        if not other.state.is_deleted and parent is not None and parent.branch == name:
            raise BranchInUseError(
                f"branch '{other.branch}' was made from '{name}'", hint=f"delete '{other.branch}' first"
            )
    for run_id in records.context.leases.list_alive(name):
        if _is_active(records, BranchName.of_run(run_id), name):
            raise BranchInUseError(f"run {run_id} is active on branch '{name}'", hint="wait for it, or abort it")


def _is_active(records: RepoStore, run: BranchName, target: BranchName) -> bool:
    """Whether a run is not over, and its target still the branch that it began on, not another of that name."""
    entry, head = records.heads.find(run), records.heads.find(target)
    if entry is None or head is None or entry.state.is_deleted or entry.state.run is None:
        return False
    return entry.state.run.target_created_as == head.state.created_as
