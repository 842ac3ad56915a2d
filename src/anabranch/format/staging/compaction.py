"""Small and half-deleted fragments rewritten as larger ones; rows keep their ids."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lance
from lance.optimize import Compaction

from anabranch.errors import InvalidInputError
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging.indices import rebuild_indices, require_rebuildable
from anabranch.format.staging.version_ref import VersionRef, stage

__all__ = [
    "TARGET_ROWS",
    "RewriteTask",
    "RewrittenFragments",
    "compact",
    "plan_compaction",
    "rewrite_fragments",
    "stage_rewritten",
]

# The default of Lance's own compaction.
TARGET_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Fragments to be rewritten together, on any machine that reaches the table."""

    data: bytes


@dataclass(frozen=True, slots=True)
class RewrittenFragments:
    """What a task wrote; no version holds it yet."""

    data: bytes


def compact(version_ref: VersionRef, *, target_rows_per_fragment: int = TARGET_ROWS) -> VersionRef:
    """Stage the same rows in fewer fragments, with all indices built again. With nothing to do, stage nothing."""
    tasks = plan_compaction(version_ref, target_rows_per_fragment=target_rows_per_fragment)
    return stage_rewritten(version_ref, [rewrite_fragments(version_ref, task) for task in tasks])


def plan_compaction(version_ref: VersionRef, *, target_rows_per_fragment: int = TARGET_ROWS) -> tuple[RewriteTask, ...]:
    """What is to be rewritten, in parts that do not depend on each other; nothing if there is nothing to gain."""
    if target_rows_per_fragment < 1:
        raise InvalidInputError(
            f"a fragment cannot have {target_rows_per_fragment} rows", hint="ask for 1 or more rows per fragment"
        )
    dataset = version_ref.open()
    # Every index is built again afterwards. Refuse before rows are rewritten if one of them cannot be.
    require_rebuildable(dataset)
    with lance_errors(version_ref.home.uri, version_ref.home.storage_options):
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": target_rows_per_fragment})
        return tuple(RewriteTask(pickle.dumps(task)) for task in plan.tasks)


def rewrite_fragments(version_ref: VersionRef, task: RewriteTask) -> RewrittenFragments:
    """Write the rows of a task's fragments as new ones, which are not visible yet."""
    with lance_errors(version_ref.home.uri, version_ref.home.storage_options):
        done = pickle.loads(task.data).execute(version_ref.open())  # noqa: S301 - our own, from plan_compaction
        return RewrittenFragments(pickle.dumps(done))


def stage_rewritten(version_ref: VersionRef, rewritten: Sequence[RewrittenFragments]) -> VersionRef:
    """Stage the version with new fragments for old ones, and all indices built again.

    An old index is never kept: after a compaction it claims fragments that it does not know, or finds no rows in them.
    """
    if not rewritten:
        return version_ref
    # Lance's type stubs know other names than the results have.
    done: list[Any] = [pickle.loads(result.data) for result in rewritten]  # noqa: S301 - our own
    groups = [lance.LanceOperation.RewriteGroup(result.original_fragments, result.new_fragments) for result in done]
    return rebuild_indices(stage(version_ref.open(), version_ref, lance.LanceOperation.Rewrite(groups, [])))
