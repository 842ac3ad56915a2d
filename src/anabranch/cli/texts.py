"""Text for people: tables, counts, values, commits and branches.

In a pipe a table is as wide as its content. On a terminal it fits the width: columns of text become narrower and wrap,
first between words, then after punctuation, then anywhere. Ids and times never break. If that is not enough, each row
is printed as a block of lines, one for each column.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.display import human_size, printable, short_id, to_text
from anabranch.errors import TableNotFoundError
from anabranch.hints import suggest
from anabranch.ids import MAIN
from anabranch.json_values import not_finite

if TYPE_CHECKING:
    from anabranch.format.bases import Usage
    from anabranch.format.layout.listing import Total
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.refs.branches import BranchInfo
    from anabranch.repo.snapshot import Snapshot

_GAP, _NARROW_GAP = 3, 2
# Parts of words that may be cut on a narrow terminal have at least this width.
_LEAST = 10
_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{14,26}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?")
_PIECE = re.compile(r"[^\s./_,:=-]*[./_,:=-]+|[^\s./_,:=-]+")

Paint = Callable[[str, str], str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for people. Columns of numbers, and those in `right`, are aligned to the right. Terminals show `styles`."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    _: KW_ONLY
    title: str | None = None
    empty: str = "nothing"
    styles: tuple[str | None, ...] = ()
    right: frozenset[int] = frozenset()


def iter_lines(table: Table, *, width: int | None = None, paint: Paint | None = None) -> Iterator[str]:
    """Yield the lines of a table with rows. `width` is that of the terminal; `paint` colours a text in a style."""
    header = list(map(printable, table.columns))
    rows = [list(map(_cell, row)) for row in table.rows]
    has_header = any(header)
    columns = list(zip(*([header] if has_header else []), *rows, strict=True))
    widths = [max(map(_width, column)) for column in columns]
    gap = _GAP
    if width is not None and sum(widths) + gap * (len(widths) - 1) > width:
        gap = _NARROW_GAP
        fitted = _fit(columns, widths, width - gap * (len(widths) - 1))
        if fitted is None:
            yield from _iter_blocks(header, rows, width)
            return
        widths = fitted
    is_right = _right_columns(table)
    if has_header:
        yield from _iter_row(header, widths, gap, is_right, (), paint)
        yield "─" * (sum(widths) + gap * (len(widths) - 1))
    for cells in rows:
        yield from _iter_row(cells, widths, gap, is_right, table.styles, paint)


def _right_columns(table: Table) -> list[bool]:
    """Columns of numbers are aligned to the right, except in tables of facts, which have no header."""
    if not any(table.columns):
        return [False] * len(table.columns)
    found = []
    for number, cells in enumerate(zip(*table.rows, strict=True)):
        values = [value for value in cells if value is not None]
        are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        found.append(number in table.right or (bool(values) and are_numbers))
    return found


def _iter_row(
    cells: Sequence[str],
    widths: Sequence[int],
    gap: int,
    is_right: Sequence[bool],
    styles: Sequence[str | None],
    paint: Paint | None,
) -> Iterator[str]:
    wrapped = [_wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for parts in zip_longest(*wrapped, fillvalue=""):
        line = ""
        for part, width, right, style in zip_longest(parts, widths, is_right, styles[: len(widths)]):
            blank = " " * (width - _width(part))
            painted = paint(part, style) if paint is not None and style and part else part
            line += (blank + painted if right else painted + blank) + " " * gap
        yield line.rstrip()


def _fit(columns: Sequence[Sequence[str]], natural: Sequence[int], room: int) -> list[int] | None:
    """Return narrower widths that fit the room, or None if the columns do not fit without breaking an id."""
    for level in range(3):
        floors = [
            min(width, max(_least_width(cell, level) for cell in column))
            for column, width in zip(columns, natural, strict=True)
        ]
        if sum(floors) <= room:
            return _shrink(list(natural), floors, sum(natural) - room)
    return None


def _shrink(widths: list[int], floors: Sequence[int], excess: int) -> list[int]:
    """Repeatedly narrow the widest column that is not at its minimum yet."""
    for _ in range(excess):
        at = max((index for index in range(len(widths)) if widths[index] > floors[index]), key=lambda i: widths[i])
        widths[at] -= 1
    return widths


def _least_width(cell: str, level: int) -> int:
    """Return the width that a cell needs if it breaks between words (0), after punctuation (1) or anywhere (2)."""
    parts = _words(cell) if level == 0 else [piece for word in _words(cell) for piece in _pieces(word)]
    widths = [min(_width(part), _LEAST) if level == 2 and not _is_fixed(part) else _width(part) for part in parts]
    return max(widths, default=0)


def _words(cell: str) -> list[str]:
    """Split a text between words; a time is one word."""
    return [cell] if _is_fixed(cell) else cell.split()


def _pieces(word: str) -> list[str]:
    return [word] if _is_fixed(word) else _PIECE.findall(word)


def _is_fixed(text: str) -> bool:
    return _ID.fullmatch(text) is not None or _TIME.fullmatch(text) is not None


def _wrap(cell: str, width: int) -> list[str]:
    if _width(cell) <= width:
        return [cell]
    lines, line = [], ""
    for separator, piece in _iter_pieces(cell, width):
        if line and _width(line) + len(separator) + _width(piece) > width:
            lines.append(line)
            line = ""
        line += separator + piece if line else piece
        while _width(line) > width:
            lines.append(_head(line, width))
            line = line[len(lines[-1]) :]
    return [*lines, line] if line or not lines else lines


def _iter_pieces(cell: str, width: int) -> Iterator[tuple[str, str]]:
    """Yield each word of a text, or its pieces if it is too wide, with the separator before it."""
    for word in _words(cell):
        first, *others = _pieces(word) if _width(word) > width else [word]
        yield " ", first
        yield from (("", piece) for piece in others)


def _head(text: str, width: int) -> str:
    """Return the longest beginning of a text that fits, at least one character."""
    used = 0
    for index, character in enumerate(text):
        used += _width(character)
        if used > width:
            # At least one character: otherwise `_wrap` would not end for a wide character in a column of width 1.
            return text[: max(index, 1)]
    return text


def _iter_blocks(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    names = max(map(_width, header))
    for number, row in enumerate(rows):
        if number:
            yield ""
        for name, cell in zip(header, row, strict=True):
            room = max(width - names - _NARROW_GAP, _LEAST)
            for at, part in enumerate(_wrap(cell, room)):
                label = name if at == 0 else ""
                yield f"{label}{' ' * (names - _width(label) + _NARROW_GAP)}{part}".rstrip()


def _width(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    # The usual case, and much faster than to look up each character.
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF") for each in text)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}" if value == round(value, 1) else f"{value:,}"
        case datetime():
            return to_text(value.astimezone(UTC))
        case _:
            return printable(str(value))


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def first_page(found: Iterable[T], limit: int, what: str, noun: str) -> tuple[list[T], bool, list[str]]:
    """Return the first entries, whether there are more, and in this case a sentence such as "the newest 20 commits".

    Only one entry more than `limit` is read: the others may be the work of the whole command.
    """
    page = list(islice(found, limit + 1))
    has_more = len(page) > limit
    return page[:limit], has_more, [more_text(limit, what, noun)] if has_more else []


def more_text(limit: int, what: str, noun: str) -> str:
    return f"the {what} {count(limit, noun)}; --limit shows more"


def usage_text(usage: "Usage | Total") -> str:
    return f"{count(usage.files, 'file')}, {human_size(usage.bytes)}" if usage.files else "-"


def snapshot_size(snapshot: "Snapshot") -> dict[str, int]:
    """Return the number of tables and rows of a state."""
    return {"tables": len(snapshot), "rows": sum(entry.rows for entry in snapshot.entries.values())}


def size_text(snapshot: "Snapshot") -> str:
    size = snapshot_size(snapshot)
    return f"{count(size['tables'], 'table')}, {count(size['rows'], 'row')}"


def list_columns(schema: Any) -> list[dict[str, object]]:
    """Return the columns of an Arrow schema for a document."""
    from anabranch.column_types import show_type  # loads Arrow

    return [{"name": field.name, "type": show_type(field.type), "nullable": field.nullable} for field in schema]


def schema_table(columns: Sequence[Mapping[str, object]]) -> Table:
    return Table(("column", "type", "nullable"), [tuple(column.values()) for column in columns], title="schema")


def first_line(message: str) -> str:
    return message.strip().partition("\n")[0]


def subject(commit: "GraphCommit") -> str:
    """Return the first line of a commit's message."""
    return first_line(commit.message)


def commit_line(commit: "GraphCommit") -> str:
    """Return a commit in one line: its short id and the first line of its message."""
    return f"{short_id(commit.id)} {subject(commit)}".rstrip()


def mode_text(branch: "BranchInfo") -> str:
    """Return the mode of a branch, and for a live one the number of its own tables. Main has no mode."""
    # Not at the top: every command line loads this module, and only some need this.
    from anabranch.repo.log.entries import BranchMode

    if branch.name == MAIN:
        return "-"
    own = f", {count(len(branch.own_tables), 'own table')}" if branch.mode is BranchMode.LIVE else ""
    return f"{branch.mode}{own}"


def never_changed(table: str, ref: str, known: Iterable[str]) -> TableNotFoundError:
    """Return the error for a table that no commit of a ref changed. `known` are the tables of the ref."""
    hint = suggest(table, known, "list the tables with `tables()`", by_parts=True)
    return TableNotFoundError(f"no commit of '{ref}' changed a table '{table}'", hint=hint)


# Longer values, such as embeddings, are shortened. The full values are in --json and --csv.
_MOST_ITEMS = 8
_MOST_BYTES = 16


def text_value(value: Any) -> str:
    """Return a value as text. Long lists and bytes are shortened."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case float() if not math.isfinite(value):
            return not_finite(value)
        case bytes():
            shown = value[:_MOST_BYTES].hex()
            return f"0x{shown}" if len(value) <= _MOST_BYTES else f"0x{shown}… ({len(value)} bytes)"
        case Decimal():
            return f"{value:f}"
        case datetime():
            return value.isoformat(sep=" ").replace("+00:00", "Z")
        case Mapping():
            return "{" + ", ".join(f"{key}: {text_value(item)}" for key, item in value.items()) + "}"
        case Sequence():
            shown = ", ".join(text_value(item) for item in value[:_MOST_ITEMS])
            return f"[{shown}]" if len(value) <= _MOST_ITEMS else f"[{shown}, … {len(value)} values]"
        case _:
            return str(value)


def text_or_none(value: Any) -> str | None:
    return None if value is None else text_value(value)


def value_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Return a table of values of rows. Columns of numbers are aligned to the right, and show no separators."""
    right = frozenset(
        at
        for at in range(len(names))
        if rows and all(isinstance(row[at], int | float | Decimal) and not isinstance(row[at], bool) for row in rows)
    )
    return Table(tuple(names), [tuple(map(text_value, row)) for row in rows], empty="no rows", right=right)
