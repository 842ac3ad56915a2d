"""Jobs and their rows in the database of the service."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from anabranch.server.database import Database, Row, row_of

__all__ = ["Job", "JobKind", "JobRows", "JobState", "Progress"]


class JobKind(StrEnum):
    IMPORT = "import"
    EXPORT = "export"


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in (JobState.QUEUED, JobState.RUNNING)


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


_COLUMNS = (
    "id, project_id, branch_id, kind, state, progress, request, result, error, created_at, started_at, finished_at,"
    " token_id"
)


_JSON_COLUMNS = ("progress", "request", "result", "error")


class JobRows:
    def __init__(self, database: Database) -> None:
        self._database = database

    def insert(self, job: Job) -> None:
        row = {**row_of(job), "kind": str(job.kind), "state": str(job.state)}
        self._database.insert("jobs", {**row, **dict(zip(_JSON_COLUMNS, _details(job), strict=True))})

    def update(self, job: Job) -> None:
        """Update the row of a job."""
        self._database.write(
            "UPDATE jobs SET state = ?, progress = ?, request = ?, result = ?, error = ?, started_at = ?,"
            " finished_at = ? WHERE id = ?",
            [str(job.state), *_details(job), job.started_at, job.finished_at, job.id],
        )

    def find(self, job_id: str) -> Job | None:
        row = self._database.read_one(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", [job_id])  # noqa: S608
        return None if row is None else _job(row)

    def list_all(
        self,
        *,
        project_id: str | None = None,
        branch_id: str | None = None,
        states: Sequence[JobState] = tuple(JobState),
        limit: int | None = None,
    ) -> list[Job]:
        """Return jobs, newest first."""
        rows = self._database.read(
            f"SELECT {_COLUMNS} FROM jobs WHERE ($1::VARCHAR IS NULL OR project_id = $1)"  # noqa: S608
            " AND ($2::VARCHAR IS NULL OR branch_id = $2) AND list_contains($3::VARCHAR[], state)"
            " ORDER BY created_at DESC, id DESC LIMIT $4",
            [project_id, branch_id, [str(state) for state in states], limit],
        )
        return [_job(row) for row in rows]

    def delete_finished(self, before: datetime) -> list[Job]:
        """Delete the jobs that ended before a time, and return them."""
        with self._database.turn():
            rows = self._database.read(f"SELECT {_COLUMNS} FROM jobs WHERE finished_at < ?", [before])  # noqa: S608
            if rows:
                self._database.write("DELETE FROM jobs WHERE finished_at < ?", [before])
        return [_job(row) for row in rows]


def _details(job: Job) -> list[str | None]:
    return [_json(asdict(job.progress)), _json(job.request), _json(job.result), _json(job.error)]


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _job(row: Row) -> Job:
    progress, request, result, error = (None if row[name] is None else json.loads(row[name]) for name in _JSON_COLUMNS)
    return Job(
        **{
            **row,
            "kind": JobKind(row["kind"]),
            "state": JobState(row["state"]),
            "progress": Progress(**(progress or {})),
            "request": request or {},
            "result": result,
            "error": error,
        }
    )
