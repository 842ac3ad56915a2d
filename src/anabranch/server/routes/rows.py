"""Rows of tables: insert, upsert, delete, preview."""

from enum import StrEnum
from typing import Annotated, Any

from fastapi import Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from anabranch.errors import TooLargeError
from anabranch.ids import TableKey
from anabranch.server.filters import checked_filter
from anabranch.server.preview import Preview, Request, as_csv, parse_columns, parse_sorting, preview
from anabranch.server.reading import snapshot_at
from anabranch.server.routing import (
    Body,
    BranchCall,
    BranchToChange,
    BranchToRead,
    BucketName,
    DirectRoute,
    RefQuery,
    TableName,
    make_router,
)
from anabranch.server.tables import find_table

__all__ = ["router"]

router = make_router("rows", prefix="/projects/{project_id}/branches/{branch_id}/buckets/{bucket}/tables/{table}")


class NewRows(Body):
    """Rows as objects; bytes are in base 64, decimals and times are text."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"rows": [{"id": 1, "amount": "12.50"}]}]})

    rows: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=100_000)]


class Written(BaseModel):
    """How many rows there were, and the commit; there is none if nothing changed."""

    rows: int
    commit_id: str | None


class PreviewFormat(StrEnum):
    JSON = "json"
    CSV = "csv"


class PreviewOptions(BaseModel):
    """The rows, columns, order and format of a preview."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, description="Maximum number of rows.")] = 100
    columns: Annotated[str | None, Field(max_length=10_000, description="Only these: `id,amount`.")] = None
    where: Annotated[str | None, Field(max_length=10_000, description="SQL over the columns: `amount > 10`.")] = None
    sort: Annotated[str | None, Field(max_length=10_000, description="In this order: `amount:desc,id`.")] = None
    count: Annotated[
        bool, Field(description="With `where`: count all rows that match, which scans the whole table.")
    ] = False
    format: PreviewFormat = PreviewFormat.JSON
    ref: RefQuery = None


@router.post("/rows", status_code=201)
def insert_rows(call: BranchToChange, bucket: BucketName, table: TableName, body: NewRows) -> Written:
    """Add rows as one commit; with a primary key they must be new."""
    done = call.service.rows.insert(call.open(), TableKey(bucket, table), body.rows)
    return Written(rows=done.result, commit_id=done.commit_id)


@router.put("/rows")
def upsert_rows(call: BranchToChange, bucket: BucketName, table: TableName, body: NewRows) -> Written:
    """Replace the rows of the same primary key and add the others, as one commit."""
    done = call.service.rows.upsert(call.open(), TableKey(bucket, table), body.rows)
    return Written(rows=done.result, commit_id=done.commit_id)


@router.delete("/rows")
def delete_rows(
    call: BranchToChange,
    bucket: BucketName,
    table: TableName,
    where: Annotated[str, Query(min_length=1, max_length=10_000, description="SQL over the columns: `amount < 0`.")],
) -> Written:
    """Delete the rows that match a predicate, as one commit."""
    done = call.service.rows.delete(call.open(), TableKey(bucket, table), where)
    return Written(rows=done.result, commit_id=done.commit_id)


async def preview_table(
    call: BranchToRead, bucket: BucketName, table: TableName, options: Annotated[PreviewOptions, Query()]
) -> Response:
    """The first rows of a table, as objects or as CSV; reads through a branch see main until the branch has a copy."""
    key = TableKey(bucket, table)
    return await call.service.previews.run(call.token.id, lambda: _read_preview(call, key, options))


router.add_api_route(
    "/preview",
    preview_table,
    response_model=Preview,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "The rows"}},
    route_class_override=DirectRoute,
)


def _read_preview(call: BranchCall, key: TableKey, options: PreviewOptions) -> Response:
    most = call.service.settings.limits.preview_rows
    if options.limit > most:
        raise TooLargeError(f"{options.limit} rows are more than a preview shows", hint=f"ask for at most {most}")
    request = Request(
        limit=options.limit,
        count=options.count,
        columns=parse_columns(options.columns),
        where=None if options.where is None else checked_filter(options.where),
        sort=parse_sorting(options.sort),
    )
    found = find_table(snapshot_at(call.open(), options.ref), key)
    if options.format is PreviewFormat.CSV:
        return PlainTextResponse("".join(as_csv(found, request)), media_type="text/csv")
    shown = preview(found, request)
    columns = [{"name": one.name, "type": one.type, "nullable": one.nullable} for one in shown.columns]
    return JSONResponse({"columns": columns, "rows": shown.rows, "total_row_count": shown.total_row_count})
