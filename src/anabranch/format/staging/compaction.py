"""Small and half-deleted fragments rewritten as larger ones; rows keep their ids."""

from typing import Any

import lance
from lance.optimize import Compaction

from anabranch.errors import InvalidInputError
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging.indices import rebuild_indices, require_rebuildable
from anabranch.format.staging.pin import Pin, stage

__all__ = ["compact"]


def compact(pin: Pin, *, target_rows_per_fragment: int = 1 << 20) -> Pin:
    """Stage the same rows in fewer fragments, with all indices built again; with nothing to do, return the pin.

    An old index is never kept: after a compaction it claims fragments that it does not know, or finds no rows in them.
    """
    if target_rows_per_fragment < 1:
        raise InvalidInputError(
            f"a fragment cannot have {target_rows_per_fragment} rows", hint="ask for 1 or more rows per fragment"
        )
    dataset = pin.open()
    require_rebuildable(dataset)
    with lance_errors(pin.home.uri, pin.home.storage_options):
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": target_rows_per_fragment})
        # Lance's type stubs know other names than the results have.
        done: list[Any] = [task.execute(dataset) for task in plan.tasks]
    if not done:
        return pin
    groups = [lance.LanceOperation.RewriteGroup(result.original_fragments, result.new_fragments) for result in done]
    return rebuild_indices(stage(dataset, pin, lance.LanceOperation.Rewrite(groups, [])))
