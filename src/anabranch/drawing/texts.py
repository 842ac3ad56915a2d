"""Texts and values as parts of HTML: escaped, shortened, with control and direction characters made visible."""

import base64
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from anabranch.display import human_size, printable
from anabranch.json_values import json_value

__all__ = ["NULL", "Cell", "attribute", "cell_of", "draw_cell", "line", "one_line", "text", "time", "whole_text"]

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
