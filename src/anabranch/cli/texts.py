"""Commits, branches and rows as people see them: in lines, and values as text."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from anabranch.cli.output import Line, count
from anabranch.cli.tables import Table
from anabranch.display import short_id
from anabranch.errors import TableNotFoundError
from anabranch.hints import suggest
from anabranch.ids import MAIN
from anabranch.json_values import not_finite
from anabranch.repo.log.entries import BranchMode

if TYPE_CHECKING:
    from anabranch.repo.history.diff import TableDiff
    from anabranch.repo.log.entries import GraphCommit
    from anabranch.repo.refs.branches import BranchInfo


def subject(commit: "GraphCommit") -> str:
    """The first line of a commit's message."""
    return commit.message.strip().partition("\n")[0]


def commit_line(commit: "GraphCommit") -> str:
    """A commit in one line: its short id and the first line of its message."""
    return f"{short_id(commit.graph_commit_id)} {subject(commit)}".rstrip()


def mode_text(branch: "BranchInfo") -> str:
    """How a branch sees its source, and how many tables a live one does not take from it. Main has no source."""
    if branch.name == MAIN:
        return "-"
    own = f", {count(len(branch.own_tables), 'own table')}" if branch.mode is BranchMode.LIVE else ""
    return f"{branch.mode.value}{own}"


def never_changed(table: str, ref: str, known: Iterable[str]) -> TableNotFoundError:
    """Return the error for a table that no commit of a ref changed. `known` are the tables of the ref."""
    hint = suggest(table, known, "list the tables with `tables()`", by_parts=True)
    return TableNotFoundError(f"no commit of '{ref}' changed a table '{table}'", hint=hint)


# Embeddings and the like: what is left out is in --json and --csv.
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


def value_table(names: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> Table:
    """Return a table of values of rows. Columns of numbers are aligned to the right, and show no separators."""
    right = frozenset(
        at
        for at in range(len(names))
        if rows and all(isinstance(row[at], int | float | Decimal) and not isinstance(row[at], bool) for row in rows)
    )
    return Table(tuple(names), [tuple(map(text_value, row)) for row in rows], title=title, empty="no rows", right=right)


_SIGNS = {"inserted": ("+", "green"), "deleted": ("-", "red"), "updated": ("~", "yellow")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """A row that differs, as plain values."""

    change: str
    columns: Sequence[str]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


def list_changed_rows(part: "TableDiff", *, limit: int) -> list[ChangedRow]:
    return list(_iter_rows(part, limit))


def column_table(part: "TableDiff", *, title: str) -> Table:
    rows = [(each.change, each.column, each.before, each.after) for each in part.columns]
    return Table(("change", "column", "before", "after"), rows, title=title)


def iter_row_lines(part: "TableDiff", rows: Sequence[ChangedRow]) -> Iterator[Line]:
    """A line for each row, and one for those that are left out."""
    for row in rows:
        sign, colour = _SIGNS[row.change]
        if row.change == "updated":
            yield Line(sign, colour, more=tuple(_iter_pieces(part, row)))
        else:
            cells = row.before if row.after is None else row.after
            yield Line(f"{sign} {', '.join(map(_cell, cells or {}, (cells or {}).values()))}", colour)
    left = part.counts.total - len(rows)
    if left:
        yield Line(f"and {count(left, 'row')} more; --limit shows more")


def _iter_pieces(part: "TableDiff", row: ChangedRow) -> Iterator[tuple[str, str | None]]:
    """The cells of an updated row that changed, old and new in the colours of what went and came, after its key."""
    before, after = row.before or {}, row.after or {}
    old_names = {each.column: each.before for each in part.columns if each.change == "renamed"}
    key = () if part.after is None else part.after.primary_key
    separator = " "
    # Without a key all cells are shown, because nothing shorter identifies the row.
    for name in dict.fromkeys([*(key or after), *row.columns]):
        if name not in row.columns:
            yield f"{separator}{_cell(name, after[name])}", None
        else:
            yield f"{separator}{name}: ", None
            yield text_value(before.get(old_names.get(name) or name)), _SIGNS["deleted"][1]
            yield " → ", None
            yield text_value(after.get(name)), _SIGNS["inserted"][1]
        separator = ", "


def _cell(name: str, value: Any) -> str:
    return f"{name}={text_value(value)}"


def _iter_rows(part: "TableDiff", limit: int) -> Iterator[ChangedRow]:
    from anabranch.format.arrow_types import python_values

    left = limit
    for batch in part.iter_batches():
        chosen = batch.slice(0, left)
        changes, columns = (chosen.column(name).to_pylist() for name in ("change", "columns"))
        sides = (python_values(chosen.column(name)) for name in ("before", "after"))
        for change, names, before, after in zip(changes, columns, *sides, strict=True):
            yield ChangedRow(change=change, columns=names, before=before, after=after)
        left -= len(chosen)
        # Before the next batch is read: its rows would be compared for nothing.
        if not left:
            return
