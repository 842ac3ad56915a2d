"""Imports: the rows of one file become one commit of a branch, or nothing changes."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any

from anabranch.errors import (
    AnabranchError,
    BadRecordError,
    DamagedFileError,
    InvalidInputError,
    KeyConflictError,
    NotFoundError,
    SchemaMismatchError,
)
from anabranch.files.csv_options import CsvOptions
from anabranch.files.formats import FileFormat, format_of_name
from anabranch.ids import MAIN, TableKey
from anabranch.repo.history.comparer import Choice
from anabranch.repo.io.values import LoadMode, LoadReport, OnDuplicate
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Table
from anabranch.server.access import DEFAULT_BRANCH
from anabranch.server.attempts import JOB_ID, find_commit_of_job
from anabranch.server.branches import Branches, OpenBranch
from anabranch.server.changing import metadata_of
from anabranch.server.jobs.jobs import Jobs, Report, at_work, progress_callback
from anabranch.server.jobs.models import Job, JobKind
from anabranch.server.projects import Projects
from anabranch.server.retrying import retried
from anabranch.server.settings import Settings
from anabranch.server.tables import find_table
from anabranch.server.unpacking import check_unpacked_size
from anabranch.server.uploading import Upload
from anabranch.warnings import collect_warnings

__all__ = ["ImportOrder", "ImportRequest", "Imports"]

_log = logging.getLogger("anabranch.server")
_PARQUET_START = b"PAR1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """How a file is to be taken; what is None is as the file's name and the table say."""

    format: FileFormat | None = None
    incremental: bool = False
    dedup: bool = False
    csv: CsvOptions = field(default_factory=CsvOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOrder:
    """Which file is to go into which table; it is deleted afterwards unless it is to be kept."""

    branch: OpenBranch
    key: TableKey
    request: ImportRequest
    upload: Upload
    is_kept: bool


class Imports:
    def __init__(self, settings: Settings, projects: Projects, branches: Branches, jobs: Jobs) -> None:
        self._limits = settings.limits
        self._projects = projects
        self._branches = branches
        self._jobs = jobs

    def check(self, branch: OpenBranch, key: TableKey, request: ImportRequest) -> None:
        """Refuse what cannot become an import, before anybody waits for it."""
        table = find_table(branch.repository.snapshot_of(branch.name), key)
        if request.dedup and not table.primary_key:
            raise InvalidInputError(
                f"table '{key}' has no primary key by which rows could be the same", hint="leave dedup out"
            )

    def submit(self, order: ImportOrder) -> Job:
        """Let a file be imported."""
        branch, key, upload = order.branch, order.key, order.upload
        done = None if branch.attempt is None else branch.attempt.commit
        if done is not None and JOB_ID in done.metadata:
            _discard(order)
            return self._jobs.get(done.metadata[JOB_ID])
        asked = asdict(order.request)
        asked |= {**asked.pop("csv"), "null": order.request.csv.nulls[0]}
        said = {**asked, "bucket": key.bucket, "table": key.table, "file": upload.name}

        def work(job: Job, report: Report) -> Mapping[str, Any]:
            with at_work(job, self._projects, self._branches), _renamed(upload):
                return self._import(order, job, report)

        return self._jobs.submit(branch, JobKind.IMPORT, said, work, on_end=lambda: _discard(order))

    def find_result(self, job: Job) -> Mapping[str, Any] | None:
        """What became of an import that a crash cut off: nothing, unless its commit is there."""
        if job.kind is not JobKind.IMPORT:
            return None
        name = MAIN if job.branch_id == DEFAULT_BRANCH else job.branch_id
        try:
            repository = self._projects.open(job.project_id, actor=None)
            commit = find_commit_of_job(repository, name, job.id, since=job.created_at)
        except NotFoundError:
            return None
        if commit is None:
            return None
        key = TableKey(job.request["bucket"], job.request["table"])
        count = _rows_at(repository, commit.graph_commit_id, key)
        return {
            "job_id": job.id,
            "imported_rows": None if job.request["incremental"] else count,
            "table_row_count": count,
            "commit_id": commit.graph_commit_id,
            "engine": None,
            "warnings": ["the service stopped before it could say more about this import, which is done"],
        }

    def _import(self, order: ImportOrder, job: Job, report: Report) -> Mapping[str, Any]:
        branch = order.branch
        check_unpacked_size(order.upload, self._limits)
        with collect_warnings() as warnings:
            loaded = retried(lambda: self._load(order, job, report), seconds=self._limits.job_retry_seconds)
        self._note_copies(branch)
        commit_id = loaded.commit_id or branch.repository.snapshot_of(branch.name).id
        return {
            "job_id": job.id,
            "imported_rows": loaded.rows_loaded,
            "table_row_count": _rows_at(branch.repository, commit_id, order.key),
            "commit_id": loaded.commit_id,
            "engine": str(loaded.engine),
            "warnings": [*_warnings(loaded), *warnings],
        }

    def _load(self, order: ImportOrder, job: Job, report: Report) -> LoadReport:
        branch, request, upload = order.branch, order.request, order.upload
        # The load would make a table that is not there.
        table = find_table(branch.repository.snapshot_of(branch.name), order.key)
        return branch.repository.load(
            str(order.key),
            upload.path,
            format=_format_of(request, upload),
            mode=_mode_of(request, table),
            branch=branch.name,
            csv=request.csv,
            on_duplicate=OnDuplicate.LAST if request.dedup else OnDuplicate.REFUSE,
            engine=self._engine_for(upload),
            message=f"Import {upload.name} into {order.key}",
            metadata={**metadata_of(branch), JOB_ID: job.id},
            progress=progress_callback(report),
        )

    def _engine_for(self, upload: Upload) -> Choice:
        is_large = upload.size_bytes >= self._limits.spark_from_bytes
        return Choice.SPARK if is_large and find_spec("pyspark") is not None else Choice.LOCAL

    def _note_copies(self, branch: OpenBranch) -> None:
        """Bring the rows about copies in line; the import is done, whatever comes of it."""
        try:
            self._branches.note_copies(branch)
        except Exception:  # noqa: BLE001 - rows about copies are brought in line whenever somebody asks for them
            _log.exception("the copies of branch %s could not be noted", branch.branch_id)


def _discard(order: ImportOrder) -> None:
    if not order.is_kept:
        order.upload.discard()


def _format_of(request: ImportRequest, upload: Upload) -> FileFormat:
    if request.format is not None:
        return request.format
    named, _ = format_of_name(upload.stored_as)
    if named is not None:
        return named
    with upload.path.open("rb") as file:
        return FileFormat.PARQUET if file.read(len(_PARQUET_START)) == _PARQUET_START else FileFormat.CSV


def _mode_of(request: ImportRequest, table: Table) -> LoadMode:
    if not request.incremental:
        return LoadMode.OVERWRITE
    return LoadMode.UPSERT if table.primary_key else LoadMode.APPEND


def _rows_at(repository: Repository, commit_id: str, key: TableKey) -> int:
    return EngineAccess(repository).published_snapshot_of(commit_id)[str(key)].count_rows()


def _warnings(loaded: LoadReport) -> list[str]:
    found = []
    if loaded.rows_repeated:
        found.append(f"{loaded.rows_repeated} rows gave way to later ones of the same key")
    if loaded.commit_id is None:
        found.append("there was nothing to change, so there is no commit")
    return found


@contextmanager
def _renamed(upload: Upload) -> Iterator[None]:
    """Let errors call the file what its sender does, and say what its sender can do."""
    try:
        yield
    except AnabranchError as err:
        problem = err.problem.replace(str(upload.path), upload.name)
        details = {**err.details, "file": upload.name} if "file" in err.details else err.details
        match err:
            case BadRecordError():
                raise BadRecordError(
                    problem, hint="correct it and send the file again; nothing was changed", details=details
                ) from err
            case KeyConflictError():
                hint = "keep one row for each key, or let the last one win with dedup=true; nothing was changed"
                raise KeyConflictError(problem, hint=hint, details=details) from err
            case DamagedFileError() if problem != err.problem:
                # What is damaged is what was sent, not what is stored.
                details = {"file": upload.name, "line": None, "reason": problem}
                raise BadRecordError(problem, hint=err.hint, details=details) from err
            case SchemaMismatchError() if problem != err.problem:
                details = {"file": upload.name, "line": None, "reason": problem}
                raise SchemaMismatchError(problem, hint=err.hint, details=details) from err
            case _ if problem != err.problem:
                raise type(err)(problem, hint=err.hint, details=details) from err
            case _:
                raise
