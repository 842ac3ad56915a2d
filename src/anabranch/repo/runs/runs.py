"""Runs: hidden branches whose changes become one commit of their target, or nothing.

A run's branch stages in the homes of its target, so that publishing copies no data. Its log is the log of the run: that
it began, each commit inside it, that it is being published, and how it ended.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from anabranch.errors import (
    AnabranchError,
    BranchNotFoundError,
    BusyError,
    InvalidInputError,
    InvalidNameError,
    RunEndedError,
    RunNotFoundError,
)
from anabranch.ids import BranchName, CommitId
from anabranch.repo.leases.lease import Lease
from anabranch.repo.log.entries import (
    BranchEvent,
    BranchMode,
    BranchState,
    CommitKind,
    GraphCommit,
    LogEntry,
    Parent,
    RunPhase,
    RunState,
)
from anabranch.repo.log.history_tables import commits_since
from anabranch.repo.log.making import record_view
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.live import is_recorded, view
from anabranch.repo.refs.protection import refuse_protected

__all__ = [
    "RUN_ID",
    "RunInfo",
    "abort_run",
    "begin_run",
    "close_run",
    "describe_run",
    "find_published",
    "get_run",
    "list_runs",
    "put_run",
    "refuse_over",
    "run_state",
    "stop_publishing",
]

# The key by which a commit's metadata name the run it came from.
RUN_ID = "run_id"

_EVENTS = {
    RunPhase.RUNNING: BranchEvent.RESTORED,
    RunPhase.PUBLISHING: BranchEvent.PUBLISHING,
    RunPhase.PUBLISHED: BranchEvent.PUBLISHED,
    RunPhase.FAILED: BranchEvent.FAILED,
    RunPhase.ABORTED: BranchEvent.ABORTED,
}
_OVER = frozenset({RunPhase.PUBLISHED, RunPhase.FAILED, RunPhase.ABORTED})
_MAX_ATTEMPTS = 100

Alive = dict[BranchName, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run as it is now. `tables` are those it has touched, `commit_id` is what it was published as."""

    id: str
    target: str
    state: RunPhase
    message: str
    metadata: Mapping[str, str]
    tables: tuple[str, ...]
    begun_at: int
    begun_by: str | None
    changed_at: int
    commit_id: str | None
    error: str | None


def run_state(entry: LogEntry) -> RunState:
    if entry.state.run is None:
        raise RunNotFoundError(f"branch '{entry.branch}' is no run", hint="list the runs to see which exist")
    return entry.state.run


def begin_run(
    records: RepoStore,
    target: BranchName,
    *,
    message: str,
    metadata: Mapping[str, str],
    checks: tuple[tuple[str, str], ...] = (),
) -> tuple[str, Lease]:
    """Create the hidden branch of a new run on what the target shows now; return its id and its lease.

    The target may be deleted at the same moment. Both sides write first and then read, so one of them detects it.
    """
    if RUN_ID in metadata:
        raise InvalidInputError(f"the metadata {RUN_ID!r} is given by the run", hint="use another key")
    head = records.heads.get(target)
    refuse_protected(head)
    run_id = records.context.new_id()
    lease = records.context.leases.new(target, run_id)
    lease.start()
    try:
        entry = _first_entry(records, head, run_id, message=message, metadata=metadata)
        entry = replace(entry, state=replace(entry.state, checks=checks))
        if not records.heads.append(entry):
            raise BusyError(f"there is a run {run_id} already", hint="try again: ids are made by chance")
        try:
            _require_still(records, head)
        except AnabranchError:
            close_run(records, entry, RunPhase.ABORTED)
            raise
    except BaseException:
        lease.release()
        raise
    return run_id, lease


def _require_still(records: RepoStore, head: LogEntry) -> None:
    now = records.heads.find(head.branch)
    if now is None or now.state.is_deleted or now.state.created_as != head.state.created_as:
        raise BranchNotFoundError(f"branch '{head.branch}' was deleted meanwhile", hint="begin on another one")


def _first_entry(
    records: RepoStore, head: LogEntry, run_id: str, *, message: str, metadata: Mapping[str, str]
) -> LogEntry:
    shown = view(records, head)
    commit, now = shown.head.commit, max(records.context.clock(), shown.head.commit.created_at)
    run = RunState(
        target=head.branch,
        target_created_as=head.state.created_as,
        origin=commit.graph_commit_id,
        phase=RunPhase.RUNNING,
        metadata=metadata,
        saw=shown.head.saw,
    )
    entry = LogEntry(
        branch=BranchName.of_run(run_id),
        number=1,
        event=BranchEvent.CREATED,
        at=now,
        actor=records.context.actor,
        state=BranchState(
            mode=BranchMode.PINNED,
            parent=Parent(branch=head.branch, commit=commit.graph_commit_id),
            created_at=now,
            created_by=records.context.actor,
            created_as=1,
            description=message,
            run=run,
        ),
        head=shown.head,
    )
    if is_recorded(head, shown):
        return replace(entry, head=replace(shown.head, saw=None))
    entry = record_view(records, entry, message=f"Run on {head.branch}")
    origin = entry.head.commit.graph_commit_id
    return replace(entry, state=replace(entry.state, run=replace(run, origin=origin)))


def get_run(records: RepoStore, run_id: str) -> LogEntry:
    """The newest entry of a run's log, whether it is over or not."""
    entry = records.heads.find(BranchName.of_run(_checked_id(run_id)))
    if entry is None:
        raise RunNotFoundError(f"there is no run {run_id!r}", hint="list the runs to see which exist")
    return entry


def _checked_id(run_id: str) -> str:
    try:
        return CommitId.parse(run_id).value
    except InvalidNameError:
        raise InvalidNameError(
            f"run id {run_id!r} is not a ULID", hint="copy the 26 characters that the list of runs shows"
        ) from None


def list_runs(records: RepoStore, *, target: BranchName | None = None) -> Iterator[RunInfo]:
    """The runs, newest first; read as far as somebody asks."""
    alive: Alive = {}
    for entry in records.heads.list_runs():
        on = run_state(entry).target
        if target is None or on == target:
            yield describe_run(records, entry, alive=alive)


def describe_run(records: RepoStore, entry: LogEntry, *, alive: Alive | None = None) -> RunInfo:
    """What a run is by now; `alive` remembers which runs gave a sign of life, for whoever asks for many."""
    run, run_id, state = run_state(entry), entry.branch.run_id or "", entry.state
    phase, commit_id = run.phase, run.commit_id
    if phase not in _OVER:
        is_alive = _is_alive(records, entry, {} if alive is None else alive)
        commit = None if is_alive and phase is RunPhase.RUNNING else find_published(records, entry)
        commit_id = None if commit is None else commit.graph_commit_id
        phase = RunPhase.PUBLISHED if commit is not None else RunPhase.RUNNING if is_alive else RunPhase.EXPIRED
    return RunInfo(
        id=run_id,
        target=str(run.target),
        state=phase,
        message=state.description,
        metadata=run.metadata,
        tables=tuple(map(str, state.own)),
        begun_at=state.created_at,
        begun_by=state.created_by,
        changed_at=entry.at,
        commit_id=commit_id,
        error=run.error,
    )


def _is_alive(records: RepoStore, entry: LogEntry, known: Alive) -> bool:
    target = run_state(entry).target
    if target not in known:
        known[target] = records.context.leases.list_alive(target)
    return entry.branch.run_id in known[target]


def find_published(records: RepoStore, entry: LogEntry, *, head: LogEntry | None = None) -> GraphCommit | None:
    """The commit a run was published as, though its process died before it could say so."""
    run = run_state(entry)
    head = records.heads.find(run.target) if head is None else head
    if run.published_after is None or head is None:
        return None
    for commit in commits_since(records, head, version=run.published_after):
        if commit.kind is CommitKind.PUBLISH_RUN and commit.metadata.get(RUN_ID) == entry.branch.run_id:
            return commit
    return None


def put_run(records: RepoStore, entry: LogEntry, run: RunState) -> LogEntry | None:
    """Add an entry that says how far a run is; None if somebody else was faster."""
    following = replace(
        entry,
        number=entry.number + 1,
        event=_EVENTS[run.phase],
        at=max(records.context.clock(), entry.at),
        actor=records.context.actor,
        state=replace(entry.state, run=run, is_deleted=run.phase in _OVER),
    )
    return following if records.heads.append(following) else None


def close_run(
    records: RepoStore, entry: LogEntry, phase: RunPhase, *, error: str | None = None, commit_id: str | None = None
) -> None:
    """Say how a run ended, whatever its log says by now."""
    for _ in range(_MAX_ATTEMPTS):
        run = replace(run_state(entry), phase=phase, error=error, commit_id=commit_id)
        if put_run(records, entry, run) is not None:
            return
        entry = get_run(records, entry.branch.run_id or "")
    raise BusyError(f"run {entry.branch.run_id} moved {_MAX_ATTEMPTS} times meanwhile", hint="try again")


def abort_run(records: RepoStore, run_id: str, *, phase: RunPhase = RunPhase.ABORTED, error: str | None = None) -> None:
    """Forget what a run did; refused if it is over, or just being published."""
    for _ in range(_MAX_ATTEMPTS):
        entry = get_run(records, run_id)
        run = run_state(entry)
        published = None if run.phase in _OVER else find_published(records, entry)
        if published is not None:
            close_run(records, entry, RunPhase.PUBLISHED, commit_id=published.graph_commit_id)
            continue
        refuse_over(entry)
        if run.phase is RunPhase.PUBLISHING and run_id in records.context.leases.list_alive(run.target):
            raise BusyError(f"run {run_id} is being published", hint="wait for it, then look at it again")
        following = put_run(records, entry, replace(run, phase=phase, error=error))
        if following is not None:
            if run.phase is RunPhase.PUBLISHING and (late := stop_publishing(records, following)) is not None:
                close_run(records, following, RunPhase.PUBLISHED, commit_id=late.graph_commit_id)
                refuse_over(get_run(records, run_id))
            return
    raise BusyError(f"run {run_id} moved {_MAX_ATTEMPTS} times meanwhile", hint="try again")


def stop_publishing(records: RepoStore, entry: LogEntry) -> GraphCommit | None:
    """Let nobody publish a run who only seemed dead, or whose request is still under way; its commit if they did.

    One more entry of the target, which changes nothing there: whoever was about to publish loses against it, and looks
    at the run again before the next try.
    """
    target = run_state(entry).target
    for _ in range(_MAX_ATTEMPTS):
        head = records.heads.find(target)
        published = find_published(records, entry, head=head)
        if published is not None:
            return published
        if head is None or head.state.is_deleted or head.state.is_protected:
            return None  # nobody publishes there, nor later what was begun before
        now, actor = max(records.context.clock(), head.at), records.context.actor
        if records.heads.append(replace(head, number=head.number + 1, event=BranchEvent.ABORTED, at=now, actor=actor)):
            return None
    raise BusyError(f"branch '{target}' moved {_MAX_ATTEMPTS} times meanwhile", hint="try again")


def refuse_over(entry: LogEntry) -> None:
    """Refuse to do anything more with a run that has ended."""
    run = run_state(entry)
    if run.phase in _OVER:
        raise RunEndedError(f"run {entry.branch.run_id} is over: it was {run.phase}", hint="begin another run")
