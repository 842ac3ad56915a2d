"""Values of tables as cells of a page: one line each, shortened, with control characters made visible."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.display import human_size, printable
from anabranch.json_values import json_value

__all__ = ["NULL", "Cell", "cell_of", "whole_text"]

_MOST_CHARACTERS = 80
_MOST_BYTES = 16
_MOST_ITEMS = 4


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
    text = value[:_MOST_BYTES].hex(" ")
    return Cell(text=text) if len(value) <= _MOST_BYTES else Cell(text=f"{text} …", note=human_size(len(value)))


def _list_cell(values: list[Any] | tuple[Any, ...]) -> Cell:
    note = f"{len(values):,} items"
    shown = _text_cell(json.dumps(json_value(values[:_MOST_ITEMS]), ensure_ascii=False), note=note)
    if len(values) <= _MOST_ITEMS:
        return shown
    return Cell(text=f"{shown.text.removesuffix(']')}, …", note=note)
