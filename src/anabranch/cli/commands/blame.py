"""`anabranch blame`: the commit that last changed each row of a table."""

from typing import Annotated

import typer

from anabranch.cli.arguments import AsJson, Engine, RefOption, Repo, StorageOptions, TableName
from anabranch.cli.commits import short_id
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.rows import text_value
from anabranch.cli.session import open_session
from anabranch.files.plain_rows import plain_rows

__all__ = ["blame"]


def blame(
    key: TableName,
    cells: Annotated[bool, typer.Option("--cells", help="Show the commit of each cell, not of each row.")] = False,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            "-c",
            metavar="NAME,...",
            show_default=False,
            help="Only cells of these columns.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", show_default=False, help="Only rows for which this is true."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number of rows.")] = 20,
    engine: Engine = "auto",
    ref: RefOption = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show the commit that last changed each row of a table, or each cell."""
    here = open_session(repo=repo, storage_options=storage_option)
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    with here.on_current_branch():
        found = here.repository.blame(
            key, ref=ref, where=where, limit=limit + 1, columns=chosen, cells=cells, engine=engine
        )
    in_row = len(chosen) if chosen is not None else len(here.snapshot(ref)[key].schema.names) if cells else 1
    has_more = len(found) > limit * in_row
    if has_more:
        # The rows of one column follow each other, and the last row of each column is one too many.
        kept = [number for number in range(len(found)) if number % (limit + 1) < limit]
        found = found.take(kept)
    names, rows = found.column_names, plain_rows(found)
    document = {
        "table": key,
        "columns": names,
        "rows": [dict(zip(names, row, strict=True)) for row in rows],
        "has_more": has_more,
    }
    at = names.index("commit_id")
    shown = [(*map(text_value, row[:at]), short_id(row[at]), *map(text_value, row[at + 1 :])) for row in rows]
    titles = (*names[:at], "commit", "time (UTC)", "by", "message")
    sentences = [f"the first {count(limit, 'row')}; --limit shows more"] if has_more else []
    table = Table(columns=titles, rows=tuple(shown), empty="no rows")
    output_for(as_json=as_json).show(Answer(document=document, sentences=sentences, tables=[table]))
