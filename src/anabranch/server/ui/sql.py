"""The SQL console: one read-only statement over the tables of a ref, with a bounded result."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from starlette.responses import Response

from anabranch.drawing.html import Cell, cell_of
from anabranch.errors import InvalidInputError, LimitError, NotFoundError
from anabranch.files.formats import csv_lines, plain_rows
from anabranch.repo.repository import Repository
from anabranch.repo.schema.types import show_type
from anabranch.server.envelope import status_of
from anabranch.server.ui.responses import answer_text, join_limited
from anabranch.server.ui.site import Page, Shown, Visit, get
from anabranch.server.ui.sql_process import limited_processes

T = TypeVar("T")

# DuckDB stops a statement that takes longer.
_SECONDS = 30.0
_LONGEST = 10_000
_COLUMNS = 40
_CELLS = 2000
_TABLES = 50
# Small batches, because each value may be large.
_BATCH_ROWS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlResult:
    """The first rows and columns of a result."""

    columns: tuple[tuple[str, str], ...]
    column_count: int
    rows: tuple[tuple[Cell, ...], ...]
    has_more: bool


def show_sql(visit: Visit) -> Shown:
    """Show the console, and the result of a statement if there is one."""
    ref, sql = visit.ref(), visit.query("sql")
    tables = visit.lake.repository.tables(ref)
    view = {
        "ref": ref,
        "sql": sql,
        "choices": visit.lake.list_choices(),
        "tables": tables[:_TABLES],
        "result": None,
        "problem": None,
    }
    if not sql:
        limited_processes().start()
        return Shown("sql.html", view)
    try:
        work = partial(read_result, visit.lake.repository, _checked(sql), ref, seconds=_SECONDS)
        return Shown("sql.html", {**view, "result": _run(visit, work)})
    # Errors of the statement are shown beside it, so that the visitor can correct it.
    except (InvalidInputError, NotFoundError, LimitError) as err:
        return Shown("sql.html", {**view, "problem": err}, status=status_of(err))


def download_result(visit: Visit) -> Response:
    """Send the whole result of a statement as CSV."""
    work = partial(read_csv, visit.lake.repository, _checked(visit.query("sql")), visit.ref(), seconds=_SECONDS)
    return answer_text(_run(visit, work), name="result.csv", media_type="text/csv")


def _run(visit: Visit, work: Callable[[], T]) -> T:
    """Run a statement as long as the visitor waits for it."""
    owner = visit.session.token_id
    return limited_processes().run(work, seconds=_SECONDS, owner=owner, departure=visit.departure)


def read_csv(repository: Repository, sql: str, ref: str, *, seconds: float) -> str:
    """Return the whole result of a statement as CSV. Runs in a process of its own."""
    with repository.sql_reader(sql, ref, timeout=seconds, batch_rows=_BATCH_ROWS) as reader:
        hint = "select fewer rows, or use 'anabranch sql --csv'"
        return join_limited(csv_lines(reader.schema.names, reader), hint=hint)


def read_result(repository: Repository, sql: str, ref: str, *, seconds: float) -> SqlResult:
    """Return the first rows of the result of a statement. Runs in a process of its own."""
    with repository.sql_reader(sql, ref, timeout=seconds, batch_rows=_BATCH_ROWS) as reader:
        fields = list(reader.schema)[:_COLUMNS]
        # A maximum of cells, not of rows, so that the page has about the same size for wide and narrow results.
        most = _CELLS // max(1, len(fields))
        rows: list[tuple[Cell, ...]] = []
        for batch in reader:
            # Only what is shown becomes Python values.
            part = batch.slice(0, most + 1 - len(rows)).select(list(range(len(fields))))
            rows += [tuple(map(cell_of, row)) for row in plain_rows(part)]
            # One more than the page shows is enough to know that there are more.
            if len(rows) > most:
                break
    return SqlResult(
        columns=tuple((field.name, show_type(field.type)) for field in fields),
        column_count=len(reader.schema),
        rows=tuple(rows[:most]),
        has_more=len(rows) > most,
    )


def _checked(sql: str) -> str:
    if len(sql) > _LONGEST:
        raise InvalidInputError(
            f"the SQL has {len(sql)} characters, at most {_LONGEST} are allowed", hint="use 'anabranch sql'"
        )
    return sql


PAGES: tuple[Page, ...] = (
    get("/sql", show_sql, is_long=True),
    get("/sql.csv", download_result, is_long=True),
)
