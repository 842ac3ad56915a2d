"""One table: its rows, its columns and indices, its history, and one row of it with its history."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from anabranch.display import printable
from anabranch.errors import AnabranchError, InvalidInputError, NotFoundError
from anabranch.files.plain_rows import plain_rows
from anabranch.format.staging import IndexInfo
from anabranch.json_values import json_value, value_from_json
from anabranch.repo.history.entities import EntityChange
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.schema.types import show_type
from anabranch.repo.snapshot import Table
from anabranch.server.filters import checked_filter
from anabranch.server.previews import PreviewRequest, Sorting, read_rows
from anabranch.server.ui.cells import NULL, Cell, cell_of, whole_text
from anabranch.server.ui.downloads import answer_text
from anabranch.server.ui.paging import Paged, page_of
from anabranch.server.ui.refs import RefChoices, chosen_ref, list_choices
from anabranch.server.ui.site import Page, Shown, Visit, get

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PAGES", "ColumnView", "RowsView", "TableHead"]

_ROWS = 50
_COLUMNS = 20
_COLUMNS_OF_ROW = 100
_CHANGES = 20
_COMMITS = 50
# Sorting keeps all rows up to the last one of the page in memory.
_MOST_SORTED = 10_000
_LONGEST_FILTER = 10_000
# A longer key is not part of an address: its row is found by its position.
_LONGEST_KEY = 500
_LONGEST_VALUE = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnView:
    name: str
    type: str
    is_nullable: bool
    is_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """What is above every page of a table: which table at which ref, and the refs to choose from."""

    key: str
    ref: str
    commit: GraphCommit
    rows: int
    column_count: int
    primary_key: tuple[str, ...]
    choices: RefChoices
    table: Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """The cells of a row, and the query that finds the row again."""

    cells: tuple[Cell, ...]
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsQuery:
    """The rows that a visitor asked for: a filter, an order, and the columns."""

    ref: str
    where: str
    sort: str
    is_descending: bool
    find: str
    chosen: tuple[str, ...]
    page: int
    columns: int

    @classmethod
    def of(cls, visit: Visit) -> "RowsQuery":
        return cls(
            ref=chosen_ref(visit),
            where=visit.query("where"),
            sort=visit.request.query_params.get("sort", ""),
            is_descending=visit.query("desc") == "1",
            find=visit.query("find"),
            chosen=tuple(visit.request.query_params.getlist("column")),
            page=visit.number("page"),
            columns=visit.number("columns"),
        )

    def of_rows(self) -> dict[str, str]:
        """Return the parameters that decide which rows there are, and in which order."""
        return {"ref": self.ref, "where": self.where, "sort": self.sort, "desc": "1" if self.is_descending else ""}

    def parameters(self, **changes: object) -> dict[str, object]:
        """Return the parameters of the same page with some changes."""
        return {**self.of_rows(), "find": self.find, "column": self.chosen, "columns": self.columns, **changes}

    def to_request(self, *, columns: Sequence[str], offset: int, limit: int) -> PreviewRequest:
        """Return the request for some rows. Raise InvalidInputError if they are too far down in an order."""
        if len(self.where) > _LONGEST_FILTER:
            raise InvalidInputError(
                f"the filter has {len(self.where)} characters", hint=f"use at most {_LONGEST_FILTER}"
            )
        if self.sort and offset + limit > _MOST_SORTED + 1:
            raise InvalidInputError(
                f"only the first {_MOST_SORTED} rows of an order can be shown", hint="filter the rows, or use SQL"
            )
        return PreviewRequest(
            limit=limit,
            offset=offset,
            columns=tuple(columns),
            where=checked_filter(self.where) if self.where else None,
            sort=(Sorting(self.sort, self.is_descending),) if self.sort else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsView:
    head: TableHead
    query: RowsQuery
    names: tuple[str, ...]
    columns: Paged[ColumnView]
    shown: tuple[ColumnView, ...]
    rows: Paged[RowView]
    problem: AnabranchError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaView:
    head: TableHead
    search: str
    columns: Paged[ColumnView]
    indices: tuple[IndexInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryView:
    head: TableHead
    commits: Paged[GraphCommit]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChange:
    """The value of one column before and after a commit."""

    column: str
    before: Cell
    after: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChangeView:
    """A commit that changed a row, and the cells that it changed. `more` cells are not shown."""

    commit: GraphCommit
    change: str
    cells: tuple[CellChange, ...]
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRowView:
    """All columns of one row. The row is None if the ref does not have it any more."""

    head: TableHead
    query: Mapping[str, str]
    columns: Paged[ColumnView]
    cells: tuple[Cell, ...] | None
    has_history: bool
    history: Paged[RowChangeView]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueView:
    head: TableHead
    query: Mapping[str, str]
    column: ColumnView
    text: str
    length: int


def show_rows(visit: Visit) -> Shown:
    """Show rows of a table, filtered, sorted, and some columns at a time."""
    query = RowsQuery.of(visit)
    head = _head(visit, query.ref)
    columns = _columns(head.table)
    names = [name for name in columns if query.find.lower() in name.lower()]
    if unknown := [name for name in query.chosen if name not in columns]:
        raise InvalidInputError(f"there is no column {unknown[0]!r}", hint="choose columns of the table")
    wanted = list(query.chosen) or names
    page = page_of([columns[name] for name in wanted], number=query.columns, size=_COLUMNS)
    # The key identifies the rows on every page of columns.
    keys = [columns[name] for name in head.primary_key[:4] if columns[name] not in page.items]
    shown = (*keys, *page.items)
    view = RowsView(
        head=head,
        query=query,
        names=tuple(dict.fromkeys([*query.chosen, *names]))[:_COLUMNS_OF_ROW],
        columns=page,
        shown=shown,
        rows=Paged(items=(), number=1, size=_ROWS, has_more=False),
    )
    try:
        return Shown("tables/rows.html", replace(view, rows=_read_page(head.table, query, shown)))
    except InvalidInputError as err:
        return Shown("tables/rows.html", replace(view, problem=err), status=400)


def _read_page(table: Table, query: RowsQuery, shown: Sequence[ColumnView]) -> Paged[RowView]:
    offset = (query.page - 1) * _ROWS
    names = [column.name for column in shown]
    read = list(dict.fromkeys([*names, *table.primary_key]))
    found = read_rows(table, query.to_request(columns=read, offset=offset, limit=_ROWS + 1))
    rows = []
    for number, row in enumerate(plain_rows(found.slice(0, _ROWS))):
        values = dict(zip(read, row, strict=True))
        rows.append(
            RowView(
                cells=tuple(cell_of(values[name]) for name in names),
                query=_row_query(table, query, values, offset + number),
            )
        )
    total = None if query.where else len(table)
    return Paged(items=rows, number=query.page, size=_ROWS, has_more=found.num_rows > _ROWS, total=total)


def _row_query(table: Table, query: RowsQuery, values: Mapping[str, Any], position: int) -> dict[str, str]:
    """Return the parameters that find a row again: its key, or its position in the same order."""
    if table.primary_key:
        key = json.dumps(json_value([values[name] for name in table.primary_key]), ensure_ascii=False)
        if len(key) <= _LONGEST_KEY:
            return {"ref": query.ref, "key": key}
    return {**query.of_rows(), "position": str(position + 1)}


def show_schema(visit: Visit) -> Shown:
    """Show the columns and indices of a table."""
    head, search = _head(visit, chosen_ref(visit)), visit.query("search")
    found = [column for column in _columns(head.table).values() if search.lower() in column.name.lower()]
    view = SchemaView(
        head=head,
        search=search,
        columns=page_of(found, number=visit.number("page"), size=_COLUMNS_OF_ROW),
        indices=head.table.indices,
    )
    return Shown("tables/schema.html", view)


def show_history(visit: Visit) -> Shown:
    """List the commits that changed a table."""
    head, number = _head(visit, chosen_ref(visit)), visit.number("page")
    commits = visit.lake.repository.iter_commits(head.ref, table=head.key)
    start = (number - 1) * _COMMITS
    found = list(islice(commits, start, start + _COMMITS + 1))
    page = Paged(items=found[:_COMMITS], number=number, size=_COMMITS, has_more=len(found) > _COMMITS)
    return Shown("tables/history.html", HistoryView(head=head, commits=page))


def show_row(visit: Visit) -> Shown:
    """Show all columns of one row, and its history if the table has a primary key."""
    head = _head(visit, chosen_ref(visit))
    columns = page_of(list(_columns(head.table).values()), number=visit.number("columns"), size=_COLUMNS_OF_ROW)
    row = _find_row(visit, head, [column.name for column in columns.items])
    key = _key_of(visit, head.table)
    history: Paged[RowChangeView] = Paged(items=(), number=1, size=_CHANGES, has_more=False)
    if key is not None:
        history = _row_history(visit, head, key)
    view = OneRowView(
        head=head,
        query=_address_of_row(visit),
        columns=columns,
        cells=None if row is None else tuple(cell_of(row.get(column.name)) for column in columns.items),
        has_history=key is not None,
        history=history,
    )
    return Shown("tables/row.html", view)


def show_value(visit: Visit) -> Shown:
    """Show one whole value."""
    head, column, value = _find_value(visit)
    text = whole_text(value)
    view = ValueView(
        head=head,
        query={**_address_of_row(visit), "column": column.name},
        column=column,
        text=printable(text[:_LONGEST_VALUE])[:_LONGEST_VALUE],
        length=len(text),
    )
    return Shown("tables/value.html", view)


def download_value(visit: Visit) -> Response:
    """Send one whole value as a file of text."""
    head, _, value = _find_value(visit)
    return answer_text(whole_text(value), name=f"{head.key}.txt")


def _head(visit: Visit, ref: str) -> TableHead:
    snapshot = visit.lake.repository.snapshot_of(ref)
    table = snapshot[visit.request.path_params["table"]]
    return TableHead(
        key=table.key,
        ref=ref,
        commit=snapshot.commit,
        rows=len(table),
        column_count=len(table.schema),
        primary_key=table.primary_key,
        choices=list_choices(visit),
        table=table,
    )


def _columns(table: Table) -> dict[str, ColumnView]:
    return {field.name: _column(field, table) for field in table.schema}


def _column(field: "pa.Field", table: Table) -> ColumnView:
    return ColumnView(
        name=field.name,
        type=show_type(field.type),
        is_nullable=field.nullable,
        is_key=field.name in table.primary_key,
    )


def _key_of(visit: Visit, table: Table) -> tuple[Any, ...] | None:
    """Return the values of the primary key in the address, None if the row is named by its position."""
    import pyarrow as pa

    text = visit.request.query_params.get("key", "")
    if not text:
        return None
    try:
        given = json.loads(text)
        kinds = [table.schema.field(name).type for name in table.primary_key]
        return tuple(
            pa.scalar(value_from_json(value, kind), kind).as_py() for value, kind in zip(given, kinds, strict=True)
        )
    except (ValueError, TypeError, RecursionError, OverflowError, pa.ArrowException) as err:
        hint = "open the row from the table"
        raise InvalidInputError(f"the key {text[:200]!r} is not valid: {err}", hint=hint) from err


def _find_row(visit: Visit, head: TableHead, columns: Sequence[str]) -> Mapping[str, Any] | None:
    key = _key_of(visit, head.table)
    if key is not None:
        return visit.lake.repository.entity_at(head.key, key, ref=head.ref)
    request = RowsQuery.of(visit).to_request(columns=columns, offset=visit.number("position") - 1, limit=1)
    rows = plain_rows(read_rows(head.table, request))
    return dict(zip(columns, rows[0], strict=True)) if rows else None


def _find_value(visit: Visit) -> tuple[TableHead, ColumnView, Any]:
    head = _head(visit, chosen_ref(visit))
    name = visit.request.query_params.get("column", "")
    if name not in head.table.columns:
        raise InvalidInputError(f"there is no column {name[:200]!r}", hint="open the value from the table")
    row = _find_row(visit, head, [name])
    if row is None:
        raise NotFoundError("there is no such row", hint="open the table again")
    return head, _column(head.table.schema.field(name), head.table), row[name]


def _address_of_row(visit: Visit) -> dict[str, str]:
    names = ("key",) if visit.query("key") else ("where", "sort", "desc", "position")
    given = visit.request.query_params
    return {"ref": chosen_ref(visit), **{name: given.get(name, "") for name in names}}


def _row_history(visit: Visit, head: TableHead, key: tuple[Any, ...]) -> Paged[RowChangeView]:
    number = visit.number("page")
    start = (number - 1) * _CHANGES
    found = visit.lake.repository.entity_history(head.key, key, ref=head.ref, limit=start + _CHANGES + 1)
    items = [_row_change(change) for change in found[start : start + _CHANGES]]
    return Paged(items=items, number=number, size=_CHANGES, has_more=len(found) > start + _CHANGES)


def _row_change(change: EntityChange) -> RowChangeView:
    before, after = change.before or {}, change.after or {}
    kind = "inserted" if change.before is None else "deleted" if change.after is None else "updated"
    names = list(dict.fromkeys([*after, *before]))
    changed = [name for name in names if kind != "updated" or _text(before, name) != _text(after, name)]
    cells = tuple(
        CellChange(column=name, before=_cell(before, name), after=_cell(after, name)) for name in changed[:_COLUMNS]
    )
    return RowChangeView(commit=change.commit, change=kind, cells=cells, more=max(0, len(changed) - _COLUMNS))


def _cell(row: Mapping[str, Any], name: str) -> Cell:
    return cell_of(row[name]) if name in row else NULL


def _text(row: Mapping[str, Any], name: str) -> str | None:
    """Return a value as text to compare: NaN is not equal to itself."""
    return None if row.get(name) is None else whole_text(row[name])


PAGES: tuple[Page, ...] = (
    get("/tables/{table}", show_rows),
    get("/tables/{table}/schema", show_schema),
    get("/tables/{table}/history", show_history),
    get("/tables/{table}/row", show_row),
    get("/tables/{table}/value", show_value),
    get("/tables/{table}/value.txt", download_value),
)
