"""Commit graphs and differences as notebooks and the web UI show them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.display import short_id, text_table, to_text
from anabranch.drawing.commit_graph import (
    GraphLine,
    GraphTarget,
    LaneRow,
    Node,
    draw_graph,
    draw_svg,
    lay_out_lanes,
    newest_first,
)
from anabranch.drawing.html import (
    NULL,
    Cell,
    ColumnChange,
    DiffCell,
    DiffRow,
    TableChange,
    cell_of,
    draw_rows,
    draw_tables,
    in_notebook,
    line,
)
from anabranch.format.arrow_types import python_values
from anabranch.repo.log.entries import GraphCommit

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.repo.history.comparer import TableCounts
    from anabranch.repo.snapshot import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitGraph:
    """Commits, newest first, and the names of the branches and tags at them, by commit id.

    A notebook shows it as a picture. `has_more` is True if there are older commits.
    """

    commits: tuple[GraphCommit, ...]
    branches: Mapping[str, Sequence[str]]
    tags: Mapping[str, Sequence[str]]
    rows: tuple[LaneRow, ...]
    has_more: bool

    def __len__(self) -> int:
        return len(self.commits)

    def __iter__(self) -> Iterator[GraphCommit]:
        return iter(self.commits)

    def __repr__(self) -> str:
        cells = [
            (short_id(one.id), to_text(one.created), one.actor_id, ", ".join(self._names(one.id)), one.message)
            for one in self.commits
        ]
        return text_table(("commit", "created", "actor", "branches and tags", "message"), cells)

    def _repr_html_(self) -> str:
        return in_notebook(f'<table class="list graph">{self.to_html()}</table>')

    def to_html(
        self,
        *,
        link: Callable[[GraphTarget, str], str] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> str:
        """Return the graph as the content of an HTML table.

        `link` returns the address of a commit, branch or tag. `names` are other names of branches to show.
        """
        return draw_graph(self._lines(names or {}), link=link)

    def to_svg(self) -> str:
        """Return the graph as one SVG picture, with a line of text for each commit."""
        return draw_svg(self._lines({}))

    def _lines(self, shown: Mapping[str, str]) -> list[GraphLine]:
        return [
            GraphLine(
                row=row,
                message=commit.message,
                actor=commit.actor_id,
                created=commit.created,
                is_merge=commit.merged_parent_commit_id is not None,
                branches=[(name, shown.get(name, name)) for name in self.branches.get(commit.id, ())],
                tags=self.tags.get(commit.id, ()),
            )
            for commit, row in zip(self.commits, self.rows, strict=True)
        ]

    def _names(self, commit_id: str) -> list[str]:
        return [*self.branches.get(commit_id, ()), *self.tags.get(commit_id, ())]


def draw_commits(
    commits: Iterable[GraphCommit],
    *,
    branches: Iterable[tuple[str, str]],
    tags: Iterable[tuple[str, str]],
    offset: int,
    limit: int | None,
    is_filtered: bool,
) -> CommitGraph:
    """Return a page of commits, which come newest first. The branches and tags are pairs of a commit id and a name."""
    # The lanes of a page follow from all commits above it.
    end = None if limit is None else offset + limit
    found = list(islice(commits, None if end is None else end + 1))
    kept = {commit.id: commit for commit in found[:end]}
    nodes = {commit.id: _node(commit) for commit in kept.values()}
    if is_filtered:
        # Most parents are left out, so that lines would end nowhere.
        rows = [LaneRow(id=one, lane=0, above=(), below=()) for one in list(nodes)[offset:]]
    else:
        rows = lay_out_lanes(newest_first(nodes), start=offset)
    shown = {row.id for row in rows}
    return CommitGraph(
        commits=tuple(kept[row.id] for row in rows),
        branches=_by_commit(branches, shown),
        tags=_by_commit(tags, shown),
        rows=tuple(rows),
        has_more=len(found) > len(kept),
    )


def _node(commit: GraphCommit) -> Node:
    parents = (commit.parent_commit_id, commit.merged_parent_commit_id)
    return Node(
        id=commit.id, parents=tuple(parent for parent in parents if parent is not None), created_at=commit.created_at
    )


def _by_commit(pairs: Iterable[tuple[str, str]], shown: set[str]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for commit_id, name in pairs:
        if commit_id in shown:
            found.setdefault(commit_id, []).append(name)
    return found


# What a notebook shows of a large difference.
_TABLES = 50
_ROWS = 50
_COLUMNS = 30
# A notebook draws its last value without being asked, so that this must not read millions of rows.
_MOST_COUNTED = 100_000
_MOST_COMPARED = 1_000_000


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
    def columns(self) -> Sequence[ColumnChange]: ...
    @property
    def counts(self) -> "TableCounts": ...
    @property
    def rows_to_compare(self) -> int: ...
    def iter_batches(self) -> "pa.RecordBatchReader": ...


def draw_diff(title: str, tables: Sequence[DrawnDiff]) -> str:
    """Draw the tables that differ for a notebook. Rows are counted where few must be compared."""
    shown = [outline_of(table, most=_MOST_COUNTED) for table in tables[:_TABLES]]
    more = len(tables) - _TABLES
    note = f"<p>... and {more} more</p>" if more > 0 else ""
    return in_notebook(f'<table class="list"><caption>{line(title)}</caption>{draw_tables(shown)}</table>{note}')


def draw_table_diff(diff: DrawnDiff) -> str:
    """Draw the first rows that differ for a notebook."""
    if diff.rows_to_compare > _MOST_COMPARED:
        rows = f"{diff.rows_to_compare:,} rows of {line(diff.key, 300)} must be compared"
        return in_notebook(f"<p>{rows}: read them with iter_batches() or iter_rows().</p>")
    changes, keys = first_changes(diff, _ROWS + 1), key_columns(diff)
    names = list(dict.fromkeys([*keys, *list_columns(diff)]))
    shown = names[:_COLUMNS]
    table = draw_rows(shown, keys, rows_of(diff, changes.slice(0, _ROWS), shown))
    notes = [
        f"<p>The first {most} {things} are shown.</p>"
        for things, found, most in (("rows", len(changes), _ROWS), ("columns", len(names), _COLUMNS))
        if found > most
    ]
    caption = f"<caption>{line(diff.key, 300)}</caption>"
    return in_notebook(f'<table class="grid">{caption}{table}</table>{"".join(notes)}')


def outline_of(diff: DrawnDiff, *, most: int) -> TableChange:
    """Return what differs, with counts if at most `most` rows must be compared for them."""
    is_cheap = diff.before is None or diff.after is None or diff.rows_to_compare <= most
    return TableChange(
        key=diff.key,
        change=diff.change,
        renamed_from=diff.renamed_from,
        columns=diff.columns,
        counts=diff.counts if is_cheap else None,
    )


def key_columns(diff: DrawnDiff) -> tuple[str, ...]:
    """Return the primary key of the newer side, else of the older one."""
    keys = () if diff.after is None else diff.after.primary_key
    return keys or (() if diff.before is None else diff.before.primary_key)


def list_columns(diff: DrawnDiff) -> list[str]:
    """Return the columns of the newer side, then those that only the older side has."""
    newer = () if diff.after is None else diff.after.columns
    older = () if diff.before is None else diff.before.columns
    # A renamed column is shown once, under its new name.
    renamed = {change.before for change in diff.columns if change.change == "renamed"}
    return [*newer, *(name for name in older if name not in newer and name not in renamed)]


def first_changes(diff: DrawnDiff, most: int) -> "pa.Table":
    """Return the first changes in the order of the primary key. Only these and one batch are in memory."""
    import pyarrow as pa

    reader = diff.iter_batches()
    first = reader.schema.empty_table()
    for batch in reader:
        both = pa.concat_tables([first, pa.Table.from_batches([batch])])
        first = _sorted(diff, both).slice(0, most)
    return first


def _sorted(diff: DrawnDiff, changes: "pa.Table") -> "pa.Table":
    """Sort changes by the primary key. Without one, or if it cannot be sorted, keep their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sides = [(side, table) for side, table in (("after", diff.after), ("before", diff.before)) if table is not None]
    if len({len(table.primary_key) for _, table in sides}) != 1 or not sides[0][1].primary_key:
        return changes
    try:
        keys = {}
        for number, names in enumerate(zip(*(table.primary_key for _, table in sides), strict=True)):
            found = [
                pc.struct_field(changes.column(side).combine_chunks(), [name])
                for (side, _), name in zip(sides, names, strict=True)
            ]
            # An inserted row has values only on the newer side, a deleted one only on the older side.
            keys[str(number)] = pc.coalesce(*found)
        order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])
        return changes.take(order)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid):
        return changes


def rows_of(diff: DrawnDiff, changes: "pa.Table", names: Sequence[str]) -> list[DiffRow]:
    """Return changes as rows with the cells of some columns."""
    older_names = {change.column: change.before for change in diff.columns if change.change == "renamed"}
    sides = {
        "before": _values(changes, "before", [older_names.get(name) or name for name in names]),
        "after": _values(changes, "after", names),
    }
    rows = []
    kinds, changed = changes.column("change").to_pylist(), changes.column("columns").to_pylist()
    for number, (kind, columns) in enumerate(zip(kinds, changed, strict=True)):
        cells = tuple(
            DiffCell(
                before=_cell(sides["before"][at], number),
                after=_cell(sides["after"][at], number),
                is_changed=name in columns,
            )
            for at, name in enumerate(names)
        )
        rows.append(DiffRow(change=kind, cells=cells))
    return rows


def _values(changes: "pa.Table", side: str, names: Sequence[str]) -> list[list[Any] | None]:
    """Return the values of columns on one side, None for a column that this side does not have."""
    import pyarrow.compute as pc

    rows = changes.column(side).combine_chunks()
    known = rows.type.names
    return [python_values(pc.struct_field(rows, [name])) if name in known else None for name in names]


def _cell(values: list[Any] | None, number: int) -> Cell:
    return NULL if values is None else cell_of(values[number])
