"""How values print: tables of text in a terminal, tables of HTML in a notebook and in the web UI.

Everything here is text that users or other writers chose, so control characters and HTML are escaped.
"""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Protocol, SupportsIndex, TypeVar, overload

from anabranch.json_values import json_value

# A listing of more rows prints only the first.
MAX_ROWS = 50
_MAX_TEXT = 60
_MAX_HTML = 300
_MAX_NAMES = 10
# Of a value in a cell of HTML.
_MOST_CHARACTERS = 80
_MOST_BYTES = 16
_MOST_ITEMS = 4
# The first ten characters of an id are its millisecond; four more distinguish ids of the same millisecond.
_SHORT_ID = 14


class Listed(Protocol):
    """A value that a `Listing` prints as one row."""

    def _repr_row_(self) -> Mapping[str, object]:
        """Return the cells of the row by the names of their columns."""
        ...


def row_of(value: object, columns: str) -> dict[str, object]:
    """Return attributes by the names of their columns: `tag=name` is the attribute `name` in the column 'tag'."""
    row: dict[str, object] = {}
    for column in columns.split():
        title, _, name = column.partition("=")
        found = getattr(value, name or title)
        row[title.replace("_", " ")] = to_text(found) if isinstance(found, datetime) else found
    return row


T = TypeVar("T", bound=Listed)


class Listing(list[T]):
    """A list that prints as a table, in a terminal and in a notebook. In all else it is an ordinary list."""

    @overload
    def __getitem__(self, at: SupportsIndex) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> "Listing[T]": ...

    def __getitem__(self, at: SupportsIndex | slice) -> "T | Listing[T]":
        if isinstance(at, slice):
            return Listing(super().__getitem__(at))
        return super().__getitem__(at)

    def __repr__(self) -> str:
        return text_table(*self._cells(), more=len(self) - MAX_ROWS) if self else "[]"

    def _repr_html_(self) -> str:
        return html_table(*self._cells(), more=len(self) - MAX_ROWS)

    def _cells(self) -> tuple[Sequence[str], list[list[object]]]:
        # Sliced first: a long list does not format the rows that it does not show.
        rows = [item._repr_row_() for item in super().__getitem__(slice(MAX_ROWS))]
        return list(rows[0]) if rows else [], [list(row.values()) for row in rows]


def text_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", more: int = 0) -> str:
    """Return rows as lines of text below a title, in columns of equal width. `more` rows are not shown."""
    lines = [list(columns), *([_cell(value, most=_MAX_TEXT) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = ["   ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([*([_cell(title, most=_MAX_HTML)] if title else []), *texts, *_more(more)])


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", more: int = 0) -> str:
    """Return rows as an HTML table with a caption. `more` rows are not shown."""
    caption = f"<caption>{html.escape(_cell(title, most=_MAX_HTML))}</caption>" if title else ""
    heads = "".join(f"<th>{html.escape(_cell(name, most=_MAX_HTML))}</th>" for name in columns)
    cells = ("".join(f"<td>{html.escape(_cell(value, most=_MAX_HTML))}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    notes = "".join(f"<p>{note}</p>" for note in _more(more))
    return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{notes}"


def some_of(names: Sequence[str]) -> str:
    """Return a list of names as text; of many, only the first."""
    shown = ", ".join(map(repr, names[:_MAX_NAMES]))
    more = len(names) - _MAX_NAMES
    return f"[{shown}, ... {more} more]" if more > 0 else f"[{shown}]"


def short_id(commit_id: str) -> str:
    """Return the first characters of a commit id, enough to find the commit."""
    return commit_id[:_SHORT_ID]


def printable(text: str) -> str:
    """Escape control characters other than line breaks, and characters that change the direction of text."""
    # An escape sequence in a name or message of another writer could move the cursor, or hide text in the terminal.
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def human_size(size: int) -> str:
    """Return a number of bytes in a readable unit."""
    if size < 1000:
        return f"{size} B"
    amount = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        # From here on rounding would show a thousand.
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} PB"


def _cell(value: object, *, most: int) -> str:
    # Only the first line: the other lines of a message would break the row of the table.
    text = "" if value is None else str(value).strip().partition("\n")[0]
    return printable(text if len(text) <= most else text[: most - 3] + "...")


def _more(more: int) -> list[str]:
    return [f"... and {more} more"] if more > 0 else []


def html_text(value: object) -> str:
    """Return a text as HTML."""
    return html.escape(printable(str(value)))


def one_line(value: object, most: int = 200) -> str:
    """Return the first line of a text, shortened, with control and direction characters made visible."""
    first = str(value).strip().partition("\n")[0]
    return printable(first if len(first) <= most else f"{first[: most - 1]}…")


def html_line(value: object, most: int = 200) -> str:
    """Return the first line of a text as HTML, shortened."""
    return html.escape(one_line(value, most))


def html_time(value: datetime) -> str:
    """Return a time in UTC as HTML, to the minute."""
    shown = to_text(value.astimezone(UTC))
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
            return Cell(text=str(value).lower())
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
        case None | bool() | list() | tuple() | Mapping():
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
        return f'{shown} <a class="whole" href="{html.escape(href)}" hx-boost="false">{cell.note}</a>'
    return f'{shown} <span class="muted">{cell.note}</span>'


@cache
def html_style() -> str:
    """Return the style sheet of tables of HTML."""
    return Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


def in_notebook(content: str) -> str:
    """Return drawn tables with their style, for a notebook."""
    frame = "background: var(--paper); color: var(--ink); overflow-x: auto; padding: .2rem"
    return f'<div class="anabranch" style="{frame}"><style>{html_style()}</style>{content}</div>'


# Times are stored as microseconds since 1970 and shown as datetimes in UTC. A field that ends in `_at` is such a
# number, and the property of the same name without `_at` is its datetime.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_datetime(microseconds: int) -> datetime:
    """Return a time as an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    """Return an aware datetime as microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def to_text(moment: datetime) -> str:
    """Return a time in UTC to the second, as lists show it."""
    return f"{moment:%Y-%m-%d %H:%M:%S}"
