"""Movements of branches, and commits that are undone or made again elsewhere."""

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.merge.plan import ReplayResult
from anabranch.repo.merge.resolve import Strategy
from anabranch.spark.gateway.procedures.procedure import Call, Procedure, Rows, columns, optional, required
from anabranch.spark.gateway.procedures.refs import BRANCH, branch_row

__all__ = ["HISTORY"]


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
        call["branch"], onto=call.get("onto", "main"), strategy=call.get("strategy", Strategy.FAIL)
    )
    return [_commit_row(commit) for commit in done.commits]


def _picked(call: Call, pick: Callable[..., ReplayResult]) -> Rows:
    done = pick(
        call["commit"],
        branch=call.get("branch", call.branch),
        message=call.get("message"),
        strategy=call.get("strategy", Strategy.FAIL),
    )
    return [_commit_row(commit) for commit in done.commits]


def _commit_row(commit: GraphCommit) -> dict[str, Any]:
    return {"commit": commit.graph_commit_id, "message": commit.message, "tables": ", ".join(commit.tables)}


_COMMIT = columns(["commit", "message", "tables"])
_PICK = (*required("commit"), *optional("branch", "message", "strategy"))

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
    "revert": Procedure(description="Undo one commit by another.", parameters=_PICK, columns=_COMMIT, run=_revert),
    "cherry_pick": Procedure(
        description="Make the change of one commit on a branch, too.",
        parameters=_PICK,
        columns=_COMMIT,
        run=_cherry_pick,
    ),
    "rebase": Procedure(
        description="Put the commits of a branch on top of another state.",
        parameters=(*required("branch"), *optional("onto", "strategy")),
        columns=_COMMIT,
        run=_rebase,
    ),
}
