"""Jobs: a few run at a time, some wait, and more are refused."""

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from anabranch.errors import (
    AnabranchError,
    JobCancelledError,
    JobInterruptedError,
    JobNotFoundError,
    JobNotQueuedError,
    ProjectNotFoundError,
    TooManyRequestsError,
)
from anabranch.server.branches import Branches, OpenBranch
from anabranch.server.envelope import SURPRISE, envelope_of, status_of, without_place
from anabranch.server.jobs.models import Job, JobKind, JobState, Progress
from anabranch.server.jobs.rows import JobRows
from anabranch.server.projects import Projects
from anabranch.server.settings import Settings
from anabranch.storage import progress as storage_progress

__all__ = ["Jobs", "Report", "Work", "at_work", "telling"]

_log = logging.getLogger("anabranch.server")
_ID_PREFIX = "job_"

Report = Callable[[Progress], None]
Work = Callable[[Job, Report], Mapping[str, Any]]


@dataclass(slots=True, kw_only=True)
class _Live:
    """A job of this process that has not ended; what it is now is here, and in its row only from time to time."""

    job: Job
    work: Work
    on_end: Callable[[], None]
    ended: "Future[Job]" = field(default_factory=Future)
    begins: "Future[None] | None" = None


class Jobs:
    """All jobs of the service. A row comes before the work, and says how it ended before anybody is told."""

    def __init__(self, settings: Settings, rows: JobRows, *, clock: Callable[[], datetime]) -> None:
        self._data = settings.data
        self._limits = settings.limits
        self._rows = rows
        self._clock = clock
        self._live: dict[str, _Live] = {}
        self._changing = threading.Lock()
        self._pool = ThreadPoolExecutor(settings.limits.job_workers, thread_name_prefix="anabranch-job")

    def submit(
        self,
        branch: OpenBranch,
        kind: JobKind,
        request: Mapping[str, Any],
        work: Work,
        *,
        on_end: Callable[[], None] = lambda: None,
    ) -> Job:
        """Let a job wait for its turn; refuse it if too many do. However it ends, `on_end` is called."""
        job = Job(
            id=_ID_PREFIX + secrets.token_hex(8),
            project_id=branch.project_id,
            branch_id=branch.branch_id,
            kind=kind,
            state=JobState.QUEUED,
            progress=Progress(),
            request=request,
            result=None,
            error=None,
            created_at=self._clock(),
            started_at=None,
            finished_at=None,
            token_id=branch.token.id,
        )
        live = _Live(job=job, work=work, on_end=on_end)
        live.ended.set_running_or_notify_cancel()  # nobody who stops waiting can cancel it
        with self._changing:
            waiting = sum(other.job.state is JobState.QUEUED for other in self._live.values())
            if waiting >= self._limits.queued_jobs:
                raise TooManyRequestsError(f"{waiting} jobs are waiting already", hint="try again when some are done")
            self._live[job.id] = live
        try:
            self._rows.insert(job)
            live.begins = self._pool.submit(self._run, live)
        except BaseException:
            with self._changing:
                del self._live[job.id]
            raise
        return job

    def get(self, job_id: str) -> Job:
        live = self._live.get(job_id)
        job = self._rows.find(job_id) if live is None else live.job
        if job is None:
            raise JobNotFoundError(f"there is no job '{job_id}'", hint="list the jobs to see which exist")
        return job

    def list_all(
        self,
        *,
        project_id: str | None,
        branch_id: str | None = None,
        state: JobState | None = None,
        limit: int | None = 100,
    ) -> list[Job]:
        """The newest first."""
        states = tuple(JobState) if state is None else (state,)
        found = self._rows.list_all(project_id=project_id, branch_id=branch_id, states=states, limit=limit)
        return [live.job if (live := self._live.get(job.id)) is not None else job for job in found]

    def cancel(self, job_id: str) -> Job:
        """End a job that waits; one that has begun goes on."""
        job = self.get(job_id)
        live = self._live.get(job_id)
        if live is None or live.begins is None or not live.begins.cancel():
            raise JobNotQueuedError(
                f"job '{job_id}' is {self.get(job_id).state}", hint="only a job that waits can be cancelled"
            )
        error = JobCancelledError(f"job '{job_id}' was cancelled", hint="send it again if it is wanted")
        return self._end(live, replace(job, state=JobState.CANCELLED, error=_failure(error)))

    async def wait(self, job_id: str, seconds: float) -> Job:
        """The job when it has ended, or when the time is over."""
        live = self._live.get(job_id)
        if live is not None:
            # Unlike `wait_for`, this leaves the future alone when the time is over, for others who wait.
            await asyncio.wait([asyncio.wrap_future(live.ended)], timeout=seconds)
        return self.get(job_id)

    def close(self) -> None:
        """End what waits, and wait for what runs."""
        mine = list(self._live.values())
        for live in mine:
            if live.begins is not None and live.begins.cancel():
                error = JobInterruptedError("the service stopped before the job began", hint="send it again")
                self._end(live, replace(live.job, state=JobState.FAILED, error=_failure(error)))
        for live in mine:
            live.ended.result()
        self._pool.shutdown()

    def recover(self, find_result: Callable[[Job], Mapping[str, Any] | None]) -> None:
        """End what a crash left: a job is done if its result is found, and has failed otherwise."""
        for job in self._rows.list_all(states=(JobState.QUEUED, JobState.RUNNING)):
            stopped = f"the service stopped while job '{job.id}' was {job.state}"
            error = JobInterruptedError(f"{stopped}; nothing was changed", hint="send it again")
            try:
                result = find_result(job)
            except AnabranchError:
                # The other projects can be served all the same.
                _log.exception("what became of job %s cannot be found", job.id)
                result = None
                error = JobInterruptedError(
                    f"{stopped}, and its project cannot be read",
                    hint="look at the table before sending it again",
                )
            if result is None:
                ended = replace(job, state=JobState.FAILED, error=_failure(error))
            else:
                ended = replace(job, state=JobState.SUCCEEDED, result=result)
            self._rows.update(replace(ended, finished_at=self._clock()))

    def forget_old(self) -> list[Job]:
        """Drop the rows of jobs that ended long ago; which these were."""
        return self._rows.delete_finished(self._clock() - timedelta(seconds=self._limits.kept_seconds))

    def _run(self, live: _Live) -> None:
        job = live.job = replace(live.job, state=JobState.RUNNING, started_at=self._clock())

        def report(progress: Progress) -> None:
            live.job = replace(live.job, progress=progress)

        try:
            self._rows.update(job)
            result = live.work(job, report)
            done = Progress(rows=live.job.progress.rows, fraction=1.0)
            ended = replace(live.job, state=JobState.SUCCEEDED, progress=done, result=result)
        except AnabranchError as err:
            ended = replace(live.job, state=JobState.FAILED, error=_failure(without_place(err, self._data)))
        except BaseException:  # noqa: BLE001 - whoever waits is told, and it is in the log
            _log.exception("job %s failed", job.id)
            ended = replace(live.job, state=JobState.FAILED, error={"status": 500, **SURPRISE})
        self._end(live, ended)

    def _end(self, live: _Live, ended: Job) -> Job:
        job = replace(ended, finished_at=self._clock())
        try:
            live.on_end()
            self._rows.update(job)
        finally:
            # Whoever waits is told in any case; if the row could not be written, the next start looks again.
            live.job = job
            with self._changing:
                self._live.pop(job.id, None)
            live.ended.set_result(job)
        return job


@contextmanager
def at_work(job: Job, projects: Projects, branches: Branches) -> Iterator[None]:
    """Keep the project of a job while it runs, if it is the one that was there when the job was asked for.

    What fails because the branch is gone meanwhile, and its files with it, says so.
    """
    with projects.in_use(job.project_id, patiently=True):
        if projects.get(job.project_id).created_at > job.created_at:
            raise ProjectNotFoundError(f"the project '{job.project_id}' was deleted", hint="send it to the new one")
        try:
            yield
        except Exception:
            branches.require_there(job.project_id, job.branch_id)
            raise


def telling(report: Report) -> storage_progress.OnProgress:
    """A report in the words of loads and exports."""

    def tell(progress: storage_progress.Progress) -> None:
        fraction = progress.done / progress.total if progress.total else 0.0
        report(Progress(rows=progress.rows, fraction=min(fraction, 1.0)))

    return tell


def _failure(error: AnabranchError) -> dict[str, Any]:
    return {"status": status_of(error), **envelope_of(error)}
