"""Branches that do not move: protected ones, but for merges that pass, and those of runs that are over."""

from dataclasses import replace

from anabranch.errors import BranchProtectedError, BusyError, RunEndedError
from anabranch.ids import BranchName
from anabranch.repo.log.entries import BranchEvent, LogEntry, RunPhase
from anabranch.repo.log.store import RepoStore

__all__ = ["refuse_ended", "refuse_protected", "set_protection"]


def refuse_protected(entry: LogEntry) -> None:
    """Refuse to move a branch that is protected."""
    if entry.state.is_protected:
        raise BranchProtectedError(
            f"branch '{entry.branch}' is protected and does not move",
            hint="work on a branch of it and merge that, or unprotect it",
        )


def refuse_ended(entry: LogEntry) -> None:
    """Refuse to add to a run that is over, or that is being published."""
    run = entry.state.run
    if run is not None and run.phase is RunPhase.PUBLISHING:
        raise BusyError(
            f"run {entry.branch.run_id} is being published", hint="wait for it; if that failed, publish or abort it"
        )
    if run is not None and run.phase is not RunPhase.RUNNING:
        raise RunEndedError(f"run {entry.branch.run_id} is {run.phase}", hint="begin another run")


def set_protection(
    records: RepoStore, branch: BranchName, *, protect: bool, checks: tuple[tuple[str, str], ...] = ()
) -> tuple[LogEntry, bool]:
    """Protect a branch, or lift its protection, by an entry of its log; False if nothing happened: it is so already.

    Whoever is writing to it at the same time either comes before the entry or meets it.
    """
    before = records.heads.get(branch)
    state = replace(before.state, is_protected=protect, checks=checks)
    if before.state == state:
        return before, False
    entry = replace(
        before,
        number=before.number + 1,
        event=BranchEvent.PROTECTED if protect else BranchEvent.UNPROTECTED,
        at=max(records.context.clock(), before.at),
        actor=records.context.actor,
        state=state,
    )
    if not records.heads.append(entry):
        raise BusyError(f"branch '{branch}' moved meanwhile", hint="look at it and try again")
    return entry, True
