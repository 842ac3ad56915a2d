"""Branches that must not move: protected ones, except by merges that pass their checks, and those of ended runs.

Also the lock that allows one schema change at a time: an internal branch whose entries name the process that holds it.
Each acquisition is the next entry of its log, so only one succeeds. The lock is free once its holder's lease expires.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from anabranch.errors import AnabranchError, BranchProtectedError, BusyError, RunEndedError
from anabranch.ids import MAIN, BranchName
from anabranch.repo.log.entries import BranchEvent, LogEntry, RunPhase
from anabranch.repo.log.repo_store import RepoStore


def refuse_protected(entry: LogEntry) -> None:
    """Refuse to move a branch that is protected."""
    if entry.state.is_protected:
        hint = f"make the change on another branch and merge that, or unprotect '{entry.branch}'"
        raise BranchProtectedError(f"branch '{entry.branch}' is protected: only merges can change it", hint=hint)


def refuse_ended(entry: LogEntry) -> None:
    """Refuse to add to a run that has ended or is being published."""
    run = entry.state.run
    if run is not None and run.phase is RunPhase.PUBLISHING:
        hint = "wait for it; if that failed, publish or abort it"
        raise BusyError(f"run {entry.branch.run_id} is being published", hint=hint)
    if run is not None and run.phase is not RunPhase.RUNNING:
        raise RunEndedError(f"run {entry.branch.run_id} is {run.phase}", hint="begin another run")


def set_protection(
    repo_store: RepoStore, branch: BranchName, *, protect: bool, checks: tuple[tuple[str, str], ...] = ()
) -> tuple[LogEntry, bool]:
    """Protect a branch, or remove its protection; return its newest entry, and whether anything changed.

    A concurrent write to the branch either comes before the entry or finds it.
    """
    event = BranchEvent.PROTECTED if protect else BranchEvent.UNPROTECTED
    before = repo_store.heads.get(branch)

    def decide(head: LogEntry) -> LogEntry | None:
        entry = repo_store.heads.next_entry(head, event, is_protected=protect, checks=checks)
        # A repeated call adds no entry to the log, so that the reflog shows only changes.
        return None if entry.state == head.state else entry

    entry = repo_store.heads.move(branch, decide, known=before)
    return entry, entry is not before


LOCK = BranchName("__schema_apply_lock__")


@contextmanager
def holding_schema_lock(repo_store: RepoStore) -> Iterator[None]:
    """Hold the lock, or raise BusyError if another process holds it."""
    holder = repo_store.config.new_id()
    lease = repo_store.config.leases.new(LOCK, holder)
    lease.start()  # before the entry: a process that reads the entry must find the lease
    try:
        mine = _lock(repo_store, holder)
        try:
            yield
        finally:
            _release(repo_store, mine)
    finally:
        lease.release()


def refuse_locked(repo_store: RepoStore) -> None:
    """Refuse what must not happen while a schema change is being applied."""
    entry = repo_store.heads.find(LOCK)
    if entry is not None and _is_held(repo_store, entry):
        raise _held(entry)


def _lock(repo_store: RepoStore, holder: str) -> LogEntry:
    def decide(before: LogEntry) -> LogEntry:
        if _is_held(repo_store, before):
            raise _held(before)
        return repo_store.heads.next_entry(before, BranchEvent.LOCKED, description=holder)

    before = repo_store.heads.find(LOCK)
    if before is None:
        # The head is that of main, because each branch must have one.
        head = repo_store.heads.get(BranchName(MAIN)).head
        first = repo_store.heads.first_entry(LOCK, head, BranchEvent.LOCKED, description=holder)
        before = repo_store.heads.create(LOCK, lambda _: first)
        if before is not None:
            return before
    try:
        return repo_store.heads.move(LOCK, decide, known=before)
    except BusyError:
        # Another process took the number, and its entry names the actor.
        raise _held(repo_store.heads.get(LOCK)) from None


def _release(repo_store: RepoStore, mine: LogEntry) -> None:
    """Release the lock. If the store fails, or another process took over an expired lock, nothing is left to do."""

    def decide(before: LogEntry) -> LogEntry | None:
        # Another process has taken the lock over. To unlock now would take it from that process.
        if before.number != mine.number:
            return None
        return repo_store.heads.next_entry(before, BranchEvent.UNLOCKED)

    with suppress(AnabranchError):
        repo_store.heads.move(LOCK, decide, known=mine)


def _is_held(repo_store: RepoStore, entry: LogEntry) -> bool:
    return entry.event is BranchEvent.LOCKED and entry.state.description in repo_store.config.leases.list_alive(LOCK)


def _held(entry: LogEntry) -> BusyError:
    holder = "another process" if entry.actor is None else f"'{entry.actor}'"
    return BusyError(f"{holder} is applying a schema change", hint="try again when it is done, or a minute later")
