"""Tables as the catalog lists, describes, creates, alters, drops and renames them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from anabranch.errors import InvalidInputError, TableNotFoundError
from anabranch.format.staging import DEFAULT, DESCRIPTION, ColumnChange, default_expression
from anabranch.hints import suggest
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.repo.transaction import Transaction
from anabranch.spark.gateway.definitions import (
    PRIMARY_KEY,
    check_default,
    default_of,
    described_schema,
    described_type,
    note_of_property,
    parse_definition,
    parse_primary_key,
    properties_of,
)
from anabranch.spark.gateway.metadata import load_metadata
from anabranch.spark.gateway.requests import Request, TableName, branch_of, name_of, new_name_of
from anabranch.spark.options import version_ref_to_json
from anabranch.spark.types import new_columns


def list_tables(request: Request) -> dict[str, Any]:
    """Answer the keys of all tables of a branch."""
    return {"tables": list(EngineAccess(request.repository).published_snapshot_of(request["branch"]))}


def load_table(request: Request) -> dict[str, Any]:
    """Answer one table, pinned.

    `commits` has the commits that the query has read already, by ref: all its tables of one branch come from one,
    unless the branch is live.
    """
    name = name_of(request)
    commits = request.get("commits", {})
    snapshot = EngineAccess(request.repository).published_snapshot_of(commits.get(name.ref, name.ref))
    if str(name.key) not in snapshot:
        hint = suggest(str(name.key), snapshot, "list the tables with SHOW TABLES", by_parts=True)
        raise TableNotFoundError(f"there is no table '{name.key}' in '{name.ref}'", hint=hint)
    # The commit of a live branch does not record which tables of main it shows.
    is_pinned = snapshot.main_commit_id is None
    if name.metadata is not None:
        return {**load_metadata(name, request.repository, snapshot), "is_pinned": is_pinned}
    return {**_describe(name, snapshot, snapshot[str(name.key)]), "is_pinned": is_pinned}


def create_table(request: Request) -> dict[str, Any]:
    """Make an empty table, in one commit."""
    name, defined = name_of(request), parse_definition(request["definition"])
    with request.repository.transaction(branch_of(name), message=request["message"]) as tx:
        tx.create_table(str(name.key), defined.schema, primary_key=defined.primary_key)
    return {}


def alter_table(request: Request) -> dict[str, Any]:
    """Change columns, keys and properties of a table, in one commit."""
    name = name_of(request)
    with request.repository.transaction(branch_of(name), message=request["message"]) as tx:
        _alter(tx, str(name.key), request["changes"])
    return {}


def drop_table(request: Request) -> dict[str, Any]:
    """Remove a table from a branch, in one commit."""
    name = name_of(request)
    with request.repository.transaction(branch_of(name), message=request["message"]) as tx:
        tx.drop_table(str(name.key))
    return {}


def rename_table(request: Request) -> dict[str, Any]:
    """Give a table another name on its branch, in one commit."""
    old = name_of(request)
    new = new_name_of(request)
    with request.repository.transaction(branch_of(old), message=request["message"]) as tx:
        tx.rename_table(str(old.key), str(new))
    return {}


def _describe(name: TableName, snapshot: Snapshot, table: Table) -> dict[str, Any]:
    version_ref = table.version_ref
    size = version_ref.count_bytes()
    return {
        "key": table.key,
        "branch": name.branch,
        "ref": name.ref,
        "commit": snapshot.id,
        "version_ref": version_ref_to_json(version_ref),
        "rows": table.count_rows(),
        "bytes": size,
        "primary_key": list(table.primary_key),
        "schema": json.dumps(described_schema(version_ref.schema).jsonValue()),
        "properties": {**properties_of(version_ref.schema), **_report(name, snapshot, table, size)},
    }


def _report(name: TableName, snapshot: Snapshot, table: Table, size: int) -> dict[str, str]:
    """Return what DESCRIBE EXTENDED and SHOW TBLPROPERTIES show beside the user's own properties."""
    found = {"commit": snapshot.id, "rows": str(table.count_rows()), "bytes": str(size)}
    if name.branch is not None:
        found["branch"] = name.branch
    if table.primary_key:
        found[PRIMARY_KEY] = ",".join(table.primary_key)
    return found


Change = Mapping[str, Any]


def _alter(tx: Transaction, key: str, changes: list[Change]) -> None:
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
