"""Compare two refs: the tables with counts and schema changes first, then the rows of one table."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.responses import Response

from anabranch.errors import InvalidInputError
from anabranch.files.formats import csv_lines
from anabranch.ids import MAIN
from anabranch.repo.history.diff import TableDiff
from anabranch.repo.history.diff_drawing import (
    CountedDiff,
    counts_within,
    draw_rows,
    draw_tables,
    first_changes,
    key_columns,
    list_columns,
)
from anabranch.server.ui.responses import address, answer_text, join_limited, page_from, page_of
from anabranch.server.ui.site import Page, Shown, Visit, get

if TYPE_CHECKING:
    import pyarrow as pa

# Rows are compared in this process: a page does not wait for a JVM.
_ENGINE = "local"
_TABLES = 25
_ROWS = 50
_COLUMNS = 20
# The order of the rows needs all rows up to the last one of the page in memory.
_MOST_ROWS = 10_000
# The rows that a page compares. Tables with more are counted, and their rows shown, on request.
_MOST_COMPARED = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The two refs of a comparison. With `is_since_base` the older side is the merge base of both."""

    before: str
    after: str
    is_since_base: bool

    @classmethod
    def of(cls, visit: Visit) -> "Sides":
        before, after = visit.query("before"), visit.query("after")
        is_since_base = visit.query("since") == "base"
        # The longer one first, because it contains the shorter one.
        for dots in ("...", ".."):
            # A range such as main...dev in one field.
            if not after and dots in before:
                before, _, after = before.partition(dots)
                is_since_base = is_since_base or dots == "..."
        return cls(before=before or MAIN, after=after, is_since_base=is_since_base)

    @property
    def range(self) -> str:
        return f"{self.before}{'...' if self.is_since_base else '..'}{self.after}"

    def parameters(self, **more: object) -> dict[str, object]:
        return {"before": self.before, "after": self.after, "since": "base" if self.is_since_base else "", **more}


def show_comparison(visit: Visit) -> Shown:
    """Show the tables that differ, with counts and schema changes."""
    sides, table = Sides.of(visit), visit.query("table")
    view = {"sides": sides, "choices": visit.lake.list_choices(), "table": table, "tables": None}
    # Without a second ref, the page has only the form.
    if not sides.after:
        return Shown("compare/tables.html", view)
    diff = visit.repository.diff(sides.range, tables=[table] if table else None, engine=_ENGINE)
    page = page_of(diff.tables, number=visit.number("page"), size=_TABLES)
    path = f"{visit.lake.path}/compare"
    drawn = draw_tables(
        with_counts(page.items, asked_for=visit.query("count")),
        link=lambda one: address(f"{path}/rows", **sides.parameters(table=one.key)),
        count_link=lambda one: address(path, **sides.parameters(table=table, count=one.key, page=page.number)),
    )
    picture = Markup(drawn)  # noqa: S704 - the drawing escapes all texts
    return Shown("compare/tables.html", {**view, "diff": diff, "tables": page, "picture": picture})


def with_counts(tables: Iterable[TableDiff], *, asked_for: str) -> list[CountedDiff]:
    """Return tables that differ. Add row counts while few rows must be compared, and to the requested table."""
    left, found = _MOST_COMPARED, list[CountedDiff]()
    for table in tables:
        counts = counts_within(table, most=sys.maxsize if table.key == asked_for else left)
        if counts is not None and table.change == "changed":
            # One limit for the page: many tables just below it would take as long as one table far above it.
            left = max(0, left - table.rows_to_compare)
        found.append((table, counts))
    return found


def show_changed_rows(visit: Visit) -> Shown:
    """Show the rows of one table that differ, with the changed cells."""
    sides, diff = _table_diff(visit)
    number, is_asked_for = visit.number("page"), visit.query("all") == "1"
    if number * _ROWS > _MOST_ROWS:
        raise InvalidInputError(
            f"only the first {_MOST_ROWS} rows of a comparison can be shown", hint="download the comparison as CSV"
        )
    is_shown = is_asked_for or diff.rows_to_compare <= _MOST_COMPARED
    view = {
        "sides": sides,
        "diff": diff,
        "counts": counts_within(diff, most=sys.maxsize if is_asked_for else _MOST_COMPARED),
        "column_changes": diff.columns,
        "rows_to_compare": diff.rows_to_compare,
        "is_only_changed": visit.query("only") == "1",
        "is_asked_for": is_asked_for and diff.rows_to_compare > _MOST_COMPARED,
        # Many rows are compared on request.
        **(_draw_changes(visit, diff, number) if is_shown else {"picture": None}),
    }
    return Shown("compare/rows.html", view)


def _draw_changes(visit: Visit, diff: TableDiff, number: int) -> dict[str, object]:
    """Return a page of the rows that differ, a page of their columns, and the picture of both."""
    start = (number - 1) * _ROWS
    # One more than the page shows, to know whether there is another page.
    changed, keys = first_changes(diff, start + _ROWS + 1).slice(start), key_columns(diff)
    page = page_from(range(len(changed)), number=number, size=_ROWS)
    changed = changed.slice(0, _ROWS)
    names = [name for name in list_columns(diff) if name not in keys]
    if visit.query("only") == "1":
        # Inserted and deleted rows have no changed cells.
        touched = {name for row in changed.column("columns").to_pylist() for name in row}
        names = [name for name in names if name in touched]
    columns = page_of(names, number=visit.number("columns"), size=_COLUMNS)
    picture = Markup(draw_rows(diff, changed, (*keys, *columns.items)))  # noqa: S704 - the drawing escapes all texts
    return {"columns": columns, "rows": page, "picture": picture}


def download_changes(visit: Visit) -> Response:
    """Send the rows of one table that differ as CSV: the change, and each column before and after."""
    _, diff = _table_diff(visit)
    reader = diff.iter_batches()
    before, after = (reader.schema.field(side).type.names for side in ("before", "after"))
    header = ["change", "changed_columns", *(f"before.{name}" for name in before), *(f"after.{name}" for name in after)]
    text = join_limited(csv_lines(header, map(_flat, reader)), hint="compare them on the command line")
    return answer_text(text, name=f"{diff.key}.diff.csv", media_type="text/csv")


def _table_diff(visit: Visit) -> tuple[Sides, TableDiff]:
    sides, table = Sides.of(visit), visit.query("table")
    if not sides.after:
        raise InvalidInputError("there is no second ref to compare with", hint="choose two refs")
    tables = visit.repository.diff(sides.range, tables=[table], engine=_ENGINE).tables
    if not tables:
        raise InvalidInputError(f"table {table!r} is the same in {sides.range}", hint="choose a table that differs")
    # A removed table whose name another table has now comes first. The page shows the table that has the name.
    return sides, tables[-1]


def _flat(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return the changes of a batch with one column for each side of a column."""
    import pyarrow as pa

    change, columns, before, after = batch.columns
    arrays = [change, columns, *before.flatten(), *after.flatten()]
    # Named by number, because both sides have columns of the same name. The header is written separately.
    return pa.record_batch(arrays, names=[str(number) for number in range(len(arrays))])


PAGES: tuple[Page, ...] = (
    get("/compare", show_comparison),
    get("/compare/rows", show_changed_rows),
    get("/compare/rows.csv", download_changes),
)
