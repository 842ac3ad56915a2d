"""Jobs, their rows and routes, and the threads that run them: a few at a time, some wait, and more are refused.

Running jobs stop between batches.
"""

import asyncio
import json
import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, TypeAdapter

from anabranch.errors import (
    AnabranchError,
    JobCancelledError,
    JobInterruptedError,
    JobNotFoundError,
    JobNotQueuedError,
    TooManyRequestsError,
)
from anabranch.server.auth import Scope, Token, require
from anabranch.server.branch_access import OpenBranch
from anabranch.server.database import Database, Row, row_of
from anabranch.server.envelope import UNEXPECTED, envelope_of, status_of, without_data_folder
from anabranch.server.routing import Call, Limit, Needs, get_service, make_router
from anabranch.server.settings import Settings
from anabranch.storage import requests


class JobKind(StrEnum):
    IMPORT = "import"
    EXPORT = "export"


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a job: the number of rows, and the fraction of the whole."""

    rows: int = 0
    fraction: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An import or an export. `error` is the body of an error with its HTTP `status`."""

    id: str
    project_id: str
    branch_id: str
    kind: JobKind
    state: JobState
    progress: Progress
    request: Mapping[str, Any]
    result: Mapping[str, Any] | None
    error: Mapping[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    token_id: str


_JOB = TypeAdapter(Job)
_JSON_COLUMNS = ("progress", "request", "result", "error")


def _details(job: Job) -> Row:
    row = {**row_of(job), "progress": asdict(job.progress)}
    return {name: None if row[name] is None else json.dumps(row[name]) for name in _JSON_COLUMNS}


def _job(row: Row) -> Job:
    return _JOB.validate_python({**row, **{name: json.loads(row[name] or "null") for name in _JSON_COLUMNS}})


_log = logging.getLogger("anabranch.server")
_ID_PREFIX = "job_"

Report = Callable[[Progress], None]
Work = Callable[[Job, Report], Mapping[str, Any]]


class _StoppedError(Exception):
    """Raised in the thread of a job to end it. Not an AnabranchError, so that no retry and no handler catches it."""


@dataclass(slots=True, kw_only=True)
class _Live:
    """A job of this process that has not ended. Its row is updated only when it starts and ends.

    When `stop` is set, the next report of progress ends the job with this error, and `was_stopped` records that.
    """

    job: Job
    work: Work
    on_end: Callable[[], None]
    ended: "Future[Job]" = field(default_factory=Future)
    begins: "Future[None] | None" = None
    stop: AnabranchError | None = None
    was_stopped: bool = False


class Jobs:
    """All jobs of the service. A row is written before the work starts, and again before a client sees its end."""

    def __init__(self, settings: Settings, database: Database, *, clock: Callable[[], datetime]) -> None:
        self._data = settings.data
        self._limits = settings.limits
        self._database = database
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
        """Queue a job. Raise TooManyRequestsError if too many wait. `on_end` is called however the job ends."""
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
        live.ended.set_running_or_notify_cancel()  # a client that stops waiting cannot cancel it
        with self._changing:
            waiting = sum(other.job.state is JobState.QUEUED for other in list(self._live.values()))
            if waiting >= self._limits.queued_jobs:
                raise TooManyRequestsError(f"{waiting} jobs are waiting already", hint="try again when some are done")
            # Before its row is written: a client that lists jobs must not see the row without its progress.
            self._live[job.id] = live
        try:
            self._insert(job)
            live.begins = self._pool.submit(self._run, live)
        except BaseException:
            del self._live[job.id]
            raise
        return job

    def get(self, job_id: str) -> Job:
        live = self._live.get(job_id)
        if live is not None:
            return live.job
        row = self._database.read_one("SELECT * FROM jobs WHERE id = ?", [job_id])
        if row is None:
            raise JobNotFoundError(f"there is no job '{job_id}'", hint="list the jobs to see which exist")
        return _job(row)

    def list_all(
        self,
        *,
        project_id: str | None = None,
        branch_id: str | None = None,
        states: Sequence[JobState] = tuple(JobState),
        limit: int | None = None,
    ) -> list[Job]:
        """Return the jobs, newest first."""
        rows = self._database.read(
            "SELECT * FROM jobs WHERE ($1::VARCHAR IS NULL OR project_id = $1)"
            " AND ($2::VARCHAR IS NULL OR branch_id = $2) AND list_contains($3::VARCHAR[], state)"
            " ORDER BY created_at DESC, id DESC LIMIT $4",
            [project_id, branch_id, list(states), limit],
        )
        # The row of a running job has no progress: it is written only when the job starts and ends.
        return [live.job if (live := self._live.get(row["id"])) is not None else _job(row) for row in rows]

    def cancel(self, job_id: str) -> Job:
        """Cancel a job: at once if it waits, after its current batch if it runs and is not done by then."""
        job = self.get(job_id)
        live = self._live.get(job_id)
        if live is None or live.begins is None:
            raise JobNotQueuedError(
                f"job '{job_id}' is {job.state}", hint="only a job that has not ended can be cancelled"
            )
        error = JobCancelledError(f"job '{job_id}' was cancelled", hint="send it again if it is wanted")
        # Returns False as soon as a thread has taken the job. Then only the job itself can stop.
        if live.begins.cancel():
            return self._end(live, _stopped(live.job, error))
        live.stop = error
        return live.job

    async def wait(self, job_id: str, seconds: float) -> Job:
        """Return the job when it has ended, or when the time is over."""
        live = self._live.get(job_id)
        if live is not None:
            # Unlike `wait_for`, this does not cancel the future when the time is over: other clients may wait for it.
            await asyncio.wait([asyncio.wrap_future(live.ended)], timeout=seconds)
        return self.get(job_id)

    def close(self) -> None:
        """End the jobs that wait, and those that run after a bounded time.

        A job that does not stop is left to the next start, which finds its row and reports how it ended.
        """
        self._end_queued()
        # Jobs that end in time by themselves are not interrupted.
        self._wait_for_running()
        self.interrupt()
        if self._wait_for_running():
            self._pool.shutdown()
        else:
            _log.error("jobs did not stop in time: %s", ", ".join(self._live))
            self._pool.shutdown(wait=False, cancel_futures=True)

    def interrupt(self) -> None:
        """End the jobs that wait, and those that run after their current batch."""
        self._end_queued()
        for live in list(self._live.values()):
            why = f"the service stopped while job '{live.job.id}' was running; nothing was changed"
            # A job that is already being cancelled keeps that reason.
            live.stop = live.stop or JobInterruptedError(why, hint="send it again")

    def _end_queued(self) -> None:
        for live in list(self._live.values()):
            if live.begins is not None and live.begins.cancel():
                error = JobInterruptedError("the service stopped before the job began", hint="send it again")
                self._end(live, _stopped(live.job, error))

    def _wait_for_running(self) -> bool:
        """Wait a bounded time for the jobs that run. Return whether all have ended."""
        return not wait([live.ended for live in list(self._live.values())], self._limits.stop_seconds).not_done

    def recover(self, find_result: Callable[[Job], Mapping[str, Any] | None]) -> None:
        """End the jobs that a crash left: one whose result is found has succeeded, others have failed."""
        for job in self.list_all(states=(JobState.QUEUED, JobState.RUNNING)):
            why = f"the service stopped while job '{job.id}' was {job.state}"
            error = JobInterruptedError(f"{why}; nothing was changed", hint="send it again")
            result = None
            try:
                result = find_result(job)
            except AnabranchError:
                # The service starts nevertheless, for the other projects.
                _log.exception("the result of job %s cannot be read", job.id)
                hint = "check the table before sending it again"
                error = JobInterruptedError(f"{why}, and its project cannot be read", hint=hint)
            if result is None:
                ended = replace(job, state=JobState.FAILED, error=_failure(error))
            else:
                ended = replace(job, state=JobState.SUCCEEDED, result=result)
            self._update(replace(ended, finished_at=self._clock()))

    def forget_old(self) -> list[Job]:
        """Delete the rows of jobs that ended long ago, and return these jobs."""
        before = self._clock() - timedelta(seconds=self._limits.kept_seconds)
        with self._database.turn():
            rows = self._database.read("SELECT * FROM jobs WHERE finished_at < ?", [before])
            if rows:
                self._database.write("DELETE FROM jobs WHERE finished_at < ?", [before])
        return [_job(row) for row in rows]

    def _insert(self, job: Job) -> None:
        self._database.insert("jobs", {**row_of(job), **_details(job)})

    def _update(self, job: Job) -> None:
        row = {"state": job.state, **_details(job), "started_at": job.started_at, "finished_at": job.finished_at}
        changes = ", ".join(f"{name} = ?" for name in row)
        self._database.write(f"UPDATE jobs SET {changes} WHERE id = ?", [*row.values(), job.id])  # noqa: S608

    def _run(self, live: _Live) -> None:
        job = live.job = replace(live.job, state=JobState.RUNNING, started_at=self._clock())

        def report(progress: Progress) -> None:
            live.job = replace(live.job, progress=progress)
            if live.stop is not None:
                live.was_stopped = True
                raise _StoppedError

        try:
            self._update(job)
            result = live.work(job, report)
            done = Progress(rows=live.job.progress.rows, fraction=1.0)
            ended = replace(live.job, state=JobState.SUCCEEDED, progress=done, result=result)
        except BaseException as err:  # noqa: BLE001 - the client gets it as the error of the job
            ended = self._failed(live, err)
        self._end(live, ended)

    def _failed(self, live: _Live, error: BaseException) -> Job:
        # Libraries below may wrap the exception that stopped the job, so its type does not matter. A job that failed
        # after its last report may have made its commit, and is not reported as stopped.
        if live.was_stopped and live.stop is not None:
            return _stopped(live.job, live.stop)
        if isinstance(error, AnabranchError):
            return replace(live.job, state=JobState.FAILED, error=_failure(without_data_folder(error, self._data)))
        _log.error("job %s failed", live.job.id, exc_info=error)
        return replace(live.job, state=JobState.FAILED, error={"status": 500, **UNEXPECTED})

    def _end(self, live: _Live, ended: Job) -> Job:
        job = replace(ended, finished_at=self._clock())
        try:
            live.on_end()
            self._update(job)
        finally:
            # Clients that wait get the result in any case. If the row could not be written, the next start repairs it.
            live.job = job
            self._live.pop(job.id, None)
            live.ended.set_result(job)
        return job


def progress_callback(report: Report) -> requests.OnProgress:
    """Return a progress callback for loads and exports that reports the progress of a job."""

    def on_progress(progress: requests.Progress) -> None:
        fraction = progress.done / progress.total if progress.total else 0.0
        report(Progress(rows=progress.rows, fraction=min(fraction, 1.0)))

    return on_progress


def _stopped(job: Job, error: AnabranchError) -> Job:
    state = JobState.CANCELLED if isinstance(error, JobCancelledError) else JobState.FAILED
    return replace(job, state=state, error=_failure(error))


def _failure(error: AnabranchError) -> dict[str, Any]:
    return {"status": status_of(error), **envelope_of(error)}


router = make_router("jobs", prefix="/jobs")

JobId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_]+$", max_length=64, examples=["job_0123456789abcdef"])]
Wait = Annotated[
    float,
    Query(
        ge=0,
        le=100,
        description="Maximum time to wait for the result, in seconds. Then the answer is 202 with the job.",
    ),
]


class JobList(BaseModel):
    jobs: list[Job]


class _NeedsAnywhere(Needs):
    """The scope of a route whose path has no project."""

    def check(self, token: Token, request: Request) -> None:  # noqa: ARG002 - the routes filter by the project of the token
        # Without its binding: `require` refuses a bound token on a path that has no project.
        require(replace(token, project_id=None, branch_id=None), self.scope, path={})


class _NeedsOfJob(_NeedsAnywhere):
    """The scope of a route whose path has a job. The job determines the project and the branch.

    Other tokens get the same error as for a job that does not exist.
    """

    def check(self, token: Token, request: Request) -> None:
        super().check(token, request)
        job = get_service(request).part(Jobs).get(request.path_params["job_id"])
        if token.project_id not in (None, job.project_id) or token.branch_id not in (None, job.branch_id):
            raise JobNotFoundError(f"there is no job '{job.id}'", hint="list the jobs to see which exist")
        require(token, self.scope, path={"project_id": job.project_id, "branch_id": job.branch_id})


JobsToRead = Annotated[Call, Depends(_NeedsAnywhere(Scope.READ))]
JobToRead = Annotated[Call, Depends(_NeedsOfJob(Scope.READ))]
JobToChange = Annotated[Call, Depends(_NeedsOfJob(Scope.BRANCH))]


def answer_job(job: Job) -> JSONResponse:
    """Return the answer of a request that waited for a job: its result, its error, or 202 if it has not ended."""
    if job.state is JobState.SUCCEEDED:
        return JSONResponse(job.result)
    # Failed and cancelled jobs have an error, so this job is queued or running.
    if job.error is None:
        body = _JOB.dump_python(job, mode="json")
        return JSONResponse(body, status_code=202, headers={"Location": f"/jobs/{job.id}"})
    details = {**job.error["details"], "job_id": job.id}
    body = {"code": job.error["code"], "message": job.error["message"], "details": details}
    headers = {"Retry-After": "1"} if details["retryable"] else {}
    return JSONResponse(body, status_code=job.error["status"], headers=headers)


@router.get("")
def list_jobs(
    call: JobsToRead,
    project_id: Annotated[str | None, Query(max_length=64, description="Only jobs of this project.")] = None,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    limit: Limit = 100,
) -> JobList:
    """List jobs, newest first. A token that is bound to a project or a branch sees only the jobs of that."""
    if project_id is not None:
        # The branch of a token is not in the path. It restricts the list below instead.
        require(replace(call.token, branch_id=None), Scope.READ, path={"project_id": project_id})
    found = call.part(Jobs).list_all(
        project_id=project_id or call.token.project_id,
        branch_id=call.token.branch_id,
        states=tuple(JobState) if state is None else (state,),
        limit=limit,
    )
    return JobList(jobs=found)


@router.get("/{job_id}")
def get_job(call: JobToRead, job_id: JobId) -> Job:
    """Return the state of a job, and its result."""
    return call.part(Jobs).get(job_id)


@router.delete("/{job_id}")
def cancel_job(call: JobToChange, job_id: JobId) -> Job:
    """Cancel a job: at once if it is queued, after its current batch if it is running."""
    return call.part(Jobs).cancel(job_id)
