"""One table: its rows, its columns and indices, its history, and files to load into it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from anabranch.drawing.html import Cell, cell_of
from anabranch.errors import AnabranchError, InvalidInputError
from anabranch.files.formats import plain_rows
from anabranch.format.staging import IndexInfo
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.json_values import json_value
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.schema.types import show_type
from anabranch.repo.snapshot import Table
from anabranch.server.client_values import checked_filter
from anabranch.server.rows import PreviewRequest, Sorting, read_rows
from anabranch.server.ui.lake import LoadOrder, RefChoices
from anabranch.server.ui.responses import Paged, page_of
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 50
_COLUMNS = 20
_COLUMNS_OF_ROW = 100
_COMMITS = 50
# Sorting keeps all rows up to the last one of the page in memory.
_MOST_SORTED = 10_000
_LONGEST_FILTER = 10_000
# A longer key is not part of an address: its row is found by its position.
_LONGEST_KEY = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnView:
    name: str
    type: str
    is_nullable: bool
    is_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """What is above every page of a table: which table at which ref, and the refs to choose from.

    `main_id` is the commit of main that a live branch shows.
    """

    key: str
    ref: str
    commit: GraphCommit
    main_id: str | None
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
            ref=visit.ref(),
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
        # One more, because `limit` includes the row that shows whether there is another page.
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
class LoadView:
    table: str
    branch: str
    choices: RefChoices


def show_rows(visit: Visit) -> Shown:
    """Show rows of a table, filtered, sorted, and some columns at a time."""
    query = RowsQuery.of(visit)
    head = head_of(visit, query.ref)
    columns = columns_of(head.table)
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
        return Shown("tables/rows.html", replace(view, rows=_read_page(visit, head.table, query, shown)))
    except InvalidInputError as err:
        return Shown("tables/rows.html", replace(view, problem=err), status=400)


def _read_page(visit: Visit, table: Table, query: RowsQuery, shown: Sequence[ColumnView]) -> Paged[RowView]:
    offset = (query.page - 1) * _ROWS
    names = [column.name for column in shown]
    # With the key, also if its columns are not shown: the links to single rows need it.
    read = list(dict.fromkeys([*names, *table.primary_key]))
    request = query.to_request(columns=read, offset=offset, limit=_ROWS + 1)
    if query.where or query.sort:
        # A filter or an order may read the whole table, whose version never changes.
        version = (table.entry.dataset, table.entry.home, table.entry.version)
        found = visit.cached(partial(read_rows, table, request), "rows", version, request, weigh=_bytes_of)
    else:
        found = read_rows(table, request)
    rows = []
    for number, row in enumerate(plain_rows(found.slice(0, _ROWS))):
        values = dict(zip(read, row, strict=True))
        rows.append(
            RowView(
                cells=tuple(cell_of(values[name]) for name in names),
                query=_row_query(table, query, values, offset + number),
            )
        )
    # To count the rows of a filter, the whole table would have to be read.
    total = None if query.where else len(table)
    return Paged(items=rows, number=query.page, size=_ROWS, has_more=found.num_rows > _ROWS, total=total)


def _bytes_of(rows: "pa.Table") -> int:
    return 1000 + int(rows.nbytes)


def _row_query(table: Table, query: RowsQuery, values: Mapping[str, Any], position: int) -> dict[str, str]:
    """Return the parameters that find a row again: its key, or its position in the same order."""
    if table.primary_key:
        key = json.dumps(json_value([values[name] for name in table.primary_key]), ensure_ascii=False)
        if len(key) <= _LONGEST_KEY:
            return {"ref": query.ref, "key": key}
    return {**query.of_rows(), "position": str(position + 1)}


def show_schema(visit: Visit) -> Shown:
    """Show the columns and indices of a table."""
    head, search = head_of(visit, visit.ref()), visit.query("search")
    found = [column for column in columns_of(head.table).values() if search.lower() in column.name.lower()]
    view = SchemaView(
        head=head,
        search=search,
        columns=page_of(found, number=visit.number("page"), size=_COLUMNS_OF_ROW),
        indices=head.table.indices,
    )
    return Shown("tables/schema.html", view)


def show_history(visit: Visit) -> Shown:
    """List the commits that changed a table."""
    head, number = head_of(visit, visit.ref()), visit.number("page")
    commits = visit.lake.repository.iter_commits(head.ref, table=head.key)
    start = (number - 1) * _COMMITS
    # One more than the page shows, to know whether there is another page.
    found = list(islice(commits, start, start + _COMMITS + 1))
    page = Paged(items=found[:_COMMITS], number=number, size=_COMMITS, has_more=len(found) > _COMMITS)
    return Shown("tables/history.html", HistoryView(head=head, commits=page))


def head_of(visit: Visit, ref: str) -> TableHead:
    """Return what is above every page of the table of a request."""
    snapshot = visit.lake.repository.snapshot_of(ref)
    table = snapshot[visit.request.path_params["table"]]
    return TableHead(
        key=table.key,
        ref=ref,
        commit=snapshot.commit,
        main_id=snapshot.main_commit_id,
        rows=len(table),
        column_count=len(table.schema),
        primary_key=table.primary_key,
        choices=visit.lake.list_choices(),
        table=table,
    )


def columns_of(table: Table) -> dict[str, ColumnView]:
    """Return the columns of a table by name."""
    return {field.name: column_of(field, table) for field in table.schema}


def column_of(field: "pa.Field", table: Table) -> ColumnView:
    """Return a column as pages show it."""
    return ColumnView(
        name=field.name,
        type=show_type(field.type),
        is_nullable=field.nullable,
        is_key=field.name in table.primary_key,
    )


def show_load(visit: Visit) -> Shown:
    """Show the form to load a file."""
    view = LoadView(table=visit.query("table"), branch=visit.query("branch") or MAIN, choices=visit.lake.list_choices())
    return Shown("load.html", view)


def load_file(visit: Visit) -> Redirect:
    """Load a file as one commit, or change nothing."""
    file = visit.file("file")
    if file is None:
        raise InvalidInputError("the form has no file", hint="choose a file")
    table, branch = str(TableKey.parse(visit.field("table"))), str(BranchName.parse_public(visit.field("branch")))
    order = LoadOrder(
        table=table,
        branch=branch,
        file=file.file,
        name=file.filename or "file",
        is_incremental=visit.field("mode") != "replace",
        primary_key=tuple(name.strip() for name in visit.field("primary_key").split(",") if name.strip()),
    )
    return Redirect(f"/tables/{table}", visit.lake.host.load(order), {"ref": branch})


PAGES: tuple[Page, ...] = (
    get("/tables/{table}", show_rows),
    get("/tables/{table}/schema", show_schema),
    get("/tables/{table}/history", show_history),
    get("/load", show_load),
    # The service accepts large bodies at paths with this end only.
    post("/import", load_file, writes="branch", takes_file=True),
)
