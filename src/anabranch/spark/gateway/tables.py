"""List, describe, create, alter, drop and rename tables for the catalog.

Spark SQL defines a table by columns with comments and defaults, a primary key and properties. Comments, defaults and
properties are notes of the schema.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from anabranch.column_types import show_type
from anabranch.errors import InvalidExpressionError, InvalidInputError
from anabranch.format import staging
from anabranch.format.arguments import unknown_table
from anabranch.format.staging import DEFAULT, DESCRIPTION, ColumnChange, default_expression
from anabranch.format.staging.expressions import find_default
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.repo.transaction import Transaction
from anabranch.spark.gateway.metadata import load_metadata
from anabranch.spark.gateway.requests import Request, TableName, branch_of, name_of, new_name_of
from anabranch.spark.options import version_ref_to_json
from anabranch.spark.types import new_columns, shown_schema, struct_from_json

PRIMARY_KEY = "primaryKey"
_PROVIDER = "anabranch"
_PROPERTY = "anabranch:property:"
# Notes of Anabranch, and what Arrow, Lance and pandas keep in the metadata of a schema.
_OTHERS = ("anabranch:", "ARROW:", "lance", "pandas")
_OPTION = "option."
_COMMENT = "comment"
# Properties that the repository reports for a table. A copied definition may contain them, but they cannot be set.
_REPORTED = ("branch", "bytes", "commit", "rows")
# Properties that Spark adds to every definition.
_SPARKS_OWN = ("external", "is_managed_location", "owner", "provider", "table_type")
_CLOCKS = {"current_date": "current_date()", "current_timestamp": "now()", "now": "now()"}
# To Spark, a constant of this kind is a filter.
_TRUTHS = {"ALWAYS_TRUE": "true", "ALWAYS_FALSE": "false"}
_CALL = re.compile(r"^(\w+)\s*(\(\s*\))?$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def list_tables(request: Request) -> dict[str, Any]:
    """Return the keys of all tables of a branch."""
    return {"tables": list(EngineAccess(request.repository).published_snapshot_of(request["branch"]))}


def load_table(request: Request) -> dict[str, Any]:
    """Return one table, pinned.

    `commits` has the commits that the query has read already, by ref: all tables of one pinned branch are read at one
    commit.
    """
    name = name_of(request)
    commits = request.get("commits", {})
    snapshot = EngineAccess(request.repository).published_snapshot_of(commits.get(name.ref, name.ref))
    if str(name.key) not in snapshot:
        raise unknown_table(name.key, f"in '{name.ref}'", snapshot, "list the tables with SHOW TABLES")
    # The commit of a live branch does not record which tables of main it shows.
    is_pinned = snapshot.main_commit_id is None
    if name.metadata is not None:
        return {**load_metadata(name, request.repository, snapshot), "is_pinned": is_pinned}
    return {**_describe(name, snapshot, snapshot[str(name.key)]), "is_pinned": is_pinned}


@contextmanager
def _changing(request: Request) -> Iterator[tuple[Transaction, str]]:
    """Yield the transaction of a request, which becomes one commit, and the key of the table."""
    name = name_of(request)
    with request.repository.transaction(branch_of(name), message=request["message"]) as tx:
        yield tx, str(name.key)


def create_table(request: Request) -> dict[str, Any]:
    """Make an empty table."""
    defined = parse_definition(request["definition"])
    with _changing(request) as (tx, key):
        tx.create_table(key, defined.schema, primary_key=defined.primary_key)
    return {}


def alter_table(request: Request) -> dict[str, Any]:
    """Change columns, keys and properties of a table, in one commit."""
    with _changing(request) as (tx, key):
        for change in request["changes"]:
            stage = _STAGES.get(change["kind"])
            if stage is None:
                raise InvalidInputError(
                    f"a table cannot be changed by {change['kind']}",
                    hint="columns keep their order, and tables are not clustered",
                )
            stage(tx, key, change)
    return {}


def drop_table(request: Request) -> dict[str, Any]:
    """Remove a table from a branch."""
    with _changing(request) as (tx, key):
        tx.drop_table(key)
    return {}


def rename_table(request: Request) -> dict[str, Any]:
    """Give a table another name on its branch."""
    with _changing(request) as (tx, key):
        tx.rename_table(key, str(new_name_of(request)))
    return {}


def _describe(name: TableName, snapshot: Snapshot, table: Table) -> dict[str, Any]:
    version_ref, rows, size = table.version_ref, table.count_rows(), table.size_bytes
    # Properties that DESCRIBE EXTENDED and SHOW TBLPROPERTIES show in addition to those of the user.
    report = {"commit": snapshot.id, "rows": str(rows), "bytes": str(size)}
    if name.branch is not None:
        report["branch"] = name.branch
    if table.primary_key:
        report[PRIMARY_KEY] = ",".join(table.primary_key)
    return {
        "key": table.key,
        "branch": name.branch,
        "ref": name.ref,
        "commit": snapshot.id,
        "version_ref": version_ref_to_json(version_ref),
        "rows": rows,
        "bytes": size,
        "primary_key": list(table.primary_key),
        "schema": json.dumps(_described_schema(version_ref.schema).jsonValue()),
        "properties": {**_properties_of(version_ref.schema), **report},
    }


Change = Mapping[str, Any]


# Columns


def _add_column(tx: Transaction, key: str, change: Change) -> None:
    path, name = _path(change), change["path"][-1]
    if len(change["path"]) > 1:
        raise InvalidInputError(
            f"the field {path!r} cannot be added to a nested column", hint="add a column beside it, or a new struct"
        )
    if not change["is_last"]:
        raise InvalidInputError(
            f"the new column {name!r} cannot have a position", hint="leave FIRST or AFTER out: it becomes the last one"
        )
    field = _new_field(name, change["type"])
    default = None if change["default"] is None else _default_of(change["default"], field)
    if default is None:
        tx.add_columns(key, pa.schema([field]))
    else:
        _check_default(pa.schema([field]), field.with_metadata({DEFAULT: default}))
        # Existing rows get the default, too.
        tx.add_columns(key, {name: default_expression(default, field.type)})
        # Lance derives the type of the new column from the expression, and the type may differ.
        if tx[key].schema.field(name).type != field.type:
            tx.alter_columns(key, [ColumnChange(path=name, type=field.type)])
    # A column is added as nullable. `alter_columns` checks that no row has a null in it.
    if not change["nullable"]:
        tx.alter_columns(key, [ColumnChange(path=name, nullable=False)])
    notes = {DEFAULT: default, DESCRIPTION: change["comment"]}
    _note(tx, key, name, {note: text for note, text in notes.items() if text is not None})


def _new_field(name: str, json_type: str) -> pa.Field:
    """Return a column of a type that Spark wrote as JSON."""
    given = {"name": name, "type": json.loads(json_type), "nullable": True, "metadata": {}}
    return new_columns(StructType.fromJson({"type": "struct", "fields": [given]})).field(0)


def _alter_column(tx: Transaction, key: str, change: Change, **wanted: Any) -> None:
    tx.alter_columns(key, [ColumnChange(path=_path(change), **wanted)])


def _note(tx: Transaction, key: str, path: str, notes: Mapping[str, str | None]) -> None:
    tx.annotate(key, {}, columns={path: notes})


def _set_default(tx: Transaction, key: str, change: Change) -> None:
    if len(change["path"]) > 1:
        raise InvalidInputError(f"the nested field {_path(change)!r} cannot have a default", hint="give it to a column")
    schema, name = tx[key].schema, change["path"][0]
    default = None if change["default"] is None else _default_of(change["default"], schema.field(name))
    if default is not None:
        _check_default(schema, schema.field(name).with_metadata({DEFAULT: default}))
    _note(tx, key, name, {DEFAULT: default})


# The table itself


def _set_property(tx: Transaction, key: str, change: Change) -> None:
    if change["name"] == PRIMARY_KEY:
        tx.set_primary_key(key, _parse_primary_key(change["value"]))
    else:
        tx.annotate(key, dict([_note_of_property(change["name"], change["value"])]))


def _remove_property(tx: Transaction, key: str, change: Change) -> None:
    if change["name"] == PRIMARY_KEY:
        tx.set_primary_key(key, ())
    else:
        note, _ = _note_of_property(change["name"], "")
        # A shown property may also be a text that `annotate` wrote, which has no prefix.
        tx.annotate(key, {note: None, change["name"]: None})


def _add_constraint(tx: Transaction, key: str, change: Change) -> None:
    columns = _key_of(change)
    if tx[key].primary_key:
        raise InvalidInputError(
            f"table '{key}' has the primary key ({', '.join(tx[key].primary_key)})", hint="drop that constraint first"
        )
    tx.set_primary_key(key, columns)


def _drop_constraint(tx: Transaction, key: str, change: Change) -> None:
    if change["name"].lower() == "primary_key" and tx[key].primary_key:
        tx.set_primary_key(key, ())
    elif not change["if_exists"]:
        raise InvalidInputError(
            f"table '{key}' has no constraint {change['name']!r}", hint="a primary key is called primary_key"
        )


def _path(change: Change) -> str:
    return ".".join(change["path"])


_STAGES: Mapping[str, Callable[[Transaction, str, Change], None]] = {
    "add_column": _add_column,
    "drop_column": lambda tx, key, change: tx.drop_columns(key, [_path(change)]),
    "rename_column": lambda tx, key, change: _alter_column(tx, key, change, name=change["name"]),
    "set_type": lambda tx, key, change: _alter_column(tx, key, change, type=_new_field("x", change["type"]).type),
    "set_nullable": lambda tx, key, change: _alter_column(tx, key, change, nullable=change["nullable"]),
    "set_comment": lambda tx, key, change: _note(tx, key, _path(change), {DESCRIPTION: change["comment"] or None}),
    "set_default": _set_default,
    "set_property": _set_property,
    "remove_property": _remove_property,
    "add_constraint": _add_constraint,
    "drop_constraint": _drop_constraint,
}


# Definitions


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
    schema = pa.schema(fields, metadata=dict(_note_of_property(*each) for each in properties.items()) or None)
    for field in schema:
        _check_default(schema, field)
    return TableDefinition(schema=schema, primary_key=primary_key)


def _parse_primary_key(text: str) -> tuple[str, ...]:
    """Read the columns of a primary key, which have commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _note_of_property(name: str, value: str) -> tuple[str, str]:
    """Return the note that holds a property of a table."""
    if name in _REPORTED:
        raise InvalidInputError(
            f"the property {name!r} cannot be set", hint="choose another name for your own property"
        )
    return (DESCRIPTION if name == _COMMENT else _PROPERTY + name), value


def _properties_of(schema: pa.Schema) -> dict[str, str]:
    """Return the properties of a table: those of SQL, and the texts of `annotate`."""
    found = {key.decode(): text.decode(errors="replace") for key, text in (schema.metadata or {}).items()}
    properties = {key: text for key, text in found.items() if not key.startswith(_OTHERS)}
    properties |= {key.removeprefix(_PROPERTY): text for key, text in found.items() if key.startswith(_PROPERTY)}
    if DESCRIPTION in found:
        properties[_COMMENT] = found[DESCRIPTION]
    return properties


def _described_schema(schema: pa.Schema) -> StructType:
    """Return the columns as Spark shows them, with their comments and defaults."""
    columns = zip(shown_schema(schema), schema, strict=True)
    return StructType([_described(column, field, schema.names) for column, field in columns])


def _default_of(found: Mapping[str, Any], field: pa.Field) -> str:
    """Return a default of Spark as an expression of Lance."""
    call = _CALL.match((found.get("sql") or "").strip().lower())
    if call and call[1] in _CLOCKS:
        return _CLOCKS[call[1]]
    match found.get("literal"):
        case {"op": op} if op in _TRUTHS:
            return _TRUTHS[op]
        case {"op": "literal", "value": None}:
            return "NULL"
        case {"op": "literal", "value": value}:
            text = _constant(value, field.type)
        case _:
            raise InvalidInputError(
                f"the default {found.get('sql')!r} of column {field.name!r} is not a constant",
                hint="write a constant, current_date() or current_timestamp()",
            )
    if text is None:
        raise InvalidInputError(
            f"column {field.name!r} is {show_type(field.type)}, for which there is no default in SQL",
            hint="leave DEFAULT out, and give the values with the rows",
        )
    return text


def _check_default(schema: pa.Schema, field: pa.Field) -> None:
    """Refuse a default that does not fit its column."""
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
    by_property = () if named is None else _parse_primary_key(named)
    for constraint in constraints:
        columns = _key_of(constraint)
        if by_property and by_property != columns:
            raise InvalidInputError(
                f"the primary key is ({', '.join(columns)}) and also ({', '.join(by_property)})",
                hint=f"write PRIMARY KEY or the property {PRIMARY_KEY}, not both",
            )
        return columns
    return by_property


def _key_of(constraint: Mapping[str, Any]) -> tuple[str, ...]:
    if "primary_key" not in constraint:
        raise InvalidInputError(
            f"tables have no constraint but PRIMARY KEY, and {constraint['text']!r} is another",
            hint="leave it out; branch_protect() refuses merges that fail checks",
        )
    return tuple(constraint["primary_key"])


def _noted_field(column: StructField, field: pa.Field, default: Mapping[str, Any] | None) -> pa.Field:
    notes = {}
    if column.metadata.get(_COMMENT) is not None:
        notes[DESCRIPTION] = column.metadata[_COMMENT]
    if default is not None:
        notes[DEFAULT] = _default_of(default, field)
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
