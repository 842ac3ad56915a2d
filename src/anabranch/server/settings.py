"""The data folder of the service and its limits."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one request, of concurrent requests and of jobs.

    A client may take `head_seconds` to send the head of a request. For the body it may take `body_seconds`, and one
    more second for every `slowest_bytes_per_second` that have arrived. Requests without a valid token have
    `anonymous_requests_at_once` slots of their own and may take `anonymous_seconds`.
    Previews have `shared_threads` threads, and comparisons have as many. A token uses at most
    `shared_threads_per_token` of each, and may have `shared_requests_per_token` requests for each open, including those
    that run.
    A service that stops waits `stop_seconds` for its jobs, then interrupts them and waits as long again.
    The bodies of all running requests, without uploads, have at most `bodies_bytes_at_once`, and each has at most
    `body_values` values: a parsed value takes up to 80 bytes, whatever its size in the body.
    A compressed upload may unpack to `unpacked_bytes`, and beyond `unpacked_free_bytes` to `unpacked_ratio` times its
    size.
    """

    body_bytes: int = 16 << 20
    bodies_bytes_at_once: int = 24 << 20
    body_values: int = 4_000_000
    upload_bytes: int = 1 << 30
    unpacked_bytes: int = 8 << 30
    unpacked_ratio: int = 250
    unpacked_free_bytes: int = 64 << 20
    preview_rows: int = 10_000
    request_seconds: float = 120.0
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    slowest_bytes_per_second: int = 64 << 10
    retry_seconds: float = 20.0
    requests_at_once: int = 256
    anonymous_requests_at_once: int = 16
    anonymous_seconds: float = 10.0
    half_sent_heads: int = 128
    workers: int = 32
    shared_threads: int = 4
    shared_threads_per_token: int = 2
    shared_requests_per_token: int = 64
    queued_jobs: int = 64
    job_workers: int = 2
    job_retry_seconds: float = 600.0
    stop_seconds: float = 10.0
    spark_from_bytes: int = 512 << 20
    kept_seconds: float = 7 * 86_400.0
    idempotency_seconds: float = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The data folder and the limits of one service."""

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
