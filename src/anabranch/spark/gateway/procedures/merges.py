"""Differences, conflicts and merges."""

import json
from collections.abc import Mapping
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.hints import Door, words_at
from anabranch.repo.history.comparer import Choice
from anabranch.repo.merge.conflicts import Operation
from anabranch.repo.merge.resolve import Strategy
from anabranch.spark.gateway.procedures.procedure import Call, Procedure, Rows, as_json, columns, optional, required

# How conflicts are decided. Resolutions are JSON: a list of objects as `conflicts` returns them, with take or value.
DECISIONS = optional("strategy", resolvers="MAP<STRING, STRING>", resolutions="STRING")
# What is checked before a change is published, and what is recorded with it.
PUBLISHING = optional(
    metadata="MAP<STRING, STRING>", checks="MAP<STRING, STRING>", expected_head="STRING", dry_run="BOOLEAN"
)


def decisions_of(call: Call) -> dict[str, Any]:
    """Return the arguments `DECISIONS` of a call."""
    text = call.get("resolutions")
    try:
        resolutions = None if text is None else json.loads(text)
    except ValueError as err:
        raise InvalidInputError(
            f"the resolutions are not JSON: {err}", hint="pass a list of objects as JSON text"
        ) from err
    return {
        "strategy": call.get("strategy", Strategy.FAIL),
        "resolvers": call.get("resolvers"),
        "resolutions": resolutions,
    }


def publishing_of(call: Call) -> dict[str, Any]:
    """Return the arguments `PUBLISHING` of a call."""
    return {
        "metadata": call.get("metadata"),
        "checks": call.get("checks", {}),
        "expected_head": call.get("expected_head"),
        "dry_run": call.get("dry_run", False),
    }


def _merge(call: Call) -> Rows:
    result = call.repository.merge(
        call["source"],
        into=call.get("into", call.branch),
        message=call.get("message"),
        squash=call.get("squash", False),
        ff_only=call.get("ff_only", False),
        expected_source=call.get("expected_source"),
        keep_decisions=call.get("keep_decisions", False),
        engine=Choice.LOCAL,
        **decisions_of(call),
        **publishing_of(call),
    )
    hints: dict[str, list[str]] = {}
    for gap in result.plan.strategy_gaps:
        hints.setdefault(gap.table, []).append(words_at(Door.SPARK_SQL, gap.hint))
    about = {
        "outcome": result.outcome.value,
        "commit": None if result.commit is None else result.commit.graph_commit_id,
    }
    tables = [
        {
            **about,
            "table": plan.table,
            "action": plan.action,
            "taken_from": plan.taken_from,
            "hint": "; ".join(hints.get(plan.table, ())) or None,
            "inserted": plan.counts.inserted,
            "updated": plan.counts.updated,
            "deleted": plan.counts.deleted,
            "conflicts": plan.conflicts,
        }
        for plan in result.plan.tables
    ]
    # A merge that changes no table still has an outcome to report.
    return tables or [about]


def _conflicts(call: Call) -> Rows:
    found = call.repository.conflicts(
        call["source"],
        into=call.get("into", call.branch),
        by=call.get("by", Operation.MERGE),
        include_decided=call.get("include_decided", False),
        engine=Choice.LOCAL,
        **decisions_of(call),
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
            "path": conflict.path,
            "hint": words_at(Door.SPARK_SQL, conflict.hint) or None,
            "decision": as_json(conflict.decision),
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
    # The rows of a procedure are collected in memory before they are sent, so there is a limit by default.
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
            *optional("into", "message"),
            *DECISIONS,
            *PUBLISHING,
            *optional(squash="BOOLEAN", ff_only="BOOLEAN", keep_decisions="BOOLEAN", expected_source="STRING"),
        ),
        columns=columns(["outcome", "commit", "table", "action", "taken_from", "hint"], longs=[*_COUNTS, "conflicts"]),
        run=_merge,
    ),
    "conflicts": Procedure(
        description="List the conflicts that a merge would have, or, with by, a cherry_pick, revert or rebase.",
        parameters=(*required("source"), *optional("into"), *DECISIONS, *optional("by", include_decided="BOOLEAN")),
        columns=columns(
            [
                *("table", "kind", "key", "column", "base", "source", "target"),
                *("problem", "path", "hint", "decision"),
            ]
        ),
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
