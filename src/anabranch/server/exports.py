"""Exports: the rows of a table as one file, to be fetched later."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from anabranch.errors import FileMissingError
from anabranch.files.formats import CsvOptions
from anabranch.files.writer import Target
from anabranch.format.staging.incoming import require_columns
from anabranch.ids import TableKey
from anabranch.repo.io.export import ExportOptions
from anabranch.repo.io.export import export_table as write_export
from anabranch.server.branch_access import OpenBranch
from anabranch.server.branches import Branches
from anabranch.server.client_values import checked_filter
from anabranch.server.envelope import with_example
from anabranch.server.files import Files
from anabranch.server.jobs import (
    Job,
    JobId,
    JobKind,
    Jobs,
    JobState,
    JobToRead,
    Report,
    Wait,
    answer_job,
    progress_callback,
)
from anabranch.server.jobs import router as jobs_router
from anabranch.server.routing import Body, BranchToRead, BucketName, TableName, make_router
from anabranch.server.rows import RowFormat
from anabranch.server.tables import find_table

_Name = Annotated[str, Field(min_length=1, max_length=256)]


class NewExport(Body):
    """The rows to export, and the format of the file."""

    model_config = with_example(format="csv", columns=["id"], where="amount > 10", gzip=True)

    format: RowFormat = RowFormat.CSV
    columns: Annotated[list[_Name] | None, Field(min_length=1, max_length=2000)] = None
    where: Annotated[str | None, Field(max_length=10_000, description="SQL over the columns: `amount > 10`.")] = None
    limit: Annotated[int | None, Field(ge=1, le=2**53, description="Maximum number of rows.")] = None
    gzip: Annotated[bool, Field(description="Compress CSV or JSON.")] = False
    delimiter: Annotated[str, Field(min_length=1, max_length=3, description="One character, or `tab`.")] = ","
    header: Annotated[bool, Field(description="Start CSV with a line of column names.")] = True
    ref: Annotated[
        str | None, Field(max_length=200, description="As of a commit id, a tag or a time.", examples=[None])
    ] = None


class Exports:
    """Exports of tables. The file of an export is in a folder named after its job, and kept as long as its row."""

    def __init__(self, branches: Branches, files: Files, jobs: Jobs) -> None:
        self._branches = branches
        self._files = files
        self._jobs = jobs

    def submit(self, branch: OpenBranch, key: TableKey, wanted: NewExport) -> Job:
        """Submit a job that writes the rows of a table, as they are now or at a ref."""
        where = None if wanted.where is None else checked_filter(wanted.where)
        csv = CsvOptions(delimiter=wanted.delimiter, header=wanted.header)
        # The service has no timer, so each export first removes those that are too old.
        self.forget_old()
        # The snapshot is taken now, so that the file has the rows of the time of the request, not of the job.
        snapshot = branch.snapshot(wanted.ref)
        table = find_table(snapshot, key)
        if wanted.columns is not None:
            require_columns(table.schema, wanted.columns)
        name = f"{key.table}.{wanted.format}{'.gz' if wanted.gzip else ''}"
        _target_of(Path("/") / name)  # raises an error for a format that cannot be written

        def work(job: Job, report: Report) -> Mapping[str, Any]:
            folder = self._files.folder_of(job.project_id, job.id)
            options = ExportOptions(
                columns=wanted.columns, where=where, limit=wanted.limit, csv=csv, progress=progress_callback(report)
            )
            with self._branches.at_work(job.project_id, job.branch_id, since=job.created_at):
                folder.mkdir(parents=True)
                try:
                    written = write_export(snapshot, str(key), _target_of(folder / name), options)
                # Also if the job was cancelled. No request can name the folder of an export that did not succeed.
                except BaseException:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
            return {
                "job_id": job.id,
                "rows": written.rows,
                "size_bytes": written.bytes_written,
                "format": written.format,
                "commit_id": written.commit_id,
                "file_name": name,
                "url": f"/jobs/{job.id}/file",
            }

        description = {**wanted.model_dump(mode="json"), "bucket": key.bucket, "table": key.table}
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
        return {job.id for job in self._jobs.list_all(states=(JobState.SUCCEEDED,)) if job.kind is JobKind.EXPORT}

    def forget_old(self) -> None:
        """Delete the jobs that ended long ago, and the files of their exports."""
        for job in self._jobs.forget_old():
            shutil.rmtree(self._files.folder_of(job.project_id, job.id), ignore_errors=True)


def _target_of(path: Path) -> Target:
    return Target.parse(path, format=None, single_file=True, storage_options={})


router = make_router("exports", prefix="/projects/{project_id}/branches/{branch_id}/buckets/{bucket}/tables/{table}")

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
    call: BranchToRead, bucket: BucketName, table: TableName, body: NewExport, wait: Wait = 30.0
) -> Response:
    """Write rows of a table to a file, which can then be fetched."""
    job = await run_in_threadpool(lambda: call.part(Exports).submit(call.open(), TableKey(bucket, table), body))
    return answer_job(await call.part(Jobs).wait(job.id, wait))


@jobs_router.get(
    "/{job_id}/file",
    response_class=FileResponse,
    responses={200: {"content": {kind: {} for kind in _MEDIA_TYPES.values()}, "description": "The file"}},
)
def get_job_file(call: JobToRead, job_id: JobId) -> FileResponse:
    """Return the file that an export wrote."""
    path = call.part(Exports).get_file(call.part(Jobs).get(job_id))
    return FileResponse(path, filename=path.name, media_type=_MEDIA_TYPES[path.suffix])
