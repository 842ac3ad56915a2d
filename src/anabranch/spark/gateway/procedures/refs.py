"""Branches and tags."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from anabranch.repo.refs.branches import BranchInfo
from anabranch.spark.gateway.procedures.procedure import Call, Procedure, Rows, columns, optional, required

__all__ = ["BRANCH", "REFS", "branch_row"]


def _create_branch(call: Call) -> Rows:
    hours = call.get("expires_in_hours")
    info = call.repository.branch_create_from(
        call.get("source", call.branch),
        call["name"],
        mode=call.get("mode", "pinned"),
        description=call.get("description", ""),
        expires_in=None if hours is None else timedelta(hours=hours),
    )
    return [branch_row(info)]


def _list_branches(call: Call) -> Rows:
    return [branch_row(info) for info in call.repository.branch_list()]


def _delete_branch(call: Call) -> Rows:
    info = call.repository.branch_get(call["name"]) if not call.get("purge") else None
    call.repository.branch_delete(call["name"], purge=call.get("purge", False))
    return [{"branch": call["name"], "commit": None if info is None else info.head_commit_id}]


def _restore_branch(call: Call) -> Rows:
    return [branch_row(call.repository.branch_restore(call["name"]))]


def _protect_branch(call: Call) -> Rows:
    return [branch_row(call.repository.branch_protect(call["name"], checks=call.get("checks", {})))]


def _unprotect_branch(call: Call) -> Rows:
    return [branch_row(call.repository.branch_unprotect(call["name"]))]


def _tag(call: Call) -> Rows:
    info = call.repository.tag_create(
        call["name"], ref=call.get("ref", call.branch), description=call.get("description", "")
    )
    return [{"tag": info.name, "commit": info.commit_id}]


def _delete_tag(call: Call) -> Rows:
    info = call.repository.tag_get(call["name"])
    call.repository.tag_delete(call["name"])
    return [{"tag": info.name, "commit": info.commit_id}]


def branch_row(info: BranchInfo) -> dict[str, Any]:
    """Return a branch in the columns `BRANCH`."""
    return {
        "branch": info.name,
        "commit": info.head_commit_id,
        "version": info.version,
        "mode": info.mode.value,
        "parent": info.parent,
        "protected": info.is_protected,
    }


BRANCH = columns(["branch", "commit", "mode", "parent"], longs=["version"], flags=["protected"])

REFS: Mapping[str, Procedure] = {
    "create_branch": Procedure(
        description="Create a branch from a branch, a tag or a commit.",
        parameters=(*required("name"), *optional("source", "mode", "description", expires_in_hours="DOUBLE")),
        columns=BRANCH,
        run=_create_branch,
    ),
    "list_branches": Procedure(description="List the branches.", parameters=(), columns=BRANCH, run=_list_branches),
    "delete_branch": Procedure(
        description="Delete a branch; with purge, free its space at once.",
        parameters=(*required("name"), *optional(purge="BOOLEAN")),
        columns=columns(["branch", "commit"]),
        run=_delete_branch,
    ),
    "restore_branch": Procedure(
        description="Restore a deleted branch.", parameters=required("name"), columns=BRANCH, run=_restore_branch
    ),
    "protect_branch": Procedure(
        description="Let a branch move by merges only, which must pass the checks.",
        parameters=(*required("name"), *optional(checks="MAP<STRING, STRING>")),
        columns=BRANCH,
        run=_protect_branch,
    ),
    "unprotect_branch": Procedure(
        description="Remove the protection of a branch.",
        parameters=required("name"),
        columns=BRANCH,
        run=_unprotect_branch,
    ),
    "tag": Procedure(
        description="Name the commit of a ref.",
        parameters=(*required("name"), *optional("ref", "description")),
        columns=columns(["tag", "commit"]),
        run=_tag,
    ),
    "delete_tag": Procedure(
        description="Delete a tag; its commit stays.",
        parameters=required("name"),
        columns=columns(["tag", "commit"]),
        run=_delete_tag,
    ),
}
