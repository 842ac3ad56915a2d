"""Checks of a pipeline: read when they are declared, run when it is about to be published."""

from collections.abc import Callable
from typing import Any

import duckdb

from anabranch.duck.statement import parse_statement
from anabranch.errors import AnabranchError
from anabranch.pipelines.declarations import DeclaredCheck, Place

__all__ = ["declare_check"]


def declare_check(name: Any, check: Any, place: Place) -> DeclaredCheck:
    """Read a check: SQL over `bucket.table` names that must find no rows, or a function of the snapshot."""
    if not isinstance(name, str) or not name.strip():
        place.fail(f"a check cannot be called {name!r}", hint="say what must hold, such as 'no negative prices'")
    if isinstance(check, str):
        return DeclaredCheck(name=name, place=place, check=check, tables=_tables_of(check, place))
    function: Callable[..., object] = check
    if not callable(function):
        place.fail(f"the check {name!r} is {check!r}", hint="give SQL that finds no rows, or a function")
    return DeclaredCheck(name=name, place=place, check=function)


def _tables_of(sql: str, place: Place) -> tuple[str, ...]:
    with duckdb.connect() as connection:
        try:
            uses = parse_statement(sql, connection).tables
        except AnabranchError as err:
            place.inside(sql, 1).fail(err.problem, hint=err.hint)
    return tuple(dict.fromkeys(f"{use.bucket}.{use.table}" for use in uses if use.bucket is not None))
