"""`anabranch cat`: the rows of a table."""

from typing import Annotated

import typer

from anabranch.cli.arguments import AsJson, RefOption, Repo, StorageOptions, TableName
from anabranch.cli.output import Answer, Table, count, output_for
from anabranch.cli.rows import text_value
from anabranch.cli.session import open_session
from anabranch.errors import InvalidInputError
from anabranch.files.plain_rows import csv_lines, plain_rows

__all__ = ["cat"]

_DEFAULT_LIMIT = 20


def cat(
    key: TableName,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", "-c", metavar="NAME,...", show_default=False, help="Only these columns, in this order."
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", show_default=False, help="Only rows for which this is true."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=1,
            show_default=False,
            help=f"Maximum number of rows (default: {_DEFAULT_LIMIT}; with --csv, all).",
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header, batch by batch.")] = False,
    ref: RefOption = None,
    repo: Repo = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Print the rows of a table."""
    if as_csv and as_json:
        raise InvalidInputError("--csv and --json do not go together", hint="leave one out")
    snapshot = open_session(repo=repo, storage_options=storage_option).snapshot(ref)
    table = snapshot[key]
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    if as_csv:
        header = chosen or table.schema.names
        for text in csv_lines(header, table.scan(columns=chosen, where=where, limit=limit)):
            typer.echo(text, nl=False)
        return
    most = limit or _DEFAULT_LIMIT
    found = table.to_arrow(columns=chosen, where=where, limit=most + 1)
    has_more = len(found) > most
    rows, names = plain_rows(found.slice(0, most)), found.column_names
    document = {
        "table": table.key,
        "commit_id": snapshot.id,
        "columns": names,
        "rows": [dict(zip(names, row, strict=True)) for row in rows],
        "has_more": has_more,
    }
    shown = Table(columns=tuple(names), rows=tuple(tuple(map(text_value, row)) for row in rows), empty="no rows")
    sentences = [f"the first {count(most, 'row')}; --limit shows more"] if has_more else []
    output_for(as_json=as_json).show(Answer(document=document, sentences=sentences, tables=[shown]))
