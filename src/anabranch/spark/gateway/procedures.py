"""The procedures of `CALL lake.system.NAME(...)`: their parameters, the columns of their answers, and what they do.

The catalog asks for this table once, and then runs each procedure by its name. All work is done in this process: no
procedure starts a Spark session of its own.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidInputError
from anabranch.format.staging import IndexKind, VectorOptions
from anabranch.repo.history.comparing import Choice
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.merge.resolving import Strategy
from anabranch.repo.refs.branches import BranchInfo
from anabranch.repo.repository import Repository
from anabranch.spark.gateway.requests import Request
from anabranch.spark.types import as_shown, shown_columns, shown_schema

__all__ = ["PROCEDURES", "call_procedure", "list_procedures"]

_TEXT, _LONG, _FLAG = pa.string(), pa.int64(), pa.bool_()
Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call: the repository, the default branch of the session, and the arguments that are not null."""

    repository: Repository
    branch: str
    arguments: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.arguments.get(name, default)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter by its type in SQL. Without `is_required` it may be left out, and is null."""

    name: str
    type: str = "STRING"
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A procedure: what it takes, what its rows look like, and the function that does it."""

    description: str
    parameters: tuple[Parameter, ...]
    columns: pa.Schema
    run: Callable[[Call], Rows]


def list_procedures(_: Request) -> dict[str, Any]:
    """Answer all procedures with their parameters and columns."""
    return {
        "procedures": [
            {
                "name": name,
                "description": _description(procedure),
                "schema": json.dumps(shown_schema(procedure.columns).jsonValue()),
                "parameters": [
                    {"name": each.name, "type": each.type, "required": each.is_required}
                    for each in procedure.parameters
                ],
            }
            for name, procedure in sorted(PROCEDURES.items())
        ]
    }


def _description(procedure: Procedure) -> str:
    """Return the description with the parameters: DESCRIBE PROCEDURE of Spark does not show them itself."""
    needed = [f"{each.name} {each.type}" for each in procedure.parameters if each.is_required]
    others = [f"{each.name} {each.type}" for each in procedure.parameters if not each.is_required]
    parts = [f"Arguments: {', '.join(needed)}."] if needed else []
    parts += [f"Optional: {', '.join(others)}."] if others else []
    return " ".join([procedure.description, *parts])


def call_procedure(request: Request) -> None:
    """Run a procedure and send its rows."""
    procedure = PROCEDURES[request["name"]]
    given = {name: value for name, value in request["arguments"].items() if value is not None}
    for parameter in procedure.parameters:
        if parameter.is_required and parameter.name not in given:
            raise InvalidInputError(
                f"the argument {parameter.name!r} of the procedure {request['name']!r} is null", hint="give a value"
            )
    call = Call(repository=request.repository, branch=request["branch"], arguments=given)
    rows = pa.Table.from_pylist([dict(row) for row in procedure.run(call)], procedure.columns)
    shown = shown_columns(shown_schema(procedure.columns))
    request.send_rows(as_shown(iter(rows.to_batches()), shown), shown)


# Branches and tags


def _create_branch(call: Call) -> Rows:
    hours = call.get("expires_in_hours")
    info = call.repository.branch_create_from(
        call.get("source", call.branch),
        call["name"],
        mode=call.get("mode", "pinned"),
        description=call.get("description", ""),
        expires_in=None if hours is None else timedelta(hours=hours),
    )
    return [_branch_row(info)]


def _delete_branch(call: Call) -> Rows:
    info = call.repository.branch_get(call["name"]) if not call.get("purge") else None
    call.repository.branch_delete(call["name"], purge=call.get("purge", False))
    return [{"branch": call["name"], "commit": None if info is None else info.head_commit_id}]


def _restore_branch(call: Call) -> Rows:
    return [_branch_row(call.repository.branch_restore(call["name"]))]


def _protect_branch(call: Call) -> Rows:
    return [_branch_row(call.repository.branch_protect(call["name"], checks=call.get("checks", {})))]


def _unprotect_branch(call: Call) -> Rows:
    return [_branch_row(call.repository.branch_unprotect(call["name"]))]


def _tag(call: Call) -> Rows:
    info = call.repository.tag_create(
        call["name"], ref=call.get("ref", call.branch), description=call.get("description", "")
    )
    return [{"tag": info.name, "commit": info.commit_id}]


def _delete_tag(call: Call) -> Rows:
    info = call.repository.tag_get(call["name"])
    call.repository.tag_delete(call["name"])
    return [{"tag": info.name, "commit": info.commit_id}]


def _reset(call: Call) -> Rows:
    call.repository.reset(call["branch"], to=call["to"])
    return [_branch_row(call.repository.branch_get(call["branch"]))]


def _undo(call: Call) -> Rows:
    branch = call.get("branch", call.branch)
    call.repository.undo(branch)
    return [_branch_row(call.repository.branch_get(branch))]


def _branch_row(info: BranchInfo) -> dict[str, Any]:
    return {
        "branch": info.name,
        "commit": info.head_commit_id,
        "version": info.version,
        "mode": info.mode.value,
        "parent": info.parent,
        "protected": info.is_protected,
    }


# Differences and merges


def _merge(call: Call) -> Rows:
    result = call.repository.branch_merge(
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
            "key": _as_json(conflict.key),
            "column": conflict.column,
            "base": _as_json(conflict.base),
            "source": _as_json(conflict.source),
            "target": _as_json(conflict.target),
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
            "before": _as_json(row.before),
            "after": _as_json(row.after),
        }


def _revert(call: Call) -> Rows:
    return _picked(call, call.repository.revert)


def _cherry_pick(call: Call) -> Rows:
    return _picked(call, call.repository.cherry_pick)


def _picked(call: Call, pick: Callable[..., GraphCommit]) -> Rows:
    commit = pick(
        call["commit"],
        branch=call.get("branch", call.branch),
        message=call.get("message"),
        strategy=call.get("strategy", Strategy.FAIL),
    )
    return [_commit_row(commit)]


def _rebase(call: Call) -> Rows:
    commits = call.repository.rebase(
        call["branch"], onto=call.get("onto", "main"), strategy=call.get("strategy", Strategy.FAIL)
    )
    return [_commit_row(commit) for commit in commits]


def _commit_row(commit: GraphCommit) -> dict[str, Any]:
    return {"commit": commit.graph_commit_id, "message": commit.message, "tables": ", ".join(commit.tables)}


# Tables and files


def _compact(call: Call) -> Rows:
    done = call.repository.compact(call.get("tables"), branch=call.get("branch", call.branch), engine=Choice.LOCAL)
    commit = None if done.commit is None else done.commit.graph_commit_id
    return [
        {
            "table": table.table,
            "rows": table.rows,
            "fragments_before": table.fragments_before,
            "fragments_after": table.fragments_after,
            "commit": commit,
        }
        for table in done.tables
    ]


def _index(call: Call) -> Rows:
    metric = call.get("metric")
    commit = call.repository.index(
        call["table"],
        call["column"],
        type=call.get("type", IndexKind.BTREE),
        name=call.get("name"),
        branch=call.get("branch", call.branch),
        vector=None if metric is None else VectorOptions(metric=metric),
    )
    name = call.get("name", f"{call['column']}_idx")
    return [{"table": call["table"], "index": name, "commit": None if commit is None else commit.graph_commit_id}]


def _gc(call: Call) -> Rows:
    days = call.get("keep_days")
    report = call.repository.gc(
        keep_newer_than=None if days is None else timedelta(days=days),
        keep_last=call.get("keep_last"),
        dry_run=call.get("dry_run", False),
    )
    return [
        {
            "dry_run": report.dry_run,
            "objects": len(report.objects),
            "bytes": report.bytes,
            "commits": len(report.commits),
            "branches": len(report.branches),
            "runs": len(report.runs),
            "retained_commits": report.retained_commits,
            "damaged": len(report.damaged),
        }
    ]


def _load(call: Call) -> Rows:
    options = ("format", "delimiter", "header", "on_bad", "on_duplicate", "message", "primary_key")
    report = call.repository.load(
        call["table"],
        call["source"],
        mode=call.get("mode", "append"),
        branch=call.get("branch", call.branch),
        engine=Choice.LOCAL,
        **{name: call[name] for name in options if name in call.arguments},
    )
    return [
        {
            "table": report.table,
            "branch": report.branch,
            "files": len(report.files),
            "rows_read": report.rows_read,
            "rows_loaded": report.rows_loaded,
            "rows_rejected": report.rows_rejected,
            "commit": report.commit_id,
        }
    ]


def _as_json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, default=str, ensure_ascii=False)


def _required(*names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, is_required=True) for name in names)


def _optional(*names: str, **typed: str) -> tuple[Parameter, ...]:
    return (*(Parameter(name) for name in names), *(Parameter(name, kind) for name, kind in typed.items()))


def _columns(texts: Sequence[str], *, longs: Sequence[str] = (), flags: Sequence[str] = ()) -> pa.Schema:
    return pa.schema(
        [*((name, _TEXT) for name in texts), *((name, _LONG) for name in longs), *((name, _FLAG) for name in flags)]
    )


_BRANCH = _columns(["branch", "commit", "mode", "parent"], longs=["version"], flags=["protected"])
_COMMIT = _columns(["commit", "message", "tables"])
_COUNTS = ("inserted", "updated", "deleted")
_PICK = (*_required("commit"), *_optional("branch", "message", "strategy"))

PROCEDURES: Mapping[str, Procedure] = {
    "create_branch": Procedure(
        description="Create a branch from a branch, a tag or a commit.",
        parameters=(*_required("name"), *_optional("source", "mode", "description", expires_in_hours="DOUBLE")),
        columns=_BRANCH,
        run=_create_branch,
    ),
    "delete_branch": Procedure(
        description="Delete a branch; with purge, free its space at once.",
        parameters=(*_required("name"), *_optional(purge="BOOLEAN")),
        columns=_columns(["branch", "commit"]),
        run=_delete_branch,
    ),
    "restore_branch": Procedure(
        description="Restore a deleted branch.", parameters=_required("name"), columns=_BRANCH, run=_restore_branch
    ),
    "protect_branch": Procedure(
        description="Let a branch move by merges only, which must pass the checks.",
        parameters=(*_required("name"), *_optional(checks="MAP<STRING, STRING>")),
        columns=_BRANCH,
        run=_protect_branch,
    ),
    "unprotect_branch": Procedure(
        description="Remove the protection of a branch.",
        parameters=_required("name"),
        columns=_BRANCH,
        run=_unprotect_branch,
    ),
    "tag": Procedure(
        description="Name the commit of a ref.",
        parameters=(*_required("name"), *_optional("ref", "description")),
        columns=_columns(["tag", "commit"]),
        run=_tag,
    ),
    "delete_tag": Procedure(
        description="Delete a tag; its commit stays.",
        parameters=_required("name"),
        columns=_columns(["tag", "commit"]),
        run=_delete_tag,
    ),
    "reset": Procedure(
        description="Move a branch to another commit.",
        parameters=_required("branch", "to"),
        columns=_BRANCH,
        run=_reset,
    ),
    "undo": Procedure(
        description="Undo the last movement of a branch.", parameters=_optional("branch"), columns=_BRANCH, run=_undo
    ),
    "merge": Procedure(
        description="Merge a branch, or any ref, into a branch.",
        parameters=(
            *_required("source"),
            *_optional("into", "strategy", "message", squash="BOOLEAN", dry_run="BOOLEAN"),
        ),
        columns=_columns(["outcome", "commit", "table", "action"], longs=[*_COUNTS, "conflicts"]),
        run=_merge,
    ),
    "conflicts": Procedure(
        description="List the conflicts that a merge would have.",
        parameters=(*_required("source"), *_optional("into", "strategy")),
        columns=_columns(["table", "kind", "key", "column", "base", "source", "target", "problem"]),
        run=_conflicts,
    ),
    "diff": Procedure(
        description="Count the rows that differ between two refs, by table.",
        parameters=(*_required("before"), *_optional("after", tables="ARRAY<STRING>")),
        columns=_columns(["table", "change", "renamed_from", "columns"], longs=_COUNTS),
        run=_diff,
    ),
    "diff_rows": Procedure(
        description="List rows of a table that differ between two refs, as JSON.",
        parameters=(*_required("table", "before"), *_optional("after", limit="BIGINT")),
        columns=_columns(["change", "columns", "before", "after"]),
        run=_diff_rows,
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
        parameters=(*_required("branch"), *_optional("onto", "strategy")),
        columns=_COMMIT,
        run=_rebase,
    ),
    "compact": Procedure(
        description="Rewrite small and half-deleted files of tables as larger ones.",
        parameters=_optional("branch", tables="ARRAY<STRING>"),
        columns=_columns(["table", "commit"], longs=["rows", "fragments_before", "fragments_after"]),
        run=_compact,
    ),
    "index": Procedure(
        description="Build an index on a column.",
        parameters=(*_required("table", "column"), *_optional("type", "name", "branch", "metric")),
        columns=_columns(["table", "index", "commit"]),
        run=_index,
    ),
    "gc": Procedure(
        description="Free the space of what nothing can reach any more.",
        parameters=_optional(keep_days="DOUBLE", keep_last="BIGINT", dry_run="BOOLEAN"),
        columns=_columns(
            [],
            longs=["objects", "bytes", "commits", "branches", "runs", "retained_commits", "damaged"],
            flags=["dry_run"],
        ),
        run=_gc,
    ),
    "load": Procedure(
        description="Load files into a table.",
        parameters=(
            *_required("table", "source"),
            *_optional(
                "format",
                "mode",
                "branch",
                "delimiter",
                "on_bad",
                "on_duplicate",
                "message",
                header="BOOLEAN",
                primary_key="ARRAY<STRING>",
            ),
        ),
        columns=_columns(["table", "branch", "commit"], longs=["files", "rows_read", "rows_loaded", "rows_rejected"]),
        run=_load,
    ),
}
