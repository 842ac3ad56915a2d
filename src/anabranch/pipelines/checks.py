"""Checks of a pipeline: declared as SQL, as a function or by the name of a ready-made one, and run before a publish."""

# ruff: noqa: S608 - names are quoted, and values are literals

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from math import isfinite
from typing import Any

from anabranch.duck.engine import default_engine
from anabranch.duck.statement import quoted
from anabranch.errors import AnabranchError
from anabranch.pipelines.declarations import DeclaredCheck, Setting, SourceLocation, parse_key

_AGE = re.compile(r"(\d{1,6})\s*(minute|hour|day|week)s?")


def declare_check(name: Any, check: Any, location: SourceLocation) -> DeclaredCheck:
    """Read a check: SQL over `bucket.table` names that must find no rows, or a function of the snapshot."""
    if not isinstance(name, str) or not name.strip():
        location.fail(f"a check cannot be called {name!r}", hint="name what must hold, such as 'no negative prices'")
    if isinstance(check, str):
        try:
            tables = default_engine().tables_of(check)
        except AnabranchError as err:
            location.inside(check, err.details.get("line", 1)).fail(err.problem, hint=err.hint)
        return DeclaredCheck(name=name, location=location, check=check, tables=tables)
    function: Callable[..., object] = check
    if not callable(function):
        location.fail(f"the check {name!r} is {check!r}", hint="give SQL that finds no rows, or a function")
    return DeclaredCheck(name=name, location=location, check=function)


def declare_ready_made(key: str, given: Setting) -> Iterator[DeclaredCheck]:
    """Read the list of ready-made checks of a table, each `kind: arguments`."""
    for item in given.items(f"the list of checks of '{key}'"):
        entries = item.entries(f"a check of '{key}'")
        if len(entries) != 1:
            item.fail(f"a check of '{key}' has {len(entries)} names", hint="write one in each item: '- unique: id'")
        ((kind, arguments),) = entries.items()
        if kind not in _READY_MADE:
            arguments.fail(f"the check {kind!r} of '{key}' is not known", hint=f"use {', '.join(_READY_MADE)}")
        yield from _READY_MADE[kind](key, arguments, f"the check {kind!r} of '{key}'")


def _unique(key: str, given: Setting, what: str) -> Iterator[DeclaredCheck]:
    names = given.names(f"the column of {what}")
    columns = ", ".join(map(quoted, names))
    # As for a unique constraint in SQL: nulls are not equal to each other.
    present = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in names)
    sql = f"SELECT {columns}, count(*) AS rows FROM {_table(key)} WHERE {present} GROUP BY ALL HAVING count(*) > 1"
    yield _check(key, f"unique ({', '.join(names)})", sql, given)


def _not_null(key: str, given: Setting, what: str) -> Iterator[DeclaredCheck]:
    for name in given.names(f"the column of {what}"):
        yield _check(key, f"not_null ({name})", f"SELECT * FROM {_table(key)} WHERE {quoted(name)} IS NULL", given)


def _accepted_values(key: str, given: Setting, what: str) -> Iterator[DeclaredCheck]:
    arguments = _arguments(given, what, required=("column", "values"))
    name = arguments["column"].text(f"the column of {what}")
    values = [_literal(value, what) for value in arguments["values"].items(f"the list of values of {what}")]
    if not values:
        arguments["values"].fail(f"{what} has no values", hint="list those that are accepted")
    # Nulls pass: `not_null` is the check for them.
    column = quoted(name)
    sql = (
        f"SELECT {column}, count(*) AS rows FROM {_table(key)}"
        f" WHERE {column} IS NOT NULL AND {column} NOT IN ({', '.join(values)}) GROUP BY ALL"
    )
    yield _check(key, f"accepted_values ({name})", sql, given)


def _relations(key: str, given: Setting, what: str) -> Iterator[DeclaredCheck]:
    arguments = _arguments(given, what, required=("column", "to"), optional=("field",))
    names = arguments["column"].names(f"the column of {what}")
    fields = arguments.get("field", arguments["column"]).names(f"the field of {what}")
    if len(fields) != len(names):
        given.fail(f"{what} has {len(names)} columns and {len(fields)} fields", hint="give one field for each column")
    to = parse_key(arguments["to"].text(f"the table of {what}"), arguments["to"].location)
    pairs = " AND ".join(
        f"child.{quoted(name)} = parent.{quoted(field)}" for name, field in zip(names, fields, strict=True)
    )
    # As for a foreign key in SQL: a row with a null refers to no other row.
    present = " AND ".join(f"child.{quoted(name)} IS NOT NULL" for name in names)
    columns = ", ".join(f"child.{quoted(name)}" for name in names)
    sql = (
        f"SELECT {columns}, count(*) AS rows FROM {_table(key)} AS child"
        f" WHERE {present} AND NOT EXISTS (SELECT 1 FROM {_table(to)} AS parent WHERE {pairs}) GROUP BY ALL"
    )
    yield _check(key, f"relations ({', '.join(names)} to {to})", sql, given, to)


def _row_count(key: str, given: Setting, what: str) -> Iterator[DeclaredCheck]:
    arguments = _arguments(given, what, optional=("min", "max"))
    bounds = {name: _number(setting, f"{name} of {what}") for name, setting in arguments.items()}
    if not bounds or bounds.get("min", 0) > bounds.get("max", bounds.get("min", 0)):
        given.fail(f"{what} has the bounds {given.shown()}", hint="give min, max or both, min not above max")
    wrong = {"min": "rows < {}", "max": "rows > {}"}
    outside = " OR ".join(wrong[name].format(number) for name, number in bounds.items())
    shown = ", ".join(f"{name} {number}" for name, number in bounds.items())
    sql = f"SELECT rows FROM (SELECT count(*) AS rows FROM {_table(key)}) WHERE {outside}"
    yield _check(key, f"row_count ({shown})", sql, given)


def _freshness(key: str, given: Setting, what: str) -> Iterator[DeclaredCheck]:
    arguments = _arguments(given, what, required=("column", "within"))
    name = arguments["column"].text(f"the column of {what}")
    age = arguments["within"].text(f"the age of {what}")
    found = _AGE.fullmatch(age.lower())
    if found is None:
        arguments["within"].fail(f"the age of {what} is {age!r}", hint="write it like '36 hours' or '2 days'")
    count, unit = found.groups()
    # A table without rows, or with nulls only, is not fresh.
    sql = (
        f"SELECT newest FROM (SELECT max({quoted(name)}) AS newest FROM {_table(key)})"
        f" WHERE newest IS NULL OR CAST(newest AS TIMESTAMPTZ) < now() - INTERVAL '{count} {unit}'"
    )
    yield _check(key, f"freshness ({name} within {age})", sql, given, depends_on_time=True)


# Each gets the table, its arguments, and the name of the check for errors.
_READY_MADE: Mapping[str, Callable[[str, Setting, str], Iterator[DeclaredCheck]]] = {
    "unique": _unique,
    "not_null": _not_null,
    "accepted_values": _accepted_values,
    "relations": _relations,
    "row_count": _row_count,
    "freshness": _freshness,
}


def _check(key: str, what: str, sql: str, given: Setting, *others: str, depends_on_time: bool = False) -> DeclaredCheck:
    return DeclaredCheck(
        name=f"{key}: {what}",
        location=given.location,
        check=sql,
        tables=(key, *others),
        owner=key,
        depends_on_time=depends_on_time,
    )


def _arguments(
    given: Setting, what: str, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> dict[str, Setting]:
    found = given.known(what, (*required, *optional))
    for name in required:
        if name not in found:
            given.fail(f"{what} has no {name!r}", hint=f"give {', '.join(required)}")
    return found


def _number(given: Setting, what: str) -> int:
    # A bool is an int in Python, and `true` would count as 1.
    if isinstance(given.value, bool) or not isinstance(given.value, int) or given.value < 0:
        given.fail(f"{what} is {given.shown()}", hint="give a whole number from 0 on")
    return given.value


def _literal(given: Setting, what: str) -> str:
    match given.value:
        # The order matters: a bool is also an int, and a datetime is also a date.
        case bool():
            return "true" if given.value else "false"
        case int():
            return str(given.value)
        case float() if isfinite(given.value):
            return repr(given.value)
        case str():
            return "'" + given.value.replace("'", "''") + "'"
        case datetime():
            return f"TIMESTAMP '{given.value.isoformat(' ')}'"
        case date():
            return f"DATE '{given.value.isoformat()}'"
    return given.fail(f"a value of {what} is {given.shown()}", hint="give text, numbers, dates, true or false")


def _table(key: str) -> str:
    bucket, _, table = key.partition(".")
    return f"{quoted(bucket)}.{quoted(table)}"
