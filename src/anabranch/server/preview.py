"""The first rows of a table, filtered, sorted and counted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError
from anabranch.files.plain_rows import csv_lines, json_rows
from anabranch.format.staging.incoming import require_columns
from anabranch.repo.snapshot import Table
from anabranch.server.tables import ColumnInfo, column_infos

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Preview", "Request", "Sorting", "as_csv", "parse_columns", "parse_sorting", "preview"]


@dataclass(frozen=True, slots=True)
class Sorting:
    """One column to order rows by."""

    column: str
    descending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The rows, columns and order of a preview. `count` asks for the number of rows that match `where`."""

    limit: int
    count: bool = False
    columns: tuple[str, ...] | None = None
    where: str | None = None
    sort: tuple[Sorting, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The first rows. `total_row_count` is the number of rows that match the predicate.

    With a predicate it is counted on request only, and null otherwise: it needs a scan of the whole table.
    """

    columns: tuple[ColumnInfo, ...]
    rows: list[dict[str, Any]]
    total_row_count: int | None


def parse_columns(text: str | None) -> tuple[str, ...] | None:
    """Names with commas between."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


def parse_sorting(text: str | None) -> tuple[Sorting, ...]:
    """Names with commas between, each with `:asc` or `:desc` if it is to be said."""
    if text is None:
        return ()
    found = []
    for part in text.split(","):
        name, _, direction = part.strip().partition(":")
        if direction.lower() not in ("", "asc", "desc") or not name:
            raise InvalidInputError(f"rows cannot be sorted by {part!r}", hint="write it like amount:desc,id")
        found.append(Sorting(name, direction.lower() == "desc"))
    return tuple(found)


def preview(table: Table, request: Request) -> Preview:
    """Read the rows of a preview."""
    rows = _read(table, request)
    is_counted = request.count or request.where is None  # without a predicate the number is known
    return Preview(
        columns=column_infos(rows.schema),
        rows=json_rows(rows),
        total_row_count=table.count_rows(request.where) if is_counted else None,
    )


def as_csv(table: Table, request: Request) -> Iterator[str]:
    rows = _read(table, request)
    return csv_lines(rows.column_names, rows.to_batches())


def _read(table: Table, request: Request) -> "pa.Table":
    columns = request.columns
    if columns is not None:
        require_columns(table.schema, columns)
    if not request.sort:
        return table.to_arrow(columns=columns, where=request.where, limit=request.limit)
    return _first_rows(table, request, columns=table.schema.names if columns is None else columns)


def _first_rows(table: Table, request: Request, *, columns: Sequence[str]) -> "pa.Table":
    """Return the first rows of an order. At most `limit` rows and one batch are in memory."""
    import pyarrow as pa

    by = [(one.column, "descending" if one.descending else "ascending") for one in request.sort]
    require_columns(table.schema, [one.column for one in request.sort])
    read = list(dict.fromkeys([*columns, *(one.column for one in request.sort)]))
    first = pa.schema([table.schema.field(name) for name in read]).empty_table()
    try:
        for batch in table.scan(columns=read, where=request.where):
            both = pa.concat_tables([first, pa.Table.from_batches([batch]).cast(first.schema)])
            first = both.sort_by(by).slice(0, request.limit)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as err:
        raise InvalidInputError(f"rows cannot be sorted so: {err}", hint="sort by columns of simple types") from None
    return first.select(list(columns))
