"""Expired branches and runs: delete branches past their expiry time, and fail runs whose process died."""

from datetime import datetime

from anabranch.errors import BranchInUseError, BranchProtectedError, BusyError, RunEndedError
from anabranch.ids import MAIN
from anabranch.repo.log.clocks import store_microseconds
from anabranch.repo.log.entries import LogEntry, RunPhase
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.branches import delete_branch
from anabranch.repo.runs.runs import abort_run, run_state

__all__ = ["delete_expired_branches", "fail_expired_runs", "list_expired_branches", "list_expired_runs"]

_EXPIRED = "the lease of the run expired"


def list_expired_branches(repo_store: RepoStore) -> tuple[LogEntry, ...]:
    """Return the branches whose expiry time has passed by the store's clock."""
    now = store_microseconds(repo_store.config)
    return tuple(
        entry
        for entry in repo_store.heads.list()
        if not entry.state.is_deleted and entry.state.expires_at is not None and entry.state.expires_at <= now
        if str(entry.branch) != MAIN
    )


def delete_expired_branches(repo_store: RepoStore) -> tuple[str, ...]:
    """Delete the expired branches and return their names. Branches that are protected or in use stay."""
    deleted = []
    # A branch can be deleted only after the branches that were made from it, so repeat until no more can be deleted.
    waiting = list(list_expired_branches(repo_store))
    while waiting:
        left = [entry for entry in waiting if not _try_delete(repo_store, entry)]
        deleted += [str(entry.branch) for entry in waiting if entry not in left]
        if len(left) == len(waiting):
            break
        waiting = left
    return tuple(sorted(deleted))


def _try_delete(repo_store: RepoStore, entry: LogEntry) -> bool:
    try:
        delete_branch(repo_store, entry.branch)
    except (BranchInUseError, BranchProtectedError, BusyError):
        return False
    return True


def list_expired_runs(repo_store: RepoStore, *, horizon: datetime) -> tuple[str, ...]:
    """Return the unfinished runs whose lease expired and whose log has no entry since the horizon."""
    found = []
    for entry in repo_store.heads.list_runs():
        run_id = entry.branch.run_id
        if (
            entry.state.is_deleted
            or run_id is None
            or run_id in repo_store.config.leases.list_alive(run_state(entry).target)
        ):
            continue
        log = repo_store.config.branch_log(entry.branch)
        written = repo_store.config.store.find_info(log.path(entry.number))
        if written is not None and written.modified < horizon:
            found.append(run_id)
    return tuple(sorted(found))


def fail_expired_runs(repo_store: RepoStore, *, horizon: datetime) -> tuple[str, ...]:
    """Mark the expired runs as failed, so that they cannot be published, and return their ids.

    A run that ended concurrently is not reported.
    """
    failed = []
    for run_id in list_expired_runs(repo_store, horizon=horizon):
        try:
            abort_run(repo_store, run_id, phase=RunPhase.FAILED, error=_EXPIRED)
        except (RunEndedError, BusyError):
            continue
        failed.append(run_id)
    return tuple(failed)
