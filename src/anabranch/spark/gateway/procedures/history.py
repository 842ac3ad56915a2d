"""Movements of branches, and commits that are undone or made again elsewhere."""

from collections.abc import Callable, Mapping

from anabranch.repo.merge.plan import ReplayResult
from anabranch.spark.gateway.procedures.merges import DECISIONS, PUBLISHING, decisions_of, publishing_of
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
