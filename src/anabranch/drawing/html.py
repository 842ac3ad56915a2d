"""Tables of HTML: texts, values and their style, and differences of tables and of rows."""

import base64
import html
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from anabranch.display import human_size, printable
from anabranch.json_values import json_value

_MOST_CHARACTERS = 80
_MOST_BYTES = 16
_MOST_ITEMS = 4


def attribute(value: str) -> str:
    """Return a text as the value of an attribute."""
    return html.escape(value, quote=True)


def text(value: object) -> str:
    """Return a text as HTML."""
    return html.escape(printable(str(value)))


def one_line(value: object, most: int = 200) -> str:
    """Return the first line of a text, shortened, with control and direction characters made visible."""
    first = str(value).strip().partition("\n")[0]
    return printable(first if len(first) <= most else f"{first[: most - 1]}…")


def line(value: object, most: int = 200) -> str:
    """Return the first line of a text as HTML, shortened."""
    return html.escape(one_line(value, most))


def time(value: datetime) -> str:
    """Return a time in UTC as HTML, to the minute."""
    shown = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f'<time datetime="{value.isoformat()}" title="{shown} UTC">{shown[:16]}</time>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A value as a page shows it. `note` is the size of the whole value if it was shortened."""

    text: str
    note: str = ""
    is_null: bool = False
    is_number: bool = False


NULL = Cell(text="null", is_null=True)


def cell_of(value: Any) -> Cell:
    """Return a value as a cell."""
    match value:
        case None:
            return NULL
        case bool():
            return Cell(text="true" if value else "false")
        # After bool, which is an int. json_value gives NaN and integers beyond 64 bits the same text as in JSON.
        case int() | float():
            return Cell(text=str(json_value(value)), is_number=True)
        case str():
            return _text_cell(value, note=f"{len(value):,} characters")
        case bytes() | bytearray() | memoryview():
            return _bytes_cell(bytes(value))
        case list() | tuple():
            return _list_cell(value)
        case Mapping():
            text = json.dumps(json_value(value), ensure_ascii=False)
            return _text_cell(text, note=f"{len(text):,} characters")
        case _:
            return Cell(text=printable(str(json_value(value))))


def whole_text(value: Any) -> str:
    """Return a whole value as text, with its lines. Bytes are in base 64, lists and structs are JSON."""
    match value:
        case None:
            return "null"
        case str():
            return value
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case bool():
            return "true" if value else "false"
        case list() | tuple() | Mapping():
            return json.dumps(json_value(value), ensure_ascii=False, indent=1)
        case _:
            return str(json_value(value))


def _text_cell(text: str, *, note: str) -> Cell:
    # Cut before and after: a control character becomes several characters.
    shown = printable(text[: _MOST_CHARACTERS + 1].replace("\r\n", "\n").replace("\n", "↵"))
    if len(text) <= _MOST_CHARACTERS and len(shown) <= _MOST_CHARACTERS:
        return Cell(text=shown)
    return Cell(text=f"{shown[: _MOST_CHARACTERS - 1]}…", note=note)


def _bytes_cell(value: bytes) -> Cell:
    # Cut first: a blob may have many megabytes.
    text = value[:_MOST_BYTES].hex(" ")
    return Cell(text=text) if len(value) <= _MOST_BYTES else Cell(text=f"{text} …", note=human_size(len(value)))


def _list_cell(values: list[Any] | tuple[Any, ...]) -> Cell:
    note = f"{len(values):,} items"
    # Cut first: an embedding has hundreds of items, and a page has many cells.
    shown = _text_cell(json.dumps(json_value(values[:_MOST_ITEMS]), ensure_ascii=False), note=note)
    if len(values) <= _MOST_ITEMS:
        return shown
    return Cell(text=f"{shown.text.removesuffix(']')}, …", note=note)


def draw_cell(cell: Cell, href: str = "") -> str:
    """Return a value as HTML. A shortened one links to the whole value if there is an address for it."""
    if cell.is_null:
        return '<span class="null">null</span>'
    shown = f"<bdi>{html.escape(cell.text)}</bdi>"
    if not cell.note:
        return shown
    if href:
        return f'{shown} <a class="whole" href="{attribute(href)}" hx-boost="false">{cell.note}</a>'
    return f'{shown} <span class="muted">{cell.note}</span>'


STYLE = """
.anabranch {
  --paper: #ffffff; --raised: #f6f8fa; --ink: #1f2328; --faint: #59636e; --line: #d1d9e0; --strong-line: #818b98;
  --link: #0550ae; --accent: #0b7285; --accent-ink: #ffffff; --focus: #0969da;
  --added: #dafbe1; --added-ink: #116329; --removed: #ffebe9; --removed-ink: #a40e26;
  --changed: #fff8c5; --changed-ink: #6e4c00; --notice: #ddf4ff; --pill: #eaeef2;
  --mono: ui-monospace, "SFMono-Regular", "DejaVu Sans Mono", Menlo, Consolas, monospace;
}
@media (prefers-color-scheme: dark) {
  .anabranch {
    --paper: #0d1117; --raised: #151b23; --ink: #e6edf3; --faint: #9198a1; --line: #3d444d; --strong-line: #656c76;
    --link: #58a6ff; --accent: #2fb8cc; --accent-ink: #06222a; --focus: #58a6ff;
    --added: #12341f; --added-ink: #7ee2a0; --removed: #46191e; --removed-ink: #ffaba8;
    --changed: #3a2f0b; --changed-ink: #ecc867; --notice: #10263f; --pill: #2a313b;
  }
}
.anabranch .muted { color: var(--faint); }
.anabranch .mono { font-family: var(--mono); font-size: .92em; }
.anabranch .nowrap { white-space: nowrap; }
.anabranch .unseen {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap;
}
.anabranch table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.anabranch th, .anabranch td {
  padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
}
.anabranch tbody tr:last-child > * { border-bottom: 0; }
.anabranch thead th { background: var(--raised); font-weight: 600; white-space: nowrap; }
.anabranch tbody th { font-weight: 600; }
.anabranch .num { text-align: right; white-space: nowrap; }
.anabranch .pill {
  display: inline-block; padding: 0 .45em; border-radius: 1em; background: var(--pill); color: var(--ink);
  font-size: .85em; font-weight: normal;
}
.anabranch .pill.branch { background: var(--notice); text-decoration: none; font-weight: 600; }
.anabranch .pill.tag { background: var(--changed); text-decoration: none; }

/* Rows of data: each cell is one line, and a long value is shortened. */
.anabranch .grid td, .anabranch .grid th { font-family: var(--mono); font-size: .92em; white-space: pre; }
.anabranch .grid td { max-width: 40rem; overflow: hidden; text-overflow: ellipsis; }
.anabranch .grid .num { max-width: none; }
.anabranch .grid .null { color: var(--faint); font-style: italic; }
.anabranch .grid .type { display: block; color: var(--faint); font-weight: normal; font-size: .9em; }
.anabranch .grid .whole { font-family: inherit; font-size: .9em; }
.anabranch .added, .anabranch .added > * { background: var(--added); }
.anabranch .removed, .anabranch .removed > * { background: var(--removed); }
.anabranch .mark-added { color: var(--added-ink); font-weight: 650; }
.anabranch .mark-removed { color: var(--removed-ink); font-weight: 650; }
.anabranch .mark-changed { color: var(--changed-ink); font-weight: 650; }
.anabranch td.changed { background: var(--changed); }
.anabranch del.cell { background: var(--removed); color: var(--removed-ink); }
.anabranch ins.cell { background: var(--added); color: var(--added-ink); text-decoration: none; }

/* The graph: rows have the height of their picture. */
.anabranch .graph td {
  height: 30px; padding-top: 0; padding-bottom: 0; vertical-align: middle; border: 0; white-space: nowrap;
}
.anabranch .graph .picture { padding: 0 0 0 .4rem; line-height: 0; }
.anabranch .graph .lanes { display: block; max-width: none; }
.anabranch .graph .message {
  max-width: 50vw; min-width: 12rem; width: 100%; overflow: hidden; text-overflow: ellipsis;
}
.anabranch .graph tbody tr:hover { background: var(--raised); }
"""


def in_notebook(content: str) -> str:
    """Return drawn tables with their style, for a notebook."""
    frame = "background: var(--paper); color: var(--ink); overflow-x: auto; padding: .2rem"
    return f'<div class="anabranch" style="{frame}"><style>{STYLE}</style>{content}</div>'


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
