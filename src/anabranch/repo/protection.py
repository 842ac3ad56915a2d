"""Protected branches: they stay as they are until the protection is lifted."""

from dataclasses import replace

from anabranch.errors import BranchProtectedError, BusyError
from anabranch.ids import BranchName
from anabranch.repo.models import BranchEvent, LogEntry
from anabranch.repo.records import Records

__all__ = ["refuse_protected", "set_protection"]


def refuse_protected(entry: LogEntry) -> None:
    """Refuse to move a branch that is protected."""
    if entry.state.is_protected:
        raise BranchProtectedError(
            f"branch '{entry.branch}' is protected and does not move", hint="work on a branch of it, or unprotect it"
        )


def set_protection(records: Records, branch: BranchName, *, protect: bool) -> LogEntry:
    """Protect a branch, or lift its protection, by an entry of its log; nothing happens if it is so already.

    Whoever is writing to it at the same time either comes before the entry or meets it.
    """
    before = records.heads.get(branch)
    if before.state.is_protected == protect:
        return before
    entry = replace(
        before,
        number=before.number + 1,
        event=BranchEvent.PROTECTED if protect else BranchEvent.UNPROTECTED,
        at=max(records.context.clock(), before.at),
        actor=records.context.actor,
        state=replace(before.state, is_protected=protect),
    )
    if not records.heads.append(entry):
        raise BusyError(f"branch '{branch}' moved meanwhile", hint="look at it and try again")
    return entry
