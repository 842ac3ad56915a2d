"""Where the service keeps its data, and how much it takes."""

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Limits", "Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request may be, and how many there may be."""

    body_bytes: int = 16 << 20
    upload_bytes: int = 1 << 30
    preview_rows: int = 10_000
    request_seconds: float = 120.0
    slowest_bytes_per_second: int = 64 << 10
    retry_seconds: float = 20.0
    requests_at_once: int = 256
    workers: int = 32
    queued_jobs: int = 64
    job_workers: int = 2
    job_retry_seconds: float = 600.0
    spark_from_bytes: int = 512 << 20
    kept_seconds: float = 7 * 86_400.0
    idempotency_seconds: float = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One running service."""

    data: Path
    limits: Limits = field(default_factory=Limits)

    @property
    def metadata_file(self) -> Path:
        return self.data / "metadata.duckdb"

    @property
    def files_folder(self) -> Path:
        return self.data / "files"

    def project_folder(self, project_id: str) -> Path:
        return self.data / f"project_{project_id}"
