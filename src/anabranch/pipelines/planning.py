"""What a run of a pipeline would do, found out before anything is started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.pipelines.declarations import DeclaredCheck, Output
from anabranch.pipelines.graph import chosen_outputs, in_order, steps_before
from anabranch.pipelines.loading import Source
from anabranch.pipelines.parameters import bind_parameters
from anabranch.repo.snapshots import Snapshot

if TYPE_CHECKING:
    from anabranch.pipelines.pipeline import Pipeline
    from anabranch.repo.repository import Repository

__all__ = ["Plan", "Step", "plan_pipeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An output to be built `after` others; `creates` says that its table is not there yet."""

    output: Output
    after: tuple[str, ...]
    creates: bool

    @property
    def key(self) -> str:
        """The table that the step makes."""
        return self.output.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps in an order in which they can be built, and all that they need."""

    pipeline: str
    source: Source
    branch: str
    parameters: Mapping[str, Any]
    steps: tuple[Step, ...]
    checks: tuple[DeclaredCheck, ...]

    @property
    def tables_read(self) -> tuple[str, ...]:
        """The tables that are there already and that some step reads."""
        made = {step.key for step in self.steps}
        return tuple(dict.fromkeys(key for step in self.steps for key in step.output.inputs if key not in made))


def plan_pipeline(
    pipeline: "Pipeline", repo: "Repository", *, branch: str | None, parameters: Mapping[str, Any], only: Sequence[str]
) -> Plan:
    if not pipeline.outputs:
        pipeline.place.fail(f"the pipeline {pipeline.name!r} has no outputs", hint="declare one with .sql or .table")
    values = bind_parameters(pipeline.parameters, parameters, pipeline.place)
    order = in_order(pipeline.outputs)
    chosen = chosen_outputs(pipeline.outputs, only, pipeline.place)
    before = steps_before(chosen)
    snapshot = repo.snapshot_of(branch or repo.branch)
    for output in order:
        if output.key in chosen:
            _refuse_missing(output, chosen, snapshot)
            _refuse_other_key(output, snapshot)
    steps = tuple(
        Step(output=output, after=before[output.key], creates=output.key not in snapshot)
        for output in order
        if output.key in chosen
    )
    checks = [check for check in pipeline.checks.values() if not only or _concerns(check, chosen)]
    for check in checks:
        _refuse_missing_in_check(check, chosen, snapshot)
    return Plan(
        pipeline=pipeline.name,
        source=pipeline.source,
        branch=branch or repo.branch,
        parameters=values,
        steps=steps,
        checks=tuple(checks),
    )


def _refuse_missing(output: Output, chosen: Mapping[str, Output], snapshot: Snapshot) -> None:
    for key in output.inputs:
        if key not in chosen and key not in snapshot:
            output.place.fail(
                f"'{output.key}' reads '{key}', which is neither an output nor a table of the branch",
                hint="correct the name, declare it as an output, or load it first",
            )


def _refuse_missing_in_check(check: DeclaredCheck, chosen: Mapping[str, Output], snapshot: Snapshot) -> None:
    for key in check.tables:
        if key not in chosen and key not in snapshot:
            check.place.fail(
                f"the check {check.name!r} reads '{key}', which is neither an output nor a table of the branch",
                hint="correct the name",
            )


def _refuse_other_key(output: Output, snapshot: Snapshot) -> None:
    found = snapshot[output.key].primary_key if output.key in snapshot else ()
    if output.key in snapshot and output.primary_key and output.primary_key != found:
        output.place.fail(
            f"the primary key of '{output.key}' is {', '.join(found) or 'no columns'} on the branch,"
            f" not {', '.join(output.primary_key)}",
            hint="declare the same key, or drop the table first",
        )


def _concerns(check: DeclaredCheck, chosen: Mapping[str, Output]) -> bool:
    """Whether a check may fail because of these outputs; what a function looks at is not known."""
    return not check.tables or any(key in chosen for key in check.tables)
