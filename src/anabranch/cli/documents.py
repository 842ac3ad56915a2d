"""Values as JSON documents: the fields of a value, or those that the table below lists for its class."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any

from anabranch.display import to_datetime
from anabranch.hints import Door, words_at
from anabranch.ids import MAIN
from anabranch.json_values import json_value

# The members of a document, separated by spaces: NAME, NAME=ATTRIBUTE, NAME=* for one of COMPUTED, **ATTRIBUTE for all
# members of a mapping, or ?NAME for one that is left out if it is empty. A class is named by its package. One that is
# not listed has a member for each field. The names are those in docs/cli.md: they stay the same if a field is renamed.
MEMBERS: dict[str, str] = {
    "format.CleanupReport": "dry_run files=* bytes by_reason=* versions=* removed=files"
    " kept_versions=kept too_young unused_in_bases damaged",
    "format.CloneInfo": "uri source_branch=* source_version tag created_at exists",
    "format.DoctorReport": "root clean=is_clean findings",
    "format.Finding": "severity kind subject explanation remedy=* tables refs commits paths needed_by"
    " repairable repaired",
    "format.Layout": "root total by_kind by_branch=* unreferenced_trees unknown_files=* files",
    "format.LayoutFile": "path kind branch=* has_ref size modified",
    "format.BasePath": "id name is_dataset_root path",
    "format.BranchInfo": "name parent_branch=* parent_version created_at manifest_size metadata",
    "format.TagInfo": "name branch=* version manifest_size created_at updated_at metadata",
    "format.BaseUsage": "id=* name path data deletion index total",
    "format.StorageReport": "uri version bases total missing",
    "pipelines.Backfill": "pipeline branch parameter values=* skipped=* commits=* runs",
    "pipelines.Plan": "pipeline branch source_hash=source.hash parameters=* steps checks=* edges=*",
    "pipelines.Step": "output=key kind=output.kind engine=output.engine write=output.write creates"
    " inputs=output.inputs incremental=output.incremental after primary_key=output.primary_key"
    " description=output.description",
    "pipelines.ComparedOutput": "key inserted updated deleted has_other_columns is_missing is_same",
    "pipelines.Reproduction": "commit_id branch same=is_same same_source=has_same_source"
    " recorded_source_hash=recorded_hash source_hash outputs run",
    "repo.GcReport": "dry_run files=* bytes by_reason=* objects commits branches runs damaged"
    " retained_commits tables waiting_since=*",
    "repo.HolderStorage": "kind name own shared head history total",
    "repo.RepositoryStorage": "root total needed freeable freeable_by_reason metadata holders tables damaged",
    "repo.TableStorage": "table own shared head history total",
    "repo.TableDiff": "change renamed_from inserted=counts.inserted updated=counts.updated"
    " deleted=counts.deleted columns",
    "repo.PipelineRecord": "name file source_hash parameters input outputs=*",
    "repo.CloneInfo": "id target kind commit_id tables created_at=created created_by state",
    "repo.GraphCommit": "id=graph_commit_id branch version=manifest_version parent_id=parent_commit_id"
    " merged_parent_id=merged_parent_commit_id actor=actor_id created_at=created kind message metadata tables",
    "repo.CheckOutcome": "name sql result problem",
    "repo.Conflict": "table kind key column path base source target problem ?hint **decision",
    "repo.MergeResult": "outcome=plan.outcome source=plan.source into=plan.into"
    " source_commit_id=plan.source_commit_id target_commit_id=plan.target_commit_id"
    " base_commit_ids=plan.base_commit_ids commit tables=plan.tables conflict_count=plan.conflict_count"
    " conflicts=plan.conflicts strategy_gaps=plan.strategy_gaps",
    "repo.TablePlan": "table action renamed_from taken_from inserted=counts.inserted updated=counts.updated"
    " deleted=counts.deleted added_columns dropped_columns altered_columns built_indices dropped_indices"
    " wanted_indices conflicts",
    "repo.BranchInfo": "name mode parent parent_commit_id head_commit_id version created_at=created"
    " created_by description expires_at=expires own_tables is_protected checks=*",
    "repo.Movement": "version=number event at=moved actor commit_id message is_deleted restores"
    " renamed_from renamed_to",
    "repo.TagInfo": "name commit_id created_at=created created_by description",
    "repo.RunInfo": "id branch=target state message metadata tables begun_at=begun begun_by"
    " changed_at=changed commit_id error checks",
    "repo.Table": "table=key rows=* primary_key dataset=entry.dataset home=entry.home version=*",
    "repo.TableDrift": "table has_drifted branch_rows main_rows forked_version=* main_version=*",
}


def _by_reason(report: Any) -> dict[str, object]:
    return {reason: {"files": files, "bytes": size} for reason, (files, size) in report.by_reason.items()}


COMPUTED: dict[str, Mapping[str, Callable[[Any], object]]] = {
    "format.CleanupReport": {
        "files": lambda report: len(report.files),
        "by_reason": _by_reason,
        "versions": lambda report: [{"branch": branch, "version": number} for branch, number in report.versions],
    },
    "format.CloneInfo": {"source_branch": lambda clone: clone.branch or MAIN},
    "format.Finding": {"remedy": lambda finding: words_at(Door.COMMAND_LINE, finding.remedy)},
    "format.Layout": {
        "by_branch": lambda layout: {name or MAIN: total for name, total in layout.by_branch.items()},
        "unknown_files": lambda layout: [file.path for file in layout.unknown_files],
    },
    "format.LayoutFile": {"branch": lambda file: file.branch or MAIN},
    "format.BranchInfo": {"parent_branch": lambda branch: branch.parent_branch or MAIN},
    "format.TagInfo": {"branch": lambda tag: tag.branch or MAIN},
    "format.BaseUsage": {"id": lambda usage: None if usage.base is None else usage.base.id},
    "pipelines.Backfill": {
        "values": lambda done: list(map(str, done.values)),
        "skipped": lambda done: list(map(str, done.skipped)),
        "commits": lambda done: [run.commit_id for run in done.runs if run.commit_id is not None],
    },
    "pipelines.Plan": {
        "parameters": lambda plan: {name: str(value) for name, value in plan.parameters.items()},
        "checks": lambda plan: [check.name for check in plan.checks],
        "edges": lambda plan: [{"from": key, "to": step.key} for step in plan.steps for key in step.output.inputs],
    },
    "repo.GcReport": {
        "files": lambda report: len(report.objects),
        "by_reason": _by_reason,
        "waiting_since": lambda report: None if report.waiting_since is None else to_datetime(report.waiting_since),
    },
    "repo.PipelineRecord": {
        "outputs": lambda record: [{"table": key, **document_of(output)} for key, output in record.outputs.items()]
    },
    "repo.BranchInfo": {"checks": lambda branch: [{"name": name, "sql": sql} for name, sql in branch.checks]},
    "repo.Table": {"rows": lambda table: table.count_rows(), "version": lambda table: str(table.entry.version)},
    "repo.TableDrift": {
        "forked_version": lambda drift: None if drift.forked_version is None else str(drift.forked_version),
        "main_version": lambda drift: None if drift.main_version is None else str(drift.main_version),
    },
}


def document_of(value: Any) -> Any:
    """Return a value of the library, or anything that contains such values, as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key.value if isinstance(key, Enum) else key): document_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [document_of(item) for item in value]
    kind: Any = type(value)
    read = _reader(kind)
    return json_value(value) if read is None else {name: document_of(item) for name, item in read(value).items()}


# Cached by class, because a document may list thousands of values of one class.
@cache
def _reader(kind: Any) -> Callable[[Any], dict[str, Any]] | None:
    """Return a function that reads the members of a value, or None for plain values."""
    # By package, and not by module: a class keeps its document if it moves to another file.
    name = f"{kind.__module__.removeprefix('anabranch.').partition('.')[0]}.{kind.__qualname__}"
    if name in MEMBERS:
        return lambda value: _read_members(value, MEMBERS[name].split(), COMPUTED.get(name, {}))
    if is_dataclass(kind):
        return lambda value: {each.name: getattr(value, each.name) for each in fields(kind)}
    return None


def _read_members(value: Any, members: list[str], computed: Mapping[str, Callable[[Any], object]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for member in members:
        name, _, attribute = member.partition("=")
        if name.startswith("**"):
            found |= getattr(value, name[2:]) or {}
        elif name.startswith("?"):
            given = getattr(value, name[1:])
            found |= {name[1:]: given} if given else {}
        elif attribute == "*":
            found[name] = computed[name](value)
        else:
            found[name] = attrgetter(attribute or name)(value)
    return found
