"""One row of a table: all its columns, its history, and one whole value of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.responses import Response

from anabranch.display import printable
from anabranch.drawing.html import NULL, Cell, cell_of, whole_text
from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.files.formats import plain_rows
from anabranch.json_values import value_from_json
from anabranch.repo.history.entities import EntityChange
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.snapshot import Table
from anabranch.server.rows import read_rows
from anabranch.server.ui.responses import Paged, answer_text, page_of
from anabranch.server.ui.site import Page, Shown, Visit, get
from anabranch.server.ui.tables import ColumnView, RowsQuery, TableHead, column_of, columns_of, head_of

_COLUMNS = 100
_CHANGES = 20
_CHANGED_COLUMNS = 20
_LONGEST_VALUE = 40_000


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


def show_row(visit: Visit) -> Shown:
    """Show all columns of one row, and its history if the table has a primary key."""
    head = head_of(visit, visit.ref())
    columns = page_of(list(columns_of(head.table).values()), number=visit.number("columns"), size=_COLUMNS)
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


def _find_row(visit: Visit, head: TableHead, columns: Sequence[str]) -> Mapping[str, Any] | None:
    key = _key_of(visit, head.table)
    if key is not None:
        find = partial(_read_row, visit, head, key)
        found = visit.cached(find, "row", head.key, repr(key), head.commit.id, head.main_id, weigh=_weigh)
        return found[0]
    request = RowsQuery.of(visit).to_request(columns=columns, offset=visit.number("position") - 1, limit=1)
    rows = plain_rows(read_rows(head.table, request))
    return dict(zip(columns, rows[0], strict=True)) if rows else None


def _read_row(visit: Visit, head: TableHead, key: tuple[Any, ...]) -> tuple[Mapping[str, Any] | None]:
    # In a tuple, because the cache takes None for a missing value, and a row that does not exist would be searched
    # again.
    return (visit.lake.repository.entity_at(head.key, key, ref=head.ref),)


def _find_value(visit: Visit) -> tuple[TableHead, ColumnView, Any]:
    head = head_of(visit, visit.ref())
    name = visit.request.query_params.get("column", "")
    if name not in head.table.columns:
        raise InvalidInputError(f"there is no column {name[:200]!r}", hint="open the value from the table")
    row = _find_row(visit, head, [name])
    if row is None:
        raise NotFoundError("there is no such row", hint="open the table again")
    return head, column_of(head.table.schema.field(name), head.table), row[name]


def _address_of_row(visit: Visit) -> dict[str, str]:
    names = ("key",) if visit.query("key") else ("where", "sort", "desc", "position")
    given = visit.request.query_params
    return {"ref": visit.ref(), **{name: given.get(name, "") for name in names}}


def _row_history(visit: Visit, head: TableHead, key: tuple[Any, ...]) -> Paged[RowChangeView]:
    number = visit.number("page")
    start = (number - 1) * _CHANGES
    # One more than the page shows, to know whether there is another page.
    limit = start + _CHANGES + 1
    find = partial(visit.lake.repository.entity_history, head.key, key, ref=head.ref, limit=limit)
    found = visit.cached(find, "row history", head.key, repr(key), head.commit.id, head.main_id, limit, weigh=_weigh)
    items = [_row_change(change) for change in found[start : start + _CHANGES]]
    return Paged(items=items, number=number, size=_CHANGES, has_more=len(found) > start + _CHANGES)


def _weigh(found: Sequence[object]) -> int:
    """Estimate the bytes of rows or changes: their values may be large."""
    return sum(len(repr(one)) for one in found) + 1000


def _row_change(change: EntityChange) -> RowChangeView:
    before, after = change.before or {}, change.after or {}
    kind = "inserted" if change.before is None else "deleted" if change.after is None else "updated"
    names = list(dict.fromkeys([*after, *before]))
    # An inserted or deleted row has only one side, so all its cells are shown.
    changed = [name for name in names if kind != "updated" or _text(before, name) != _text(after, name)]
    cells = tuple(
        CellChange(column=name, before=_cell(before, name), after=_cell(after, name))
        for name in changed[:_CHANGED_COLUMNS]
    )
    return RowChangeView(commit=change.commit, change=kind, cells=cells, more=max(0, len(changed) - _CHANGED_COLUMNS))


def _cell(row: Mapping[str, Any], name: str) -> Cell:
    return cell_of(row[name]) if name in row else NULL


def _text(row: Mapping[str, Any], name: str) -> str | None:
    """Return a value as text to compare: NaN is not equal to itself."""
    return None if row.get(name) is None else whole_text(row[name])


PAGES: tuple[Page, ...] = (
    get("/tables/{table}/row", show_row),
    get("/tables/{table}/value", show_value),
    get("/tables/{table}/value.txt", download_value),
)
