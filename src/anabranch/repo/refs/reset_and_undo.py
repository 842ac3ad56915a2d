"""Reset, undo and redo, which move a branch to another commit, and its reflog.

The reflog has every movement of the branch, newest first, with the tables that it changed. The old position stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from anabranch.display import row_of, to_datetime
from anabranch.errors import BusyError, InvalidInputError
from anabranch.format.arguments import checked_limit
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.entries import BranchEvent, LogEntry, TableEntry, is_same_state
from anabranch.repo.log.repo_store import RepoStore, pin_view
from anabranch.repo.refs.branches import newest_entry, refuse_in_use, refuse_orphan
from anabranch.repo.refs.protection import refuse_protected
from anabranch.repo.refs.resolve import Resolved


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """One entry of a branch's log: the event, its time and actor, and the commit of the branch after it.

    `is_deleted` is true if the branch was deleted after it. `restores` is the number of the movement that an undo or a
    redo went back to, or 0 if the creation of the branch was undone. `renamed_from` is set in the first movement of a
    branch that was renamed, and `renamed_to` in the last one of its old name.
    """

    number: int
    event: BranchEvent
    moved_at: int
    actor: str | None
    commit_id: str
    message: str
    is_deleted: bool
    restores: int | None = None
    renamed_from: str | None = None
    renamed_to: str | None = None

    @classmethod
    def of(cls, entry: LogEntry) -> "Movement":
        return cls(
            number=entry.number,
            event=entry.event,
            moved_at=entry.at,
            actor=entry.actor,
            commit_id=entry.head.commit.graph_commit_id,
            message=entry.head.commit.message,
            is_deleted=entry.state.is_deleted,
            restores=entry.restores,
            renamed_from=None if entry.renamed_from is None else str(entry.renamed_from),
            renamed_to=None if entry.state.renamed_to is None else str(entry.state.renamed_to),
        )

    @property
    def change(self) -> str:
        """The event in words."""
        if self.renamed_to is not None:
            return f"renamed to {self.renamed_to}"
        return self.event.value if self.renamed_from is None else f"renamed from {self.renamed_from}"

    @property
    def moved(self) -> datetime:
        """The time of the movement, in UTC."""
        return to_datetime(self.moved_at)

    def _repr_row_(self) -> Mapping[str, object]:
        return row_of(self, "version=number event moved actor commit=commit_id message")


def list_movements(
    repo_store: RepoStore, branch: BranchName, *, limit: int | None, after: int | None = None
) -> list[Movement]:
    """List the movements of a branch, newest first, also those of earlier branches of the same name.

    `after` continues after the last one of another page, which has this number.
    """
    limit, after = checked_limit(limit, "movements"), checked_limit(after, "movements", name="after")
    newest = newest_entry(repo_store, branch).number
    start = newest if after is None else min(newest, after - 1)
    first = 0 if limit is None else max(0, start - limit)
    entries = (repo_store.heads.get_numbered(branch, number) for number in range(start, first, -1))
    return [Movement.of(entry) for entry in entries]


def changed_tables(repo_store: RepoStore, before: LogEntry, after: LogEntry) -> dict[TableKey, TableEntry | None]:
    """Return the tables that a movement changed, as they are after it."""
    old, new = repo_store.commits.tables_of(before.head), repo_store.commits.tables_of(after.head)
    return {key: new.get(key) for key in old.keys() | new.keys() if not is_same_state(old.get(key), new.get(key))}


def reset_branch(repo_store: RepoStore, branch: BranchName, target: Resolved) -> LogEntry:
    """Move a branch to another commit. Its old position stays in its log."""

    def decide(head: LogEntry) -> LogEntry:
        refuse_protected(head)
        if head.state.is_live:
            # The head of a live branch does not show which tables follow main: that is in the state of its entry.
            old = _old_position(repo_store, head, target)
            return repo_store.heads.next_entry(head, BranchEvent.RESET, head=old.head, own=old.state.own)
        entry = repo_store.heads.next_entry(head, BranchEvent.RESET)
        return pin_view(repo_store, entry, target.view, message=f"Reset {branch} to {target.branch}")

    return repo_store.heads.move(branch, decide, verify=partial(_require_uncollected, repo_store))


def _require_uncollected(repo_store: RepoStore, entry: LogEntry) -> None:
    """Refuse a head whose data garbage collection removes, also one that it marked at the same time."""
    require_uncollected(repo_store.config, entry.head.commit.graph_commit_id)


def _old_position(repo_store: RepoStore, head: LogEntry, target: Resolved) -> LogEntry:
    """Return the entry of a live branch that a reset goes back to.

    A live branch can only go back to a version of its own: its state is more than a commit.
    """
    # A version of another branch that had this name, or from before the branch was frozen, has another kind of state.
    if target.branch is not None and target.is_old and head.has_own(target.branch, target.version):
        old = repo_store.heads.get_numbered(target.branch, target.version)
        if old.state.mode is head.state.mode:
            return old
    hint = f"give one like {head.branch}@v{max(head.number - 1, 1)}, or freeze the branch first"
    raise InvalidInputError(f"live branch '{head.branch}' can only be reset to a version of its own", hint=hint)


def undo_last(repo_store: RepoStore, branch: BranchName, *, seen: int | None) -> tuple[LogEntry, Movement]:
    """Undo the last movement of a branch that is not undone yet, by an entry with the same content as the one before.

    Return the new entry and the movement that was undone. Refused if the branch moved since the caller has seen it.
    """
    last = _newest_seen(repo_store, branch, seen)
    position = _last_moved(repo_store, last).position
    if position == 0:
        hint = "there is nothing to undo; `redo()` restores it"
        raise InvalidInputError(f"the creation of branch '{branch}' is undone", hint=hint)
    undone = repo_store.heads.get_numbered(branch, position)
    _refuse_rename(repo_store, undone)
    then = _position_before(repo_store, undone, last)
    return _put_back(repo_store, last, then, BranchEvent.UNDONE), Movement.of(undone)


def redo_last(repo_store: RepoStore, branch: BranchName, *, seen: int | None) -> tuple[LogEntry, Movement]:
    """Redo the movement that the last undo undid. Return the new entry and the movement that was redone.

    Refused if the branch was moved in another way since the undo, or beyond the version that the caller has seen.
    """
    last = _newest_seen(repo_store, branch, seen)
    then = _position_to_redo(repo_store, last)
    redone = repo_store.heads.get_numbered(branch, then.position)
    return _put_back(repo_store, last, then, BranchEvent.REDONE), Movement.of(redone)


def _newest_seen(repo_store: RepoStore, branch: BranchName, seen: int | None) -> LogEntry:
    last = newest_entry(repo_store, branch)
    if seen is not None and last.number != seen:
        if last.state.renamed_to is not None:
            repo_store.heads.get(branch)  # raises, because the branch has another name now
        hint = f"see where it is with `sync_branch('{branch}')`, then decide again"
        raise BusyError(f"branch '{branch}' moved since it was last read", hint=hint)
    return last


def _put_back(repo_store: RepoStore, last: LogEntry, then: LogEntry, event: BranchEvent) -> LogEntry:
    """Give a branch the head and the state of an earlier entry by a new one."""

    def decide(now: LogEntry) -> LogEntry:
        if then.state.is_protected:  # else the movement was the protection itself
            refuse_protected(now)
        # Undo of a creation is a deletion, and undo of a deletion is a restore. The rules for those hold here, too.
        _refuse_to_come_or_go(repo_store, now, then)
        if not then.state.is_deleted:
            _require_uncollected(repo_store, then)
        entry = repo_store.heads.next_entry(now, event, head=then.head)
        return replace(entry, state=then.state, restores=then.position)

    def verify(entry: LogEntry) -> None:
        if not then.state.is_deleted:
            _require_uncollected(repo_store, entry)
        # Branches made from this one, and tags of its name, are put first and verified then, too.
        _refuse_to_come_or_go(repo_store, last, then)

    return repo_store.heads.move(last.branch, decide, known=last, verify=verify)


def _refuse_rename(repo_store: RepoStore, undone: LogEntry) -> None:
    """Refuse to undo a rename: a name that the branch left, or the first entry of a name that it got."""
    if undone.state.renamed_to is not None:
        repo_store.heads.get(undone.branch)  # raises, because the branch has another name now
    if (before := undone.renamed_from) is not None:
        raise InvalidInputError(
            f"the last change of branch '{undone.branch}' is its rename from '{before}', which cannot be undone",
            hint=(
                f"`branch_rename('{undone.branch}', '{before}')` restores the old name; to undo an earlier change, "
                f"reset the branch to '{undone.branch}~1', or revert the commit"
            ),
        )


def _position_before(repo_store: RepoStore, moved: LogEntry, last: LogEntry) -> LogEntry:
    """Return the entry that shows where a branch was before a movement; before its creation, a tombstone."""
    if moved.number > 1:
        return _last_moved(repo_store, repo_store.heads.get_numbered(moved.branch, moved.number - 1))
    if str(moved.branch) == MAIN:
        hint = "all its changes are undone already, or it has none; `reflog()` lists them"
        raise InvalidInputError(f"there is nothing to undo on branch '{moved.branch}'", hint=hint)
    return replace(last, state=replace(last.state, is_deleted=True), restores=0)


def _position_to_redo(repo_store: RepoStore, last: LogEntry) -> LogEntry:
    """Return the entry that shows where a branch was before the last undo that was not redone.

    Undo and redo are read as brackets: walking back, a redo closes the undo before it.
    """
    redone = 0
    entry = _last_moved(repo_store, last)
    while entry.event in (BranchEvent.UNDONE, BranchEvent.REDONE):
        before = _last_moved(repo_store, repo_store.heads.get_numbered(entry.branch, entry.number - 1))
        if entry.event is BranchEvent.REDONE:
            redone += 1
        elif redone == 0:
            return before
        else:
            redone -= 1
        entry = before
    hint = "`redo()` only follows `undo()`; `reflog()` lists all positions, and `reset()` goes to any of them"
    raise InvalidInputError(f"there is nothing to redo on branch '{last.branch}'", hint=hint)


def _last_moved(repo_store: RepoStore, last: LogEntry) -> LogEntry:
    """Return the last entry that moved the branch.

    The entry that fences off an aborted run moves nothing. A movement that its writer rolled back did not happen.
    """
    while last.number > 1:
        before = repo_store.heads.get_numbered(last.branch, last.number - 1)
        # The movement and its roll-back are two entries that together changed nothing, so an undo steps over both.
        if last.event is BranchEvent.ROLLED_BACK and before.number > 1:
            earlier = repo_store.heads.get_numbered(last.branch, before.number - 1)
            if (earlier.head.commit, earlier.state) != (last.head.commit, last.state):
                break  # the state of the branch was changed in between
            last = earlier
        elif last.event is BranchEvent.ABORTED:
            last = before
        else:
            break
    return last


def _refuse_to_come_or_go(repo_store: RepoStore, now: LogEntry, then: LogEntry) -> None:
    """Refuse to delete a branch that others were made from, and to restore one whose parent is deleted."""
    if then.state.is_deleted and not now.state.is_deleted:
        refuse_in_use(repo_store, now.branch)
    if now.state.is_deleted and not then.state.is_deleted:
        refuse_orphan(repo_store, then)
