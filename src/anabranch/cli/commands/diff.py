"""`anabranch diff`: what differs between two states."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.arguments import AsJson, Repo, StorageOptions
from anabranch.cli.output import Answer, Line, Table, count, output_for
from anabranch.cli.rows import json_value, plain_rows, text_value
from anabranch.cli.session import open_session

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.repo.diff import Diff, TableDiff

__all__ = ["diff"]

_DIFFERENT = 1
_SIGNS = {"inserted": ("+", "green"), "deleted": ("-", "red"), "updated": ("~", "yellow")}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row that differs, as plain values."""

    change: str
    columns: Sequence[str]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


def diff(
    before: Annotated[
        str,
        typer.Argument(metavar="A", show_default=False, help="The older side: a branch, a tag, a commit, main~3..."),
    ],
    after: Annotated[
        str | None,
        typer.Argument(metavar="B", show_default=False, help="The newer side; by default the current branch."),
    ] = None,
    stat: Annotated[bool, typer.Option("--stat", help="Count the rows that differ, table by table.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Show the columns that differ.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Show the rows that differ.")] = False,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="KEY", show_default=False, help="Only this table; repeat it for more."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Show at most so many rows of each table.")
    ] = 20,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if anything differs.")] = False,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two states: counts and columns, unless told what to show."""
    here = open_session(repo=repo, storage_options=storage_option)
    with here.on_current_branch():
        found = here.repository.diff(before, after, tables=table)
        different = [part for part in found.tables if not part.is_empty]
    if not (stat or schema or rows):
        stat = schema = True
    shown = {part.key: list(_iter_rows(part, limit)) for part in different} if rows else {}
    output_for(as_json=as_json).show(
        Answer(
            document=_document(found, different, shown),
            sentences=[] if different else ["nothing differs"],
            lines=[line for part in different if rows for line in _iter_lines(part, shown[part.key])],
            tables=[
                *([_counts(different)] if stat and different else []),
                *(_columns(part) for part in different if schema and part.columns),
            ],
        )
    )
    if exit_code and different:
        raise typer.Exit(_DIFFERENT)


def _document(found: "Diff", different: "Sequence[TableDiff]", rows: Mapping[str, Sequence[_Row]]) -> dict[str, object]:
    return {
        "before": found.before.id,
        "after": found.after.id,
        "tables": [
            {
                "table": part.key,
                "change": part.change.value,
                "renamed_from": part.renamed_from,
                "inserted": part.counts.inserted,
                "updated": part.counts.updated,
                "deleted": part.counts.deleted,
                "columns": [
                    {"change": each.change, "column": each.column, "before": each.before, "after": each.after}
                    for each in part.columns
                ],
                **({"rows": [_row_document(row) for row in rows[part.key]]} if part.key in rows else {}),
            }
            for part in different
        ],
    }


def _row_document(row: _Row) -> dict[str, object]:
    before, after = (None if side is None else json_value(side) for side in (row.before, row.after))
    return {"change": row.change, "columns": list(row.columns), "before": before, "after": after}


def _counts(different: "Sequence[TableDiff]") -> Table:
    rows = tuple(
        (_title(part), part.change.value, part.counts.inserted, part.counts.updated, part.counts.deleted)
        for part in different
    )
    return Table(columns=("table", "change", "inserted", "updated", "deleted"), rows=rows)


def _columns(part: "TableDiff") -> Table:
    rows = tuple((each.change, each.column, each.before, each.after) for each in part.columns)
    return Table(title=f"columns of {part.key}", columns=("change", "column", "before", "after"), rows=rows)


def _title(part: "TableDiff") -> str:
    return part.key if part.renamed_from is None else f"{part.renamed_from} → {part.key}"


def _iter_lines(part: "TableDiff", rows: Sequence[_Row]) -> Iterator[Line]:
    yield Line(_title(part))
    for row in rows:
        sign, colour = _SIGNS[row.change]
        yield Line(f"{sign} {', '.join(_cells(part, row))}", colour)
    left = part.counts.total - len(rows)
    if left:
        yield Line(f"and {count(left, 'row')} more; --limit shows more")


def _cells(part: "TableDiff", row: _Row) -> Iterator[str]:
    """The cells of a row, of an updated one its key and those that changed."""
    after = row.after if row.after is not None else row.before or {}
    if row.change != "updated":
        yield from (f"{name}={text_value(value)}" for name, value in after.items())
        return
    old_names = {each.column: each.before for each in part.columns if each.change == "renamed"}
    key = () if part.after is None else part.after.primary_key
    for name in dict.fromkeys([*(key or after), *row.columns]):
        if name not in row.columns:
            yield f"{name}={text_value(after[name])}"
            continue
        before = (row.before or {}).get(old_names.get(name) or name)
        yield f"{name}: {text_value(before)} → {text_value(after.get(name))}"


def _iter_rows(part: "TableDiff", limit: int) -> Iterator[_Row]:
    left = limit
    for batch in part.iter_batches():
        chosen = batch.slice(0, left)
        changes, columns = (chosen.column(name).to_pylist() for name in ("change", "columns"))
        sides = (_plain(chosen.column(name)) for name in ("before", "after"))
        for change, names, before, after in zip(changes, columns, *sides, strict=True):
            yield _Row(change=change, columns=names, before=before, after=after)
        left -= len(chosen)
        if not left:
            return


def _plain(structs: "pa.StructArray") -> list[dict[str, Any] | None]:
    import pyarrow as pa

    names = structs.type.names
    if not names:
        return [None] * len(structs)
    rows = plain_rows(pa.record_batch(structs.flatten(), names=names))
    return [
        dict(zip(names, row, strict=True)) if is_there else None
        for row, is_there in zip(rows, structs.is_valid().to_pylist(), strict=True)
    ]
