"""Filters of Spark as predicates of Lance.

Spark and Lance must agree on every row that a filter drops. Where they may not (floating-point numbers, values that
Spark shows cut off), the predicate keeps a few rows too many, and Spark filters again: it is then not `is_exact`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["PushedPredicate", "push_predicate"]

_MOST_VALUES = 5_000
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PushedPredicate:
    """A predicate for Lance. Unless it is exact, Spark must filter again."""

    sql: str
    is_exact: bool = True


class _CannotPushError(Exception):
    """Lance cannot answer this, or might answer it in another way than Spark."""


def push_predicate(found: Mapping[str, Any], schema: pa.Schema) -> PushedPredicate | None:
    """Translate one filter, as a tree of `op` and `args`; None if Spark has to do it alone."""
    try:
        return _translate(found, schema)
    except (_CannotPushError, OverflowError):  # Spark's dates and times reach further than Python's
        return None


def _translate(found: Mapping[str, Any], schema: pa.Schema) -> PushedPredicate:
    op = found["op"]
    if op == "column":
        column, kind = _column(found, schema)
        if not pa.types.is_boolean(kind):
            raise _CannotPushError
        return PushedPredicate(column)
    translate = _TRANSLATORS.get(op)
    if translate is None:
        raise _CannotPushError
    return translate(op, found.get("args", ()), schema)


def _connected(op: str, args: Sequence[Mapping[str, Any]], schema: pa.Schema) -> PushedPredicate:
    left, right = (_translate(arg, schema) for arg in args)
    return PushedPredicate(f"({left.sql} {op} {right.sql})", left.is_exact and right.is_exact)


def _negated(_: str, args: Sequence[Mapping[str, Any]], schema: pa.Schema) -> PushedPredicate:
    inner = _translate(args[0], schema)
    if not inner.is_exact:
        raise _CannotPushError  # the opposite of too many rows is too few
    return PushedPredicate(f"(NOT {inner.sql})")


def _constant(op: str, _args: Sequence[Mapping[str, Any]], _schema: pa.Schema) -> PushedPredicate:
    return PushedPredicate("true" if op == "ALWAYS_TRUE" else "false")


def _null_test(op: str, args: Sequence[Mapping[str, Any]], schema: pa.Schema) -> PushedPredicate:
    column, _ = _column(args[0], schema)
    return PushedPredicate(f"({column} {op.replace('_', ' ')})")


def _comparison(op: str, args: Sequence[Mapping[str, Any]], schema: pa.Schema) -> PushedPredicate:
    left, right = args
    if left["op"] == "literal":
        left, right, op = right, left, _FLIPPED[op]
    column, kind = _column(left, schema)
    if right["op"] == "column":
        other, other_kind = _column(right, schema)
        # Spark and Lance may convert two types to different common ones, and they disagree about NaN.
        if kind != other_kind or pa.types.is_floating(kind):
            raise _CannotPushError
        return PushedPredicate(f"({column} {op} {other})")
    literal = _literal(right, kind)
    if not pa.types.is_floating(kind):
        return PushedPredicate(f"({column} {op} {literal})")
    # For Spark every NaN is the largest number; Lance sorts negative NaNs before all others.
    if op in {">", ">=", "<>"}:
        return PushedPredicate(f"({column} {op} {literal} OR isnan({column}))", is_exact=False)
    return PushedPredicate(f"({column} {op} {literal})", is_exact=False)


def _null_safe(_: str, args: Sequence[Mapping[str, Any]], schema: pa.Schema) -> PushedPredicate:
    left, right = args if args[0]["op"] == "column" else (args[1], args[0])
    column, kind = _column(left, schema)
    if right["op"] == "literal" and right.get("value") is None:
        return PushedPredicate(f"({column} IS NULL)")
    literal = _literal(right, kind)
    # `<=>` is never null. `=` alone is null for a null, and under NOT these rows would be lost.
    return PushedPredicate(f"({column} IS NOT NULL AND {column} = {literal})", not pa.types.is_floating(kind))


def _in(_: str, args: Sequence[Mapping[str, Any]], schema: pa.Schema) -> PushedPredicate:
    column, kind = _column(args[0], schema)
    given = [arg for arg in args[1:] if arg["op"] != "literal" or arg.get("value") is not None]
    # With a null among them the answer is null where it is not true, which NOT would turn around.
    has_null = len(given) < len(args) - 1
    if not given:
        return PushedPredicate("false", not has_null)
    literals = [_literal(arg, kind) for arg in given]
    is_exact = not pa.types.is_floating(kind) and not has_null
    if len(literals) <= _MOST_VALUES:
        return PushedPredicate(f"({column} IN ({', '.join(literals)}))", is_exact)
    values = [arg["value"] for arg in given]
    if not all(isinstance(value, int) for value in values):
        raise _CannotPushError
    # The range contains all values, and Spark removes the others that are in it.
    return PushedPredicate(f"({column} BETWEEN {min(values)} AND {max(values)})", is_exact=False)


def _text_match(op: str, args: Sequence[Mapping[str, Any]], schema: pa.Schema) -> PushedPredicate:
    column, kind = _column(args[0], schema)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise _CannotPushError
    return PushedPredicate(f"{op.lower()}({column}, {_literal(args[1], kind)})")


def _column(found: Mapping[str, Any], schema: pa.Schema) -> tuple[str, pa.DataType]:
    """A column, or a field inside a struct, as SQL, with its type."""
    if found["op"] != "column":
        raise _CannotPushError
    kind: pa.DataType = pa.struct(list(schema))
    for name in found["name"]:
        number = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if number < 0 or "`" in name:
            raise _CannotPushError
        kind = kind.field(number).type
    if isinstance(kind, pa.BaseExtensionType):
        raise _CannotPushError
    return ".".join(f"`{name}`" for name in found["name"]), kind


def _literal(found: Mapping[str, Any], kind: pa.DataType) -> str:
    if found["op"] != "literal" or found.get("value") is None:
        raise _CannotPushError
    value = found["value"]
    for is_kind, write in _WRITERS:
        if is_kind(kind):
            return write(value, kind)
    raise _CannotPushError


def _integer(value: Any, _: pa.DataType) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _CannotPushError
    return str(value)


def _boolean(value: Any, _: pa.DataType) -> str:
    return "true" if value else "false"


def _float(value: Any, _: pa.DataType) -> str:
    number = float(value)
    if not math.isfinite(number) or number == 0:
        raise _CannotPushError  # Spark has one zero and one NaN, Lance several
    return repr(number)


def _decimal(value: Any, kind: pa.DataType) -> str:
    number = Decimal(value)
    # The cast would round a literal that has more decimal places than the column.
    if -int(number.as_tuple().exponent) > kind.scale:
        raise _CannotPushError
    return f"CAST('{number:f}' AS DECIMAL({kind.precision}, {kind.scale}))"


def _text(value: Any, _: pa.DataType) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise _CannotPushError
    return "'" + value.replace("'", "''") + "'"


def _binary(value: Any, _: pa.DataType) -> str:
    return f"X'{bytes.fromhex(value).hex()}'"


def _date(value: Any, _: pa.DataType) -> str:
    return f"DATE '{(_EPOCH + timedelta(days=value)).date().isoformat()}'"


def _timestamp(value: Any, kind: pa.DataType) -> str:
    if kind.unit != "us":
        raise _CannotPushError  # Spark shows finer times cut off
    moment = _EPOCH + timedelta(microseconds=value)
    zone = "" if kind.tz is None else "Z"
    return f"TIMESTAMP '{moment.strftime('%Y-%m-%dT%H:%M:%S.%f')}{zone}'"


_Writer = Callable[[Any, pa.DataType], str]
_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], _Writer], ...] = (
    (pa.types.is_integer, _integer),
    (pa.types.is_boolean, _boolean),
    (lambda kind: pa.types.is_float32(kind) or pa.types.is_float64(kind), _float),
    (pa.types.is_decimal128, _decimal),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _text),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), _binary),
    (pa.types.is_date32, _date),
    (pa.types.is_timestamp, _timestamp),
)

_Translator = Callable[[str, Sequence[Mapping[str, Any]], pa.Schema], PushedPredicate]
_TRANSLATORS: Mapping[str, _Translator] = {
    "AND": _connected,
    "OR": _connected,
    "NOT": _negated,
    "ALWAYS_TRUE": _constant,
    "ALWAYS_FALSE": _constant,
    "IS_NULL": _null_test,
    "IS_NOT_NULL": _null_test,
    "IN": _in,
    "STARTS_WITH": _text_match,
    "ENDS_WITH": _text_match,
    "CONTAINS": _text_match,
    "<=>": _null_safe,
    **dict.fromkeys(_FLIPPED, _comparison),
}
