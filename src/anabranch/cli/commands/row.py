"""`anabranch row`, `cat`, `blame` and `sql`: change rows of a table, and read and query them."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.cli.command import COMMITS, Here, command, group
from anabranch.cli.options import (
    Columns,
    Engine,
    Message,
    RefOption,
    TableName,
    Where,
    argument,
    flag,
    option,
    parse_names,
    parse_pairs,
)
from anabranch.cli.output import Answer, print_stream
from anabranch.cli.texts import Table, count, first_page, more_text, text_value, value_table
from anabranch.display import short_id
from anabranch.errors import InvalidExpressionError, InvalidInputError, SchemaMismatchError
from anabranch.files.formats import csv_lines, plain_rows
from anabranch.hints import suggest
from anabranch.json_values import value_from_json

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.repo.log.entries import GraphCommit

app = group()
row_commands = group(help="Insert, update and delete rows. Each command makes one commit.")
app.add_typer(row_commands, name="row")

_SECOND_COLUMN = re.compile(r",\s*\w+\s*=")
# A text, or a date without the quotes that it needs.
_TEXT = re.compile(r"\s*(?:'([^']*)'|(\d{4}-\d\d-\d\d))\s*")
_DEFAULT_LIMIT = 20
AsCsv = Annotated[bool, flag("--csv", "Print CSV with a header.")]
RowsToChange = Annotated[
    str | None,
    option("--where", "SQL", "Rows to change: a SQL condition such as 'id = 7', or true for all rows. Required."),
]


@command(
    row_commands,
    "insert",
    'row insert shop.orders \'{"id": 7, "item": "tea"}\'',
    "row insert shop.orders --upsert < rows.jsonl",
    on=COMMITS,
)
def insert(
    here: Here,
    key: TableName,
    values: list[str] | None = argument(
        "[JSON]...", "Rows as JSON objects (default: read from stdin, one a line).", default=None
    ),
    upsert: bool = flag("--upsert", "Replace rows that have the same primary key."),
    message: Message = None,
) -> Answer:
    """Insert rows, given as JSON objects, as one commit."""
    # Read for its types: JSON has none for dates, decimals and bytes.
    given = _parse_rows(values if values else _read_lines(), here.repository.snapshot()[key].schema, key)
    if not given:
        raise InvalidInputError("there are no rows to insert", hint="pass JSON objects, or one a line on stdin")
    if not upsert:  # an upsert would set columns that a row leaves out to null
        given = _with_equal_columns(given)
    write = here.repository.upsert if upsert else here.repository.append
    verb = "upsert" if upsert else "insert"
    with here.output.progress("writing"):
        commit = write(key, given, message=message or f"{verb.capitalize()} {count(len(given), 'row')} in {key}")
    return _answer(here, key, commit, f"{verb}ed {count(len(given), 'row')} into", rows=len(given))


def _with_equal_columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows that all have the same columns. A column that a row leaves out is null."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


@command(
    row_commands,
    "update",
    "row update shop.orders --set 'price=price * 2' --where 'id = 7'",
    "row update shop.orders --set \"item='tea'\" --where true",
    on=COMMITS,
)
def update(
    here: Here,
    key: TableName,
    assignments: list[str] = option(
        "--set",
        "COLUMN=SQL",
        "New value of a column as SQL, such as 'price=price * 2'. Text is in single quotes, as in \"city='Brno'\"."
        " Repeatable.",
        default=...,
    ),
    where: RowsToChange = None,
    message: Message = None,
) -> Answer:
    """Set columns of the rows that match a condition, as one commit."""
    changes = parse_pairs(assignments, option="--set", form="COLUMN=SQL", example="'price=price * 2'")
    predicate = _require_where(where, "update")
    with (
        here.output.progress("updating"),
        _explaining(here, key, changes),
        here.repository.transaction(message=message or f"Update rows of {key}") as tx,
    ):
        changed = tx.update(key, changes, predicate)
    return _answer(here, key, tx.published, f"updated {count(changed, 'row')} of", rows=changed)


@contextmanager
def _explaining(here: Here, key: str, changes: Mapping[str, str]) -> Iterator[None]:
    """Explain an expression that sets a second column, and a text or a date that is not a literal of its column."""
    try:
        yield
    except InvalidExpressionError as err:
        several = next((value for value in changes.values() if _SECOND_COLUMN.search(value)), None)
        if several is None:
            raise
        problem = f"expression {several!r} does not work: it is not one expression"
        raise InvalidExpressionError(problem, hint="repeat --set for each column") from err
    except SchemaMismatchError as err:
        hint = _literal_hint(err.problem, changes, here.repository.snapshot()[key].schema)
        if hint is None:
            raise
        raise SchemaMismatchError(err.problem, hint=hint) from err


def _literal_hint(problem: str, changes: Mapping[str, str], schema: "pa.Schema") -> str | None:
    """Return the literal to use if a problem is about a text that was assigned to a column of dates or times."""
    for name, value in changes.items():
        kind = re.match("date|timestamp", str(schema.field(name).type)) if name in schema.names else None
        text = _TEXT.fullmatch(value)
        if kind is not None and text is not None and f"column {name!r}" in problem:
            literal = f"{kind[0]} '{text[1] or text[2]}'"
            return f'use --set "{name}={literal}"'
    return None


@command(row_commands, "delete", "row delete shop.orders --where 'id = 7'", on=COMMITS)
def delete(here: Here, key: TableName, where: RowsToChange = None, message: Message = None) -> Answer:
    """Delete the rows that match a condition, as one commit."""
    predicate = _require_where(where, "delete")
    subject = message or f"Delete rows of {key}"
    with here.output.progress("deleting"), here.repository.transaction(message=subject) as tx:
        deleted = tx.delete(key, predicate)
    return _answer(here, key, tx.published, f"deleted {count(deleted, 'row')} of", rows=deleted)


def _require_where(where: str | None, verb: str) -> str:
    if where is None or not where.strip():
        raise InvalidInputError(
            f"--where is missing: row {verb} does not change all rows by accident",
            hint="pass a condition, or --where true for all rows",
        )
    return where


def _answer(here: Here, key: str, commit: "GraphCommit | None", what: str, *, rows: int) -> Answer:
    branch = here.repository.branch
    document = {"table": key, "branch": branch, "rows": rows, "commit": commit}
    if commit is None:
        return Answer(document, f"no rows match; {branch} did not change")
    return Answer(document, f"{what} {key} on {branch} at {short_id(commit.id)}")


def _read_lines() -> list[str]:
    # On a terminal, reading would wait for input without any message.
    if sys.stdin.isatty():
        raise InvalidInputError("no rows are given", hint="pass a JSON object, such as '{\"id\": 7}', or pipe lines")
    return [line for line in sys.stdin.read().splitlines() if line.strip()]


def _parse_rows(texts: list[str], schema: "pa.Schema", key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for text in texts:
        try:
            parsed = json.loads(text)
        except ValueError as err:
            hint = "pass an object, such as '{\"id\": 7}'"
            if os.path.isfile(text):
                hint = f"load a file with 'anabranch load {key} {text}'"
            raise InvalidInputError(f"{text!r} is not JSON: {err}", hint=hint) from err
        found += [_parse_row(row, schema, key) for row in (parsed if isinstance(parsed, list) else [parsed])]
    return found


def _parse_row(row: Any, schema: "pa.Schema", key: str) -> dict[str, Any]:
    from anabranch.column_types import show_type
    from anabranch.format.arguments import listed_columns  # a help text needs none of it

    if not isinstance(row, dict):
        raise InvalidInputError(f"{row!r} is not a JSON object", hint="pass an object, such as '{\"id\": 7}'")
    values = {}
    for name, value in row.items():
        if name not in schema.names:
            raise InvalidInputError(
                f"table '{key}' has no column {name!r}", hint=suggest(name, schema.names, listed_columns(schema.names))
            )
        try:
            values[name] = value_from_json(value, schema.field(name).type)
        except (TypeError, ValueError) as err:
            kind = show_type(schema.field(name).type)
            # Arrow's text only repeats the value and the type.
            is_from_arrow = type(err).__module__.startswith("pyarrow")
            hint = "pass a value of the column's type" if is_from_arrow else str(err)
            raise InvalidInputError(f"cannot convert {value!r} to {kind} (column {name!r})", hint=hint) from err
    return values


@command(app, "cat", "cat shop.orders --where 'amount > 100' --columns id,amount")
def cat(
    here: Here,
    key: TableName,
    columns: Columns = None,
    where: Where = None,
    limit: int | None = option(
        "--limit -n", "N", f"Maximum number of rows (default: {_DEFAULT_LIMIT}; with --csv, all).", min=1
    ),
    as_csv: AsCsv = False,
    ref: RefOption = None,
) -> Answer | None:
    """Print the rows of a table."""
    if as_csv and here.as_json:
        raise InvalidInputError("--csv and --json do not go together", hint="leave one out")
    snapshot = here.snapshot(ref)
    table = snapshot[key]
    chosen = parse_names(columns)
    if as_csv:
        # Batch by batch: without a limit this prints the whole table, which may be larger than the memory.
        texts = csv_lines(chosen or table.schema.names, table.scan(columns=chosen, where=where, limit=limit))
        print_stream(here.output, f"reading {key}", texts)
        return None
    most = limit or _DEFAULT_LIMIT
    with here.output.progress(f"reading {key}"):
        found = table.to_arrow(columns=chosen, where=where, limit=most + 1)
    names = found.column_names
    rows, has_more, sentences = first_page(plain_rows(found), most, "first", "row")
    document = {"table": table.key, "commit_id": snapshot.id, **_document(names, rows), "has_more": has_more}
    return Answer(document, *sentences, tables=[value_table(names, rows)])


@command(app, "blame", "blame shop.orders --where 'id = 7'", "blame shop.orders --cells --limit 5 --json")
def blame(
    here: Here,
    key: TableName,
    cells: bool = flag("--cells", "Show the commit of each cell, not of each row."),
    columns: str | None = option("--columns -c", "NAME,...", "Only the cells of these columns."),
    where: Where = None,
    limit: int = option("--limit -n", "N", "Maximum number of rows.", default=20, min=1),
    engine: Engine = "auto",
    ref: RefOption = None,
) -> Answer:
    """Show the commit that last changed each row of a table."""
    chosen = parse_names(columns)
    with here.output.progress("reading the history"):
        found = here.repository.blame(
            key, ref=ref, where=where, limit=limit + 1, columns=chosen, cells=cells, engine=engine
        )
    in_row = len(chosen) if chosen is not None else len(here.snapshot(ref)[key].schema.names) if cells else 1
    has_more = len(found) > limit * in_row
    if has_more:
        # The rows of one column follow each other, and the last row of each column is one too many.
        found = found.take([number for number in range(len(found)) if number % (limit + 1) < limit])
    names, rows = found.column_names, plain_rows(found)
    at = names.index("commit_id")
    shown = [(*map(text_value, row[:at]), short_id(row[at]), *row[at + 1 :]) for row in rows]
    titles = (*names[:at], "commit", "time (UTC)", "by", "message")
    sentences = [more_text(limit, "first", "row")] if has_more else []
    document = {"table": key, **_document(names, rows), "has_more": has_more}
    return Answer(document, *sentences, tables=[Table(titles, shown, empty="no rows")])


@command(
    app, "sql", "sql 'SELECT count(*) FROM shop.orders'", "sql --csv --ref main~3 < report.sql", "sql 'FROM branches'"
)
def sql(
    here: Here,
    statement: str | None = argument(
        "STATEMENT", "SQL statement. Without it, or with '-', it is read from stdin.", default=None
    ),
    as_csv: AsCsv = False,
    wide: bool = flag("--wide", "For wide tables: print each value on its own line."),
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
    names, rows = found.column_names, plain_rows(found)
    if here.as_json:
        _check_distinct(names)
        return Answer({"ref": location, **_document(names, rows)})
    if not wide or not rows:
        return Answer({}, tables=[value_table(names, rows)])
    values = [list(zip(names, map(text_value, row), strict=True)) for row in rows]
    return Answer({}, tables=[Table(("", ""), each, title=f"row {at}") for at, each in enumerate(values, start=1)])


def _check_distinct(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        # A JSON object has one value for each name, so one of the columns would be lost.
        raise InvalidInputError(f"two columns are called {twice!r}", hint="give one another name with AS")


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


def _document(names: Sequence[str], rows: Sequence[Sequence[object]]) -> dict[str, object]:
    return {"columns": names, "rows": [dict(zip(names, row, strict=True)) for row in rows]}
