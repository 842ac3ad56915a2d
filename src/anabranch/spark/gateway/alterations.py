"""ALTER TABLE: its changes in their order, as steps of one transaction."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from anabranch.errors import InvalidInputError
from anabranch.format.staging import DEFAULT, DESCRIPTION, ColumnChange, default_expression
from anabranch.repo.transaction import Transaction
from anabranch.spark.gateway.definitions import (
    PRIMARY_KEY,
    check_default,
    default_of,
    described_type,
    note_of_property,
    parse_primary_key,
)
from anabranch.spark.types import new_columns

__all__ = ["alter_table"]

Change = Mapping[str, Any]


def alter_table(tx: Transaction, key: str, changes: list[Change]) -> None:
    """Stage the changes of one statement."""
    for change in changes:
        stage = _STAGES.get(change["kind"])
        if stage is None:
            raise InvalidInputError(
                f"a table cannot be changed by {change['kind']}",
                hint="columns keep their order, and tables are not clustered",
            )
        stage(tx, key, change)


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
    kind = described_type(change["type"])
    field = new_columns(StructType([StructField(name, kind)])).field(0)
    default = None if change["default"] is None else default_of(change["default"], field)
    if default is None:
        tx.add_columns(key, pa.schema([field]))
    else:
        check_default(pa.schema([field]), field.with_metadata({DEFAULT: default}))
        # Rows that exist take the default, too.
        tx.add_columns(key, {name: default_expression(default, field.type)})
        # Lance derives the type of the new column from the expression, and it may be another one.
        if tx[key].schema.field(name).type != field.type:
            tx.alter_columns(key, [ColumnChange(path=name, type=field.type)])
    # A column is added as nullable. `alter_columns` checks that no row has a null in it.
    if not change["nullable"]:
        tx.alter_columns(key, [ColumnChange(path=name, nullable=False)])
    notes = {DEFAULT: default, DESCRIPTION: change["comment"]}
    tx.annotate(key, {}, columns={name: {note: text for note, text in notes.items() if text is not None}})


def _drop_column(tx: Transaction, key: str, change: Change) -> None:
    tx.drop_columns(key, [_path(change)])


def _rename_column(tx: Transaction, key: str, change: Change) -> None:
    tx.alter_columns(key, [ColumnChange(path=_path(change), name=change["name"])])


def _set_type(tx: Transaction, key: str, change: Change) -> None:
    kind = new_columns(StructType([StructField("x", described_type(change["type"]))])).field(0).type
    tx.alter_columns(key, [ColumnChange(path=_path(change), type=kind)])


def _set_nullable(tx: Transaction, key: str, change: Change) -> None:
    tx.alter_columns(key, [ColumnChange(path=_path(change), nullable=change["nullable"])])


def _set_comment(tx: Transaction, key: str, change: Change) -> None:
    tx.annotate(key, {}, columns={_path(change): {DESCRIPTION: change["comment"] or None}})


def _set_default(tx: Transaction, key: str, change: Change) -> None:
    if len(change["path"]) > 1:
        raise InvalidInputError(f"the nested field {_path(change)!r} cannot have a default", hint="give it to a column")
    schema, name = tx[key].schema, change["path"][0]
    default = None if change["default"] is None else default_of(change["default"], schema.field(name))
    if default is not None:
        check_default(schema, schema.field(name).with_metadata({DEFAULT: default}))
    tx.annotate(key, {}, columns={name: {DEFAULT: default}})


# The table itself


def _set_property(tx: Transaction, key: str, change: Change) -> None:
    if change["name"] == PRIMARY_KEY:
        tx.set_primary_key(key, parse_primary_key(change["value"]))
    else:
        tx.annotate(key, dict([note_of_property(change["name"], change["value"])]))


def _remove_property(tx: Transaction, key: str, change: Change) -> None:
    if change["name"] == PRIMARY_KEY:
        tx.set_primary_key(key, ())
    else:
        note, _ = note_of_property(change["name"], "")
        # A shown property may also be a text that `annotate` wrote, which has no prefix.
        tx.annotate(key, {note: None, change["name"]: None})


def _add_constraint(tx: Transaction, key: str, change: Change) -> None:
    if "primary_key" not in change:
        raise InvalidInputError(
            f"tables have no constraint but PRIMARY KEY, and {change['text']!r} is another", hint="leave it out"
        )
    if tx[key].primary_key:
        raise InvalidInputError(
            f"table '{key}' has the primary key ({', '.join(tx[key].primary_key)})", hint="drop that constraint first"
        )
    tx.set_primary_key(key, change["primary_key"])


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
    "drop_column": _drop_column,
    "rename_column": _rename_column,
    "set_type": _set_type,
    "set_nullable": _set_nullable,
    "set_comment": _set_comment,
    "set_default": _set_default,
    "set_property": _set_property,
    "remove_property": _remove_property,
    "add_constraint": _add_constraint,
    "drop_constraint": _drop_constraint,
}
