"""The procedures that compare and apply changes: diffs, conflicts, merges, reverts, cherry-picks and rebases."""

import json
from collections.abc import Callable
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.hints import Door, words_at
from anabranch.json_values import json_value
from anabranch.repo.history.comparer import Choice
from anabranch.repo.merge.plan import ReplayResult
from anabranch.spark.gateway.procedures import Call, Rows, id_of, optional, procedure, required
from anabranch.spark.gateway.requests import columns_of, values_of

# The parameters that decide conflicts. Resolutions are a JSON list of objects in the form of `conflicts`, with take or
# value.
_DECISIONS = optional("strategy", resolvers="MAP<STRING, STRING>", resolutions="STRING")
# The parameters for checks before a change is published, and for its commit.
_PUBLISHING = optional(
    metadata="MAP<STRING, STRING>", checks="MAP<STRING, STRING>", expected_head="STRING", dry_run="BOOLEAN"
)
_PUBLISHED = "metadata checks expected_head dry_run"
_COUNTS = "inserted updated deleted"


def _given(call: Call, names: str = "") -> dict[str, Any]:
    """Return the arguments of `_DECISIONS`, and others by their names, without those that were left out."""
    given = call.given(f"strategy resolvers resolutions {names}")
    if "resolutions" in given:
        try:
            given["resolutions"] = json.loads(given["resolutions"])
        except ValueError as err:
            raise InvalidInputError(
                f"the resolutions are not JSON: {err}", hint="pass a list of objects as JSON text"
            ) from err
    return given


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
        engine=Choice.LOCAL,
        **_given(call, f"message squash ff_only keep_decisions expected_source {_PUBLISHED}"),
    )
    hints: dict[str, list[str]] = {}
    for gap in result.plan.strategy_gaps:
        hints.setdefault(gap.table, []).append(words_at(Door.SPARK_SQL, gap.hint))
    about = {"outcome": result.outcome.value, "commit": id_of(result.commit)}
    tables = [
        {
            **about,
            **values_of(plan, "table action taken_from conflicts"),
            **values_of(plan.counts, _COUNTS),
            "hint": "; ".join(hints.get(plan.table, ())) or None,
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
    into, given = call.get("into", call.branch), _given(call, "by include_decided")
    for conflict in call.repository.conflicts(call["source"], into=into, engine=Choice.LOCAL, **given):
        values = {name: _as_json(getattr(conflict, name)) for name in ("key", "base", "source", "target", "decision")}
        hint = words_at(Door.SPARK_SQL, conflict.hint) or None
        yield values_of(conflict, "table column problem path", kind=str(conflict.kind), hint=hint, **values)


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
        columns = ", ".join(f"{change.column} {change.change}" for change in table.columns) or None
        counts = values_of(table.counts, _COUNTS)
        yield values_of(table, "change renamed_from", table=table.key, columns=columns, **counts)


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
    return _replayed(call.repository.rebase(call["branch"], onto=onto, **_given(call, _PUBLISHED)))


def _picked(call: Call, pick: Callable[..., ReplayResult]) -> Rows:
    return _replayed(pick(call["commit"], branch=call.target, **_given(call, f"message {_PUBLISHED}")))


def _replayed(done: ReplayResult) -> Rows:
    """Return the new commits, or, of a dry run, what each commit would change."""
    for commit in done.commits:
        tables = ", ".join(commit.tables)
        yield {"commit": commit.graph_commit_id, "message": commit.message, "tables": tables, "conflicts": 0}
    for plan in done.plan:
        tables, count = ", ".join(table.table for table in plan.tables), plan.conflict_count
        yield {"commit": plan.commit_id, "message": plan.message, "tables": tables, "conflicts": count}
