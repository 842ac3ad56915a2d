"""Import: the rows of a file into a table."""

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from anabranch.errors import InvalidInputError
from anabranch.files.csv_options import CsvOptions
from anabranch.files.formats import FileFormat
from anabranch.ids import TableKey
from anabranch.server.branches import OpenBranch
from anabranch.server.jobs.importing import ImportOrder, ImportRequest
from anabranch.server.jobs.models import Job
from anabranch.server.preview import parse_columns
from anabranch.server.routes.files import FILE_ID
from anabranch.server.routes.jobs import RowFormat, Wait, answer_job
from anabranch.server.routing import BranchCall, BranchToChange, BucketName, TableName, make_router
from anabranch.server.uploading import UPLOAD_BODY, is_upload, mark_taken, upload_of

__all__ = ["router"]

router = make_router("imports", prefix="/projects/{project_id}/branches/{branch_id}/buckets/{bucket}/tables/{table}")

_Sign = Annotated[str | None, Field(min_length=1, max_length=1)]


class ImportOptions(BaseModel):
    """How a file is to be taken."""

    model_config = ConfigDict(extra="forbid")

    file_id: Annotated[
        str | None, Field(pattern=FILE_ID, max_length=64, description="A file that was sent before.")
    ] = None
    format: Annotated[RowFormat | None, Field(description="By default what the file's name says, else CSV.")] = None
    incremental: Annotated[
        bool,
        Field(description="Add rows, and replace those of the same primary key; otherwise the file replaces all rows."),
    ] = False
    dedup: Annotated[bool, Field(description="Of rows with the same primary key take the last.")] = False
    columns: Annotated[
        str | None, Field(max_length=100_000, description="The columns of a CSV file without a header: `id,amount`.")
    ] = None
    header: Annotated[bool | None, Field(description="By default true, unless `columns` says them.")] = None
    delimiter: Annotated[_Sign, Field(description="By default a comma, and a tab for `.tsv`.")] = None
    quote: Annotated[str, Field(max_length=1, description="Empty for none.")] = '"'
    escape: Annotated[_Sign, Field(description="By default a quote is doubled.")] = None
    null: Annotated[str, Field(max_length=100, description="The text that stands for no value.")] = ""
    encoding: Annotated[str, Field(min_length=1, max_length=40)] = "utf-8"
    skip: Annotated[int, Field(ge=0, le=1_000_000, description="Lines to leave out at the beginning.")] = 0
    wait: Wait = 30.0

    def to_request(self) -> ImportRequest:
        return ImportRequest(
            format=None if self.format is None else FileFormat(self.format),
            incremental=self.incremental,
            dedup=self.dedup,
            csv=CsvOptions(
                delimiter=self.delimiter,
                quote=self.quote,
                escape=self.escape,
                header=self.columns is None if self.header is None else self.header,
                columns=parse_columns(self.columns),
                null=self.null,
                encoding=self.encoding,
                skip=self.skip,
            ),
        )


class ImportResult(BaseModel):
    """What an import did. Of one that a crash cut off right after it was done, not all is known."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "job_id": "job_0123456789abcdef",
                    "imported_rows": 1000,
                    "table_row_count": 151000,
                    "commit_id": "01JD0Z8M3C5S6T7V8W9X0Y1Z2A",
                    "engine": "local",
                    "warnings": [],
                }
            ]
        }
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
    """Import a file, sent as the part `file` of a form or before; all of its rows become one commit, or none."""
    key, wanted = TableKey(bucket, table), options.to_request()
    branch = await run_in_threadpool(_check, call, key, wanted)
    if is_upload(request) == (options.file_id is not None):
        raise InvalidInputError(
            "the request has a file and a file_id" if options.file_id else "the request has neither file nor file_id",
            hint="send the file as the part 'file' of multipart/form-data, or name one that was sent before",
        )
    if options.file_id is None:
        upload = await upload_of(request)
    else:
        upload = await run_in_threadpool(call.service.files.find_upload, call.project_id, options.file_id)
    order = ImportOrder(branch=branch, key=key, request=wanted, upload=upload, is_kept=options.file_id is not None)
    job = await run_in_threadpool(call.service.imports.submit, order)
    mark_taken(request)
    return answer_job(await call.service.jobs.wait(job.id, options.wait))


def _check(call: BranchCall, key: TableKey, wanted: ImportRequest) -> OpenBranch:
    branch = call.open()
    call.service.imports.check(branch, key, wanted)
    return branch
