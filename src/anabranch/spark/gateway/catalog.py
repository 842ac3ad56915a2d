"""What the catalog asks of a repository as a whole: which tables there are, and what one of them is."""

import json
from typing import Any

from anabranch.errors import TableNotFoundError
from anabranch.hints import suggest
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.spark.gateway import alterations
from anabranch.spark.gateway.definitions import PRIMARY_KEY, described_schema, parse_definition, properties_of
from anabranch.spark.gateway.metadata import load_metadata
from anabranch.spark.gateway.names import TableName, branch_of, name_of, new_name_of
from anabranch.spark.gateway.requests import Request, version_ref_to_json
from anabranch.spark.gateway.scans import size_of

__all__ = ["alter_table", "create_table", "drop_table", "list_tables", "load_table", "rename_table"]


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
        alterations.alter_table(tx, str(name.key), request["changes"])
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
    size = size_of(version_ref)
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
