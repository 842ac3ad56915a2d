"""The procedures of `CALL lake.system.NAME(...)`: branches, tags, files and maintenance, then diffs and merges.

The catalog requests the list of procedures, and calls each by its name. All work is done in this process: no
procedure starts a Spark session of its own.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidInputError
from anabranch.files.formats import CsvOptions
from anabranch.format.staging import VectorOptions
from anabranch.hints import Door, words_at
from anabranch.json_values import json_value
from anabranch.repo.history.comparer import Choice
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.merge.plan import ReplayResult
from anabranch.repo.refs.branches import BranchInfo
from anabranch.repo.repository import Repository
from anabranch.spark.gateway.requests import Request, columns_of, values_of
from anabranch.spark.types import as_shown, shown_columns, shown_schema

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

    @property
    def target(self) -> str:
        """The branch of the argument `branch`, else that of the session."""
        return str(self.get("branch", self.branch))

    def given(self, names: str) -> dict[str, Any]:
        """Return the arguments of these names, without those that were left out. The names are separated by spaces."""
        return {name: self.arguments[name] for name in names.split() if name in self.arguments}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter by its type in SQL. Without `is_required` it may be left out, and is null."""

    name: str
    type: str = "STRING"
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A procedure: its parameters, the columns of its rows, and its function."""

    description: str
    parameters: tuple[Parameter, ...]
    columns: pa.Schema
    run: Callable[[Call], Rows]


PROCEDURES: dict[str, Procedure] = {}


def procedure(
    description: str, *parameters: tuple[Parameter, ...], columns: pa.Schema
) -> Callable[[Callable[[Call], Rows]], Callable[[Call], Rows]]:
    """Register a function as the procedure of its name."""

    def add(run: Callable[[Call], Rows]) -> Callable[[Call], Rows]:
        given = tuple(parameter for group in parameters for parameter in group)
        PROCEDURES[run.__name__] = Procedure(description=description, parameters=given, columns=columns, run=run)
        return run

    return add


def required(*names: str) -> tuple[Parameter, ...]:
    """Return required parameters of text."""
    return tuple(Parameter(name, is_required=True) for name in names)


def optional(*names: str, **typed: str) -> tuple[Parameter, ...]:
    """Return parameters that may be left out, of text unless a type is given."""
    return (*(Parameter(name) for name in names), *(Parameter(name, kind) for name, kind in typed.items()))


def id_of(commit: GraphCommit | None) -> str | None:
    return None if commit is None else commit.graph_commit_id


def list_procedures(_: Request) -> dict[str, Any]:
    """Return all procedures with their parameters and columns."""
    return {
        "procedures": [
            {
                "name": name,
                "description": _description(each),
                "schema": json.dumps(shown_schema(each.columns).jsonValue()),
                "parameters": [values_of(p, "name type", required=p.is_required) for p in each.parameters],
            }
            for name, each in sorted(PROCEDURES.items())
        ]
    }


def _description(found: Procedure) -> str:
    """Return the description with the parameters: DESCRIBE PROCEDURE of Spark does not show them itself."""
    needed = [f"{each.name} {each.type}" for each in found.parameters if each.is_required]
    others = [f"{each.name} {each.type}" for each in found.parameters if not each.is_required]
    parts = [f"Arguments: {', '.join(needed)}."] if needed else []
    parts += [f"Optional: {', '.join(others)}."] if others else []
    return " ".join([found.description, *parts])


def call_procedure(request: Request) -> None:
    """Run a procedure and send its rows."""
    found = PROCEDURES[request["name"]]
    # Spark passes null for an argument that was left out, so null and left out both mean the default.
    given = {name: value for name, value in request["arguments"].items() if value is not None}
    for parameter in found.parameters:
        if parameter.is_required and parameter.name not in given:
            raise InvalidInputError(
                f"the argument {parameter.name!r} of the procedure {request['name']!r} is null", hint="give a value"
            )
    call = Call(repository=request.repository, branch=request["branch"], arguments=given)
    rows = pa.Table.from_pylist([dict(row) for row in found.run(call)], found.columns)
    shown = shown_columns(shown_schema(found.columns))
    request.send_rows(as_shown(iter(rows.to_batches()), shown), shown)


BRANCH = columns_of("branch commit mode parent", longs="version", flags="protected")
_TAG = columns_of("tag commit")


def branch_rows(*found: BranchInfo) -> list[dict[str, Any]]:
    """Return branches in the columns `BRANCH`."""
    return [
        values_of(
            info, "version mode parent", branch=info.name, commit=info.head_commit_id, protected=info.is_protected
        )
        for info in found
    ]


@procedure(
    "Create a branch from a branch, a tag or a commit.",
    required("name"),
    optional("source", "mode", "description", expires_in_hours="DOUBLE"),
    columns=BRANCH,
)
def create_branch(call: Call) -> Rows:
    hours = call.get("expires_in_hours")
    info = call.repository.branch_create_from(
        call.get("source", call.branch),
        call["name"],
        expires_in=None if hours is None else timedelta(hours=hours),
        **call.given("mode description"),
    )
    return branch_rows(info)


@procedure("List the branches.", columns=BRANCH)
def list_branches(call: Call) -> Rows:
    return branch_rows(*call.repository.branch_list())


@procedure("Rename a branch.", required("name", "to"), columns=BRANCH)
def rename_branch(call: Call) -> Rows:
    return branch_rows(call.repository.branch_rename(call["name"], call["to"]))


@procedure(
    "Delete a branch; with purge, free its space at once.",
    required("name"),
    optional(purge="BOOLEAN"),
    columns=columns_of("branch commit"),
)
def delete_branch(call: Call) -> Rows:
    purge = call.get("purge", False)
    commit = None if purge else call.repository.branch_get(call["name"]).head_commit_id
    call.repository.branch_delete(call["name"], purge=purge)
    return [{"branch": call["name"], "commit": commit}]


@procedure("Restore a deleted branch.", required("name"), columns=BRANCH)
def restore_branch(call: Call) -> Rows:
    return branch_rows(call.repository.branch_restore(call["name"]))


@procedure(
    "Let a branch move by merges only, which must pass the checks.",
    required("name"),
    optional(checks="MAP<STRING, STRING>"),
    columns=BRANCH,
)
def protect_branch(call: Call) -> Rows:
    return branch_rows(call.repository.branch_protect(call["name"], checks=call.get("checks", {})))


@procedure("Remove the protection of a branch.", required("name"), columns=BRANCH)
def unprotect_branch(call: Call) -> Rows:
    return branch_rows(call.repository.branch_unprotect(call["name"]))


@procedure("Name the commit of a ref.", required("name"), optional("ref", "description"), columns=_TAG)
def tag(call: Call) -> Rows:
    info = call.repository.tag_create(call["name"], ref=call.get("ref", call.branch), **call.given("description"))
    return [{"tag": info.name, "commit": info.commit_id}]


@procedure("Delete a tag; its commit stays.", required("name"), columns=_TAG)
def delete_tag(call: Call) -> Rows:
    info = call.repository.tag_get(call["name"])
    call.repository.tag_delete(call["name"])
    return [{"tag": info.name, "commit": info.commit_id}]


@procedure("Move a branch to another commit.", required("branch", "to"), columns=BRANCH)
def reset(call: Call) -> Rows:
    call.repository.reset(call["branch"], to=call["to"])
    return branch_rows(call.repository.branch_get(call["branch"]))


@procedure("Undo the last movement of a branch.", optional("branch"), columns=BRANCH)
def undo(call: Call) -> Rows:
    call.repository.undo(call.target)
    return branch_rows(call.repository.branch_get(call.target))


@procedure("Redo the movement that the last undo undid.", optional("branch"), columns=BRANCH)
def redo(call: Call) -> Rows:
    call.repository.redo(call.target)
    return branch_rows(call.repository.branch_get(call.target))


@procedure(
    "Rewrite small and half-deleted files of tables as larger ones.",
    optional("branch", tables="ARRAY<STRING>"),
    columns=columns_of("table commit", longs="rows fragments_before fragments_after"),
)
def compact(call: Call) -> Rows:
    # Procedures run in the gateway, which has no Spark session. The engine `spark` would start a second JVM.
    done = call.repository.compact(call.get("tables"), branch=call.target, engine=Choice.LOCAL)
    names = "table rows fragments_before fragments_after"
    return [values_of(table, names, commit=id_of(done.commit)) for table in done.tables]


@procedure(
    "Build an index on a column.",
    required("table", "column"),
    optional("type", "name", "branch", "metric"),
    columns=columns_of("table index commit"),
)
def index(call: Call) -> Rows:
    metric = call.get("metric")
    commit = call.repository.index(
        call["table"],
        call["column"],
        branch=call.target,
        vector=None if metric is None else VectorOptions(metric=metric),
        **call.given("type name"),
    )
    name = call.get("name", f"{call['column']}_idx")
    return [{"table": call["table"], "index": name, "commit": id_of(commit)}]


@procedure(
    "Free the space of what nothing can reach any more.",
    optional(keep_days="DOUBLE", keep_last="BIGINT", dry_run="BOOLEAN"),
    columns=columns_of(longs="objects bytes commits branches runs retained_commits damaged", flags="dry_run"),
)
def gc(call: Call) -> Rows:
    days = call.get("keep_days")
    keep = None if days is None else timedelta(days=days)
    report = call.repository.gc(keep_newer_than=keep, **call.given("keep_last dry_run"))
    counts = {name: len(getattr(report, name)) for name in ("objects", "commits", "branches", "runs", "damaged")}
    return [values_of(report, "dry_run bytes retained_commits", **counts)]


@procedure(
    "Load files into a table.",
    required("table", "source"),
    optional("format", "mode", "branch", "delimiter", "on_bad", "on_duplicate", "message"),
    optional(header="BOOLEAN", primary_key="ARRAY<STRING>"),
    columns=columns_of("table branch commit", longs="files rows_read rows_loaded rows_rejected"),
)
def load(call: Call) -> Rows:
    report = call.repository.load(
        call["table"],
        call["source"],
        branch=call.target,
        engine=Choice.LOCAL,
        csv=CsvOptions(**call.given("delimiter header")),
        **call.given("format mode on_bad on_duplicate message primary_key"),
    )
    names = "table branch rows_read rows_loaded rows_rejected"
    return [values_of(report, names, files=len(report.files), commit=report.commit_id)]


@procedure(
    "Write rows of a table to a file, or to the files of a folder.",
    required("table", "target"),
    optional("ref", "format", "where", "delimiter"),
    optional(columns="ARRAY<STRING>", limit="BIGINT", header="BOOLEAN", overwrite="BOOLEAN"),
    columns=columns_of("table commit format", longs="files rows bytes"),
)
def export(call: Call) -> Rows:
    report = call.repository.export(
        call["table"],
        call["target"],
        ref=call.get("ref", call.branch),
        csv=CsvOptions(**call.given("delimiter header")),
        **call.given("format where columns limit overwrite"),
    )
    counts = {"files": len(report.files), "bytes": report.bytes_written}
    return [values_of(report, "table format rows", commit=report.commit_id, **counts)]


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
