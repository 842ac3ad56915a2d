"""How values print: tables of text in a terminal, tables of HTML in a notebook.

Everything here is text that users or other writers chose, so control characters and HTML are escaped.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol, SupportsIndex, TypeVar, overload

# A listing of more rows prints only the first.
MAX_ROWS = 50
_MAX_TEXT = 60
_MAX_HTML = 300
_MAX_NAMES = 10
# The first ten characters of an id are its millisecond; four more distinguish ids of the same millisecond.
_SHORT_ID = 14


class Listed(Protocol):
    """A value that a `Listing` prints as one row."""

    def _repr_row_(self) -> Mapping[str, object]:
        """Return the cells of the row by the names of their columns."""
        ...


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
    """Return a value as one line of printable text."""
    # Only the first line: the other lines of a message would break the row of the table.
    text = "" if value is None else str(value).strip().partition("\n")[0]
    text = text if len(text) <= most else text[: most - 3] + "..."
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def _more(more: int) -> list[str]:
    return [f"... and {more} more"] if more > 0 else []


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
