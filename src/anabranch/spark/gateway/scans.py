"""Scans of a pinned version: its parts, their rows or aggregates for Spark, and tables that options name.

Filters of Spark become predicates of Lance. Spark and Lance must agree on every row that a filter drops. If they may
not agree (floating-point numbers, values that Spark truncates), the predicate returns a few more rows, and Spark
filters again: it is then not `is_exact`.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import AnabranchError
from anabranch.format.splits import Order, Selection, plan_splits, read_split, selected_schema
from anabranch.format.staging import VersionRef
from anabranch.ids import MAIN
from anabranch.repo.repository import Repository
from anabranch.spark.gateway.requests import Request, split_from_json
from anabranch.spark.options import (
    ReadOptions,
    asks_for_changes,
    version_ref_from_json,
    version_ref_to_json,
    with_lent_options,
)
from anabranch.spark.source import find_version_ref
from anabranch.spark.types import as_shown, shown_columns, shown_schema, struct_from_json


def aggregate_rows(rows: Iterator[pa.RecordBatch], wanted: Sequence[Mapping[str, Any]], answer: pa.Schema) -> pa.Table:
    """Reduce rows to one, with one column for each of the wanted aggregates.

    Each has a `function` (`count_star`, `count`, `min` or `max`) and, except for the first, a `column`. The rows must
    have the types that Spark shows, so that the least value is that of Spark.
    """
    found: list[list[Any]] = [[] for _ in wanted]
    for batch in rows:
        for values, one in zip(found, wanted, strict=True):
            values.append(_aggregate(batch, one))
    arrays = [
        _combined(one["function"], values, field.type) for one, values, field in zip(wanted, found, answer, strict=True)
    ]
    return pa.table(arrays, schema=answer)


def _aggregate(batch: pa.RecordBatch, wanted: Mapping[str, Any]) -> int | pa.Scalar:
    match wanted["function"]:
        case "count_star":
            return batch.num_rows
        case "count":
            return batch.num_rows - batch.column(wanted["column"]).null_count
        case "min":
            return pc.min(batch.column(wanted["column"]))
        case "max":
            return pc.max(batch.column(wanted["column"]))
        case other:
            raise ValueError(f"unknown aggregate {other!r}")


def _combined(function: str, found: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the aggregate of all batches from those of each."""
    if function not in {"min", "max"}:
        return pa.array([sum(found)])
    # Keep Arrow's values: Python's dates and times have a smaller range than Spark's.
    values = pa.array(found, kind) if found else pa.nulls(1, kind)
    return pa.array([pc.min(values) if function == "min" else pc.max(values)], kind)


_SMALLEST_SPLIT = 4 << 20
_LARGEST_SPLIT = 128 << 20


def push_filters(request: Request) -> dict[str, Any]:
    """Return the filters of Spark that Lance can apply, and whether Spark must apply them again."""
    schema = _version_ref(request).schema
    pushed = [push_predicate(found, schema) for found in request["filters"]]
    return {"pushed": [None if one is None else {"sql": one.sql, "exact": one.is_exact} for one in pushed]}


def plan_scan(request: Request) -> dict[str, Any]:
    """Return the parts of a scan: enough for all cores, and none too large for one task."""
    version_ref = _version_ref(request)
    size, cores = version_ref.count_bytes(), max(1, request.get("cores", 1))
    bytes_per_split = min(max(-(-size // cores), _SMALLEST_SPLIT), _LARGEST_SPLIT)
    splits = plan_splits(version_ref, _selection(request), bytes_per_split=bytes_per_split)
    return {"splits": [asdict(split) for split in splits]}


def read_rows(request: Request) -> None:
    """Send the rows of one part, or the one row of its aggregates."""
    version_ref, split = _version_ref(request), split_from_json(request["split"])
    aggregates = request.get("aggregates")
    if aggregates is None:
        shown = shown_columns(struct_from_json(request["schema"]))
        rows = read_split(version_ref, split, _selection(request, tuple(shown.names)))
        request.send_rows(as_shown(request.unless_cancelled(rows), shown), shown)
        return
    names = tuple(dict.fromkeys(one["column"] for one in aggregates if "column" in one))
    columns = shown_columns(shown_schema(pa.schema([version_ref.schema.field(name) for name in names])))
    answer = shown_columns(struct_from_json(request["schema"]))
    rows = request.unless_cancelled(read_split(version_ref, split, _selection(request, names)))
    found = aggregate_rows(as_shown(rows, columns), aggregates, answer)
    request.send_rows(iter(found.to_batches()), answer)


def _selection(request: Request, columns: tuple[str, ...] | None = None) -> Selection:
    order = tuple(
        Order(column=one["column"], is_ascending=one["ascending"], nulls_first=one["nulls_first"])
        for one in request.get("order", [])
    )
    return Selection(
        columns=columns,
        filter=request.get("where"),
        bases=tuple(request.get("bases", ())),
        limit=request.get("limit"),
        order=order,
    )


def _version_ref(request: Request) -> VersionRef:
    return version_ref_from_json(request["version_ref"], request.storage_options)


def load_source(request: Request) -> dict[str, Any]:
    """Return the table that options name, pinned, or report that they request its changes and not its rows."""
    if asks_for_changes(request["options"]):
        return {"reads_rows": False}
    reading = ReadOptions.parse(with_lent_options(request["options"], request["lent"]))
    location = reading.location
    repository = request.open(location.repository, location.storage_options)
    version_ref = find_version_ref(reading, repository)
    selection = reading.selection
    return {
        "reads_rows": True,
        "repo": location.repository,
        "storage_options": dict(location.storage_options),
        "key": location.key,
        "branch": _find_branch(repository, request["options"]),
        "commit": "",
        "version_ref": version_ref_to_json(version_ref),
        "rows": version_ref.open().count_rows(),
        "bytes": version_ref.count_bytes(),
        # The key is not reported to Spark, which would show its columns as not nullable, unlike the source in Python.
        "primary_key": [],
        "properties": {},
        "schema": json.dumps(shown_schema(selected_schema(version_ref, selection)).jsonValue()),
        # The predicate was checked with the schema. A comment in it ends with its line.
        "filter": None if selection.filter is None else f"({selection.filter}\n)",
        "bases": list(selection.bases),
    }


def _find_branch(repository: Repository, options: Mapping[str, str]) -> str | None:
    """Return the branch to which rows can be added. None if the options select some rows, or a past state."""
    if not {"columns", "where", "bases", "version_ref"}.isdisjoint(options):
        return None
    try:
        return repository.branch_get(options.get("ref", MAIN)).name
    except AnabranchError:
        return None  # a tag, a commit or an expression such as 'dev~1'


_MOST_VALUES = 5_000
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PushedPredicate:
    """A predicate for Lance. Unless it is exact, Spark must filter again."""

    sql: str
    is_exact: bool = True


class _CannotPushError(Exception):
    """Lance cannot evaluate this, or may evaluate it differently from Spark."""


def push_predicate(found: Mapping[str, Any], schema: pa.Schema) -> PushedPredicate | None:
    """Translate one filter, a tree of `op` and `args`. Return None if only Spark can apply it."""
    try:
        return _translate(found, schema)
    except (_CannotPushError, OverflowError):  # Spark's dates and times have a larger range than Python's
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
        raise _CannotPushError  # the negation of a predicate with extra rows would drop rows
    return PushedPredicate(f"(NOT {inner.sql})")


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
    if _is_null(right):
        return PushedPredicate(f"({column} IS NULL)")
    literal = _literal(right, kind)
    # `<=>` is never null. `=` alone is null for a null, and under NOT these rows would be lost.
    return PushedPredicate(f"({column} IS NOT NULL AND {column} = {literal})", not pa.types.is_floating(kind))


def _in(_: str, args: Sequence[Mapping[str, Any]], schema: pa.Schema) -> PushedPredicate:
    column, kind = _column(args[0], schema)
    given = [arg for arg in args[1:] if not _is_null(arg)]
    # With a null in the list the result is null, not false. Under NOT, false would become true, and null stays null.
    has_null = len(given) < len(args) - 1
    if not given:
        return PushedPredicate("false", not has_null)
    values = {_literal(arg, kind): arg["value"] for arg in given}
    if len(values) <= _MOST_VALUES:
        is_exact = not pa.types.is_floating(kind) and not has_null
        return PushedPredicate(f"({column} IN ({', '.join(values)}))", is_exact)
    if not all(isinstance(value, int) for value in values.values()):
        raise _CannotPushError
    # The range contains all values, and Spark removes the other rows in it.
    least, greatest = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    return PushedPredicate(f"({column} BETWEEN {least} AND {greatest})", is_exact=False)


def _text_match(op: str, args: Sequence[Mapping[str, Any]], schema: pa.Schema) -> PushedPredicate:
    column, kind = _column(args[0], schema)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise _CannotPushError
    return PushedPredicate(f"{op.lower()}({column}, {_literal(args[1], kind)})")


def _column(found: Mapping[str, Any], schema: pa.Schema) -> tuple[str, pa.DataType]:
    """Return the SQL and the type of a column, or of a field inside a struct."""
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


def _is_null(found: Mapping[str, Any]) -> bool:
    return found["op"] == "literal" and found.get("value") is None


def _literal(found: Mapping[str, Any], kind: pa.DataType) -> str:
    if found["op"] != "literal" or _is_null(found):
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


def _timestamp(value: Any, kind: pa.DataType) -> str:
    if kind.unit != "us":
        raise _CannotPushError  # Spark shows finer times cut off
    moment = _EPOCH + timedelta(microseconds=value)
    zone = "" if kind.tz is None else "Z"
    return f"TIMESTAMP '{moment.strftime('%Y-%m-%dT%H:%M:%S.%f')}{zone}'"


_Writer = Callable[[Any, pa.DataType], str]
_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], _Writer], ...] = (
    (pa.types.is_integer, _integer),
    (pa.types.is_boolean, lambda value, _: "true" if value else "false"),
    (lambda kind: pa.types.is_float32(kind) or pa.types.is_float64(kind), _float),
    (pa.types.is_decimal128, _decimal),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _text),
    (
        lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
        lambda value, _: f"X'{bytes.fromhex(value).hex()}'",
    ),
    (pa.types.is_date32, lambda value, _: f"DATE '{(_EPOCH + timedelta(days=value)).date().isoformat()}'"),
    (pa.types.is_timestamp, _timestamp),
)

_Translator = Callable[[str, Sequence[Mapping[str, Any]], pa.Schema], PushedPredicate]
_TRANSLATORS: Mapping[str, _Translator] = {
    "AND": _connected,
    "OR": _connected,
    "NOT": _negated,
    "ALWAYS_TRUE": lambda *_: PushedPredicate("true"),
    "ALWAYS_FALSE": lambda *_: PushedPredicate("false"),
    "IS_NULL": _null_test,
    "IS_NOT_NULL": _null_test,
    "IN": _in,
    "STARTS_WITH": _text_match,
    "ENDS_WITH": _text_match,
    "CONTAINS": _text_match,
    "<=>": _null_safe,
    **dict.fromkeys(_FLIPPED, _comparison),
}
