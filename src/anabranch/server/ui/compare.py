"""Compare two refs: the tables with counts and schema changes first, then the rows of one table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from anabranch.errors import InvalidInputError
from anabranch.files.plain_rows import csv_lines
from anabranch.ids import MAIN
from anabranch.repo.history.comparer import TableCounts
from anabranch.repo.history.diff import RowChangeKind, SchemaChange, TableChangeKind, TableDiff
from anabranch.repo.log.entries import GraphCommit
from anabranch.server.ui.cells import NULL, Cell, cell_of
from anabranch.server.ui.downloads import answer_csv
from anabranch.server.ui.paging import Paged, page_of
from anabranch.server.ui.refs import RefChoices, list_choices
from anabranch.server.ui.site import Page, Shown, Visit, get

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PAGES", "CompareView", "DiffRowsView"]

# Rows are compared in this process: a page does not wait for a JVM.
_ENGINE = "local"
_TABLES = 25
_ROWS = 50
_COLUMNS = 20
_SCHEMA_CHANGES = 20
# The order of the rows needs all rows up to the last one of the page in memory.
_MOST_ROWS = 10_000
# Tables with more rows to compare are counted on request.
_MOST_COMPARED = 500_000


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
        return {
            "before": self.before,
            "after": self.after,
            "since": "base" if self.is_since_base else "",
            **more,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDiffView:
    """A table that differs. `counts` is None if there are many rows to compare and they were not asked for."""

    key: str
    change: TableChangeKind
    renamed_from: str | None
    columns: Sequence[SchemaChange]
    more_columns: int
    counts: TableCounts | None
    rows_to_compare: int

    @property
    def is_same(self) -> bool:
        """Whether only files were rewritten."""
        is_changed = self.change is not TableChangeKind.CHANGED or self.renamed_from is not None or bool(self.columns)
        return not is_changed and self.counts is not None and not self.counts.total


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareView:
    """The comparison of two refs. `tables` is None as long as no second ref was chosen."""

    sides: Sides
    choices: RefChoices
    table: str
    before: GraphCommit | None = None
    after: GraphCommit | None = None
    tables: Paged[TableDiffView] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffCell:
    """A value on both sides."""

    before: Cell
    after: Cell
    is_changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRow:
    change: RowChangeKind
    cells: tuple[DiffCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRowsView:
    sides: Sides
    diff: TableDiffView
    names: tuple[str, ...]
    keys: tuple[str, ...]
    columns: Paged[str]
    rows: Paged[DiffRow]
    is_only_changed: bool


def show_comparison(visit: Visit) -> Shown:
    """Show the tables that differ, with counts and schema changes."""
    sides, table = Sides.of(visit), visit.query("table")
    view = CompareView(sides=sides, choices=list_choices(visit), table=table)
    if not sides.after:
        return Shown("compare/tables.html", view)
    diff = visit.lake.repository.diff(sides.range, tables=[table] if table else None, engine=_ENGINE)
    page = page_of(diff.tables, number=visit.number("page"), size=_TABLES)
    counted = visit.request.query_params.getlist("count")
    found = CompareView(
        sides=sides,
        choices=view.choices,
        table=table,
        before=diff.before.commit,
        after=diff.after.commit,
        tables=Paged(
            items=[_table_view(one, is_counted=one.key in counted) for one in page.items],
            number=page.number,
            size=page.size,
            has_more=page.has_more,
            total=page.total,
        ),
    )
    return Shown("compare/tables.html", found)


def show_changed_rows(visit: Visit) -> Shown:
    """Show the rows of one table that differ, with the changed cells."""
    sides, diff = _table_diff(visit)
    number, is_only_changed = visit.number("page"), visit.query("only") == "1"
    start = (number - 1) * _ROWS
    if start + _ROWS > _MOST_ROWS:
        raise InvalidInputError(
            f"only the first {_MOST_ROWS} rows of a comparison can be shown", hint="download the comparison as CSV"
        )
    found = _first_changes(diff, start + _ROWS + 1)
    changed = found.slice(start, _ROWS)
    keys = () if diff.after is None else diff.after.primary_key
    keys = keys or (() if diff.before is None else diff.before.primary_key)
    names = [name for name in _names(diff) if name not in keys]
    if is_only_changed:
        # Inserted and deleted rows have no changed cells.
        touched = {name for row in changed.column("columns").to_pylist() for name in row}
        names = [name for name in names if name in touched]
    columns = page_of(names, number=visit.number("columns"), size=_COLUMNS)
    shown = (*keys, *columns.items)
    view = DiffRowsView(
        sides=sides,
        diff=_table_view(diff, is_counted=False),
        names=shown,
        keys=keys,
        columns=columns,
        rows=Paged(
            items=_diff_rows(diff, changed, shown), number=number, size=_ROWS, has_more=len(found) > start + _ROWS
        ),
        is_only_changed=is_only_changed,
    )
    return Shown("compare/rows.html", view)


def download_changes(visit: Visit) -> Response:
    """Send the rows of one table that differ as CSV: the change, and each column before and after."""
    _, diff = _table_diff(visit)
    reader = diff.iter_batches()
    before, after = (reader.schema.field(side).type.names for side in ("before", "after"))
    header = ["change", "changed_columns", *(f"before.{name}" for name in before), *(f"after.{name}" for name in after)]
    return answer_csv(
        csv_lines(header, map(_flat, reader)),
        name=f"{diff.key}.diff.csv",
        hint="compare them on the command line",
    )


def _table_diff(visit: Visit) -> tuple[Sides, TableDiff]:
    sides, table = Sides.of(visit), visit.query("table")
    if not sides.after:
        raise InvalidInputError("there is no second ref to compare with", hint="choose two refs")
    tables = visit.lake.repository.diff(sides.range, tables=[table], engine=_ENGINE).tables
    if not tables:
        raise InvalidInputError(f"table {table!r} is the same in {sides.range}", hint="choose a table that differs")
    return sides, tables[0]


def _table_view(diff: TableDiff, *, is_counted: bool) -> TableDiffView:
    compared = diff.rows_to_compare
    is_cheap = diff.change is not TableChangeKind.CHANGED or compared <= _MOST_COMPARED
    return TableDiffView(
        key=diff.key,
        change=diff.change,
        renamed_from=diff.renamed_from,
        columns=diff.columns[:_SCHEMA_CHANGES],
        more_columns=max(0, len(diff.columns) - _SCHEMA_CHANGES),
        counts=diff.counts if is_cheap or is_counted else None,
        rows_to_compare=compared,
    )


def _names(diff: TableDiff) -> list[str]:
    """Return the columns of the newer side, then those that only the older side has."""
    newer = () if diff.after is None else diff.after.columns
    older = () if diff.before is None else diff.before.columns
    renamed = {change.before for change in diff.columns if change.change == "renamed"}
    return [*newer, *(name for name in older if name not in newer and name not in renamed)]


def _first_changes(diff: TableDiff, most: int) -> "pa.Table":
    """Return the first changes in the order of the primary key. Only these and one batch are in memory."""
    import pyarrow as pa

    reader = diff.iter_batches()
    first = reader.schema.empty_table()
    for batch in reader:
        both = pa.concat_tables([first, pa.Table.from_batches([batch])])
        first = _sorted(diff, both).slice(0, most)
    return first


def _sorted(diff: TableDiff, changes: "pa.Table") -> "pa.Table":
    """Sort changes by the primary key. Without one, or if it cannot be sorted, keep their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sides = [(side, table) for side, table in (("after", diff.after), ("before", diff.before)) if table is not None]
    if len({len(table.primary_key) for _, table in sides}) != 1 or not sides[0][1].primary_key:
        return changes
    try:
        keys = {}
        for number, names in enumerate(zip(*(table.primary_key for _, table in sides), strict=True)):
            found = [
                pc.struct_field(changes.column(side).combine_chunks(), [name])
                for (side, _), name in zip(sides, names, strict=True)
            ]
            keys[str(number)] = pc.coalesce(*found)
        order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])
        return changes.take(order)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid):
        return changes


def _diff_rows(diff: TableDiff, changes: "pa.Table", names: Sequence[str]) -> list[DiffRow]:
    older_names = {change.column: change.before for change in diff.columns if change.change == "renamed"}
    sides = {
        "before": _values(changes, "before", [older_names.get(name) or name for name in names]),
        "after": _values(changes, "after", names),
    }
    rows = []
    kinds, changed = changes.column("change").to_pylist(), changes.column("columns").to_pylist()
    for number, (kind, columns) in enumerate(zip(kinds, changed, strict=True)):
        cells = tuple(
            DiffCell(
                before=_cell(sides["before"][at], number),
                after=_cell(sides["after"][at], number),
                is_changed=name in columns,
            )
            for at, name in enumerate(names)
        )
        rows.append(DiffRow(change=RowChangeKind(kind), cells=cells))
    return rows


def _values(changes: "pa.Table", side: str, names: Sequence[str]) -> list[list[Any] | None]:
    """Return the values of columns on one side, None for a column that this side does not have."""
    import pyarrow.compute as pc

    from anabranch.format.arrow_types import python_values

    rows = changes.column(side).combine_chunks()
    known = rows.type.names
    return [python_values(pc.struct_field(rows, [name])) if name in known else None for name in names]


def _cell(values: list[Any] | None, number: int) -> Cell:
    return NULL if values is None else cell_of(values[number])


def _flat(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return the changes of a batch with one column for each side of a column."""
    import pyarrow as pa

    change, columns, before, after = batch.columns
    arrays = [change, columns, *before.flatten(), *after.flatten()]
    return pa.record_batch(arrays, names=[str(number) for number in range(len(arrays))])


PAGES: tuple[Page, ...] = (
    get("/compare", show_comparison),
    get("/compare/rows", show_changed_rows),
    get("/compare/rows.csv", download_changes),
)
