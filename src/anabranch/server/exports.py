"""Exports: the rows of a table as one file, to be fetched later."""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from anabranch.errors import FileMissingError
from anabranch.files.formats import CsvOptions, FileFormat
from anabranch.files.writer import Target
from anabranch.format.staging.incoming import require_columns
from anabranch.ids import TableKey
from anabranch.repo.io.export import ExportOptions
from anabranch.repo.io.export import export_table as write_export
from anabranch.repo.io.values import ExportReport
from anabranch.server.branch import OpenBranch
from anabranch.server.branches import Branches
from anabranch.server.client_values import checked_filter
from anabranch.server.files import Files
from anabranch.server.job_runner import Job, JobKind, Jobs, JobState, Report, at_work, progress_callback
from anabranch.server.jobs import JobId, JobToRead, RowFormat, Wait, answer_job
from anabranch.server.jobs import router as jobs_router
from anabranch.server.projects import Projects
from anabranch.server.routing import Body, BranchCall, BranchToRead, BucketName, TableName, make_router
from anabranch.server.tables import find_table


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """The rows to export, and the format of the file."""

    format: FileFormat = FileFormat.CSV
    columns: tuple[str, ...] | None = None
    where: str | None = None
    limit: int | None = None
    gzip: bool = False
    csv: CsvOptions = field(default_factory=CsvOptions)
    ref: str | None = None


class Exports:
    """Exports of tables. The file of an export is in a folder named after its job, and kept as long as its row."""

    def __init__(self, projects: Projects, branches: Branches, files: Files, jobs: Jobs) -> None:
        self._projects = projects
        self._branches = branches
        self._files = files
        self._jobs = jobs

    def submit(self, branch: OpenBranch, key: TableKey, request: ExportRequest) -> Job:
        """Submit a job that writes the rows of a table, as they are now or at a ref."""
        # The service has no timer, so each export first removes those that are too old.
        self.forget_old()
        snapshot = branch.snapshot(request.ref)
        table = find_table(snapshot, key)
        if request.columns is not None:
            require_columns(table.schema, request.columns)
        # The snapshot is taken now, so that the file has the rows of the time of the request, not of the job.
        name = _name_of(key, request)
        _target_of(Path("/") / name)  # raises an error for a format that cannot be written
        asked = asdict(request) | {"delimiter": request.csv.separator, "header": request.csv.header}
        del asked["csv"]
        description = {**asked, "bucket": key.bucket, "table": key.table}

        def work(job: Job, report: Report) -> Mapping[str, Any]:
            folder = self._files.folder_of(job.project_id, job.id)
            with at_work(job, self._projects, self._branches):
                folder.mkdir(parents=True)
                try:
                    written = write_export(
                        snapshot,
                        str(key),
                        _target_of(folder / name),
                        ExportOptions(
                            columns=request.columns,
                            where=request.where,
                            limit=request.limit,
                            csv=request.csv,
                            progress=progress_callback(report),
                        ),
                    )
                    return _result_of(job, written, name)
                # Also if the job was cancelled. No request can name the folder of an export that did not succeed.
                except BaseException:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise

        return self._jobs.submit(branch, JobKind.EXPORT, description, work)

    def get_file(self, job: Job) -> Path:
        """Return the path of the file that an export wrote."""
        made = job.result if job.kind is JobKind.EXPORT and job.state is JobState.SUCCEEDED else None
        if made is None:
            raise FileMissingError(
                f"job '{job.id}' has no file: it is an {job.kind} and is {job.state}", hint="see the job"
            )
        path = self._files.folder_of(job.project_id, job.id) / str(made["file_name"])
        if not path.is_file():
            raise FileMissingError(f"the file of job '{job.id}' was deleted", hint="export again")
        return path

    def ids(self) -> set[str]:
        """Return the ids of the exports whose files can be fetched."""
        done = self._jobs.list_all(project_id=None, state=JobState.SUCCEEDED, limit=None)
        return {job.id for job in done if job.kind is JobKind.EXPORT}

    def forget_old(self) -> None:
        """Delete the jobs that ended long ago, and the files of exports among them."""
        for job in self._jobs.forget_old():
            shutil.rmtree(self._files.folder_of(job.project_id, job.id), ignore_errors=True)


def _name_of(key: TableKey, request: ExportRequest) -> str:
    return f"{key.table}.{request.format}{'.gz' if request.gzip else ''}"


def _target_of(path: Path) -> Target:
    return Target.parse(path, format=None, single_file=True, storage_options={})


def _result_of(job: Job, written: ExportReport, name: str) -> Mapping[str, Any]:
    return {
        "job_id": job.id,
        "rows": written.rows,
        "size_bytes": written.bytes_written,
        "format": written.format,
        "commit_id": written.commit_id,
        "file_name": name,
        "url": f"/jobs/{job.id}/file",
    }


router = make_router("exports", prefix="/projects/{project_id}/branches/{branch_id}/buckets/{bucket}/tables/{table}")

_Name = Annotated[str, Field(min_length=1, max_length=256)]


class NewExport(Body):
    """The rows to export, and the format of the file."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"format": "csv", "columns": ["id"], "where": "amount > 10", "gzip": True}]}
    )

    format: RowFormat = RowFormat.CSV
    columns: Annotated[list[_Name] | None, Field(min_length=1, max_length=2000)] = None
    where: Annotated[str | None, Field(max_length=10_000, description="SQL over the columns: `amount > 10`.")] = None
    limit: Annotated[int | None, Field(ge=1, le=2**53, description="Maximum number of rows.")] = None
    gzip: Annotated[bool, Field(description="Compress CSV or JSON.")] = False
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    header: Annotated[bool, Field(description="Start CSV with a line of column names.")] = True
    ref: Annotated[
        str | None, Field(max_length=200, description="As of a commit id, a tag or a time.", examples=[None])
    ] = None

    def to_request(self) -> ExportRequest:
        return ExportRequest(
            format=FileFormat(self.format),
            columns=None if self.columns is None else tuple(self.columns),
            where=None if self.where is None else checked_filter(self.where),
            limit=self.limit,
            gzip=self.gzip,
            csv=CsvOptions(delimiter=self.delimiter, header=self.header),
            ref=self.ref,
        )


_MEDIA_TYPES = {
    ".csv": "text/csv",
    ".json": "application/x-ndjson",
    ".gz": "application/gzip",
    ".parquet": "application/vnd.apache.parquet",
}


class ExportResult(BaseModel):
    """The file that an export wrote, and the `url` to fetch it."""

    job_id: str
    rows: int
    size_bytes: int
    format: str
    commit_id: str
    file_name: str
    url: str


@router.post("/export", response_model=ExportResult, responses={202: {"model": Job, "description": "Not done yet"}})
async def export_table(
    call: BranchToRead,
    bucket: BucketName,
    table: TableName,
    body: NewExport,
    wait: Wait = 30.0,
) -> Response:
    """Write rows of a table to a file, which can then be fetched."""
    job = await run_in_threadpool(_submit, call, TableKey(bucket, table), body)
    return answer_job(await call.part(Jobs).wait(job.id, wait))


def _submit(call: BranchCall, key: TableKey, body: NewExport) -> Job:
    return call.part(Exports).submit(call.open(), key, body.to_request())


@jobs_router.get(
    "/{job_id}/file",
    response_class=FileResponse,
    responses={200: {"content": {kind: {} for kind in _MEDIA_TYPES.values()}, "description": "The file"}},
)
def get_job_file(call: JobToRead, job_id: JobId) -> FileResponse:
    """Return the file that an export wrote."""
    path = call.part(Exports).get_file(call.part(Jobs).get(job_id))
    return FileResponse(path, filename=path.name, media_type=_MEDIA_TYPES[path.suffix])
