"""The procedures that compare and apply changes: diffs, conflicts, merges, reverts, cherry-picks and rebases."""

import json
from collections.abc import Callable
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.hints import Door, words_at
from anabranch.json_values import json_value
from anabranch.repo.history.comparer import Choice
from anabranch.repo.merge.conflicts import Operation
from anabranch.repo.merge.plan import ReplayResult
from anabranch.repo.merge.resolve import Strategy
from anabranch.spark.gateway.procedures import Call, Rows, columns_of, optional, procedure, required

# How conflicts are decided. Resolutions are JSON: a list of objects as `conflicts` returns them, with take or value.
_DECISIONS = optional("strategy", resolvers="MAP<STRING, STRING>", resolutions="STRING")
# What is checked before a change is published, and what is recorded with it.
_PUBLISHING = optional(
    metadata="MAP<STRING, STRING>", checks="MAP<STRING, STRING>", expected_head="STRING", dry_run="BOOLEAN"
)
_COUNTS = "inserted updated deleted"


def _decisions(call: Call) -> dict[str, Any]:
    """Return the arguments `_DECISIONS` of a call."""
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


def _decisions_and_publishing(call: Call) -> dict[str, Any]:
    """Return the arguments `_DECISIONS` and `_PUBLISHING` of a call."""
    return {
        **_decisions(call),
        "metadata": call.get("metadata"),
        "checks": call.get("checks", {}),
        "expected_head": call.get("expected_head"),
        "dry_run": call.get("dry_run", False),
    }


def _as_json(value: Any) -> str | None:
    """Return a value as JSON text, None for null."""
    return None if value is None else json.dumps(json_value(value), ensure_ascii=False)


@procedure(
    "Merge a branch, or any ref, into a branch.",
    required("source"),
    optional("into", "message"),
    _DECISIONS,
    _PUBLISHING,
    optional(squash="BOOLEAN", ff_only="BOOLEAN", keep_decisions="BOOLEAN", expected_source="STRING"),
    columns=columns_of("outcome commit table action taken_from hint", longs=f"{_COUNTS} conflicts"),
)
def merge(call: Call) -> Rows:
    result = call.repository.merge(
        call["source"],
        into=call.get("into", call.branch),
        message=call.get("message"),
        squash=call.get("squash", False),
        ff_only=call.get("ff_only", False),
        expected_source=call.get("expected_source"),
        keep_decisions=call.get("keep_decisions", False),
        engine=Choice.LOCAL,
        **_decisions_and_publishing(call),
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


@procedure(
    "List the conflicts that a merge would have, or, with by, a cherry_pick, revert or rebase.",
    required("source"),
    optional("into"),
    _DECISIONS,
    optional("by", include_decided="BOOLEAN"),
    columns=columns_of("table kind key column base source target problem path hint decision"),
)
def conflicts(call: Call) -> Rows:
    found = call.repository.conflicts(
        call["source"],
        into=call.get("into", call.branch),
        by=call.get("by", Operation.MERGE),
        include_decided=call.get("include_decided", False),
        engine=Choice.LOCAL,
        **_decisions(call),
    )
    for conflict in found:
        yield {
            "table": conflict.table,
            "kind": str(conflict.kind),
            "key": _as_json(conflict.key),
            "column": conflict.column,
            "base": _as_json(conflict.base),
            "source": _as_json(conflict.source),
            "target": _as_json(conflict.target),
            "problem": conflict.problem,
            "path": conflict.path,
            "hint": words_at(Door.SPARK_SQL, conflict.hint) or None,
            "decision": _as_json(conflict.decision),
        }


@procedure(
    "Count the rows that differ between two refs, by table.",
    required("before"),
    optional("after", tables="ARRAY<STRING>"),
    columns=columns_of("table change renamed_from columns", longs=_COUNTS),
)
def diff(call: Call) -> Rows:
    found = call.repository.diff(
        call["before"], call.get("after", call.branch), tables=call.get("tables"), engine=Choice.LOCAL
    )
    for table in found.tables:
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


@procedure(
    "List rows of a table that differ between two refs, as JSON.",
    required("table", "before"),
    optional("after", limit="BIGINT"),
    columns=columns_of("change columns before after"),
)
def diff_rows(call: Call) -> Rows:
    found = call.repository.diff(
        call["before"], call.get("after", call.branch), tables=[call["table"]], engine=Choice.LOCAL
    )
    # The rows of a procedure are collected in memory before they are sent, so there is a limit by default.
    limit = call.get("limit", 1_000)
    for number, row in enumerate(found.iter_rows()):
        if number >= limit:
            return
        yield {
            "change": row.change.value,
            "columns": ", ".join(row.columns) or None,
            "before": _as_json(row.before),
            "after": _as_json(row.after),
        }


_COMMIT = columns_of("commit message tables", longs="conflicts")
_PICK = (*required("commit"), *optional("branch", "message"), *_DECISIONS, *_PUBLISHING)


@procedure("Undo a commit, or the commits of a range a..b, each by another commit.", _PICK, columns=_COMMIT)
def revert(call: Call) -> Rows:
    return _picked(call, call.repository.revert)


@procedure("Make the change of a commit, or of the commits of a range a..b, on a branch, too.", _PICK, columns=_COMMIT)
def cherry_pick(call: Call) -> Rows:
    return _picked(call, call.repository.cherry_pick)


@procedure(
    "Put the commits of a branch on top of another state.",
    required("branch"),
    optional("onto"),
    _DECISIONS,
    _PUBLISHING,
    columns=_COMMIT,
)
def rebase(call: Call) -> Rows:
    onto = call.get("onto", "main")
    return _replayed(call.repository.rebase(call["branch"], onto=onto, **_decisions_and_publishing(call)))


def _picked(call: Call, pick: Callable[..., ReplayResult]) -> Rows:
    branch, message = call.get("branch", call.branch), call.get("message")
    return _replayed(pick(call["commit"], branch=branch, message=message, **_decisions_and_publishing(call)))


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
