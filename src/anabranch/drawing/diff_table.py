"""Draw differences as tables of HTML: the tables that differ, and the rows of one table with their changed cells.

Added, changed and removed are shown by mark and word, not by colour alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.drawing.html import Cell, attribute, draw_cell, line

_COLUMN_CHANGES = 20
_KEY_MARK = '<span class="type">key</span>'
_NUM = ' class="num"'
_MINUS = "\u2212"
_SIGNS = {"added": "+", "inserted": "+", "removed": _MINUS, "deleted": _MINUS}
_CLASSES = {"added": "added", "inserted": "added", "removed": "removed", "deleted": "removed"}
_HEADS = "".join(
    f'<th scope="col"{attributes}>{name}</th>'
    for name, attributes in (
        ("Table", ""),
        ("Change", ""),
        ("Inserted", ' class="num"'),
        ("Updated", ' class="num"'),
        ("Deleted", ' class="num"'),
        ("Columns", ""),
    )
)


class ColumnChange(Protocol):
    """A column that was added, removed, renamed or changed."""

    @property
    def change(self) -> str: ...
    @property
    def column(self) -> str: ...
    @property
    def before(self) -> str | None: ...
    @property
    def after(self) -> str | None: ...


class Counts(Protocol):
    """How many rows differ."""

    @property
    def inserted(self) -> int: ...
    @property
    def updated(self) -> int: ...
    @property
    def deleted(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """A table that differs. `counts` is None if the rows were not counted."""

    key: str
    change: str
    renamed_from: str | None = None
    columns: Sequence[ColumnChange] = ()
    counts: Counts | None = None

    @property
    def is_same(self) -> bool:
        """Whether only files were rewritten."""
        is_changed = self.change != "changed" or self.renamed_from is not None or bool(self.columns)
        return not is_changed and self.counts is not None and not _total(self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffCell:
    """A value on both sides."""

    before: Cell
    after: Cell
    is_changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRow:
    """A row that was inserted, updated or deleted."""

    change: str
    cells: Sequence[DiffCell]


# Return the address of a table, None for no link.
Link = Callable[[TableChange], str | None]


def draw_tables(tables: Sequence[TableChange], *, link: Link | None = None, count_link: Link | None = None) -> str:
    """Return tables that differ as the content of a table. `count_link` is where rows that were not counted are."""
    rows = "".join(_draw_table(one, link=link, count_link=count_link) for one in tables)
    body = rows or '<tr><td colspan="6">Nothing differs.</td></tr>'
    return f"<thead><tr>{_HEADS}</tr></thead><tbody>{body}</tbody>"


def _draw_table(one: TableChange, *, link: Link | None, count_link: Link | None) -> str:
    name = _linked(line(one.key, 300), None if link is None else link(one))
    if one.renamed_from:
        name += f'<div class="muted small">renamed from {line(one.renamed_from, 300)}</div>'
    change = '<span class="muted">only files were rewritten</span>' if one.is_same else draw_change(one.change)
    return (
        f'<tr><th scope="row">{name}</th><td>{change}</td>{_draw_counts(one, count_link)}'
        f'<td class="wide">{draw_column_changes(one.columns)}</td></tr>'
    )


def _draw_counts(one: TableChange, count_link: Link | None) -> str:
    if one.counts is None:
        text = "not counted" if count_link is None else _linked("Count the rows", count_link(one))
        return f'<td class="num muted" colspan="3">{text}</td>'
    counted = (("added", "+", one.counts.inserted), ("changed", "±", one.counts.updated))
    return "".join(
        f'<td class="num">{draw_count(kind, mark, number)}</td>'
        for kind, mark, number in (*counted, ("removed", _MINUS, one.counts.deleted))
    )


def draw_count(kind: str, mark: str, number: int) -> str:
    """Return a number of rows with its mark."""
    return f'<span class="mark-{kind}">{mark}{number:,}</span>' if number else '<span class="muted">0</span>'


def draw_change(kind: str) -> str:
    """Return the kind of a change by mark and word."""
    return f'<span class="mark-{_CLASSES.get(kind, "changed")}">{_SIGNS.get(kind, "±")} {kind}</span>'


def draw_column_changes(columns: Sequence[ColumnChange]) -> str:
    """Return the changes of the columns of a table, one below the other. Of many, only the first."""
    parts = [f"<div>{_draw_column(one)}</div>" for one in columns[:_COLUMN_CHANGES]]
    if (more := len(columns) - _COLUMN_CHANGES) > 0:
        parts.append(f'<div class="muted">and {more:,} more</div>')
    return "".join(parts)


def _draw_column(one: ColumnChange) -> str:
    kind = one.change if one.change in ("added", "removed") else "changed"
    shown = f'{draw_change(kind)} <bdi class="mono">{line(one.column, 60)}</bdi>'
    match one.change:
        case "added":
            return f"{shown} {line(one.after, 60)}"
        case "removed":
            return shown
        case "renamed":
            return f'{shown}, renamed from <bdi class="mono">{line(one.before, 60)}</bdi>'
        case _:
            before, after = (line(value or "none", 60) for value in (one.before, one.after))
            return f"{shown}, {line(one.change)}: <bdi>{before}</bdi> → <bdi>{after}</bdi>"


def draw_rows(names: Sequence[str], keys: Sequence[str], rows: Sequence[DiffRow]) -> str:
    """Return changed rows as the content of a table. An updated row has its changed cells before and after."""
    heads = "".join(
        f'<th scope="col"><bdi>{line(name, 40)}</bdi>{_KEY_MARK if name in keys else ""}</th>' for name in names
    )
    body = "".join(map(_draw_row, rows)) or f'<tr><td colspan="{len(names) + 1}">No rows differ.</td></tr>'
    return f'<thead><tr><th scope="col">Change</th>{heads}</tr></thead><tbody>{body}</tbody>'


def _draw_row(row: DiffRow) -> str:
    colour = _CLASSES.get(row.change)
    start = f'<tr class="{colour}">' if colour else "<tr>"
    return f"{start}<td>{draw_change(row.change)}</td>{''.join(_draw_side(row, cell) for cell in row.cells)}</tr>"


def _draw_side(row: DiffRow, cell: DiffCell) -> str:
    if row.change == "updated" and cell.is_changed:
        return f'<td class="changed">{draw_before_after(cell.before, cell.after)}</td>'
    one = cell.before if row.change == "deleted" else cell.after
    return f"<td{_NUM if one.is_number else ''}>{draw_cell(one)}</td>"


def draw_before_after(before: Cell, after: Cell) -> str:
    """Return a value before and after."""
    return (
        f'<del class="cell"><span class="unseen">before: </span>{_MINUS} {draw_cell(before)}</del> '
        f'<ins class="cell"><span class="unseen">after: </span>+ {draw_cell(after)}</ins>'
    )


def _linked(content: str, address: str | None) -> str:
    return content if address is None else f'<a href="{attribute(address)}">{content}</a>'


def _total(counts: Counts) -> int:
    return counts.inserted + counts.updated + counts.deleted
