"""`anabranch diff` and `anabranch changes`: the differences of two states, and the changes of a table by commit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.cli.command import Here, command, group
from anabranch.cli.options import REF_FORMS, Engine, TableName, argument, flag, option
from anabranch.cli.output import Answer, Line, document_of
from anabranch.cli.texts import Table, count, subject, text_value
from anabranch.display import short_id, to_text
from anabranch.errors import InvalidInputError

if TYPE_CHECKING:
    from anabranch.repo.history.changes import CommitChanges
    from anabranch.repo.history.diff import Diff, TableDiff

app = group()

_DIFFERENT = 1
# A row that differs, as plain values: its `change`, the changed `columns`, and the row `before` and `after` or None.
_Row = Mapping[str, Any]
_MARKS = {"inserted": ("+", "green"), "deleted": ("-", "red"), "updated": ("~", "yellow")}


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The options that choose what a diff shows, and where: by default the numbers of changed rows, and the columns."""

    stat: bool = flag(
        "--stat",
        "Used alone: list the tables that differ, with the total number of rows on each side. This is fast, because no"
        " table is read. So the list also has tables whose files were rewritten, for example by 'compact', although"
        " the rows are the same. With --schema or --rows: also count the rows that differ.",
    )
    schema: bool = flag("--schema", "Show the columns that were added, dropped or changed.")
    rows: bool = flag("--rows", "Show the rows that differ.")
    html: str | None = option("--html", "FILE", "Write the diff to this file as an HTML page.")

    @property
    def are_chosen(self) -> bool:
        return self.stat or self.schema or self.rows

    @property
    def are_entries_enough(self) -> bool:
        """Whether the entries in the commits are enough. Otherwise the rows of the tables are compared."""
        return self.stat and not (self.schema or self.rows or self.html)


@command(app, "diff", "diff", "diff main", "diff v1.0 dev --rows", "diff main...dev --html changes.html")
def diff(
    here: Here,
    before: str | None = argument(
        "A",
        "Older side: a branch, a tag, a commit, or an older state such as main~3. A can also be a range: main..dev"
        " compares main with dev. main...dev shows what dev changed since the last commit that both have. Without A,"
        " the diff shows what the current branch changed since the last commit that it has in common with its parent"
        " (the branch from which it was created).",
        default=None,
    ),
    after: str | None = argument(
        "B", "Newer side (default: the current branch). Leave B out if A is a range.", default=None
    ),
    *,
    parts: Parts,
    table: list[str] | None = option("--table", "TABLE", "Only this table. Repeatable."),
    limit: int = option("--limit -n", "N", "Maximum number of rows to show of each table.", default=20, min=1),
    exit_code: bool = flag("--exit-code", "Exit with code 1 if anything differs."),
    engine: Engine = "auto",
) -> Answer:
    """Compare two branches, tags or commits.

    By default, counts the rows of each table that were inserted, updated and deleted, and shows the columns that were
    added, dropped or changed. --stat, --schema and --rows choose what to show.
    """
    with here.output.progress("comparing"):
        found = here.repository.diff(before or _since_parent(here), after, tables=table, engine=engine)
        # This compares rows, because the files of a table may be rewritten without a change of its rows.
        different = [each for each in found.tables if parts.are_entries_enough or not each.is_empty]
        sides = {"before": found.before.id, "after": found.after.id}
        if parts.html is not None:
            here.write_file(parts.html, _page(found, different))
            answer = Answer({**sides, "html": parts.html}, f"wrote the diff to {parts.html}")
        elif parts.are_entries_enough:
            answer = _entries(sides, different)
        else:
            answer = _compared(sides, different, parts, limit)
    answer.exit_code = _DIFFERENT if exit_code and different else 0
    return answer


def _entries(sides: Mapping[str, str], different: "Sequence[TableDiff]") -> Answer:
    """Show the differences of the table entries in the commits. No table is read."""
    names = ("change", "renamed_from", "rows_before", "rows_after")
    document = [{"table": each.key, **{name: getattr(each, name) for name in names}} for each in different]
    rows = [(_title(each), each.change, each.rows_before, each.rows_after) for each in different]
    shown = Table(("table", "change", "rows before", "rows after"), rows, empty="nothing differs")
    return Answer({**sides, "tables": document}, tables=[shown])


def _compared(sides: Mapping[str, str], different: "Sequence[TableDiff]", parts: Parts, limit: int) -> Answer:
    if not different:
        return Answer({**sides, "tables": []}, "nothing differs")
    rows = {each.key: list(_iter_changed(each, limit)) if parts.rows else None for each in different}
    tables = [*_iter_compared_tables(different, parts)]
    sentences = [] if tables or parts.rows else ["no differences in columns"]
    lines: list[Line] = []
    for each in different:
        changed = rows[each.key]
        if changed is not None:
            lines += [Line(_title(each)), *_iter_row_lines(each, changed)]
    document = [{"table": each.key, **_document(each, rows[each.key])} for each in different]
    return Answer({**sides, "tables": document}, *sentences, lines=lines, tables=tables)


def _iter_compared_tables(different: "Sequence[TableDiff]", parts: Parts) -> Iterator[Table]:
    """Yield the tables of the chosen parts: the numbers of changed rows, and the columns that differ."""
    if parts.stat or not parts.are_chosen:
        columns = ("table", "change", "inserted", "updated", "deleted")
        yield Table(columns, [(_title(each), each.change, *_counts(each)) for each in different])
    if parts.schema or not parts.are_chosen:
        yield from (_column_table(each, title=f"columns of {each.key}") for each in different if each.columns)


def _since_parent(here: Here) -> str:
    """Return the range of the changes of the current branch since its merge base with its parent."""
    current = here.current()
    if current.parent is None:
        raise InvalidInputError(
            f"branch '{current.name}' has no parent to compare with",
            hint=f"name a ref, such as 'anabranch diff {current.name}~1'",
        )
    return f"{current.parent}...{current.name}"


def _page(found: "Diff", different: "Sequence[TableDiff]") -> str:
    """Return one HTML file with the changed tables and their rows. The drawings escape all text."""
    body = "".join([found._repr_html_(), *(part._repr_html_() for part in different)])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>Diff</title></head><body>{body}</body></html>\n'
    )


def _document(part: "TableDiff", rows: Sequence[_Row] | None) -> dict[str, object]:
    return {**document_of(part), **({} if rows is None else {"rows": rows})}


def _counts(part: "TableDiff") -> tuple[int, int, int]:
    return part.counts.inserted, part.counts.updated, part.counts.deleted


def _title(part: "TableDiff") -> str:
    return part.key if part.renamed_from is None else f"{part.renamed_from} → {part.key}"


def _column_table(part: "TableDiff", *, title: str) -> Table:
    rows = [(each.change, each.column, each.before, each.after) for each in part.columns]
    return Table(("change", "column", "before", "after"), rows, title=title)


def _iter_row_lines(part: "TableDiff", rows: Sequence[_Row]) -> Iterator[Line]:
    """Yield a line for each row, and one with the number of rows that are not shown."""
    old_names = {each.column: each.before for each in part.columns if each.change == "renamed"}
    for row in rows:
        mark, colour = _MARKS[row["change"]]
        if row["change"] == "updated":
            yield Line(mark, colour, more=tuple(_iter_pieces(part, row, old_names)))
        else:
            cells = row["before"] if row["after"] is None else row["after"]
            yield Line(f"{mark} {', '.join(map(_cell, cells, cells.values()))}", colour)
    left = part.counts.total - len(rows)
    if left:
        yield Line(f"and {count(left, 'row')} more; --limit shows more")


def _iter_pieces(part: "TableDiff", row: _Row, old_names: Mapping[str, str | None]) -> Iterator[tuple[str, str | None]]:
    """Yield the key of an updated row and its changed cells: the old value in red, the new one in green."""
    before, after = row["before"], row["after"]
    key = () if part.after is None else part.after.primary_key
    separator = " "
    # Without a key all cells are shown, because nothing shorter identifies the row.
    for name in dict.fromkeys([*(key or after), *row["columns"]]):
        if name not in row["columns"]:
            yield f"{separator}{_cell(name, after[name])}", None
        else:
            yield f"{separator}{name}: ", None
            yield text_value(before.get(old_names.get(name) or name)), _MARKS["deleted"][1]
            yield " → ", None
            yield text_value(after.get(name)), _MARKS["inserted"][1]
        separator = ", "


def _cell(name: str, value: Any) -> str:
    return f"{name}={text_value(value)}"


def _iter_changed(part: "TableDiff", limit: int) -> Iterator[_Row]:
    from anabranch.format.arrow_types import python_values

    left = limit
    for batch in part.iter_batches():
        chosen = batch.slice(0, left)
        yield from python_values(chosen.to_struct_array())
        left -= len(chosen)
        # Before the next batch is read: its rows would be compared for nothing.
        if not left:
            return


@command(app, "changes", "changes shop.orders --since v1.0", "changes shop.orders --since main~3 --rows")
def changes(
    here: Here,
    key: TableName,
    since: str | None = option(
        "--since", "REF", "Only commits after this one, which must be in the history (default: all)."
    ),
    until: str | None = option("--until", "REF", REF_FORMS),
    stat: bool = flag("--stat", "Count the rows that each commit changed."),
    rows: bool = flag("--rows", "Show the rows that each commit changed."),
    limit: int = option("--limit -n", "N", "Maximum number of rows of each commit.", default=20, min=1),
) -> Answer:
    """Show what each commit changed in a table, oldest first.

    Shows the number of rows and the columns that changed, or the rows with --rows.
    """
    with here.output.progress("comparing"):
        found = here.repository.changes(key, since=since, until=until)
        shown = [(step, list(_iter_changed(step.diff, limit)) if rows else None) for step in found]
        if not shown:
            return Answer({"table": key, "commits": []}, "nothing changed")
        commits = [
            {
                **document_of(step.commit),
                **_document(step.diff, chosen),
                "renamed_from": step.renamed_from,
                "renamed_to": step.renamed_to,
            }
            for step, chosen in shown
        ]
        return Answer(
            {"table": key, "commits": commits},
            lines=[*_iter_lines(shown)],
            tables=[*_iter_tables([step for step, _ in shown])] if stat or not rows else [],
        )


def _iter_lines(shown: "Sequence[tuple[CommitChanges, Sequence[_Row] | None]]") -> Iterator[Line]:
    for step, rows in shown:
        if rows is None:
            continue
        what = "" if step.diff.change == "changed" else f" (table {_fate(step)})"
        yield Line(f"{short_id(step.commit.id)} {to_text(step.commit.created)} {subject(step.commit)}{what}")
        yield from _iter_row_lines(step.diff, rows)
        if step.diff.columns:
            yield Line(f"and {count(len(step.diff.columns), 'change')} of columns; --stat shows them")


def _fate(step: "CommitChanges") -> str:
    if step.renamed_from is not None:
        return f"renamed from {step.renamed_from}"
    return step.diff.change.value if step.renamed_to is None else f"renamed to {step.renamed_to}"


def _iter_tables(steps: "Sequence[CommitChanges]") -> Iterator[Table]:
    rows = [
        (short_id(commit.id), commit.created, commit.actor_id, subject(commit), _fate(step), *_counts(step.diff))
        for step, commit in ((step, step.commit) for step in steps)
    ]
    yield Table(("commit", "time (UTC)", "by", "message", "table", "inserted", "updated", "deleted"), rows)
    for step in steps:
        if step.diff.columns:
            yield _column_table(step.diff, title=f"columns changed by {short_id(step.commit.id)}")
