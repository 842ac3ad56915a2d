"""Draw differences of tables and of rows as HTML, for notebooks and the web UI."""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.display import NULL, Cell, cell_of, draw_cell, html_line, in_notebook
from anabranch.format.arrow_types import python_values

if TYPE_CHECKING:
    from anabranch.repo.history.comparer import TableCounts
    from anabranch.repo.history.table_history import SchemaChange
    from anabranch.repo.snapshot import Table

_COLUMN_CHANGES = 20
_KEY_MARK = '<span class="type">key</span>'
_NUM = ' class="num"'
_MINUS = "\u2212"
_MARKS = {"added": "+", "inserted": "+", "removed": _MINUS, "deleted": _MINUS}
_CLASSES = {"added": "added", "inserted": "added", "removed": "removed", "deleted": "removed"}
_HEADS = (
    '<th scope="col">Table</th><th scope="col">Change</th><th scope="col" class="num">Inserted</th>'
    '<th scope="col" class="num">Updated</th><th scope="col" class="num">Deleted</th><th scope="col">Columns</th>'
)


class DrawnDiff(Protocol):
    """What is drawn of a `TableDiff`. A protocol, because `diff.py` draws with this module."""

    key: str
    before: "Table | None"
    after: "Table | None"

    @property
    def change(self) -> str: ...
    @property
    def renamed_from(self) -> str | None: ...
    @property
    def columns(self) -> "Sequence[SchemaChange]": ...
    @property
    def counts(self) -> "TableCounts": ...
    @property
    def rows_to_compare(self) -> int: ...
    def iter_batches(self) -> pa.RecordBatchReader: ...


# A table that differs with its counts, None if the rows were not counted.
CountedDiff = tuple[DrawnDiff, "TableCounts | None"]
# Return the address of a table, None for no link.
Link = Callable[[DrawnDiff], str | None]


def draw_tables(tables: Sequence[CountedDiff], *, link: Link | None = None, count_link: Link | None = None) -> str:
    """Return tables that differ as the content of a table. `count_link` is where rows that were not counted are."""
    rows = "".join(_draw_table(*one, link=link, count_link=count_link) for one in tables)
    body = rows or '<tr><td colspan="6">Nothing differs.</td></tr>'
    return f"<thead><tr>{_HEADS}</tr></thead><tbody>{body}</tbody>"


def _draw_table(diff: DrawnDiff, counts: "TableCounts | None", *, link: Link | None, count_link: Link | None) -> str:
    name = _linked(html_line(diff.key, 300), None if link is None else link(diff))
    if diff.renamed_from:
        name += f'<div class="muted small">renamed from {html_line(diff.renamed_from, 300)}</div>'
    has_changes = diff.change != "changed" or diff.renamed_from or diff.columns or counts is None or counts.total
    change = draw_change(diff.change) if has_changes else '<span class="muted">only files were rewritten</span>'
    return (
        f'<tr><th scope="row">{name}</th><td>{change}</td>{_draw_counts(diff, counts, count_link)}'
        f'<td class="wide">{draw_column_changes(diff.columns)}</td></tr>'
    )


def _draw_counts(diff: DrawnDiff, counts: "TableCounts | None", count_link: Link | None) -> str:
    if counts is None:
        text = "not counted" if count_link is None else _linked("Count the rows", count_link(diff))
        return f'<td class="num muted" colspan="3">{text}</td>'
    marks = (("added", "+", counts.inserted), ("changed", "±", counts.updated), ("removed", _MINUS, counts.deleted))
    return "".join(f'<td class="num">{draw_count(kind, mark, number)}</td>' for kind, mark, number in marks)


def draw_count(kind: str, mark: str, number: int) -> str:
    """Return a number of rows with its mark."""
    return f'<span class="mark-{kind}">{mark}{number:,}</span>' if number else '<span class="muted">0</span>'


def draw_change(kind: str) -> str:
    """Return the kind of a change by mark and word."""
    return f'<span class="mark-{_CLASSES.get(kind, "changed")}">{_MARKS.get(kind, "±")} {kind}</span>'


def draw_column_changes(columns: "Sequence[SchemaChange]") -> str:
    """Return the changes of the columns of a table, one below the other. Of many, only the first."""
    parts = [f"<div>{_draw_column(one)}</div>" for one in columns[:_COLUMN_CHANGES]]
    if (more := len(columns) - _COLUMN_CHANGES) > 0:
        parts.append(f'<div class="muted">and {more:,} more</div>')
    return "".join(parts)


def _draw_column(one: "SchemaChange") -> str:
    kind = one.change if one.change in ("added", "removed") else "changed"
    shown = f'{draw_change(kind)} <bdi class="mono">{html_line(one.column, 60)}</bdi>'
    match one.change:
        case "added":
            return f"{shown} {html_line(one.after, 60)}"
        case "removed":
            return shown
        case "renamed":
            return f'{shown}, renamed from <bdi class="mono">{html_line(one.before, 60)}</bdi>'
        case _:
            before, after = (html_line(value or "none", 60) for value in (one.before, one.after))
            return f"{shown}, {html_line(one.change)}: <bdi>{before}</bdi> → <bdi>{after}</bdi>"


def draw_before_after(before: Cell, after: Cell) -> str:
    """Return a value before and after."""
    return (
        f'<del class="cell"><span class="unseen">before: </span>{_MINUS} {draw_cell(before)}</del> '
        f'<ins class="cell"><span class="unseen">after: </span>+ {draw_cell(after)}</ins>'
    )


def _linked(content: str, address: str | None) -> str:
    return content if address is None else f'<a href="{html.escape(address)}">{content}</a>'


# What a notebook shows of a large difference.
_TABLES = 50
_ROWS = 50
_COLUMNS = 30
# A notebook draws its last value without being asked, so that this must not read millions of rows.
_MOST_COUNTED = 100_000
_MOST_COMPARED = 1_000_000


def draw_diff(title: str, tables: Sequence[DrawnDiff]) -> str:
    """Draw the tables that differ for a notebook. Rows are counted where few must be compared."""
    shown = [(table, counts_within(table, most=_MOST_COUNTED)) for table in tables[:_TABLES]]
    more = len(tables) - _TABLES
    note = f"<p>... and {more} more</p>" if more > 0 else ""
    return in_notebook(f'<table class="list"><caption>{html_line(title)}</caption>{draw_tables(shown)}</table>{note}')


def draw_table_diff(diff: DrawnDiff) -> str:
    """Draw the first rows that differ for a notebook."""
    if diff.rows_to_compare > _MOST_COMPARED:
        rows = f"{diff.rows_to_compare:,} rows of {html_line(diff.key, 300)} must be compared"
        return in_notebook(f"<p>{rows}: read them with iter_batches() or iter_rows().</p>")
    changes = first_changes(diff, _ROWS + 1)
    names = list(dict.fromkeys([*key_columns(diff), *list_columns(diff)]))
    table = draw_rows(diff, changes.slice(0, _ROWS), names[:_COLUMNS])
    notes = [
        f"<p>The first {most} {things} are shown.</p>"
        for things, found, most in (("rows", len(changes), _ROWS), ("columns", len(names), _COLUMNS))
        if found > most
    ]
    caption = f"<caption>{html_line(diff.key, 300)}</caption>"
    return in_notebook(f'<table class="grid">{caption}{table}</table>{"".join(notes)}')


def counts_within(diff: DrawnDiff, *, most: int) -> "TableCounts | None":
    """Return the number of rows that differ, None if more than `most` rows must be compared to count them."""
    is_cheap = diff.before is None or diff.after is None or diff.rows_to_compare <= most
    return diff.counts if is_cheap else None


def key_columns(diff: DrawnDiff) -> tuple[str, ...]:
    """Return the primary key of the newer side, else of the older one."""
    keys = () if diff.after is None else diff.after.primary_key
    return keys or (() if diff.before is None else diff.before.primary_key)


def list_columns(diff: DrawnDiff) -> list[str]:
    """Return the columns of the newer side, then those that only the older side has."""
    newer = () if diff.after is None else diff.after.columns
    older = () if diff.before is None else diff.before.columns
    # A renamed column is shown once, under its new name.
    renamed = set(_older_names(diff).values())
    return [*newer, *(name for name in older if name not in newer and name not in renamed)]


def _older_names(diff: DrawnDiff) -> dict[str, str | None]:
    return {change.column: change.before for change in diff.columns if change.change == "renamed"}


def first_changes(diff: DrawnDiff, most: int) -> pa.Table:
    """Return the first changes in the order of the primary key. Only these and one batch are in memory."""
    reader = diff.iter_batches()
    first = reader.schema.empty_table()
    for batch in reader:
        both = pa.concat_tables([first, pa.Table.from_batches([batch])])
        first = _sorted(diff, both).slice(0, most)
    return first


def _sorted(diff: DrawnDiff, changes: pa.Table) -> pa.Table:
    """Sort changes by the primary key. Without one, or if it cannot be sorted, keep their order."""
    sides = (("after", diff.after), ("before", diff.before))
    keys = {side: table.primary_key for side, table in sides if table is not None}
    numbers = {len(names) for names in keys.values()}
    if len(numbers) != 1 or 0 in numbers:
        return changes
    try:
        values = _key_values(changes, keys)
        return changes.take(pc.sort_indices(values, [(name, "ascending") for name in values.column_names]))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid):
        return changes


def _key_values(changes: pa.Table, keys: Mapping[str, Sequence[str]]) -> pa.Table:
    """Return the key of each change. `keys` are the names of the key columns on each side."""
    values = {}
    for number, names in enumerate(zip(*keys.values(), strict=True)):
        found = [
            pc.struct_field(changes.column(side).combine_chunks(), [name])
            for side, name in zip(keys, names, strict=True)
        ]
        # An inserted row has values only on the newer side, a deleted one only on the older side.
        values[str(number)] = pc.coalesce(*found)
    return pa.table(values)


def draw_rows(diff: DrawnDiff, changes: pa.Table, names: Sequence[str]) -> str:
    """Return changes as the content of a table with some columns. An updated row has its changed cells twice."""
    keys = key_columns(diff)
    heads = "".join(
        f'<th scope="col"><bdi>{html_line(name, 40)}</bdi>{_KEY_MARK if name in keys else ""}</th>' for name in names
    )
    older_names = _older_names(diff)
    before = _values(changes, "before", [older_names.get(name) or name for name in names])
    after = _values(changes, "after", names)
    rows = []
    kinds, changed = changes.column("change").to_pylist(), changes.column("columns").to_pylist()
    for number, (kind, columns) in enumerate(zip(kinds, changed, strict=True)):
        cells = [
            _draw_cell(kind, _cell(old, number), _cell(new, number), is_changed=name in columns)
            for name, old, new in zip(names, before, after, strict=True)
        ]
        colour = f' class="{_CLASSES[kind]}"' if kind in _CLASSES else ""
        rows.append(f"<tr{colour}><td>{draw_change(kind)}</td>{''.join(cells)}</tr>")
    body = "".join(rows) or f'<tr><td colspan="{len(names) + 1}">No rows differ.</td></tr>'
    return f'<thead><tr><th scope="col">Change</th>{heads}</tr></thead><tbody>{body}</tbody>'


def _draw_cell(kind: str, before: Cell, after: Cell, *, is_changed: bool) -> str:
    if kind == "updated" and is_changed:
        return f'<td class="changed">{draw_before_after(before, after)}</td>'
    one = before if kind == "deleted" else after
    return f"<td{_NUM if one.is_number else ''}>{draw_cell(one)}</td>"


def _values(changes: pa.Table, side: str, names: Sequence[str]) -> list[list[Any] | None]:
    """Return the values of columns on one side, None for a column that this side does not have."""
    rows = changes.column(side).combine_chunks()
    known = rows.type.names
    return [python_values(pc.struct_field(rows, [name])) if name in known else None for name in names]


def _cell(values: list[Any] | None, number: int) -> Cell:
    return NULL if values is None else cell_of(values[number])
