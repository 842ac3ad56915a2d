"""What a job is, and how it goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

__all__ = ["Job", "JobKind", "JobState", "Progress"]


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
    """How far a job is: rows done, and the part of the whole that this is."""

    rows: int = 0
    fraction: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An import or an export. `error` is what a refused request would have answered, with its `status`."""

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
