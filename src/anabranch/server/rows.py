"""Rows of a table: insert, upsert, delete, and preview the first ones, filtered, sorted and counted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field

from anabranch.errors import InvalidInputError, TooLargeError
from anabranch.files.formats import csv_lines, json_rows
from anabranch.format.staging.incoming import require_columns
from anabranch.ids import TableKey
from anabranch.repo.snapshot import Table
from anabranch.repo.transaction import Transaction
from anabranch.server.branch_access import OpenBranch
from anabranch.server.client_values import checked_filter, rows_of_objects
from anabranch.server.envelope import with_example
from anabranch.server.request_limits import in_threads
from anabranch.server.routing import Body, BranchToChange, BranchToRead, BucketName, RefQuery, TableName, make_router
from anabranch.server.tables import ColumnInfo, find_table

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Sorting:
    """One column to order rows by."""

    column: str
    descending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRequest:
    """The rows, columns and order of a preview. The first `offset` rows are skipped."""

    limit: int
    offset: int = 0
    columns: tuple[str, ...] | None = None
    where: str | None = None
    sort: tuple[Sorting, ...] = ()


class Preview(BaseModel):
    """The first rows. `total_row_count` is the number of rows that match the predicate.

    With a predicate it is counted on request only, and null otherwise: it needs a scan of the whole table.
    """

    columns: tuple[ColumnInfo, ...]
    rows: list[dict[str, Any]]
    total_row_count: int | None


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """Parse a list of names separated by commas."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


def parse_sorting(text: str | None) -> tuple[Sorting, ...]:
    """Parse an order: names separated by commas. Each name may end in `:asc` or `:desc`."""
    if text is None:
        return ()
    found = []
    for part in text.split(","):
        name, _, direction = part.strip().partition(":")
        if direction.lower() not in ("", "asc", "desc") or not name:
            raise InvalidInputError(f"rows cannot be sorted by {part!r}", hint="write it like amount:desc,id")
        found.append(Sorting(name, direction.lower() == "desc"))
    return tuple(found)


def read_rows(table: Table, request: PreviewRequest) -> "pa.Table":
    """Read the rows of a preview."""
    columns = request.columns
    if columns is not None:
        require_columns(table.schema, columns)
    # Lance stops at the limit. An order needs all rows.
    if not request.sort:
        return table.to_arrow(columns=columns, where=request.where, limit=request.limit, offset=request.offset or None)
    return _first_rows(table, request, columns=table.schema.names if columns is None else columns)


def _first_rows(table: Table, request: PreviewRequest, *, columns: Sequence[str]) -> "pa.Table":
    """Return the first rows of an order. At most `offset` and `limit` rows and one batch are in memory."""
    import pyarrow as pa

    by = [(one.column, "descending" if one.descending else "ascending") for one in request.sort]
    require_columns(table.schema, [one.column for one in request.sort])
    read = list(dict.fromkeys([*columns, *(one.column for one in request.sort)]))
    # Keep only the best rows after each batch, so that the memory does not grow with the table.
    first = pa.schema([table.schema.field(name) for name in read]).empty_table()
    try:
        for batch in table.scan(columns=read, where=request.where):
            both = pa.concat_tables([first, pa.Table.from_batches([batch]).cast(first.schema)])
            first = both.sort_by(by).slice(0, request.offset + request.limit)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as err:
        raise InvalidInputError(f"rows cannot be sorted: {err}", hint="sort by columns of simple types") from None
    return first.select(list(columns)).slice(request.offset)


router = make_router("rows", prefix="/projects/{project_id}/branches/{branch_id}/buckets/{bucket}/tables/{table}")


class NewRows(Body):
    """Rows as objects. Bytes are in base 64, decimals and times are text."""

    model_config = with_example(rows=[{"id": 1, "amount": "12.50"}])

    rows: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=100_000)]


class Written(BaseModel):
    """The number of rows, and the commit. The commit is null if nothing changed."""

    rows: int
    commit_id: str | None


class RowFormat(StrEnum):
    """Formats of files of rows. JSON has one object per line."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


class PreviewFormat(StrEnum):
    JSON = "json"
    CSV = "csv"


class PreviewOptions(BaseModel, extra="forbid"):
    """The rows, columns, order and format of a preview."""

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
@in_threads("previews")
def preview_table(
    call: BranchToRead, bucket: BucketName, table: TableName, options: Annotated[PreviewOptions, Query()]
) -> Response:
    """Return the first rows of a table, as objects or as CSV. A dev branch shows main until it has its own copy."""
    key = TableKey(bucket, table)
    most = call.service.settings.limits.preview_rows
    if options.limit > most:
        raise TooLargeError(
            f"a preview has at most {most} rows, {options.limit} were requested", hint=f"request at most {most}"
        )
    request = PreviewRequest(
        limit=options.limit,
        columns=parse_columns(options.columns),
        where=None if options.where is None else checked_filter(options.where),
        sort=parse_sorting(options.sort),
    )
    found = find_table(call.open().snapshot(options.ref), key)
    rows = read_rows(found, request)
    if options.format is PreviewFormat.CSV:
        return PlainTextResponse("".join(csv_lines(rows.column_names, rows.to_batches())), media_type="text/csv")
    is_counted = options.count or request.where is None  # without a predicate the number is known
    # Do not return the response model: checking each value takes as long as reading it.
    answer = {
        "columns": [ColumnInfo.model_validate(column).model_dump() for column in rows.schema],
        "rows": json_rows(rows),
        "total_row_count": found.count_rows(request.where) if is_counted else None,
    }
    return JSONResponse(answer)


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
