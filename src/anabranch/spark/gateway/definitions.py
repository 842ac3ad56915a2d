"""Tables as Spark SQL defines and describes them: columns with comments and defaults, a primary key, properties."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from anabranch.errors import InvalidExpressionError, InvalidInputError
from anabranch.format import staging
from anabranch.format.staging import DEFAULT, DESCRIPTION
from anabranch.format.staging.expressions import find_default
from anabranch.spark.types import new_columns, shown_schema, struct_from_json

PRIMARY_KEY = "primaryKey"
_PROVIDER = "anabranch"
_PROPERTY = "anabranch:property:"
# Notes of Anabranch, and what Arrow, Lance and pandas keep in the metadata of a schema.
_OTHERS = ("anabranch:", "ARROW:", "lance", "pandas")
_OPTION = "option."
_COMMENT = "comment"
# What the repository itself reports beside a table. A copied definition may name them; they cannot be set.
_REPORTED = ("branch", "bytes", "commit", "rows")
# What Spark adds to every definition.
_SPARKS_OWN = ("external", "is_managed_location", "owner", "provider", "table_type")
_CLOCKS = {
    "current_date": "current_date()",
    "current_timestamp": "now()",
    "now": "now()",
}
# To Spark, a constant of this kind is a filter.
_TRUTHS = {"ALWAYS_TRUE": "true", "ALWAYS_FALSE": "false"}
_CALL = re.compile(r"^(\w+)\s*(\(\s*\))?$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """A table that is to be created. Its schema has comments, defaults and properties as notes."""

    schema: pa.Schema
    primary_key: tuple[str, ...]


def parse_definition(found: Mapping[str, Any]) -> TableDefinition:
    """Read a CREATE TABLE. Refuse what a repository does not support."""
    properties = _own_properties(found["properties"])
    if found["partitions"]:
        raise InvalidInputError(
            f"tables are not partitioned, and PARTITIONED BY names {', '.join(found['partitions'])}",
            hint="leave PARTITIONED BY out; an index makes filters fast: CALL lake.system.index(...)",
        )
    columns = struct_from_json(found["schema"])
    fields = [
        _noted_field(column, field, found["defaults"].get(column.name))
        for column, field in zip(columns, new_columns(columns, keep_nullability=True), strict=True)
    ]
    primary_key = _primary_key(found["constraints"], properties.pop(PRIMARY_KEY, None))
    schema = pa.schema(fields, metadata=dict(note_of_property(*each) for each in properties.items()) or None)
    for field in schema:
        check_default(schema, field)
    return TableDefinition(schema=schema, primary_key=primary_key)


def parse_primary_key(text: str) -> tuple[str, ...]:
    """Read the columns of a primary key, which have commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def note_of_property(name: str, value: str) -> tuple[str, str]:
    """Return the note that holds a property of a table."""
    if name in _REPORTED:
        raise InvalidInputError(
            f"the property {name!r} cannot be set", hint="choose another name for your own property"
        )
    return (DESCRIPTION if name == _COMMENT else _PROPERTY + name), value


def properties_of(schema: pa.Schema) -> dict[str, str]:
    """Return the properties that are noted beside a table: those of SQL, and texts that `annotate` put there."""
    found = {key.decode(): text.decode(errors="replace") for key, text in (schema.metadata or {}).items()}
    properties = {key: text for key, text in found.items() if not key.startswith(_OTHERS)}
    properties |= {key.removeprefix(_PROPERTY): text for key, text in found.items() if key.startswith(_PROPERTY)}
    if DESCRIPTION in found:
        properties[_COMMENT] = found[DESCRIPTION]
    return properties


def described_schema(schema: pa.Schema) -> StructType:
    """Return the columns as Spark shows them, with their comments and defaults."""
    columns = zip(shown_schema(schema), schema, strict=True)
    return StructType([_described(column, field, schema.names) for column, field in columns])


def described_type(text: str) -> DataType:
    """Read a type that Spark wrote as JSON."""
    kind: DataType = StructType.fromJson(
        {"type": "struct", "fields": [{"name": "x", "type": json.loads(text), "nullable": True, "metadata": {}}]}
    )["x"].dataType
    return kind


def default_of(found: Mapping[str, Any], field: pa.Field) -> str:
    """Return a default of Spark as an expression of Lance."""
    call = _CALL.match((found.get("sql") or "").strip().lower())
    if call and call[1] in _CLOCKS:
        return _CLOCKS[call[1]]
    literal = found.get("literal")
    if literal is not None and literal["op"] in _TRUTHS:
        return _TRUTHS[literal["op"]]
    if literal is None or literal["op"] != "literal":
        raise InvalidInputError(
            f"the default {found.get('sql')!r} of column {field.name!r} is not a constant",
            hint="write a constant, current_date() or current_timestamp()",
        )
    if literal["value"] is None:
        return "NULL"
    text = _constant(literal["value"], field.type)
    if text is None:
        raise InvalidInputError(
            f"column {field.name!r} is {field.type}, for which there is no default in SQL",
            hint="leave DEFAULT out, and give the values with the rows",
        )
    return text


def check_default(schema: pa.Schema, field: pa.Field) -> None:
    """Refuse a default that a column cannot take."""
    staging.check_defaults(schema.set(schema.get_field_index(field.name), field), [field.name])


def _own_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a definition sets itself; refuse another provider and a location."""
    provider = given.get("provider", _PROVIDER)
    if provider.lower() != _PROVIDER:
        raise InvalidInputError(
            f"this catalog has no tables of the format {provider!r}",
            hint=f"write USING {_PROVIDER}, or leave USING out",
        )
    if "location" in given:
        raise InvalidInputError(
            f"the location of a table is not free to choose, and LOCATION names {given['location']!r}",
            hint="leave LOCATION out",
        )
    options = {name.removeprefix(_OPTION): value for name, value in given.items() if name.startswith(_OPTION)}
    properties = {name: value for name, value in given.items() if not name.startswith(_OPTION)}
    # Spark passes each of OPTIONS twice: with the prefix, and among the properties.
    both = {**options, **properties}
    return {name: value for name, value in both.items() if name not in (*_SPARKS_OWN, *_REPORTED)}


def _primary_key(constraints: Sequence[Mapping[str, Any]], named: str | None) -> tuple[str, ...]:
    by_property = () if named is None else parse_primary_key(named)
    for constraint in constraints:
        if "primary_key" not in constraint:
            raise InvalidInputError(
                f"tables have no constraint but PRIMARY KEY, and {constraint['text']!r} is another",
                hint="leave it out; branch_protect() refuses merges that fail checks",
            )
        columns = tuple(constraint["primary_key"])
        if by_property and by_property != columns:
            raise InvalidInputError(
                f"the primary key is ({', '.join(columns)}) and also ({', '.join(by_property)})",
                hint=f"write PRIMARY KEY or the property {PRIMARY_KEY}, not both",
            )
        return columns
    return by_property


def _noted_field(column: StructField, field: pa.Field, default: Mapping[str, Any] | None) -> pa.Field:
    notes = {}
    if column.metadata.get(_COMMENT) is not None:
        notes[DESCRIPTION] = column.metadata[_COMMENT]
    if default is not None:
        notes[DEFAULT] = default_of(default, field)
    return field.with_metadata(notes) if notes else field


def _described(column: StructField, field: pa.Field, names: Sequence[str]) -> StructField:
    notes = {key.decode(): text.decode() for key, text in (field.metadata or {}).items()}
    metadata = dict(column.metadata)
    if DESCRIPTION in notes:
        metadata[_COMMENT] = notes[DESCRIPTION]
    default = _shown_default(notes.get(DEFAULT), column, field, names)
    if default is not None:
        # The names under which Spark keeps defaults: the first is for new rows, the second for rows that exist.
        metadata |= {"CURRENT_DEFAULT": default, "EXISTS_DEFAULT": default}
    return StructField(column.name, column.dataType, column.nullable, metadata)


def _shown_default(default: str | None, column: StructField, field: pa.Field, names: Sequence[str]) -> str | None:
    """Return a default as an expression of Spark; None for one that only Lance can compute."""
    if default is None or default == "NULL":
        return None
    if default in _CLOCKS.values():
        return "current_timestamp()" if default == "now()" else default
    try:
        compute = find_default(field, columns=names)
        value = None if compute is None else compute(1)[0].as_py()
    except InvalidExpressionError:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | Decimal | str | date):
        # In a string of Spark SQL, a backslash escapes the next character.
        text = str(value).replace("\\", "\\\\").replace("'", "\\'")
        return f"CAST('{text}' AS {column.dataType.simpleString()})"
    return None


def _constant(value: Any, kind: pa.DataType) -> str | None:
    """Return a constant of Spark as an expression of Lance; None if it has no text."""
    if isinstance(value, bool):
        return str(value).lower()
    if pa.types.is_decimal(kind):
        return f"CAST('{value}' AS DECIMAL({kind.precision}, {kind.scale}))"
    if pa.types.is_date(kind):
        return f"DATE '{value if isinstance(value, str) else (_EPOCH + timedelta(days=value)).date()}'"
    if pa.types.is_timestamp(kind):
        moment = value if isinstance(value, str) else (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=None)
        return f"TIMESTAMP '{moment}'"
    if pa.types.is_string(kind):
        return "'" + str(value).replace("'", "''") + "'"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return str(value)
    return None
