"""`anabranch sql`: query the tables of a repository."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from anabranch.cli.command import Here, command, group
from anabranch.cli.options import RefOption, argument, flag
from anabranch.cli.output import Answer, print_stream
from anabranch.cli.texts import Table, text_value, value_table
from anabranch.errors import InvalidInputError
from anabranch.files.plain_rows import csv_lines, plain_rows

if TYPE_CHECKING:
    import pyarrow as pa

app = group()


@command(
    app,
    "sql",
    "sql 'SELECT count(*) FROM shop.orders'",
    "sql --csv --ref main~3 < report.sql",
    "sql 'FROM branches'",
)
def sql(
    here: Here,
    statement: Annotated[
        str | None, argument("STATEMENT", "SQL statement. Without it, or with '-', it is read from stdin.")
    ] = None,
    as_csv: Annotated[bool, flag("--csv", "Print CSV with a header.")] = False,
    wide: Annotated[bool, flag("--wide", "For wide tables: print each value on its own line.")] = False,
    ref: RefOption = None,
) -> Answer | None:
    """Query tables with a read-only SQL statement.

    The SQL is that of DuckDB. Name a table with its bucket, such as shop.orders. Write shop.orders AT 'main~3' for its
    state on another branch, tag or commit. The system tables 'tables', 'branches', 'branch_tables', 'commits', 'tags'
    and 'refs' describe the repository.
    """
    if as_csv + wide + here.as_json > 1:
        raise InvalidInputError("--csv, --wide and --json do not go together", hint="choose one")
    text = _statement(statement)
    location = ref or here.current().name
    if as_csv:
        # As a stream, because the result may be larger than the memory.
        print_stream(here.output, "querying", _csv_of(here, text, location))
        return None
    with here.output.progress("querying"):
        found = here.repository.sql(text, ref=location)
    if here.as_json:
        return Answer({"ref": location, "columns": found.column_names, "rows": _objects(found)})
    return Answer({}, tables=_wide_tables(found) if wide else [_table(found)])


def _csv_of(here: Here, statement: str, location: str) -> Iterator[str]:
    # Inside the iterator, so that the progress covers the query as well as its rows.
    reader = here.repository.sql_reader(statement, ref=location)
    yield from csv_lines(reader.schema.names, reader)


def _statement(given: str | None) -> str:
    """Return the statement. On a terminal, raise an error instead of waiting for input."""
    if given is not None and given != "-":
        if os.path.isfile(given):
            raise InvalidInputError(
                f"{given!r} is a file, not a SQL statement",
                hint=f"run the SQL in it with 'anabranch sql < {given}'; rows of a file are queried after"
                " 'anabranch load'",
            )
        return given
    if given is None and sys.stdin.isatty():
        raise InvalidInputError("no SQL statement", hint="pass a statement, or - to type one and end it with Ctrl-D")
    return sys.stdin.read()


def _objects(found: "pa.Table") -> list[dict[str, object]]:
    names = found.column_names
    # A JSON object has one value for each name, so one of the columns would be lost.
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(f"two columns are called {twice!r}", hint="give one another name with AS")
    return [dict(zip(names, row, strict=True)) for row in plain_rows(found)]


def _table(found: "pa.Table") -> Table:
    return value_table(found.column_names, plain_rows(found))


def _wide_tables(found: "pa.Table") -> list[Table]:
    """A table for each row."""
    return [
        Table(
            ("", ""),
            [(name, text_value(value)) for name, value in zip(found.column_names, row, strict=True)],
            title=f"row {number}",
        )
        for number, row in enumerate(plain_rows(found), start=1)
    ] or [_table(found)]
