"""Differences, conflicts and merges."""

from collections.abc import Mapping

from anabranch.repo.history.comparer import Choice
from anabranch.repo.merge.resolve import Strategy
from anabranch.spark.gateway.procedures.procedure import Call, Procedure, Rows, as_json, columns, optional, required

__all__ = ["MERGES"]


def _merge(call: Call) -> Rows:
    result = call.repository.merge(
        call["source"],
        into=call.get("into", call.branch),
        strategy=call.get("strategy", Strategy.FAIL),
        message=call.get("message"),
        squash=call.get("squash", False),
        dry_run=call.get("dry_run", False),
        engine=Choice.LOCAL,
    )
    about = {
        "outcome": result.outcome.value,
        "commit": None if result.commit is None else result.commit.graph_commit_id,
    }
    tables = [
        {
            **about,
            "table": plan.table,
            "action": plan.action,
            "inserted": plan.counts.inserted,
            "updated": plan.counts.updated,
            "deleted": plan.counts.deleted,
            "conflicts": plan.conflicts,
        }
        for plan in result.plan.tables
    ]
    return tables or [about]


def _conflicts(call: Call) -> Rows:
    found = call.repository.conflicts(
        call["source"],
        into=call.get("into", call.branch),
        strategy=call.get("strategy", Strategy.FAIL),
        engine=Choice.LOCAL,
    )
    for conflict in found:
        yield {
            "table": conflict.table,
            "kind": str(conflict.kind),
            "key": as_json(conflict.key),
            "column": conflict.column,
            "base": as_json(conflict.base),
            "source": as_json(conflict.source),
            "target": as_json(conflict.target),
            "problem": conflict.problem,
        }


def _diff(call: Call) -> Rows:
    diff = call.repository.diff(
        call["before"], call.get("after", call.branch), tables=call.get("tables"), engine=Choice.LOCAL
    )
    for table in diff.tables:
        if table.is_empty:
            continue
        yield {
            "table": table.key,
            "change": table.change.value,
            "inserted": table.counts.inserted,
            "updated": table.counts.updated,
            "deleted": table.counts.deleted,
            "renamed_from": table.renamed_from,
            "columns": ", ".join(f"{change.column} {change.change}" for change in table.columns) or None,
        }


def _diff_rows(call: Call) -> Rows:
    diff = call.repository.diff(
        call["before"], call.get("after", call.branch), tables=[call["table"]], engine=Choice.LOCAL
    )
    limit = call.get("limit", 1_000)
    for number, row in enumerate(diff.iter_rows()):
        if number >= limit:
            return
        yield {
            "change": row.change.value,
            "columns": ", ".join(row.columns) or None,
            "before": as_json(row.before),
            "after": as_json(row.after),
        }


_COUNTS = ("inserted", "updated", "deleted")

MERGES: Mapping[str, Procedure] = {
    "merge": Procedure(
        description="Merge a branch, or any ref, into a branch.",
        parameters=(
            *required("source"),
            *optional("into", "strategy", "message", squash="BOOLEAN", dry_run="BOOLEAN"),
        ),
        columns=columns(["outcome", "commit", "table", "action"], longs=[*_COUNTS, "conflicts"]),
        run=_merge,
    ),
    "conflicts": Procedure(
        description="List the conflicts that a merge would have.",
        parameters=(*required("source"), *optional("into", "strategy")),
        columns=columns(["table", "kind", "key", "column", "base", "source", "target", "problem"]),
        run=_conflicts,
    ),
    "diff": Procedure(
        description="Count the rows that differ between two refs, by table.",
        parameters=(*required("before"), *optional("after", tables="ARRAY<STRING>")),
        columns=columns(["table", "change", "renamed_from", "columns"], longs=_COUNTS),
        run=_diff,
    ),
    "diff_rows": Procedure(
        description="List rows of a table that differ between two refs, as JSON.",
        parameters=(*required("table", "before"), *optional("after", limit="BIGINT")),
        columns=columns(["change", "columns", "before", "after"]),
        run=_diff_rows,
    ),
}
