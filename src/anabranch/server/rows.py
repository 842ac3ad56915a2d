"""Rows of a table: insert, upsert, delete, preview."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from anabranch.errors import InvalidInputError, TooLargeError
from anabranch.ids import TableKey
from anabranch.repo.transaction import Transaction
from anabranch.server.filters import checked_filter
from anabranch.server.json_values import rows_of_objects
from anabranch.server.open_branch import OpenBranch
from anabranch.server.previews import (
    Preview,
    PreviewPool,
    PreviewRequest,
    parse_columns,
    parse_sorting,
    preview,
    preview_csv,
)
from anabranch.server.routing import (
    Body,
    BranchCall,
    BranchToChange,
    BranchToRead,
    BucketName,
    RefQuery,
    TableName,
    make_router,
)
from anabranch.server.tables import find_table

if TYPE_CHECKING:
    import pyarrow as pa


router = make_router("rows", prefix="/projects/{project_id}/branches/{branch_id}/buckets/{bucket}/tables/{table}")


class NewRows(Body):
    """Rows as objects. Bytes are in base 64, decimals and times are text."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"rows": [{"id": 1, "amount": "12.50"}]}]})

    rows: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=100_000)]


class Written(BaseModel):
    """The number of rows, and the commit. The commit is null if nothing changed."""

    rows: int
    commit_id: str | None


class PreviewFormat(StrEnum):
    JSON = "json"
    CSV = "csv"


class PreviewOptions(BaseModel):
    """The rows, columns, order and format of a preview."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, description="Maximum number of rows.")] = 100
    columns: Annotated[str | None, Field(max_length=10_000, description="Only these columns: `id,amount`.")] = None
    where: Annotated[str | None, Field(max_length=10_000, description="SQL over the columns: `amount > 10`.")] = None
    sort: Annotated[str | None, Field(max_length=10_000, description="Order of the rows: `amount:desc,id`.")] = None
    count: Annotated[
        bool, Field(description="With `where`: count all rows that match, which scans the whole table.")
    ] = False
    format: PreviewFormat = PreviewFormat.JSON
    ref: RefQuery = None


@router.post("/rows", status_code=201)
def insert_rows(call: BranchToChange, bucket: BucketName, table: TableName, body: NewRows) -> Written:
    """Add rows as one commit. With a primary key, their keys must be new."""
    return insert(call.open(), TableKey(bucket, table), body.rows)


@router.put("/rows")
def upsert_rows(call: BranchToChange, bucket: BucketName, table: TableName, body: NewRows) -> Written:
    """Replace the rows with the same primary key and add the others, as one commit."""
    return _write(call.open(), TableKey(bucket, table), body.rows, write=Transaction.upsert, verb="Upsert")


@router.delete("/rows")
def delete_rows(
    call: BranchToChange,
    bucket: BucketName,
    table: TableName,
    where: Annotated[str, Query(min_length=1, max_length=10_000, description="SQL over the columns: `amount < 0`.")],
) -> Written:
    """Delete the rows that match a predicate, as one commit."""
    # An empty predicate could mean all rows or a mistake, so the client has to write 'true' for all rows.
    if not where.strip():
        raise InvalidInputError("where is empty", hint="give a predicate; 'true' matches all rows")
    key, checked = TableKey(bucket, table), checked_filter(where)
    done = call.open().change(lambda tx: tx.delete(str(key), checked), message=f"Delete rows of {key}")
    return Written(rows=done.result, commit_id=done.commit_id)


@router.get(
    "/preview",
    response_model=Preview,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "The rows"}},
)
async def preview_table(
    call: BranchToRead, bucket: BucketName, table: TableName, options: Annotated[PreviewOptions, Query()]
) -> Response:
    """Return the first rows of a table, as objects or as CSV. A dev branch shows main until it has its own copy."""
    key = TableKey(bucket, table)
    return await call.part(PreviewPool).run(call.token.id, lambda: _read_preview(call, key, options))


def insert(branch: OpenBranch, key: TableKey, objects: Sequence[Mapping[str, Any]]) -> Written:
    """Add rows as one commit."""
    return _write(branch, key, objects, write=Transaction.append, verb="Insert")


def _write(
    branch: OpenBranch,
    key: TableKey,
    objects: Sequence[Mapping[str, Any]],
    *,
    write: Callable[[Transaction, str, "pa.Table"], object],
    verb: str,
) -> Written:
    # Read the schema before the transaction begins: a transaction that has read a table conflicts with more writers.
    rows = rows_of_objects(objects, find_table(branch.snapshot(), key).schema)

    def change(tx: Transaction) -> None:
        write(tx, str(key), rows)

    done = branch.change(change, message=f"{verb} {len(rows)} rows into {key}")
    return Written(rows=len(rows), commit_id=done.commit_id)


def _read_preview(call: BranchCall, key: TableKey, options: PreviewOptions) -> Response:
    most = call.service.settings.limits.preview_rows
    if options.limit > most:
        raise TooLargeError(
            f"a preview has at most {most} rows, {options.limit} were requested", hint=f"request at most {most}"
        )
    request = PreviewRequest(
        limit=options.limit,
        count=options.count,
        columns=parse_columns(options.columns),
        where=None if options.where is None else checked_filter(options.where),
        sort=parse_sorting(options.sort),
    )
    found = find_table(call.open().snapshot(options.ref), key)
    if options.format is PreviewFormat.CSV:
        return PlainTextResponse("".join(preview_csv(found, request)), media_type="text/csv")
    # Not the response model: `preview` returns JSON values, and checking each of them takes as long as reading them.
    return JSONResponse(preview(found, request))
