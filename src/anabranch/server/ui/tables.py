"""One table: its rows, one row with its history, one value, its columns and indices, and files to load into it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from starlette.datastructures import UploadFile
from starlette.responses import Response

from anabranch.display import NULL, Cell, cell_of, printable, whole_text
from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.files.formats import plain_rows
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.json_values import json_value, value_from_json
from anabranch.repo.history.entities import EntityChange
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.server.client_values import checked_filter
from anabranch.server.rows import PreviewRequest, Sorting, read_rows
from anabranch.server.ui.lake import LoadOrder, RefChoices
from anabranch.server.ui.responses import Paged, answer_text, page_from, page_of
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

_ROWS = 50
_COLUMNS = 20
_COLUMNS_OF_ROW = 100
_COMMITS = 50
_CHANGES = 20
_CHANGED_COLUMNS = 20
# Sorting keeps all rows up to the last one of the page in memory.
_MOST_SORTED = 10_000
_LONGEST_FILTER = 10_000
# A longer key is not part of an address: its row is found by its position.
_LONGEST_KEY = 500
_LONGEST_VALUE = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """The head of every page of a table: the table at a ref, and the refs to choose from."""

    ref: str
    snapshot: Snapshot
    table: Table
    choices: RefChoices

    @classmethod
    def of(cls, visit: Visit) -> "TableHead":
        ref = visit.ref()
        snapshot = visit.repository.snapshot_of(ref)
        table = snapshot[visit.request.path_params["table"]]
        return cls(ref=ref, snapshot=snapshot, table=table, choices=visit.lake.list_choices())


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """The cells of a row, and the query that finds the row again."""

    cells: tuple[Cell, ...]
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """A commit that changed a row, and each column that it changed, before and after. `more` are not shown."""

    commit: GraphCommit
    change: str
    cells: Sequence[tuple[str, Cell, Cell]]
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsQuery:
    """The rows to show: a filter, an order, and the columns."""

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

    def check_chosen(self, names: Sequence[str]) -> None:
        """Raise InvalidInputError if a chosen column is not one of the table."""
        if unknown := [name for name in self.chosen if name not in names]:
            raise InvalidInputError(f"there is no column {unknown[0]!r}", hint="choose columns of the table")

    def of_rows(self) -> dict[str, str]:
        """Return the parameters that select and order the rows."""
        return {"ref": self.ref, "where": self.where, "sort": self.sort, "desc": "1" if self.is_descending else ""}

    def parameters(self, **changes: object) -> dict[str, object]:
        return {**self.of_rows(), "find": self.find, "column": self.chosen, "columns": self.columns, **changes}

    def to_request(self, *, columns: Sequence[str], offset: int, limit: int) -> PreviewRequest:
        """Return the request for some rows. Raise InvalidInputError if they are too far down in an order."""
        if len(self.where) > _LONGEST_FILTER:
            problem = f"the filter has {len(self.where)} characters"
            raise InvalidInputError(problem, hint=f"use at most {_LONGEST_FILTER}")
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


def show_rows(visit: Visit) -> Shown:
    """Show rows of a table, filtered, sorted, and some columns at a time."""
    query, head = RowsQuery.of(visit), TableHead.of(visit)
    names = head.table.schema.names
    query.check_chosen(names)
    found = [name for name in names if query.find.lower() in name.lower()]
    page = page_of(query.chosen or found, number=query.columns, size=_COLUMNS)
    # The key identifies the rows on every page of columns.
    shown = [*(name for name in head.table.primary_key[:4] if name not in page.items), *page.items]
    view = {
        "head": head,
        "query": query,
        "names": list(dict.fromkeys([*query.chosen, *found]))[:_COLUMNS_OF_ROW],
        "columns": page,
        "shown": [head.table.schema.field(name) for name in shown],
        "rows": page_of((), number=1, size=_ROWS),
        "problem": None,
    }
    try:
        return Shown("tables/rows.html", {**view, "rows": _read_page(visit, head.table, query, shown)})
    except InvalidInputError as err:
        return Shown("tables/rows.html", {**view, "problem": err}, status=400)


def _read_page(visit: Visit, table: Table, query: RowsQuery, shown: Sequence[str]) -> Paged[RowView]:
    offset = (query.page - 1) * _ROWS
    # With the key, also if its columns are not shown: the links to single rows need it.
    read = list(dict.fromkeys([*shown, *table.primary_key]))
    request = query.to_request(columns=read, offset=offset, limit=_ROWS + 1)
    if query.where or query.sort:
        # A filter or an order may read the whole table, whose version never changes.
        key = ("rows", table.entry.state, request)
        found = visit.cached(partial(read_rows, table, request), *key, weigh=lambda rows: 1000 + int(rows.nbytes))
    else:
        found = read_rows(table, request)
    rows = []
    for position, row in enumerate(plain_rows(found), offset):
        values = dict(zip(read, row, strict=True))
        cells = tuple(cell_of(values[name]) for name in shown)
        rows.append(RowView(cells=cells, query=_row_query(table, query, values, position)))
    # To count the rows of a filter, the whole table would have to be read.
    return page_from(rows, number=query.page, size=_ROWS, total=None if query.where else len(table))


def _row_query(table: Table, query: RowsQuery, values: Mapping[str, Any], position: int) -> dict[str, str]:
    """Return the parameters that find a row again: its key, or its position in the same order."""
    if table.primary_key:
        key = json.dumps(json_value([values[name] for name in table.primary_key]), ensure_ascii=False)
        if len(key) <= _LONGEST_KEY:
            return {"ref": query.ref, "key": key}
    return {**query.of_rows(), "position": str(position + 1)}


def show_row(visit: Visit) -> Shown:
    """Show all columns of one row, and its history if the table has a primary key."""
    head = TableHead.of(visit)
    columns = page_of(list(head.table.schema), number=visit.number("columns"), size=_COLUMNS_OF_ROW)
    key = _key_of(visit, head.table)
    row = _find_row(visit, head, key, [column.name for column in columns.items])
    view = {
        "head": head,
        "query": _address_of_row(visit),
        "columns": columns,
        # The row may be missing at the ref.
        "cells": None if row is None else [cell_of(row.get(column.name)) for column in columns.items],
        "history": None if key is None else _row_history(visit, head, key),
    }
    return Shown("tables/row.html", view)


def show_value(visit: Visit) -> Shown:
    head, name, value = _find_value(visit)
    text = whole_text(value)
    view = {
        "head": head,
        "query": {**_address_of_row(visit), "column": name},
        "column": head.table.schema.field(name),
        "text": printable(text[:_LONGEST_VALUE])[:_LONGEST_VALUE],
        "length": len(text),
    }
    return Shown("tables/value.html", view)


def download_value(visit: Visit) -> Response:
    head, _, value = _find_value(visit)
    return answer_text(whole_text(value), name=f"{head.table.key}.txt")


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
    # The address may be typed by hand, and each step of the conversion has errors of its own.
    except (ValueError, TypeError, RecursionError, OverflowError, pa.ArrowException) as err:
        hint = "open the row from the table"
        raise InvalidInputError(f"the key {text[:200]!r} is not valid: {err}", hint=hint) from err


def _find_row(
    visit: Visit, head: TableHead, key: tuple[Any, ...] | None, columns: Sequence[str]
) -> Mapping[str, Any] | None:
    if key is not None:
        # In a tuple, because the cache takes None for a missing value, and a row that does not exist would be searched
        # again.
        found = visit.cached(
            lambda: (visit.repository.entity_at(head.table.key, key, ref=head.ref),),
            *("row", *_key_in_cache(head, key)),
            weigh=_weigh,
        )
        return found[0]
    request = RowsQuery.of(visit).to_request(columns=columns, offset=visit.number("position") - 1, limit=1)
    rows = plain_rows(read_rows(head.table, request))
    return dict(zip(columns, rows[0], strict=True)) if rows else None


def _find_value(visit: Visit) -> tuple[TableHead, str, Any]:
    head = TableHead.of(visit)
    name = visit.request.query_params.get("column", "")
    if name not in head.table.columns:
        raise InvalidInputError(f"there is no column {name[:200]!r}", hint="open the value from the table")
    row = _find_row(visit, head, _key_of(visit, head.table), [name])
    if row is None:
        raise NotFoundError("there is no such row", hint="open the table again")
    return head, name, row[name]


def _address_of_row(visit: Visit) -> dict[str, str]:
    names = ("key",) if visit.query("key") else ("where", "sort", "desc", "position")
    given = visit.request.query_params
    return {"ref": visit.ref(), **{name: given.get(name, "") for name in names}}


def _row_history(visit: Visit, head: TableHead, key: tuple[Any, ...]) -> Paged[RowChange]:
    number = visit.number("page")
    start = (number - 1) * _CHANGES
    # One more than the page shows, to know whether there is another page.
    limit = start + _CHANGES + 1
    find = partial(visit.repository.entity_history, head.table.key, key, ref=head.ref, limit=limit)
    found = visit.cached(find, "row history", *_key_in_cache(head, key), limit, weigh=_weigh)
    return page_from([_row_change(change) for change in found[start:]], number=number, size=_CHANGES)


def _key_in_cache(head: TableHead, key: tuple[Any, ...]) -> tuple[str | None, ...]:
    # A live branch also shows tables of main.
    return head.table.key, repr(key), head.snapshot.id, head.snapshot.main_commit_id


def _weigh(found: Sequence[object]) -> int:
    """Estimate the bytes of rows or changes: their values may be large."""
    return sum(len(repr(one)) for one in found) + 1000


def _row_change(change: EntityChange) -> RowChange:
    before, after = change.before or {}, change.after or {}
    kind = "inserted" if change.before is None else "deleted" if change.after is None else "updated"
    names = list(dict.fromkeys([*after, *before]))
    # An inserted or deleted row has only one side, so all its cells are shown.
    changed = [name for name in names if kind != "updated" or _text(before, name) != _text(after, name)]
    cells = [(name, _cell(before, name), _cell(after, name)) for name in changed[:_CHANGED_COLUMNS]]
    return RowChange(commit=change.commit, change=kind, cells=cells, more=max(0, len(changed) - _CHANGED_COLUMNS))


def _cell(row: Mapping[str, Any], name: str) -> Cell:
    return cell_of(row[name]) if name in row else NULL


def _text(row: Mapping[str, Any], name: str) -> str | None:
    """Return a value as text to compare: NaN is not equal to itself."""
    return None if row.get(name) is None else whole_text(row[name])


def show_schema(visit: Visit) -> Shown:
    """Show the columns and indices of a table."""
    head, search = TableHead.of(visit), visit.query("search")
    found = [column for column in head.table.schema if search.lower() in column.name.lower()]
    columns = page_of(found, number=visit.number("page"), size=_COLUMNS_OF_ROW)
    view = {"head": head, "search": search, "columns": columns, "indices": head.table.indices}
    return Shown("tables/schema.html", view)


def show_history(visit: Visit) -> Shown:
    """List the commits that changed a table."""
    head, number = TableHead.of(visit), visit.number("page")
    commits = visit.repository.iter_commits(head.ref, table=head.table.key)
    start = (number - 1) * _COMMITS
    # One more than the page shows, to know whether there is another page.
    found = list(islice(commits, start, start + _COMMITS + 1))
    return Shown("tables/history.html", {"head": head, "commits": page_from(found, number=number, size=_COMMITS)})


def show_load(visit: Visit) -> Shown:
    table, branch = visit.query("table"), visit.query("branch") or MAIN
    return Shown("load.html", {"table": table, "branch": branch, "choices": visit.lake.list_choices()})


def load_file(visit: Visit) -> Redirect:
    """Load a file as one commit, or change nothing."""
    file = visit.form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise InvalidInputError("the form has no file", hint="choose a file")
    table, branch = str(TableKey.parse(visit.field("table"))), str(BranchName.parse_public(visit.field("branch")))
    order = LoadOrder(
        table=table,
        branch=branch,
        file=file.file,
        name=file.filename,
        is_incremental=visit.field("mode") != "replace",
        primary_key=tuple(name.strip() for name in visit.field("primary_key").split(",") if name.strip()),
    )
    return Redirect(f"/tables/{table}", visit.lake.load(order), {"ref": branch})


PAGES: tuple[Page, ...] = (
    get("/tables/{table}", show_rows),
    get("/tables/{table}/row", show_row),
    get("/tables/{table}/value", show_value),
    get("/tables/{table}/value.txt", download_value),
    get("/tables/{table}/schema", show_schema),
    get("/tables/{table}/history", show_history),
    get("/load", show_load),
    # The service accepts large bodies at paths with this end only.
    post("/import", load_file, writes="branch", takes_file=True),
)
