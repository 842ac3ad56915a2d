"""Imports: the rows of one file become one commit of a branch, or nothing changes."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from anabranch.errors import (
    AnabranchError,
    BadRecordError,
    DamagedFileError,
    InvalidInputError,
    KeyConflictError,
    NotFoundError,
    SchemaMismatchError,
)
from anabranch.files.formats import CsvOptions, FileFormat, format_of_name
from anabranch.hints import Door, words_at
from anabranch.ids import MAIN, TableKey
from anabranch.repo.history.comparer import Choice
from anabranch.repo.io.prepared_table import LoadMode, LoadReport, OnDuplicate
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.server.auth import DEFAULT_BRANCH
from anabranch.server.branch_access import OpenBranch, retried
from anabranch.server.branches import Branches
from anabranch.server.envelope import with_example
from anabranch.server.files import FILE_ID, UPLOAD_BODY, Files, Upload, is_upload, take_upload
from anabranch.server.idempotency import JOB_ID, find_commit_of_job
from anabranch.server.jobs import Job, JobKind, Jobs, Report, Wait, answer_job, progress_callback
from anabranch.server.projects import Projects
from anabranch.server.routing import BranchToChange, BucketName, TableName, make_router
from anabranch.server.rows import RowFormat, parse_columns
from anabranch.server.settings import Settings
from anabranch.server.tables import find_table
from anabranch.server.unpacked_size import check_unpacked_size
from anabranch.warnings import collect_warnings

_log = logging.getLogger("anabranch.server")
_PARQUET_START = b"PAR1"


_Character = Annotated[str | None, Field(min_length=1, max_length=1)]


class ImportOptions(BaseModel, extra="forbid"):
    """How to read a file."""

    file_id: Annotated[
        str | None, Field(pattern=FILE_ID, max_length=64, description="A file that was uploaded before.")
    ] = None
    format: Annotated[
        RowFormat | None, Field(description="By default derived from the name of the file, else CSV.")
    ] = None
    incremental: Annotated[
        bool,
        Field(
            description="Add rows, and replace those with the same primary key. By default the file replaces all rows."
        ),
    ] = False
    dedup: Annotated[bool, Field(description="Of rows with the same primary key, keep the last.")] = False
    columns: Annotated[
        str | None, Field(max_length=100_000, description="The columns of a CSV file without a header: `id,amount`.")
    ] = None
    header: Annotated[bool | None, Field(description="By default true, unless `columns` is given.")] = None
    delimiter: Annotated[
        str | None,
        Field(min_length=1, max_length=3, description="One character, or `tab`. By default a comma, for `.tsv` a tab."),
    ] = None
    quote: Annotated[str, Field(max_length=1, description="Quote character. Empty for none.")] = '"'
    escape: Annotated[
        _Character, Field(description="Escape character. By default, quotes are escaped by doubling.")
    ] = None
    null: Annotated[str, Field(max_length=100, description="The text that represents null.")] = ""
    encoding: Annotated[str, Field(min_length=1, max_length=40)] = "utf-8"
    skip: Annotated[int, Field(ge=0, le=1_000_000, description="Number of lines to skip at the start.")] = 0
    wait: Wait = 30.0

    @property
    def csv(self) -> CsvOptions:
        return CsvOptions(
            delimiter=self.delimiter,
            quote=self.quote,
            escape=self.escape,
            header=self.columns is None if self.header is None else self.header,
            columns=parse_columns(self.columns),
            null=self.null,
            encoding=self.encoding,
            skip=self.skip,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOrder:
    """A file to import into a table. The file is deleted afterwards, unless it was uploaded before."""

    branch: OpenBranch
    key: TableKey
    options: ImportOptions
    upload: Upload

    def discard(self) -> None:
        if self.options.file_id is None:
            self.upload.discard()


class Imports:
    def __init__(self, settings: Settings, projects: Projects, branches: Branches, jobs: Jobs) -> None:
        self._limits = settings.limits
        self._projects = projects
        self._branches = branches
        self._jobs = jobs

    def check(self, branch: OpenBranch, key: TableKey, options: ImportOptions) -> None:
        """Raise an error for a request that cannot succeed, before the file is read."""
        _ = options.csv  # raises an error for options that contradict each other
        table = find_table(branch.snapshot(), key)
        if options.dedup and not table.primary_key:
            raise InvalidInputError(
                f"dedup needs a primary key, and table '{key}' has none", hint="omit dedup, or set a primary key"
            )

    def submit(self, order: ImportOrder) -> Job:
        """Submit a job that imports a file. A repeated request gets the job of the first."""
        branch, key, upload, csv = order.branch, order.key, order.upload, order.options.csv
        done = None if branch.attempt is None else branch.attempt.commit
        # The commit of the first attempt has the id of its job, so the file is not imported twice.
        if done is not None and JOB_ID in done.metadata:
            order.discard()
            return self._jobs.get(done.metadata[JOB_ID])
        asked = order.options.model_dump(include={"format", "incremental", "dedup"})
        asked |= {**asdict(csv), "null": csv.nulls[0], "bucket": key.bucket, "table": key.table, "file": upload.name}

        def work(job: Job, report: Report) -> Mapping[str, Any]:
            at_work = self._branches.at_work(job.project_id, job.branch_id, since=job.created_at)
            with at_work, errors_about(upload):
                return self._import(order, job, report)

        return self._jobs.submit(branch, JobKind.IMPORT, asked, work, on_end=order.discard)

    def find_result(self, job: Job) -> Mapping[str, Any] | None:
        """Return the result of an import that a crash interrupted, or None if it made no commit."""
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
        count = _rows_at(repository, commit.graph_commit_id, TableKey(job.request["bucket"], job.request["table"]))
        return {
            "job_id": job.id,
            # A full import replaces all rows, so their number is known. What an incremental one added is not recorded.
            "imported_rows": None if job.request["incremental"] else count,
            "table_row_count": count,
            "commit_id": commit.graph_commit_id,
            "engine": None,
            "warnings": ["the service stopped after this import was committed, so its report is incomplete"],
        }

    def _import(self, order: ImportOrder, job: Job, report: Report) -> Mapping[str, Any]:
        branch = order.branch
        kind = format_of(order.options.format, order.upload)
        # A stripe of an ORC file is read as a whole, and nothing limits what it unpacks to.
        if kind.value not in list(RowFormat):
            raise InvalidInputError(f"the service does not import {kind} files", hint="send CSV, JSON or Parquet")
        # In the job and not in the request: unpacking takes long, and needs one of the few job threads anyway.
        check_unpacked_size(order.upload, kind, self._limits, report)
        with collect_warnings() as warnings:
            loaded = retried(lambda: self._load(order, kind, job, report), seconds=self._limits.job_retry_seconds)
        try:
            self._branches.note_copies(branch)
        except Exception:  # noqa: BLE001 - the import is committed, and the rows are updated again when they are read
            _log.exception("the copied tables of branch %s could not be recorded", branch.branch_id)
        commit_id = loaded.commit_id or branch.snapshot().id
        found = []
        if loaded.rows_repeated:
            found.append(f"{loaded.rows_repeated} rows were replaced by later rows with the same key")
        if loaded.commit_id is None:
            found.append("nothing changed, so no commit was made")
        return {
            "job_id": job.id,
            "imported_rows": loaded.rows_loaded,
            "table_row_count": _rows_at(branch.repository, commit_id, order.key),
            "commit_id": loaded.commit_id,
            "engine": str(loaded.engine),
            "warnings": [*found, *(words_at(Door.HTTP, warning) for warning in warnings)],
        }

    def _load(self, order: ImportOrder, kind: FileFormat, job: Job, report: Report) -> LoadReport:
        branch, options, upload = order.branch, order.options, order.upload
        # A load creates a missing table, but an import must not.
        table = find_table(branch.snapshot(), order.key)
        mode = LoadMode.OVERWRITE
        if options.incremental:
            mode = LoadMode.UPSERT if table.primary_key else LoadMode.APPEND
        # Spark takes seconds to start, which only a large file outweighs.
        is_large = upload.size_bytes >= self._limits.spark_from_bytes
        return branch.repository.load(
            str(order.key),
            upload.path,
            format=kind,
            mode=mode,
            branch=branch.name,
            csv=options.csv,
            on_duplicate=OnDuplicate.LAST if options.dedup else OnDuplicate.REFUSE,
            engine=Choice.SPARK if is_large and find_spec("pyspark") is not None else Choice.LOCAL,
            message=f"Import {upload.name} into {order.key}",
            metadata={**branch.metadata, JOB_ID: job.id},
            progress=progress_callback(report),
        )


def format_of(wanted: RowFormat | None, upload: Upload) -> FileFormat:
    """Return the format of an upload: the requested one, or that of its name or content."""
    if wanted is not None:
        return FileFormat(wanted)
    named, _ = format_of_name(upload.stored_as)
    if named is not None:
        return named
    # Some clients send names without an extension. Parquet files begin with fixed bytes, CSV files do not.
    with upload.path.open("rb") as file:
        return FileFormat.PARQUET if file.read(len(_PARQUET_START)) == _PARQUET_START else FileFormat.CSV


def _rows_at(repository: Repository, commit_id: str, key: TableKey) -> int:
    return EngineAccess(repository).published_snapshot_of(commit_id)[str(key)].count_rows()


@contextmanager
def errors_about(upload: Upload) -> Iterator[None]:
    """Use the sender's name of the file in errors, and hints for the sender."""
    try:
        yield
    except AnabranchError as err:
        # A text that contains the path is about the uploaded file, any other about the stored data. The cases below
        # rely on that.
        problem = err.problem.replace(str(upload.path), upload.name)
        details = {**err.details, "file": upload.name} if "file" in err.details else err.details
        match err:
            case BadRecordError():
                raise BadRecordError(
                    problem, hint="correct it and send the file again; nothing was changed", details=details
                ) from err
            case KeyConflictError():
                hint = "keep one row per key, or use dedup=true to keep the last; nothing was changed"
                raise KeyConflictError(problem, hint=hint, details=details) from err
            case DamagedFileError() | SchemaMismatchError() if problem != err.problem:
                # The uploaded file is damaged, not the stored data, so this is an error of the client.
                kind = BadRecordError if isinstance(err, DamagedFileError) else SchemaMismatchError
                details = {"file": upload.name, "line": None, "reason": problem}
                raise kind(problem, hint=err.hint, details=details) from err
            case _ if problem != err.problem:
                found = err.reworded(problem)
                found.details = details
                raise found from err
            case _:
                raise


router = make_router("imports", prefix="/projects/{project_id}/branches/{branch_id}/buckets/{bucket}/tables/{table}")


class ImportResult(BaseModel):
    """The result of an import. After a crash of the service some values are unknown."""

    model_config = with_example(
        job_id="job_0123456789abcdef",
        imported_rows=1000,
        table_row_count=151000,
        commit_id="01JD0Z8M3C5S6T7V8W9X0Y1Z2A",
        engine="local",
        warnings=[],
    )

    job_id: str
    imported_rows: int | None
    table_row_count: int
    commit_id: str | None
    engine: str | None
    warnings: list[str]


@router.post(
    "/import",
    response_model=ImportResult,
    responses={202: {"model": Job, "description": "Not done yet"}},
    openapi_extra=UPLOAD_BODY,
)
async def import_table(
    call: BranchToChange,
    bucket: BucketName,
    table: TableName,
    options: Annotated[ImportOptions, Query()],
    request: Request,
) -> Response:
    """Import a file, sent as the part `file` of a form or uploaded before. All rows become one commit, or none."""
    key = TableKey(bucket, table)
    # Before the file is received, which may take minutes.
    branch = await run_in_threadpool(call.open)
    await run_in_threadpool(call.part(Imports).check, branch, key, options)
    if is_upload(request) == (options.file_id is not None):
        raise InvalidInputError(
            "the request has a file and a file_id" if options.file_id else "the request has neither file nor file_id",
            hint="send the file as the part 'file' of multipart/form-data, or give the file_id of an uploaded one",
        )
    if options.file_id is None:
        upload = await call.part(Files).upload_of(request)
    else:
        upload = await run_in_threadpool(call.part(Files).get, call.project_id, options.file_id)
    submit = partial(call.part(Imports).submit, ImportOrder(branch=branch, key=key, options=options, upload=upload))
    job = await (run_in_threadpool(submit) if options.file_id else run_in_threadpool(take_upload, request, submit))
    return answer_job(await call.part(Jobs).wait(job.id, options.wait))
