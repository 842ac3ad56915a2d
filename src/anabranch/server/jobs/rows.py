"""The rows of jobs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from anabranch.server.jobs.models import Job, JobKind, JobState, Progress
from anabranch.server.metadata.database import Database, Row

__all__ = ["JobRows"]

_COLUMNS = (
    "id, project_id, branch_id, kind, state, progress, request, result, error, created_at, started_at, finished_at,"
    " token_id"
)


class JobRows:
    def __init__(self, database: Database) -> None:
        self._database = database

    def insert(self, job: Job) -> None:
        self._database.write(
            f"INSERT INTO jobs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            [
                job.id,
                job.project_id,
                job.branch_id,
                str(job.kind),
                str(job.state),
                *_details(job),
                job.created_at,
                job.started_at,
                job.finished_at,
                job.token_id,
            ],
        )

    def update(self, job: Job) -> None:
        """Note how a job goes."""
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
        """The newest first."""
        rows = self._database.read(
            f"SELECT {_COLUMNS} FROM jobs WHERE ($1::VARCHAR IS NULL OR project_id = $1)"  # noqa: S608
            " AND ($2::VARCHAR IS NULL OR branch_id = $2) AND list_contains($3::VARCHAR[], state)"
            " ORDER BY created_at DESC, id DESC LIMIT $4",
            [project_id, branch_id, [str(state) for state in states], limit],
        )
        return [_job(row) for row in rows]

    def delete_finished(self, before: datetime) -> list[Job]:
        """Forget the jobs that ended before a moment; which these were."""
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
    progress, request, result, error = (
        None if row[name] is None else json.loads(row[name]) for name in ("progress", "request", "result", "error")
    )
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
