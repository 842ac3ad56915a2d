"""Runs: hidden branches whose changes become one commit of their target, or nothing.

A run's branch stages in the homes of its target, so that publishing copies no data. Its log is the log of the run: that
it began, each commit inside it, that it is being published, and how it ended.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any

from anabranch.display import row_of, to_datetime
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
from anabranch.repo.log.commits import Once
from anabranch.repo.log.entries import (
    BranchEvent,
    CheckOutcome,
    CheckResult,
    CommitKind,
    GraphCommit,
    LogEntry,
    Parent,
    RunPhase,
    RunState,
)
from anabranch.repo.log.heads import Decide
from anabranch.repo.log.leases import Lease
from anabranch.repo.log.numbered_log import ALL, NamePage
from anabranch.repo.log.repo_store import RepoStore, View, pin_view
from anabranch.repo.refs.branches import newest_entry
from anabranch.repo.refs.protection import refuse_protected

# The key by which a commit's metadata name the run it came from.
RUN_ID = "run_id"

_EVENTS = {
    # A publisher that fails puts the run back to `running`, so that it can be published again.
    RunPhase.RUNNING: BranchEvent.RESTORED,
    RunPhase.PUBLISHING: BranchEvent.PUBLISHING,
    RunPhase.PUBLISHED: BranchEvent.PUBLISHED,
    RunPhase.FAILED: BranchEvent.FAILED,
    RunPhase.ABORTED: BranchEvent.ABORTED,
}
_OVER = frozenset({RunPhase.PUBLISHED, RunPhase.FAILED, RunPhase.ABORTED})
_MAX_ATTEMPTS = 100

# Return the leases of a branch that are renewed.
ListAlive = Callable[[BranchName], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run as it is now. `tables` are those it has touched, `commit_id` is what it was published as.

    `checks` are those that it has to pass, with their results.
    """

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
    checks: tuple[CheckOutcome, ...] = ()

    @property
    def begun(self) -> datetime:
        """The time at which the run began, in UTC."""
        return to_datetime(self.begun_at)

    @property
    def changed(self) -> datetime:
        """The time of the last change of the run, in UTC."""
        return to_datetime(self.changed_at)

    def _repr_row_(self) -> Mapping[str, object]:
        return row_of(self, "run=id target state begun begun_by message")


def run_state(entry: LogEntry) -> RunState:
    if entry.state.run is None:
        raise RunNotFoundError(f"branch '{entry.branch}' is not a run", hint="list the runs with `run_list()`")
    return entry.state.run


def begin_run(
    repo_store: RepoStore,
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
    head = repo_store.heads.get(target)
    refuse_protected(head)
    run_id = repo_store.config.new_id()
    lease = repo_store.config.leases.new(target, run_id)
    # The lease first: a deletion of the target finds active runs by their leases.
    lease.start()
    try:
        first = _first_entry(repo_store, head, run_id, metadata, description=message, checks=checks)
        if repo_store.heads.create(first.branch, lambda _: first) is None:
            raise BusyError(f"there is a run {run_id} already", hint="try again: ids are random")
        try:
            now = repo_store.heads.find(head.branch)
            if now is None or now.state.is_deleted or now.state.created_as != head.state.created_as:
                hint = "begin on another one"
                raise BranchNotFoundError(f"branch '{head.branch}' was deleted at the same time", hint=hint)
        except AnabranchError:
            close_run(repo_store, first, RunPhase.ABORTED)
            raise
    except BaseException:
        lease.release()
        raise
    return run_id, lease


def _first_entry(
    repo_store: RepoStore, head: LogEntry, run_id: str, metadata: Mapping[str, str], **state: Any
) -> LogEntry:
    view = View.now(repo_store, head)
    commit = view.commit
    run = RunState(
        target=head.branch,
        target_created_as=head.state.created_as,
        origin=commit.graph_commit_id,
        phase=RunPhase.RUNNING,
        metadata=metadata,
        main_id=view.main_id,
    )
    parent = Parent(branch=head.branch, commit=commit.graph_commit_id, created_as=head.state.created_as)
    entry = repo_store.heads.first_entry(
        BranchName.of_run(run_id), view.head, BranchEvent.CREATED, parent=parent, run=run, **state
    )
    entry = pin_view(repo_store, entry, view, message=f"Run on {head.branch}")
    # On a live target, pinning may have stored a commit of what it shows. The run is compared with that one.
    origin = entry.head.commit.graph_commit_id
    return replace(entry, state=replace(entry.state, run=replace(run, origin=origin)))


def get_run(repo_store: RepoStore, run_id: str) -> LogEntry:
    """Return the newest entry of a run's log, whether it has ended or not."""
    try:
        branch = BranchName.of_run(CommitId.parse(run_id).value)
    except InvalidNameError:
        hint = "copy the 26 characters that the list of runs shows"
        raise InvalidNameError(f"run id {run_id!r} is not valid", hint=hint) from None
    entry = repo_store.heads.find(branch)
    if entry is None:
        raise RunNotFoundError(f"there is no run {run_id!r}", hint="list the runs with `run_list()`")
    return entry


def list_runs(repo_store: RepoStore, page: NamePage = ALL, *, target: BranchName | None = None) -> Iterator[RunInfo]:
    """Yield the runs from a page on, newest first; they are read on demand."""
    list_alive = cache(repo_store.config.leases.list_alive)  # many runs have one target
    for entry in repo_store.heads.list_runs(page):
        if target is None or run_state(entry).target == target:
            yield describe_run(repo_store, entry, list_alive)


def describe_run(repo_store: RepoStore, entry: LogEntry, list_alive: ListAlive | None = None) -> RunInfo:
    """Return the current state of a run."""
    run, state = run_state(entry), entry.state
    phase, commit_id = _find_outcome(repo_store, entry, list_alive or repo_store.config.leases.list_alive)
    return RunInfo(
        id=entry.branch.run_id or "",
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
        checks=run.outcomes or _outcomes_of(state.checks, phase),
    )


def _find_outcome(repo_store: RepoStore, entry: LogEntry, list_alive: ListAlive) -> tuple[RunPhase, str | None]:
    """Return the phase of a run as it is now, and the commit that it was published as."""
    run = run_state(entry)
    if run.phase in _OVER:
        return run.phase, run.commit_id
    is_held = entry.branch.run_id in list_alive(run.target)
    # A process that died after its commit has not recorded it in the run. A run that is alive and `running` has no
    # publisher, so that the usual case needs no search.
    commit = None if is_held and run.phase is RunPhase.RUNNING else find_published(repo_store, entry)
    if commit is not None:
        return RunPhase.PUBLISHED, commit.graph_commit_id
    return RunPhase.RUNNING if is_held else RunPhase.EXPIRED, None


def _outcomes_of(checks: Sequence[tuple[str, str]], phase: RunPhase) -> tuple[CheckOutcome, ...]:
    """Return the outcomes of the checks of a run that recorded none."""
    # A run is published only if its checks pass. Its process may have died before it recorded that.
    known = {RunPhase.PUBLISHED: CheckResult.PASSED, RunPhase.FAILED: CheckResult.UNKNOWN}
    result = known.get(phase, CheckResult.NOT_RUN)
    return tuple(CheckOutcome(name=name, sql=sql, result=result) for name, sql in checks)


def find_published(repo_store: RepoStore, entry: LogEntry, *, head: LogEntry | None = None) -> GraphCommit | None:
    """Return the commit that a run was published as, also if its process died before it recorded that."""
    run = run_state(entry)
    head = repo_store.heads.find(run.target) if head is None else head
    return None if run.published_after is None or head is None else repo_store.find_once(once_of(entry), head)


def once_of(entry: LogEntry) -> Once:
    """Return the mark by which a run that is being published, or was, is published once."""
    return Once(
        key=RUN_ID,
        value=entry.branch.run_id or "",
        # Users may give any metadata to their own commits, but not this kind.
        is_relevant=lambda commit: commit.kind is CommitKind.PUBLISH_RUN,
        after=run_state(entry).published_after,
    )


def next_run_entry(repo_store: RepoStore, entry: LogEntry, run: RunState) -> LogEntry:
    """Return the entry that follows in the log of a run, with the run's new state."""
    return repo_store.heads.next_entry(entry, _EVENTS[run.phase], run=run, is_deleted=run.phase in _OVER)


def move_run(repo_store: RepoStore, run_id: str, decide: Decide, *, known: LogEntry | None = None) -> LogEntry:
    """Put the next entry of a run's log, whether the run has ended or not."""
    branch, newest = BranchName.of_run(run_id), partial(get_run, repo_store, run_id)
    return repo_store.heads.move(branch, decide, known=known, newest=newest, attempts=_MAX_ATTEMPTS)


def close_run(
    repo_store: RepoStore,
    entry: LogEntry,
    phase: RunPhase,
    *,
    commit_id: str | None = None,
    outcomes: tuple[CheckOutcome, ...] = (),
) -> None:
    """Record how a run ended, whatever other processes have added to its log."""

    def ended(newest: LogEntry) -> LogEntry:
        # Decide on the newest entry, not the one that the caller knows: another process may have put `publishing`.
        run = replace(run_state(newest), phase=phase, error=None, commit_id=commit_id, outcomes=outcomes)
        return next_run_entry(repo_store, newest, run)

    move_run(repo_store, entry.branch.run_id or "", ended, known=entry)


def abort_run(
    repo_store: RepoStore,
    run_id: str,
    *,
    phase: RunPhase = RunPhase.ABORTED,
    error: str | None = None,
    outcomes: tuple[CheckOutcome, ...] = (),
) -> None:
    """Discard what a run did; refused if it has ended, or is being published now."""
    was_publishing = False

    def aborted(entry: LogEntry) -> LogEntry:
        nonlocal was_publishing
        run = run_state(entry)
        refuse_over(entry)
        # A publisher that died after its commit leaves the run in `publishing`. An abort would contradict the target.
        published = find_published(repo_store, entry)
        if published is not None:
            commit_id = published.graph_commit_id
            return next_run_entry(repo_store, entry, replace(run, phase=RunPhase.PUBLISHED, commit_id=commit_id))
        was_publishing = run.phase is RunPhase.PUBLISHING
        if was_publishing and run_id in repo_store.config.leases.list_alive(run.target):
            raise BusyError(f"run {run_id} is being published", hint="wait for it, then read it again")
        return next_run_entry(repo_store, entry, replace(run, phase=phase, error=error, outcomes=outcomes))

    entry = move_run(repo_store, run_id, aborted)
    # The run is published, so that the caller gets an error although the log has a new entry.
    if run_state(entry).phase is RunPhase.PUBLISHED:
        refuse_over(entry)
    # The abort is recorded before the fence. So a publisher that loses against the fence then finds the abort.
    if was_publishing and (late := fence_off_publishers(repo_store, entry)) is not None:
        close_run(repo_store, entry, RunPhase.PUBLISHED, commit_id=late.graph_commit_id)
        refuse_over(get_run(repo_store, run_id))


def fence_off_publishers(repo_store: RepoStore, entry: LogEntry) -> GraphCommit | None:
    """Fence off publishers of a run that are still in flight; return the run's commit if one was faster.

    This puts an entry on the target that changes nothing there. A publisher that was about to put the same number loses
    against it, and reads the run again before its next attempt.
    """
    target = run_state(entry).target
    if repo_store.heads.find(target) is None:
        return None
    published = None

    def fence(head: LogEntry) -> LogEntry | None:
        nonlocal published
        published = find_published(repo_store, entry, head=head)
        if published is not None or head.state.is_deleted or head.state.is_protected:
            return None  # no run can be published to a deleted or protected branch, now or later
        return repo_store.heads.next_entry(head, BranchEvent.ABORTED)

    repo_store.heads.move(target, fence, newest=partial(newest_entry, repo_store, target), attempts=_MAX_ATTEMPTS)
    return published


def refuse_over(entry: LogEntry) -> None:
    """Refuse a run that has ended."""
    run = run_state(entry)
    if run.phase in _OVER:
        raise RunEndedError(f"run {entry.branch.run_id} is over: it was {run.phase}", hint="begin another run")
