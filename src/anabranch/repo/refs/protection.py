"""Branches that must not move: protected ones, except by merges that pass their checks, and those of ended runs."""

from anabranch.errors import BranchProtectedError, BusyError, RunEndedError
from anabranch.ids import BranchName
from anabranch.repo.log.entries import BranchEvent, LogEntry
from anabranch.repo.log.run_state import RunPhase
from anabranch.repo.log.store import RepoStore

__all__ = ["refuse_ended", "refuse_protected", "set_protection"]


def refuse_protected(entry: LogEntry) -> None:
    """Refuse to move a branch that is protected."""
    if entry.state.is_protected:
        raise BranchProtectedError(
            f"branch '{entry.branch}' is protected: only merges can change it",
            hint=f"make the change on another branch and merge that, or unprotect '{entry.branch}'",
        )


def refuse_ended(entry: LogEntry) -> None:
    """Refuse to add to a run that has ended or is being published."""
    run = entry.state.run
    if run is not None and run.phase is RunPhase.PUBLISHING:
        raise BusyError(
            f"run {entry.branch.run_id} is being published", hint="wait for it; if that failed, publish or abort it"
        )
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
