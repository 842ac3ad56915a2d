"""`anabranch row`: insert, update and delete rows of a table. Each command makes one commit."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from anabranch.cli.command import BRANCH, WRITES, Here, command, group
from anabranch.cli.options import Message, TableName, argument, flag, option, parse_pairs
from anabranch.cli.output import Answer
from anabranch.cli.texts import count
from anabranch.display import short_id
from anabranch.errors import InvalidExpressionError, InvalidInputError, SchemaMismatchError
from anabranch.hints import suggest
from anabranch.json_values import value_from_json

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.repo.log.entries import GraphCommit

app = group()
rows = group(help="Insert, update and delete rows. Each command makes one commit.")
app.add_typer(rows, name="row")

_SECOND_COLUMN = re.compile(r",\s*\w+\s*=")
_TEXT = re.compile(r"\s*('[^']*')\s*")
Where = Annotated[
    str | None,
    option("--where", "SQL", "Rows to change: a SQL condition such as 'id = 7', or true for all rows. Required."),
]


@command(
    rows,
    "insert",
    'row insert shop.orders \'{"id": 7, "item": "tea"}\'',
    "row insert shop.orders --upsert < rows.jsonl",
    on=(*BRANCH, *WRITES),
)
def insert(
    here: Here,
    key: TableName,
    values: Annotated[
        list[str] | None, argument("[JSON]...", "Rows as JSON objects (default: read from stdin, one a line).")
    ] = None,
    upsert: Annotated[bool, flag("--upsert", "Replace rows that have the same primary key.")] = False,
    message: Message = None,
) -> Answer:
    """Insert rows, given as JSON objects, as one commit."""
    with here.on_current_branch():
        # Read for its types: JSON has none for dates, decimals and bytes.
        given = _parse_rows(values if values else _read_lines(), here.repository.snapshot()[key].schema, key)
        if not given:
            raise InvalidInputError("there are no rows to insert", hint="pass JSON objects, or one a line on stdin")
        if not upsert:  # an upsert would set columns that a row leaves out to null
            names = dict.fromkeys(name for row in given for name in row)
            given = [{name: row.get(name) for name in names} for row in given]
        write = here.repository.upsert if upsert else here.repository.append
        verb = "upsert" if upsert else "insert"
        with here.output.progress("writing"):
            commit = write(key, given, message=message or f"{verb.capitalize()} {count(len(given), 'row')} in {key}")
    return _answer(here, key, commit, f"{verb}ed {count(len(given), 'row')} into", rows=len(given))


@command(
    rows,
    "update",
    "row update shop.orders --set 'price=price * 2' --where 'id = 7'",
    "row update shop.orders --set \"item='tea'\" --where true",
    on=(*BRANCH, *WRITES),
)
def update(
    here: Here,
    key: TableName,
    assignments: Annotated[
        list[str],
        option(
            "--set",
            "COLUMN=SQL",
            "New value of a column as SQL, such as 'price=price * 2'. Text is in single quotes, as in"
            " \"city='Brno'\". Repeatable.",
        ),
    ],
    where: Where = None,
    message: Message = None,
) -> Answer:
    """Set columns of the rows that match a condition, as one commit."""
    changes = parse_pairs(assignments, option="--set", form="COLUMN=SQL", example="'price=price * 2'")
    predicate = _require_where(where, "update")
    subject = message or f"Update rows of {key}"
    with (
        here.output.progress("updating"),
        here.on_current_branch(),
        _one_column_each(changes),
        _dates_as_literals(here, key, changes),
        here.repository.transaction(message=subject) as tx,
    ):
        changed = tx.update(key, changes, predicate)
    return _answer(here, key, tx.published, f"updated {count(changed, 'row')} of", rows=changed)


@contextmanager
def _one_column_each(changes: Mapping[str, str]) -> Iterator[None]:
    """Explain an expression that does not work because it sets a second column."""
    try:
        yield
    except InvalidExpressionError as err:
        several = next((value for value in changes.values() if _SECOND_COLUMN.search(value)), None)
        if several is None:
            raise
        raise InvalidExpressionError(
            f"expression {several!r} does not work: it is not one expression", hint="repeat --set for each column"
        ) from err


@contextmanager
def _dates_as_literals(here: Here, key: str, changes: Mapping[str, str]) -> Iterator[None]:
    """Name the literal of a date or a timestamp for a text that was to be the value of such a column."""
    try:
        yield
    except SchemaMismatchError as err:
        schema = here.repository.snapshot()[key].schema
        for name, value in changes.items():
            kind = re.match("date|timestamp", str(schema.field(name).type)) if name in schema.names else None
            text = _TEXT.fullmatch(value)
            if kind is not None and text is not None and f"column {name!r}" in err.problem:
                raise SchemaMismatchError(err.problem, hint=f'use --set "{name}={kind[0]} {text[1]}"') from err
        raise


@command(rows, "delete", "row delete shop.orders --where 'id = 7'", on=(*BRANCH, *WRITES))
def delete(here: Here, key: TableName, where: Where = None, message: Message = None) -> Answer:
    """Delete the rows that match a condition, as one commit."""
    predicate = _require_where(where, "delete")
    subject = message or f"Delete rows of {key}"
    with here.output.progress("deleting"), here.on_current_branch(), here.repository.transaction(message=subject) as tx:
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
    where = f"{key} on {branch} at {short_id(commit.graph_commit_id)}"
    return Answer(document, f"{what} {where}")


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
    # Not at the top: a help text needs none of it.
    from anabranch.format.arguments import listed_columns

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
            kind = schema.field(name).type
            # Arrow's text only repeats the value and the type.
            is_from_arrow = type(err).__module__.startswith("pyarrow")
            hint = "pass a value of the column's type" if is_from_arrow else str(err)
            raise InvalidInputError(f"cannot convert {value!r} to {kind} (column {name!r})", hint=hint) from err
    return values
