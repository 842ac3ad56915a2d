"""The lock that lets one schema change at a time be applied: an internal branch whose entries say who has it.

Each acquisition is the next entry of its log, so that of many one succeeds. Whoever dies holding it gives no more signs
of life, and the next one takes it over.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from anabranch.errors import AnabranchError, BusyError
from anabranch.ids import MAIN, BranchName
from anabranch.repo.leases.lease import Lease
from anabranch.repo.log.entries import BranchEvent, BranchMode, BranchState, LogEntry
from anabranch.repo.log.store import RepoStore

__all__ = ["LOCK", "holding_schema_lock", "refuse_locked"]

LOCK = BranchName("__schema_apply_lock__")


@contextmanager
def holding_schema_lock(records: RepoStore) -> Iterator[None]:
    """Apply a schema change with nobody else doing so; refused while somebody does."""
    lease, mine = _acquire(records)
    try:
        yield
    finally:
        _release(records, mine)
        lease.release()


def refuse_locked(records: RepoStore) -> None:
    """Refuse what must not happen while a schema change is being applied."""
    entry = records.heads.find(LOCK)
    if entry is not None and _is_held(records, entry):
        raise _held(entry)


def _acquire(records: RepoStore) -> tuple[Lease, LogEntry]:
    before = records.heads.find(LOCK)
    if before is not None and _is_held(records, before):
        raise _held(before)
    holder = records.context.new_id()
    lease = records.context.leases.new(LOCK, holder)
    lease.start()  # before the entry: who reads that must find the sign of life
    entry = _next(records, before, BranchEvent.LOCKED, holder)
    if not records.heads.append(entry):
        lease.release()
        raise _held(records.heads.get(LOCK))
    return lease, entry


def _release(records: RepoStore, mine: LogEntry) -> None:
    """Give the lock back; if the store fails, or somebody has taken it over, there is nothing left to do."""
    try:
        records.heads.append(_next(records, mine, BranchEvent.UNLOCKED, mine.state.description))
    except AnabranchError:
        return


def _is_held(records: RepoStore, entry: LogEntry) -> bool:
    return entry.event is BranchEvent.LOCKED and entry.state.description in records.context.leases.list_alive(LOCK)


def _held(entry: LogEntry) -> BusyError:
    who = "somebody" if entry.actor is None else f"'{entry.actor}'"
    return BusyError(f"{who} is applying a schema change", hint="try again when it is done, or a minute later")


def _next(records: RepoStore, before: LogEntry | None, event: BranchEvent, holder: str) -> LogEntry:
    """The following entry of the lock's log. It holds the head of main only because every branch has one."""
    if before is None:
        main, now = records.heads.get(BranchName(MAIN)), records.context.clock()
        state = BranchState(
            mode=BranchMode.PINNED, parent=None, created_at=now, created_by=records.context.actor, created_as=1
        )
        before = replace(main, branch=LOCK, number=0, at=now, state=state)
    return replace(
        before,
        number=before.number + 1,
        event=event,
        at=max(records.context.clock(), before.at),
        actor=records.context.actor,
        state=replace(before.state, description=holder),
    )
