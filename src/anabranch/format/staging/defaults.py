"""Defaults of columns: SQL expressions noted beside them, for rows that come without a value."""

from collections.abc import Callable

import lance
import numpy as np
import pyarrow as pa

from anabranch.errors import InvalidExpressionError
from anabranch.format.staging.expressions import enclosed, expression_errors

__all__ = ["DEFAULT", "default_expression", "find_constant", "find_default"]

DEFAULT = "anabranch:default"

_ROW, _VALUE = "__row", "__value"
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


def default_expression(expression: str, kind: pa.DataType) -> str:
    """The expression in a column's own type, where that differs from what SQL gives only in how exact a time is."""
    if not pa.types.is_timestamp(kind):
        return expression
    zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
    return f"arrow_cast({enclosed(expression)}, 'Timestamp({_UNITS[kind.unit]}, {zone})')"


def find_default(field: pa.Field) -> Callable[[int], pa.Array] | None:
    """How to compute a column's default for a number of rows; None if it has none, or one that needs other columns."""
    noted = (field.metadata or {}).get(DEFAULT.encode())
    return None if noted is None else find_constant(default_expression(noted.decode(), field.type))


def find_constant(expression: str) -> Callable[[int], pa.Array] | None:
    """How to compute an expression for a number of rows; None if it needs columns."""
    try:
        _compute(expression, 1)
    except InvalidExpressionError as err:
        if "No field named" in err.problem:
            return None
        raise
    return lambda rows: _compute(expression, rows)


def _compute(expression: str, rows: int) -> pa.Array:
    # Lance computes over rows of a dataset only; this one is never written anywhere.
    with expression_errors(expression):
        scratch = lance.write_dataset(pa.table({_ROW: np.zeros(rows, dtype=np.int8)}), "memory://defaults")
        found = scratch.to_table(columns={_ROW: _ROW, _VALUE: enclosed(expression)})
    return found.column(_VALUE).combine_chunks()
