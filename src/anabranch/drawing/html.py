"""Texts, values and the style of drawn tables as parts of HTML."""

import base64
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

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
