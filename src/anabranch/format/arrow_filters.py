"""Filters as engines hand them over, Arrow expressions, taken apart and put into Lance's words.

Lance reads Arrow expressions itself, by way of Substrait, but refuses them all on a table that has one column of a type
it does not know there, such as a time. And engines that sort NaN above all numbers, as DuckDB does, expect that of a
filter they hand over, while Arrow takes every comparison with NaN for false.
"""

import ctypes
import functools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.format.staging.expressions import quoted_column

__all__ = [
    "Call",
    "Column",
    "FilterRefusedError",
    "Node",
    "Value",
    "columns_of",
    "conjuncts",
    "parse_filter",
    "to_arrow",
    "to_lance",
]


class FilterRefusedError(Exception):
    """A filter that an engine had better apply by itself."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field inside it."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Value:
    scalar: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: "tuple[Node, ...]"
    options: pa.Scalar | None = None


Node = Column | Value | Call

_OPERATORS = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_CONNECTIVES = {"and_kleene": " AND ", "or_kleene": " OR "}
_ABOVE = ("greater", "greater_equal")
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_LEAST_INT64 = -(1 << 63)
_MOST_VALUES = 1000


def parse_filter(expression: pc.Expression) -> Node | None:
    """Take an expression apart; None if it is not of the shape known here.

    Arrow offers no way to look into an expression except the form it is pickled in: a list of keys and values in the
    order of writing, and the literals as columns of a batch.
    """
    try:
        batch = pa.ipc.open_file(expression.__reduce__()[1][0]).get_batch(0)
        steps = _metadata(batch.schema)
        found = _parse(steps, batch)
        return found if next(steps, None) is None else None
    except (pa.ArrowInvalid, IndexError, KeyError, StopIteration, TypeError, ValueError):
        return None


def _parse(steps: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    kind, text = next(steps)
    return _parse_from(kind, text, steps, batch)


def _parse_from(kind: str, text: str, steps: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    match kind:
        case "field_ref":
            return Column((text,))
        case "nested_field_ref":
            return Column(tuple(next(steps)[1] for _ in range(int(text))))
        case "literal":
            return Value(batch.column(int(text))[0])
        case "call":
            return _parse_call(text, steps, batch)
        case other:
            raise ValueError(other)


def _parse_call(function: str, steps: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Call:
    arguments: list[Node] = []
    options = None
    while True:
        kind, text = next(steps)
        if kind == "end":
            return Call(function, tuple(arguments), options)
        if kind == "options":
            options = batch.column(int(text))[0]
        else:
            arguments.append(_parse_from(kind, text, steps, batch))


class _CSchema(ctypes.Structure):
    """The beginning of the struct of Arrow's C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Keys and values in order, repeated keys included, which pyarrow's own dict of them drops."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = _CSchema.from_address(pointer(capsule, b"arrow_schema")).metadata
    if not at:
        return iter(())
    count, at = ctypes.c_int32.from_address(at).value, at + 4
    texts: list[str] = []
    for _ in range(2 * count):
        length = ctypes.c_int32.from_address(at).value
        texts.append(ctypes.string_at(at + 4, length).decode())
        at += 4 + length
    return iter(list(zip(texts[::2], texts[1::2], strict=True)))


def conjuncts(node: Node) -> list[Node]:
    """The parts that must all be true."""
    if isinstance(node, Call) and node.function == "and_kleene":
        return [part for argument in node.arguments for part in conjuncts(argument)]
    return [node]


def columns_of(node: Node) -> Iterator[str]:
    match node:
        case Column(path):
            yield path[0]
        case Call(_, arguments):
            for argument in arguments:
                yield from columns_of(argument)
        case Value():
            pass


def to_lance(node: Node, schema: pa.Schema) -> str | None:
    """A filter for Lance that is true of the same rows; None if there is none that surely is."""
    match node:
        case Call("and_kleene" | "or_kleene" as function, (left, right)):
            sides = to_lance(left, schema), to_lance(right, schema)
            return None if None in sides else f"({_CONNECTIVES[function].join(map(str, sides))})"
        case Call("is_in", (Column() as column,), options):
            return _compare_with_any(column, _values_of(options), schema)
        case Call("is_null" | "is_valid" | "is_nan" as function, (Column((name,)),)) if _type_of(name, schema):
            return _test(function, name)
        case Call(function, (Column() as column, Value(value))) if function in _OPERATORS:
            return _compare(function, column, value, schema)
        case _:
            return None


def _type_of(name: str, schema: pa.Schema) -> pa.DataType | None:
    return schema.field(name).type if schema.get_field_index(name) >= 0 and "`" not in name else None


def _test(function: str, name: str) -> str:
    quoted = quoted_column(name)
    return {"is_null": f"{quoted} IS NULL", "is_valid": f"{quoted} IS NOT NULL", "is_nan": f"isnan({quoted})"}[function]


def _compare(function: str, column: Column, value: pa.Scalar, schema: pa.Schema) -> str | None:
    kind = _type_of(column.path[0], schema) if len(column.path) == 1 else None
    same = None if kind is None else _as_type(value, kind)
    if same is None:
        return None
    quoted = quoted_column(column.path[0])
    if pa.types.is_floating(kind):
        return _compare_floats(function, quoted, same.as_py())
    literal = _literal(same)
    return None if literal is None else f"{quoted} {_OPERATORS[function]} {literal}"


def _as_type(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    """The same value as the column has it: engines give 3 as 64 bits whatever the column's type."""
    if not value.is_valid or value.type == kind:
        return value if value.is_valid else None
    if not any(is_kind(kind) and is_kind(value.type) for is_kind in (pa.types.is_integer, _is_text, _is_instant)):
        return None
    try:
        return value.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _compare_with_any(column: Column, values: list[pa.Scalar] | None, schema: pa.Schema) -> str | None:
    if not values or len(values) > _MOST_VALUES:
        return None
    parts = [_compare("equal", column, value, schema) for value in values]
    if None in parts:
        return None
    if pa.types.is_floating(values[0].type):
        return f"({' OR '.join(map(str, parts))})"
    quoted = quoted_column(column.path[0])
    return f"{quoted} IN ({', '.join(str(part).removeprefix(f'{quoted} = ') for part in parts)})"


def _compare_floats(function: str, quoted: str, value: float) -> str | None:
    """Lance takes both zeros for one, and sorts a NaN below or above all numbers, by its sign."""
    if not math.isfinite(value):
        return None
    plain = f"{quoted} {_OPERATORS[function]} {value!r}"
    if function in _ABOVE:
        return f"({plain} OR isnan({quoted}))"
    return plain if function in ("equal", "not_equal") else f"({plain} AND NOT isnan({quoted}))"


def _literal(value: pa.Scalar) -> str | None:
    kind = value.type
    if pa.types.is_boolean(kind):
        return "true" if value.as_py() else "false"
    if pa.types.is_integer(kind):
        number = value.as_py()
        # Lance reads the digits of the least number before its sign, and finds them too large.
        return None if number == _LEAST_INT64 else str(number)
    if _is_text(kind):
        return "'" + str(value.as_py()).replace("'", "''") + "'"
    if pa.types.is_date32(kind):
        return f"arrow_cast(arrow_cast({value.value}, 'Int32'), 'Date32')"
    if pa.types.is_timestamp(kind) and value.value != _LEAST_INT64:
        zone = f'Some("{kind.tz}")' if kind.tz else "None"
        return f"arrow_cast({value.value}, 'Timestamp({_UNITS[kind.unit]}, {zone})')"
    return None


def to_arrow(node: Node) -> pc.Expression:
    """The expression again, with NaN above all numbers.

    A value alone is what DuckDB makes of `x <= NaN`; it forgets that nulls are not.
    """
    match node:
        case Column(path):
            return pc.field(*path)
        case Call("and_kleene", (left, right)):
            return to_arrow(left) & to_arrow(right)
        case Call("or_kleene", (left, right)):
            return to_arrow(left) | to_arrow(right)
        case Call("invert", (inner,)):
            return ~to_arrow(inner)
        case Call("is_null", (inner,)):
            return to_arrow(inner).is_null()
        case Call("is_valid", (inner,)):
            return to_arrow(inner).is_valid()
        case Call("is_nan", (inner,)):
            return pc.is_nan(to_arrow(inner))
        case Call("is_in", (inner,), options):
            return _is_in(to_arrow(inner), _values_of(options))
        case Call(function, (left, Value(value))) if function in _OPERATORS:
            return _compare_in_arrow(function, to_arrow(left), value)
        case other:
            raise FilterRefusedError(f"{other!r} is not known")


def _values_of(options: pa.Scalar | None) -> list[pa.Scalar] | None:
    if options is None or options["_type_name"].as_py() != b"SetLookupOptions":
        return None
    return list(options["value_set"].values)


def _is_in(tested: pc.Expression, values: list[pa.Scalar] | None) -> pc.Expression:
    if not values:
        raise FilterRefusedError("values to look for are not given")
    if not any(pa.types.is_floating(value.type) for value in values):
        return tested.isin(pa.array(values, type=values[0].type))
    compared = [_compare_in_arrow("equal", tested, value) for value in values]
    return functools.reduce(operator.or_, compared)


def _compare_in_arrow(function: str, tested: pc.Expression, value: pa.Scalar) -> pc.Expression:
    constant = pc.scalar(value)
    if pa.types.is_floating(value.type) and math.isnan(value.as_py() or 0.0):
        if function != "equal":
            raise FilterRefusedError(f"{function} with NaN is not known")
        return pc.is_nan(tested)
    compared = {
        "equal": tested == constant,
        "not_equal": tested != constant,
        "less": tested < constant,
        "less_equal": tested <= constant,
        "greater": tested > constant,
        "greater_equal": tested >= constant,
    }[function]
    return compared | pc.is_nan(tested) if function in _ABOVE and pa.types.is_floating(value.type) else compared
