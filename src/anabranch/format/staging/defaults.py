"""Defaults of columns: SQL expressions noted beside them, for rows that come without a value."""

from collections.abc import Callable, Sequence

import lance
import numpy as np
import pyarrow as pa

from anabranch.errors import InvalidExpressionError
from anabranch.format.staging.expressions import enclosed, expression_errors

__all__ = ["DEFAULT", "default_expression", "find_constant", "find_default"]

DEFAULT = "anabranch:default"

_ROW, _VALUE = "__row", "__value"
# The units of Arrow as `arrow_cast` spells them.
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


def default_expression(expression: str, kind: pa.DataType) -> str:
    """The expression in a column's own type, where that differs from what SQL gives only in how exact a time is."""
    if not pa.types.is_timestamp(kind):
        return expression
    # `arrow_cast` expects a type as Rust prints it, so the zone is an Option.
    zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
    return f"arrow_cast({enclosed(expression)}, 'Timestamp({_UNITS[kind.unit]}, {zone})')"


def find_default(field: pa.Field, *, columns: Sequence[str]) -> Callable[[int], pa.Array] | None:
    """How to compute a column's default for a number of rows; None if it has none, or one that needs other columns.

    Refuse a default with a name in double quotes that is not one of the columns: a version that took such a name for
    text may have recorded it, and null instead of that text would be wrong.
    """
    noted = (field.metadata or {}).get(DEFAULT.encode())
    if noted is None:
        return None
    expression = noted.decode()
    try:
        return find_constant(default_expression(expression, field.type), raise_unknown=True)
    except InvalidExpressionError as err:
        name = err.details.get("column")
        if name is None:
            raise
        if f'"{name}"' in expression and name not in columns:
            raise InvalidExpressionError(
                f"the default {expression!r} of column {field.name!r} names a column that does not exist",
                hint="write text in single quotes, and apply a schema with the new default",
            ) from None
        return None


def find_constant(expression: str, *, raise_unknown: bool = False) -> Callable[[int], pa.Array] | None:
    """How to compute an expression for a number of rows; None, unless an error is asked for, if it needs columns."""
    try:
        # Computed on a dataset without the columns of the table: an expression that needs one of them fails with its
        # name.
        _compute(expression, 1)
    except InvalidExpressionError as err:
        if "column" in err.details and not raise_unknown:
            return None
        raise
    return lambda rows: _compute(expression, rows)


def _compute(expression: str, rows: int) -> pa.Array:
    # Lance computes over rows of a dataset only; this one is never written anywhere.
    scratch = lance.write_dataset(pa.table({_ROW: np.zeros(rows, dtype=np.int8)}), "memory://defaults")
    with expression_errors(scratch, expression):
        found = scratch.to_table(columns={_ROW: _ROW, _VALUE: enclosed(expression)})
    return found.column(_VALUE).combine_chunks()
