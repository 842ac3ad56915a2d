"""Branches and tags, movements of branches, and commits that are undone or made again elsewhere."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from anabranch.repo.merge.plan import ReplayResult
from anabranch.repo.refs.branches import BranchInfo
from anabranch.spark.gateway.procedures.merges import DECISIONS, PUBLISHING, decisions_of, publishing_of
from anabranch.spark.gateway.procedures.procedure import Call, Procedure, Rows, columns, optional, required


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


def _rename_branch(call: Call) -> Rows:
    return [branch_row(call.repository.branch_rename(call["name"], call["to"]))]


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
    "rename_branch": Procedure(
        description="Rename a branch.", parameters=required("name", "to"), columns=BRANCH, run=_rename_branch
    ),
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


def _reset(call: Call) -> Rows:
    call.repository.reset(call["branch"], to=call["to"])
    return [branch_row(call.repository.branch_get(call["branch"]))]


def _undo(call: Call) -> Rows:
    branch = call.get("branch", call.branch)
    call.repository.undo(branch)
    return [branch_row(call.repository.branch_get(branch))]


def _redo(call: Call) -> Rows:
    branch = call.get("branch", call.branch)
    call.repository.redo(branch)
    return [branch_row(call.repository.branch_get(branch))]


def _revert(call: Call) -> Rows:
    return _picked(call, call.repository.revert)


def _cherry_pick(call: Call) -> Rows:
    return _picked(call, call.repository.cherry_pick)


def _rebase(call: Call) -> Rows:
    done = call.repository.rebase(
        call["branch"], onto=call.get("onto", "main"), **decisions_of(call), **publishing_of(call)
    )
    return _replayed(done)


def _picked(call: Call, pick: Callable[..., ReplayResult]) -> Rows:
    done = pick(
        call["commit"],
        branch=call.get("branch", call.branch),
        message=call.get("message"),
        **decisions_of(call),
        **publishing_of(call),
    )
    return _replayed(done)


def _replayed(done: ReplayResult) -> Rows:
    """Return the new commits, or, of a dry run, what each commit would change."""
    for commit in done.commits:
        yield {
            "commit": commit.graph_commit_id,
            "message": commit.message,
            "tables": ", ".join(commit.tables),
            "conflicts": 0,
        }
    for plan in done.plan:
        yield {
            "commit": plan.commit_id,
            "message": plan.message,
            "tables": ", ".join(table.table for table in plan.tables),
            "conflicts": plan.conflict_count,
        }


_COMMIT = columns(["commit", "message", "tables"], longs=["conflicts"])
_PICK = (*required("commit"), *optional("branch", "message"), *DECISIONS, *PUBLISHING)

HISTORY: Mapping[str, Procedure] = {
    "reset": Procedure(
        description="Move a branch to another commit.",
        parameters=required("branch", "to"),
        columns=BRANCH,
        run=_reset,
    ),
    "undo": Procedure(
        description="Undo the last movement of a branch.", parameters=optional("branch"), columns=BRANCH, run=_undo
    ),
    "redo": Procedure(
        description="Redo the movement that the last undo undid.",
        parameters=optional("branch"),
        columns=BRANCH,
        run=_redo,
    ),
    "revert": Procedure(
        description="Undo a commit, or the commits of a range a..b, each by another commit.",
        parameters=_PICK,
        columns=_COMMIT,
        run=_revert,
    ),
    "cherry_pick": Procedure(
        description="Make the change of a commit, or of the commits of a range a..b, on a branch, too.",
        parameters=_PICK,
        columns=_COMMIT,
        run=_cherry_pick,
    ),
    "rebase": Procedure(
        description="Put the commits of a branch on top of another state.",
        parameters=(*required("branch"), *optional("onto"), *DECISIONS, *PUBLISHING),
        columns=_COMMIT,
        run=_rebase,
    ),
}
