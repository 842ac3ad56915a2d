"""End what nobody ended: branches past their time, and runs whose process is gone."""

from datetime import datetime

from anabranch.errors import BranchInUseError, BranchProtectedError, BusyError, RunEndedError
from anabranch.ids import MAIN
from anabranch.repo.log.clocks import store_microseconds
from anabranch.repo.log.entries import LogEntry, RunPhase
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.branches import delete_branch
from anabranch.repo.runs.runs import abort_run, run_state
from anabranch.storage import find_object

__all__ = ["end_dead_runs", "end_expired_branches", "list_dead_runs", "list_expired_branches"]

_SILENT = "its process gave no sign of life"


def list_expired_branches(records: RepoStore) -> tuple[LogEntry, ...]:
    """Return the branches whose time has passed by the store's clock."""
    now = store_microseconds(records.context)
    return tuple(
        entry
        for entry in records.heads.list()
        if not entry.state.is_deleted and entry.state.expires_at is not None and entry.state.expires_at <= now
        if str(entry.branch) != MAIN
    )


def end_expired_branches(records: RepoStore) -> tuple[str, ...]:
    """Delete the branches past their time, but for those that others still hang on."""
    ended = []
    # Whatever was made from another one comes before that.
    waiting = list(list_expired_branches(records))
    while waiting:
        left = [entry for entry in waiting if not _try_to_delete(records, entry)]
        ended += [str(entry.branch) for entry in waiting if entry not in left]
        if len(left) == len(waiting):
            break
        waiting = left
    return tuple(sorted(ended))


def _try_to_delete(records: RepoStore, entry: LogEntry) -> bool:
    try:
        delete_branch(records, entry.branch)
    except (BranchInUseError, BranchProtectedError, BusyError):
        return False
    return True


def list_dead_runs(records: RepoStore, *, horizon: datetime) -> tuple[str, ...]:
    """The runs that are not over, whose process said nothing since the horizon."""
    found = []
    for entry in records.heads.list_runs():
        run_id = entry.branch.run_id
        if (
            entry.state.is_deleted
            or run_id is None
            or run_id in records.context.leases.list_alive(run_state(entry).target)
        ):
            continue
        log = records.context.branch_log(entry.branch)
        written = find_object(records.context.store, log.path(entry.number))
        if written is not None and written.modified < horizon:
            found.append(run_id)
    return tuple(sorted(found))


def end_dead_runs(records: RepoStore, *, horizon: datetime) -> tuple[str, ...]:
    """Let nobody publish a run any more that seems dead, or say so if it was published after all."""
    ended = []
    for run_id in list_dead_runs(records, horizon=horizon):
        try:
            abort_run(records, run_id, phase=RunPhase.FAILED, error=_SILENT)
        except (RunEndedError, BusyError):
            continue
        ended.append(run_id)
    return tuple(ended)
