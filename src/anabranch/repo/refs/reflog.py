"""Where a branch has been, and back to there: each step back is one more entry of its log."""

from dataclasses import dataclass, replace

from anabranch.errors import AnabranchError, BranchNotFoundError, BusyError, InvalidInputError
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.arguments import checked_limit
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.entries import BranchEvent, BranchMode, LogEntry, TableEntry
from anabranch.repo.log.making import record_view
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.branches import refuse_in_use, refuse_orphan, take_back
from anabranch.repo.refs.protection import refuse_protected
from anabranch.repo.refs.resolve import Resolved

__all__ = ["Movement", "changed_tables", "list_movements", "reset_branch", "undo_last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """One entry of a branch's log: what happened, when, by whom, and the commit the branch was on afterwards.

    `is_deleted` says that there was no such branch any more.
    """

    number: int
    event: BranchEvent
    at: int
    actor: str | None
    commit_id: str
    message: str
    is_deleted: bool


def list_movements(records: RepoStore, branch: BranchName, *, limit: int | None) -> list[Movement]:
    """The movements of a branch, newest first, those of earlier branches of the same name too."""
    limit = checked_limit(limit, "movements")
    head = _last(records, branch)
    first = 0 if limit is None else max(0, head.number - limit)
    entries = (records.heads.get_numbered(branch, number) for number in range(head.number, first, -1))
    return [
        Movement(
            number=entry.number,
            event=entry.event,
            at=entry.at,
            actor=entry.actor,
            commit_id=entry.head.commit.graph_commit_id,
            message=entry.head.commit.message,
            is_deleted=entry.state.is_deleted,
        )
        for entry in entries
    ]


def reset_branch(records: RepoStore, branch: BranchName, target: Resolved) -> LogEntry:
    """Put a branch on another commit. Nothing is lost: what it was on stays in its log."""
    before = records.heads.get(branch)
    refuse_protected(before)
    state = before.state
    if state.mode is BranchMode.LIVE:
        if target.branch != branch or not target.is_old:
            raise _not_its_own(before)
        old = records.heads.get_numbered(branch, target.version)
        if (old.state.mode, old.state.created_as) != (state.mode, state.created_as):
            raise _not_its_own(before)
        state = replace(state, own=old.state.own)
        moved = replace(before, event=BranchEvent.RESET, state=state, head=old.head)
        return _append_uncollected(records, before, moved)
    head = replace(target.record, saw=None) if target.is_recorded else target.record
    entry = replace(before, event=BranchEvent.RESET, number=before.number + 1, head=head)
    if not target.is_recorded:
        entry = record_view(records, entry, message=f"Reset {branch} to {target.branch}")
    return _append_uncollected(records, before, entry)


def _append_uncollected(records: RepoStore, before: LogEntry, entry: LogEntry) -> LogEntry:
    """Move a branch to an older commit, and back again if that one is just being collected, or nobody can tell."""
    moved = _append(records, before, entry)
    try:
        require_uncollected(records.context, entry.head.commit.graph_commit_id)
    except AnabranchError:
        _append(records, moved, replace(before, event=BranchEvent.UNDONE))
        raise
    return moved


def _not_its_own(entry: LogEntry) -> InvalidInputError:
    return InvalidInputError(
        f"live branch '{entry.branch}' can only go back to a version of its own",
        hint=f"give one like {entry.branch}@v{max(entry.number - 1, 1)}, or freeze the branch first",
    )


def undo_last(records: RepoStore, branch: BranchName, *, seen: int | None) -> LogEntry:
    """Take back the last movement of a branch, whatever it was, by an entry that says the same as the one before it.

    Refused if the branch has moved beyond the version that the caller has seen.
    """
    last = _last(records, branch)
    if seen is not None and last.number != seen:
        raise _moved(branch)
    moved = _last_moved(records, last)
    if moved.number == 1 and str(branch) == MAIN:
        raise InvalidInputError(f"branch '{branch}' has not moved yet", hint="there is nothing to undo")
    before = records.heads.get_numbered(branch, moved.number - 1) if moved.number > 1 else _unborn(last)
    if before.state.is_protected:  # else it was the protection that came last
        refuse_protected(last)
    _refuse_to_come_or_go(records, last, before)
    if before.state.is_deleted:
        undone = _append(records, last, replace(before, event=BranchEvent.UNDONE))
    else:
        require_uncollected(records.context, before.head.commit.graph_commit_id)
        undone = _append_uncollected(records, last, replace(before, event=BranchEvent.UNDONE))
    try:
        _refuse_to_come_or_go(records, last, before)  # again: others write first and then look, too
    except AnabranchError:
        if last.state.is_deleted:
            take_back(records, undone)
        else:
            _append(records, undone, replace(last, event=BranchEvent.UNDONE))
        raise
    return undone


def _last_moved(records: RepoStore, last: LogEntry) -> LogEntry:
    """The last entry that changed anything: that a run was aborted which seemed to be publishing moves no branch."""
    while last.event is BranchEvent.ABORTED and last.number > 1:
        last = records.heads.get_numbered(last.branch, last.number - 1)
    return last


def _refuse_to_come_or_go(records: RepoStore, now: LogEntry, then: LogEntry) -> None:
    """Refuse to end a branch that others were made from, or to bring back one whose own source is gone."""
    if then.state.is_deleted and not now.state.is_deleted:
        refuse_in_use(records, now.branch)
    if now.state.is_deleted and not then.state.is_deleted:
        refuse_orphan(records, then)


def _last(records: RepoStore, branch: BranchName) -> LogEntry:
    """The newest entry of a branch, even of one that was deleted."""
    entry = records.heads.find(branch)
    if entry is None:
        raise BranchNotFoundError(f"there never was a branch '{branch}'", hint="list the branches to see which exist")
    return entry


def _unborn(entry: LogEntry) -> LogEntry:
    """What was before a branch was made: none of that name."""
    return replace(entry, state=replace(entry.state, is_deleted=True))


def changed_tables(records: RepoStore, before: LogEntry, after: LogEntry) -> dict[TableKey, TableEntry | None]:
    """The tables that a movement changed, as they are after it."""
    old, new = records.commits.tables_of(before.head), records.commits.tables_of(after.head)
    return {key: new.get(key) for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def _append(records: RepoStore, before: LogEntry, entry: LogEntry) -> LogEntry:
    numbered = replace(
        entry,
        number=before.number + 1,
        at=max(records.context.clock(), before.at),
        actor=records.context.actor,
    )
    if not records.heads.append(numbered):
        raise _moved(before.branch)
    return numbered


def _moved(branch: BranchName) -> BusyError:
    return BusyError(
        f"branch '{branch}' moved meanwhile", hint=f"see where it is by sync_branch('{branch}'), then decide again"
    )
