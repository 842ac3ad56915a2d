"""Values that clients send: the rows of a request as Arrow tables, and filters, which are SQL predicates.

Lance plans and evaluates filters. This module refuses those that would crash or exhaust the process."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.column_types import show_type
from anabranch.errors import BadRecordError, InvalidExpressionError, SchemaMismatchError
from anabranch.files.formats import FileFormat
from anabranch.files.json_reader import JsonReader
from anabranch.files.records import Block, Dialect, Record
from anabranch.files.sources import SourceFile
from anabranch.format.staging.fields import RESERVED
from anabranch.json_values import value_from_json

# Errors of the reader name the source of a row. These names are not shown.
_SOURCE = SourceFile(root="request", path="rows", size=0, format=FileFormat.JSON)


def rows_of_objects(objects: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return the objects as rows of the columns that at least one of them names.

    Other columns are omitted, so that an insert uses their defaults and an upsert keeps their values.
    """
    wanted = _named_columns(objects, schema)
    by_value = {field.name for field in wanted if is_read_by_value(field.type)}
    parsed = _parse(objects, pa.schema([field for field in wanted if field.name not in by_value]))
    columns = [
        read_values([row.get(field.name) for row in objects], field)
        if field.name in by_value
        else parsed.column(field.name)
        for field in wanted
    ]
    # A table created without columns has no rows. A table whose columns are removed keeps its number of rows.
    return pa.table(columns, schema=wanted) if columns else pa.table({"": pa.nulls(len(objects))}).select([])


def _named_columns(objects: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Schema:
    named = {name for row in objects for name in row}
    if unknown := sorted(named - set(schema.names)):
        raise SchemaMismatchError(
            f"the rows have unknown columns {', '.join(map(repr, unknown))}; the table has {', '.join(schema.names)}",
            hint="omit them, or add the columns first",
        )
    return pa.schema([field for field in schema if field.name in named])


def _parse(objects: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Parse the values of types that Arrow's JSON reader supports."""
    names = schema.names
    # The reader of JSON files parses the rows too, so that a request accepts the same texts of dates and decimals as a
    # file.
    records = tuple(
        Record(json.dumps({name: row[name] for name in names if name in row}).encode() + b"\n", number)
        for number, row in enumerate(objects, start=1)
    )
    block = Block("rows", b"".join(record.text for record in records), 1, Dialect.of_lines(), known=records)
    parsed = JsonReader().parse(_SOURCE, block, schema)
    if parsed.bad:
        first = parsed.bad[0]
        raise BadRecordError(f"row {first.line}: {first.reason}", hint="correct it; no row was written")
    return parsed.table


def is_read_by_value(kind: pa.DataType) -> bool:
    """Return whether Arrow's JSON reader does not support a type, so that its values are converted one by one."""
    types = pa.types
    # It supports plain lists only.
    is_other_list = types.is_fixed_size_list(kind) or types.is_large_list(kind) or types.is_map(kind)
    return bool(_is_sent_as_text(kind) or is_other_list or types.is_dictionary(kind) or types.is_uint64(kind))


def read_values(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Convert the values of a column. Raise BadRecordError with the first row that cannot be converted."""
    kind = field.type
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    found = []
    for number, value in enumerate(values, start=1):
        try:
            one = None if value is None else _read(value, kind)
            # Convert each value by itself: Arrow's error for a whole column does not have the number of the row.
            pa.array([one], storage)
        except (ValueError, TypeError, AttributeError, OverflowError, pa.ArrowException) as err:
            raise BadRecordError(
                f"row {number}: cannot convert to {show_type(kind)} (column {field.name!r}): {err}",
                hint="correct it; no row was written",
            ) from None
        found.append(one)
    made = pa.array(found, storage)
    return pa.ExtensionArray.from_storage(kind, made) if isinstance(kind, pa.BaseExtensionType) else made


def _read(value: Any, kind: pa.DataType) -> Any:
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name not in ("arrow.uuid", "arrow.json"):
        raise TypeError(f"values of {kind.extension_name} cannot be sent as JSON")
    # `value_from_json` also accepts values in the form of Python, such as pairs or integers, which a request must not
    # send.
    if pa.types.is_map(kind) and not isinstance(value, Mapping):
        raise TypeError("expected an object")
    if not isinstance(value, str) and _is_sent_as_text(kind):
        raise TypeError("expected a text")
    return value_from_json(value, kind)


def _is_sent_as_text(kind: pa.DataType) -> bool:
    is_extension = isinstance(kind, pa.BaseExtensionType)
    return is_extension or _is_bytes(kind) or bool(pa.types.is_time(kind) or pa.types.is_duration(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


# Allowed functions. Their results are not much larger than their arguments, unlike those of `repeat`.
_OF_NUMBERS = "abs ceil floor isnan ln log10 power round signum sqrt trunc"
_OF_TEXTS = (
    "btrim char_length character_length contains ends_with left length lower ltrim md5 octet_length regexp_like"
    " regexp_match reverse right rtrim sha256 starts_with strpos substr substring trim upper"
)
_OF_TIMES = "current_date date_part date_trunc extract now to_date to_timestamp"
_OF_LISTS = "array_contains array_has array_has_all array_has_any array_length cardinality"
_OF_ALL = "arrow_typeof coalesce get_field greatest json_extract json_get least nullif"
FUNCTIONS = frozenset(f"{_OF_NUMBERS} {_OF_TEXTS} {_OF_TIMES} {_OF_LISTS} {_OF_ALL}".split())
# Other words that may precede a parenthesis: syntax, and types with sizes.
_SYNTAX = (
    "all and any between case cast distinct else end escape for from ilike in is like not or similar then try_cast"
    " values when"
)
_TYPES = "char decimal interval numeric time timestamp varchar"
_WORDS = frozenset(f"{_SYNTAX} {_TYPES}".split())
# Lance overflows its stack, which ends the process, at about 500 nested operations.
_MOST_OPERATIONS = 300

_QUOTED = r"`[^`]*`|\"(?:[^\"]|\"\")*\""
# One pattern for all: each of these may contain the characters that start the others.
_NOT_CODE = re.compile(rf"(?P<name>{_QUOTED})|'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_OF_LANCE = re.compile(rf"\b(?:{'|'.join(sorted(RESERVED))})\b", re.IGNORECASE)
# Lance panics at any other precision or scale.
_ODD_DECIMAL = re.compile(
    r"\b(?:dec|decimal|numeric)\s*\((?!\s*(?:[1-9]|[12]\d|3[0-8])\s*,\s*(?:\d|[12]\d|3[0-8])\s*\))", re.IGNORECASE
)
_CALL = re.compile(rf"([\w$]+|{_QUOTED})\s*\(")
_OPERATION = re.compile(
    r"\|\||::|<=|>=|<>|!=|[-+*/%=<>!|&^~#(\[]|(?<![\w])\.|\.(?![\d])"
    r"|\b(?:and|or|not|is|in|like|ilike|similar|between|case|when|cast|collate|at|div)\b",
    re.IGNORECASE,
)


def checked_filter(text: str) -> str:
    """Return a predicate unchanged. Raise InvalidExpressionError if it is not safe to run."""
    # Literals and comments may contain any text. Quoted names stay, because they may name a function or a column.
    code = _NOT_CODE.sub(lambda found: found["name"] or " ", text)
    for match in _CALL.finditer(code):
        name = match.group(1).strip('`"').lower()
        if name not in FUNCTIONS and name not in _WORDS:
            raise InvalidExpressionError(
                f"the function {name!r} is not allowed in a predicate", hint=f"use {', '.join(sorted(FUNCTIONS))}"
            )
    # Lance also resolves its own columns, such as `_rowid`, which no schema of a table shows.
    if name := _OF_LANCE.search(code):
        raise InvalidExpressionError(f"there is no column {name.group()!r}", hint="use columns of the table")
    if _ODD_DECIMAL.search(code):
        raise InvalidExpressionError(
            "the predicate has an unsupported decimal type", hint="write DECIMAL(10, 2), with up to 38 digits"
        )
    # Operators inside a quoted name are not operations.
    code = re.sub(_QUOTED, "x", code)
    if character := re.search(r"[?$;]", code):
        raise InvalidExpressionError(
            f"the predicate contains {character.group()!r}", hint="write values as literals, text in single quotes"
        )
    if (found := len(_OPERATION.findall(code))) > _MOST_OPERATIONS:
        raise InvalidExpressionError(
            f"the predicate has {found} operations",
            hint=f"use at most {_MOST_OPERATIONS}; IN takes any number of values",
        )
    return text
