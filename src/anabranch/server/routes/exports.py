"""Export: the rows of a table as a file."""

from typing import Annotated

from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from anabranch.files.csv_options import CsvOptions
from anabranch.files.formats import FileFormat
from anabranch.ids import TableKey
from anabranch.server.filters import checked_filter
from anabranch.server.jobs.exporting import ExportRequest
from anabranch.server.jobs.models import Job
from anabranch.server.routes.jobs import RowFormat, Wait, answer_job
from anabranch.server.routing import Body, BranchCall, BranchToRead, BucketName, TableName, make_router

__all__ = ["router"]

router = make_router("exports", prefix="/projects/{project_id}/branches/{branch_id}/buckets/{bucket}/tables/{table}")

_Name = Annotated[str, Field(min_length=1, max_length=256)]


class NewExport(Body):
    """Which rows are wanted, and how they are to be written."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"format": "csv", "columns": ["id"], "where": "amount > 10", "gzip": True}]}
    )

    format: RowFormat = RowFormat.CSV
    columns: Annotated[list[_Name] | None, Field(min_length=1, max_length=2000)] = None
    where: Annotated[str | None, Field(max_length=10_000, description="SQL over the columns: `amount > 10`.")] = None
    limit: Annotated[int | None, Field(ge=1, le=2**53, description="At most so many rows.")] = None
    gzip: Annotated[bool, Field(description="Compress CSV or JSON.")] = False
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    header: Annotated[bool, Field(description="Begin CSV with the names of the columns.")] = True
    ref: Annotated[
        str | None, Field(max_length=200, description="As of a commit id, a tag or a moment.", examples=[None])
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


class ExportResult(BaseModel):
    """What an export wrote; `url` is where to fetch it."""

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
    return answer_job(await call.service.jobs.wait(job.id, wait))


def _submit(call: BranchCall, key: TableKey, body: NewExport) -> Job:
    return call.service.exports.submit(call.open(), key, body.to_request())
