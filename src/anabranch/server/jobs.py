"""Routes of jobs: their state, cancellation, and the answer of a request that waits for one."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, TypeAdapter

from anabranch.errors import JobNotFoundError
from anabranch.server.auth import Scope, Token, require
from anabranch.server.job_runner import Job, Jobs, JobState
from anabranch.server.routing import Call, Limit, Needs, get_service, make_router

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

_JOB = TypeAdapter(Job)


class RowFormat(StrEnum):
    """Formats of files of rows. JSON has one object per line."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


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
        return JSONResponse(
            _JOB.dump_python(job, mode="json"), status_code=202, headers={"Location": f"/jobs/{job.id}"}
        )
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
        project_id=project_id or call.token.project_id, branch_id=call.token.branch_id, state=state, limit=limit
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
