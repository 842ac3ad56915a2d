"""What callers say about the rows they want, checked before anything is read."""

import operator
import sys
from collections.abc import Collection
from typing import Any

from anabranch.errors import InvalidInputError

__all__ = ["checked_limit", "checked_number", "require_names"]


def checked_number(value: Any, what: str, *, hint: str) -> int:
    """A whole number, be it Python's or another library's; True and False are none."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InvalidInputError(f"the {what} {value!r} is no whole number", hint=hint)
    return number


def checked_limit(limit: Any, things: str) -> int | None:
    """How many at most; None for all."""
    if limit is None:
        return None
    hint = f"give a number of {things}, or None for all"
    number = checked_number(limit, "limit", hint=hint)
    if number < 0:
        raise InvalidInputError(f"the limit {number} is negative", hint=hint)
    return min(number, sys.maxsize)


def require_names(columns: Any) -> None:
    """Refuse anything but a list of column names; a lone string would be taken for its letters."""
    if isinstance(columns, str):
        raise InvalidInputError(f"{columns!r} is not a list of columns", hint=f"give [{columns!r}]")
    if not isinstance(columns, Collection) or not all(isinstance(name, str) for name in columns):
        raise InvalidInputError(f"{columns!r} is not a list of columns", hint="give a list of their names")
