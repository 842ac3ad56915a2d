"""Plan a run of a pipeline: check what would be built before anything is started."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anabranch.pipelines.declarations import DeclaredCheck, Output
from anabranch.pipelines.definition import PipelineDefinition
from anabranch.pipelines.parameters import bind_parameters
from anabranch.pipelines.plan import Plan, Step, in_order, steps_before
from anabranch.pipelines.selection import Selection, select_outputs
from anabranch.repo.snapshot import Snapshot

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository

__all__ = ["plan_pipeline"]


def plan_pipeline(
    pipeline: PipelineDefinition,
    repo: "Repository",
    *,
    branch: str | None,
    parameters: Mapping[str, Any],
    selection: Selection,
) -> Plan:
    """Find out what a run would do; refuse what could not work."""
    if not pipeline.outputs:
        pipeline.location.fail(f"the pipeline {pipeline.name!r} has no outputs", hint="declare one with .sql or .table")
    values = bind_parameters(pipeline.parameters, parameters, pipeline.location)
    # Of all outputs, not only of the selected ones: a cycle is refused in each run.
    order = in_order(pipeline.outputs)
    snapshot = repo.snapshot_of(branch or repo.branch)
    chosen = select_outputs(pipeline, repo, snapshot, selection)
    before = steps_before(chosen)
    # Before anything is started: otherwise a step would fail only after the steps before it were built.
    for output in order:
        if output.key in chosen:
            _refuse_missing(output, chosen, snapshot, pipeline.outputs)
            _refuse_other_key(output, snapshot)
    steps = tuple(
        Step(output=output, after=before[output.key], creates=output.key not in snapshot)
        for output in order
        if output.key in chosen
    )
    checks = [check for check in pipeline.checks.values() if selection.is_all or _concerns(check, chosen, snapshot)]
    for check in checks:
        _refuse_missing_in_check(check, chosen, snapshot, pipeline.outputs)
    return Plan(
        pipeline=pipeline.name,
        source=pipeline.source,
        branch=branch or repo.branch,
        parameters=values,
        steps=steps,
        checks=tuple(checks),
    )


def _refuse_missing(
    output: Output, chosen: Mapping[str, Output], snapshot: Snapshot, declared: Mapping[str, Output]
) -> None:
    for key in output.inputs:
        if key not in chosen and key not in snapshot and key in declared:
            output.location.fail(
                f"'{output.key}' reads '{key}', which is neither selected nor a table of the branch",
                hint=f"select '+{output.key}', which includes what it reads",
            )
        if key not in chosen and key not in snapshot:
            output.location.fail(
                f"'{output.key}' reads '{key}', which is neither an output nor a table of the branch",
                hint="correct the name, declare it as an output, or load it first",
            )


def _refuse_missing_in_check(
    check: DeclaredCheck, chosen: Mapping[str, Output], snapshot: Snapshot, declared: Mapping[str, Output]
) -> None:
    for key in check.tables:
        if key not in chosen and key not in snapshot and key in declared:
            # Leaving the check out would publish what it might have refused.
            check.location.fail(
                f"the check {check.name!r} reads '{key}', which is neither selected nor a table of the branch",
                hint=f"select '{key}', too",
            )
        if key not in chosen and key not in snapshot:
            check.location.fail(
                f"the check {check.name!r} reads '{key}', which is neither an output nor a table of the branch",
                hint="correct the name",
            )


def _refuse_other_key(output: Output, snapshot: Snapshot) -> None:
    found = snapshot[output.key].primary_key if output.key in snapshot else ()
    if output.key in snapshot and output.primary_key and output.primary_key != found:
        output.location.fail(
            f"the primary key of '{output.key}' is {', '.join(found) or 'no columns'} on the branch,"
            f" not {', '.join(output.primary_key)}",
            hint="declare the same key, or drop the table first",
        )


def _concerns(check: DeclaredCheck, chosen: Mapping[str, Output], snapshot: Snapshot) -> bool:
    """Whether a check may fail because of these outputs; what a function reads is not known."""
    if check.owner is not None and check.owner not in chosen and check.owner not in snapshot:
        return False  # the table that it is about does not exist yet
    return (not check.tables and bool(chosen)) or any(key in chosen for key in check.tables)
