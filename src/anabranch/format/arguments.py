"""The arguments of callers, checked before anything is read."""

import operator
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from anabranch.errors import InvalidInputError, SchemaMismatchError, TableNotFoundError
from anabranch.hints import suggest

# A hint with all columns of a very wide table cannot be read.
_MAX_COLUMNS = 50


def checked_number(value: Any, what: str, *, hint: str) -> int:
    """Return a whole number of Python or of another library. Refuse True and False."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InvalidInputError(f"the {what} {value!r} is not a whole number", hint=hint)
    return number


def checked_limit(limit: Any, things: str, *, name: str = "limit") -> int | None:
    """Return a limit or an offset, None if it is not given. Raise InvalidInputError if it is not a natural number."""
    if limit is None:
        return None
    hint = f"give a number of {things}, or None for all"
    number = checked_number(limit, name, hint=hint)
    if number < 0:
        raise InvalidInputError(f"the {name} {number} is negative", hint=hint)
    # Lance takes 64-bit numbers only, and no table has more rows than this.
    return min(number, sys.maxsize)


def require_names(names: Any, things: str = "columns") -> None:
    """Refuse a value that is not a list of names. A string would be read as a list of its characters."""
    if isinstance(names, str):
        raise InvalidInputError(f"{things} must be a list, got {names!r}", hint=f"pass [{names!r}]")
    if not isinstance(names, Collection) or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"{things} must be a list of names, got {names!r}", hint="pass a list of strings")


def check_columns(columns: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a column that does not exist. A path such as 'address.city' names a part of a column."""
    for name in columns:
        if name.partition(".")[0] not in known and name not in known:
            raise unknown_column(name, known)


def unknown_column(name: str, columns: Sequence[str]) -> SchemaMismatchError:
    """Return the error for an unknown column, with the most similar name and the existing columns."""
    return SchemaMismatchError(f"there is no column {name!r}", hint=suggest(name, columns, listed_columns(columns)))


def unknown_table(
    key: object, where: str, known: Iterable[object], hint: str = "list the tables with `tables()`"
) -> TableNotFoundError:
    """Return the error for an unknown table, with the most similar name among the known tables."""
    found = suggest(str(key), map(str, known), hint, by_parts=True)
    return TableNotFoundError(f"there is no table '{key}' {where}", hint=found)


def listed_columns(columns: Sequence[str]) -> str:
    """Return the names of columns for a hint, shortened to the first ones if there are many."""
    more = len(columns) - _MAX_COLUMNS
    shown = ", ".join(columns[:_MAX_COLUMNS]) + (f" and {more} more" if more > 0 else "")
    return f"the columns are {shown}"
