"""`anabranch diff`: what differs between two states."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.arguments import AsJson, Engine, Repo, StorageOptions
from anabranch.cli.output import Answer, Line, Table, output_for
from anabranch.cli.rows import (
    ChangedRow,
    column_table,
    difference_document,
    iter_row_lines,
    list_changed_rows,
)
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    from anabranch.repo.history.diff import Diff, TableDiff

__all__ = ["diff"]

_DIFFERENT = 1


def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="A",
            show_default=False,
            help="The older side: a branch, a tag, a commit, main~3 or main^2; or both sides as a range: A..B, or"
            " A...B for what B did since the merge base of both.",
        ),
    ],
    after: Annotated[
        str | None,
        typer.Argument(
            metavar="B", show_default=False, help="The newer side; by default the current branch. Not after a range."
        ),
    ] = None,
    stat: Annotated[bool, typer.Option("--stat", help="Count the rows that differ, table by table.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Show the columns that differ.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Show the rows that differ.")] = False,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="TABLE", show_default=False, help="Only this table; repeat it for more."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of rows of each table.")
    ] = 20,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if anything differs.")] = False,
    engine: Engine = "auto",
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two states: by default, counts and columns."""
    here = open_session(repo=repo, storage_options=storage_option)
    with here.on_current_branch():
        found = here.repository.diff(before, after, tables=table, engine=engine)
        different = [part for part in found.tables if not part.is_empty]
    if not (stat or schema or rows):
        stat = schema = True
    shown = {part.key: list_changed_rows(part, limit=limit) for part in different} if rows else {}
    output_for(as_json=as_json).show(
        Answer(
            document=_document(found, different, shown),
            sentences=[] if different else ["nothing differs"],
            lines=[line for part in different if rows for line in _lines(part, shown[part.key])],
            tables=[
                *([_counts(different)] if stat and different else []),
                *(column_table(part, title=f"columns of {part.key}") for part in different if schema and part.columns),
            ],
        )
    )
    if exit_code and different:
        raise typer.Exit(_DIFFERENT)


def _document(
    found: "Diff", different: "Sequence[TableDiff]", rows: Mapping[str, Sequence[ChangedRow]]
) -> dict[str, object]:
    return {
        "before": found.before.id,
        "after": found.after.id,
        "tables": [{"table": part.key, **difference_document(part, rows.get(part.key))} for part in different],
    }


def _counts(different: "Sequence[TableDiff]") -> Table:
    rows = tuple(
        (_title(part), part.change.value, part.counts.inserted, part.counts.updated, part.counts.deleted)
        for part in different
    )
    return Table(columns=("table", "change", "inserted", "updated", "deleted"), rows=rows)


def _title(part: "TableDiff") -> str:
    return part.key if part.renamed_from is None else f"{part.renamed_from} → {part.key}"


def _lines(part: "TableDiff", rows: Sequence[ChangedRow]) -> list[Line]:
    return [Line(_title(part)), *iter_row_lines(part, rows)]
