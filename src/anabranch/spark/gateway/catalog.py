"""What the catalog asks of a repository as a whole: which tables there are, and what one of them is."""

import json
from typing import Any

from anabranch.errors import TableNotFoundError
from anabranch.repo.snapshots import Snapshot, Table
from anabranch.spark.gateway.names import TableName, parse_name
from anabranch.spark.gateway.requests import Request
from anabranch.spark.gateway.scans import size_of
from anabranch.spark.gateway.values import pin_to_json
from anabranch.spark.types import new_columns, shown_schema, struct_from_json

__all__ = ["create_table", "drop_table", "list_tables", "load_table", "rename_table"]


def list_tables(request: Request) -> dict[str, Any]:
    """Answer the keys of all tables of a branch."""
    return {"tables": list(request.repository.published_snapshot_of(request["branch"]))}


def load_table(request: Request) -> dict[str, Any]:
    """Answer one table, pinned.

    `commits` has the commits that the query has read already, by ref: all its tables of one branch come from one.
    """
    name = _name(request)
    commits = request.get("commits", {})
    snapshot = request.repository.published_snapshot_of(commits.get(name.ref, name.ref))
    if str(name.key) not in snapshot:
        raise TableNotFoundError(
            f"there is no table '{name.key}' in '{name.ref}'", hint="list the tables with SHOW TABLES"
        )
    return _describe(name, snapshot, snapshot[str(name.key)])


def create_table(request: Request) -> dict[str, Any]:
    """Make an empty table, in one commit."""
    name = _name(request)
    columns = new_columns(struct_from_json(request["schema"]), keep_nullability=True)
    with request.repository.transaction(_branch(name), message=request["message"]) as tx:
        tx.create_table(str(name.key), columns, primary_key=request.get("primary_key", []))
    return {}


def drop_table(request: Request) -> dict[str, Any]:
    name = _name(request)
    with request.repository.transaction(_branch(name), message=request["message"]) as tx:
        tx.drop_table(str(name.key))
    return {}


def rename_table(request: Request) -> dict[str, Any]:
    old, new = _name(request), parse_name(request["new_parts"], branch=request["branch"])
    with request.repository.transaction(_branch(old), message=request["message"]) as tx:
        tx.rename_table(str(old.key), str(new.key))
    return {}


def _name(request: Request) -> TableName:
    return parse_name(
        request["parts"], branch=request["branch"], version=request.get("version"), time=request.get("time")
    )


def _branch(name: TableName) -> str:
    if name.branch is None or name.metadata is not None:
        raise TableNotFoundError(f"'{name.key}' at '{name.ref}' cannot be changed", hint="name a table of a branch")
    return name.branch


def _describe(name: TableName, snapshot: Snapshot, table: Table) -> dict[str, Any]:
    pin = table.pin
    return {
        "key": table.key,
        "branch": name.branch,
        "ref": name.ref,
        "commit": snapshot.id,
        "pin": pin_to_json(pin),
        "rows": table.count_rows(),
        "bytes": size_of(pin),
        "primary_key": list(table.primary_key),
        "schema": json.dumps(shown_schema(pin.schema).jsonValue()),
    }
