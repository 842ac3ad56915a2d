"""The plan of a run: which outputs are selected, what is checked before the start, and a drawing of the steps."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from anabranch.drawing import DrawnBox, draw_boxes, draw_tree
from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.hints import suggest
from anabranch.pipelines.declarations import DeclaredCheck, Output, bind_parameters
from anabranch.pipelines.definition import PipelineDefinition, Source
from anabranch.pipelines.provenance import find_last_builds, seen_input
from anabranch.repo.history.lineage import PipelineRecord
from anabranch.repo.log.entries import GraphCommit, StateId
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Snapshot

if TYPE_CHECKING:
    from anabranch.repo.repository import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An output to be built `after` others. It `creates` its table if that does not exist yet."""

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
        """The existing tables that some step reads."""
        made = {step.key for step in self.steps}
        return tuple(dict.fromkeys(key for step in self.steps for key in step.output.inputs if key not in made))

    def to_text(self) -> str:
        """Draw the graph as a tree: each table above those that are made from it. A repeated table is only named."""
        steps = {step.key: step for step in self.steps}
        readers: dict[str, list[tuple[str, str]]] = {}
        for step in self.steps:
            for key in step.output.inputs:
                readers.setdefault(key, []).append((step.key, ""))
        roots = [*self.tables_read, *(step.key for step in self.steps if not step.output.inputs)]
        return draw_tree(roots, readers, lambda key: (key, steps[key].output.about if key in steps else ""))

    def to_svg(self) -> str:
        """Draw the tables as boxes, from those that are read on the left to those that are made last on the right."""
        checked = Counter(check.owner for check in self.checks)
        boxes = [
            DrawnBox(
                id=step.key,
                style="pipeline",
                name=step.key,
                about=(step.output.about, *([f"{checked[step.key]} checks"] if checked[step.key] else [])),
                title=f"{step.key}: {step.output.description or step.output.about}",
            )
            for step in reversed(self.steps)
        ]
        boxes += [
            DrawnBox(id=key, style="table", name=key, about=("table of the branch",), title=key)
            for key in self.tables_read
        ]
        if not boxes:
            boxes = [DrawnBox(id="", style="change", name="nothing to do", about=(), title="no step is selected")]
        edges = [(key, step.key, "read") for step in self.steps for key in step.output.inputs]
        return draw_boxes(boxes, edges, title=f"The pipeline {self.pipeline}")


def steps_before(outputs: Mapping[str, Output]) -> dict[str, tuple[str, ...]]:
    """Return for each output the other outputs that it reads."""
    return {key: tuple(name for name in output.inputs if name in outputs) for key, output in outputs.items()}


def in_order(outputs: Mapping[str, Output]) -> list[Output]:
    """Return the outputs in an order in which each comes after those that it reads. Refuse a cycle."""
    sorter = TopologicalSorter(steps_before(outputs))
    try:
        sorter.prepare()
    except CycleError as err:
        # The error lists them from input to reader, with the first one repeated at the end.
        circle = list(reversed(err.args[1]))
        first = outputs[min(circle, key=lambda key: outputs[key].location.line)]
        start = circle.index(first.key)
        shown = [*circle[start:-1], *circle[: start + 1]] if start else circle
        problem = f"the outputs read each other in a circle: {' reads '.join(shown)}"
        first.location.fail(problem, hint="let one of them read another table")
    declared, found = list(outputs), []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=declared.index)
        found += ready
        sorter.done(*ready)
    return [outputs[key] for key in found]


_EXPRESSION = re.compile(r"(\+?)([^+]+)(\+?)")
_STATE = "state:"
_CHANGED = "state:changed"
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The requested outputs: `only` by keys, or `select` by expressions, without those of `exclude`.

    `since` is the ref that `state:changed` compares with; by default the branch itself.
    """

    only: Sequence[str] = ()
    select: Sequence[str] = ()
    exclude: Sequence[str] = ()
    since: str | None = None

    @property
    def is_all(self) -> bool:
        return not (self.only or self.select or self.exclude)


def select_outputs(
    pipeline: PipelineDefinition, repo: "Repository", snapshot: Snapshot, selection: Selection
) -> dict[str, Output]:
    """Return the selected outputs in the order of their declaration, by default all."""
    _check_names(pipeline, selection)
    if selection.since is not None and not any(_STATE in each for each in (*selection.select, *selection.exclude)):
        raise InvalidInputError(
            f"'since' is {selection.since!r}, and nothing is selected by state", hint=f"select '{_CHANGED}'"
        )
    # Called only if an expression needs the state, because it reads the history of the branch.
    changed = partial(_changed_outputs, pipeline, repo, snapshot, since=selection.since)
    wanted = set(selection.only or pipeline.outputs)
    if selection.select:
        wanted = _matching(pipeline.outputs, selection.select, changed)
    wanted -= _matching(pipeline.outputs, selection.exclude, changed)
    return {key: output for key, output in pipeline.outputs.items() if key in wanted}


def _check_names(pipeline: PipelineDefinition, selection: Selection) -> None:
    for name in ("only", "select", "exclude"):
        given = getattr(selection, name)
        # A text is a sequence too, and its characters would be taken for names.
        if isinstance(given, str):
            raise InvalidInputError(f"{name} is {given!r}", hint=f"give a list: {name}=[{given!r}]")
    if selection.only and selection.select:
        raise InvalidInputError("both 'only' and 'select' are given", hint="leave one out")
    for key in selection.only:
        if key not in pipeline.outputs:
            known = ", ".join(pipeline.outputs)
            pipeline.location.fail(f"the pipeline has no output {key!r}", hint=f"its outputs are {known}")


def _matching(outputs: Mapping[str, Output], expressions: Sequence[str], changed: Callable[[], set[str]]) -> set[str]:
    """Return the outputs that match any of some expressions: `orders`, `+orders`, `mart.*`, `state:changed+`."""
    before = steps_before(outputs)
    after: dict[str, list[str]] = {key: [] for key in outputs}
    for key, names in before.items():
        for name in names:
            after[name].append(key)
    found: set[str] = set()
    for expression in expressions:
        upwards, name, downwards = _parse_expression(expression)
        keys = changed() if name == _CHANGED else _named(outputs, name)
        found |= keys
        found |= _reachable(keys, before) if upwards else set()
        found |= _reachable(keys, after) if downwards else set()
    return found


def _parse_expression(expression: str) -> tuple[str, str, str]:
    """Return the '+' before the name in an expression, if any, the name, and the '+' after it."""
    parts = _EXPRESSION.fullmatch(expression.strip())
    if parts is None:
        raise InvalidInputError(
            f"the selection {expression!r} cannot be read", hint="write it like orders, +orders, orders+ or mart.*"
        )
    upwards, name, downwards = parts.groups()
    if name.startswith(_STATE) and name != _CHANGED:
        raise InvalidInputError(f"the state {name.removeprefix(_STATE)!r} is not known", hint=f"use '{_CHANGED}'")
    return upwards, name, downwards


def _named(outputs: Mapping[str, Output], name: str) -> set[str]:
    """Return the outputs of a name: a key, or only the name of a table. Both may have wildcards."""
    names = {key: key if "." in name else key.partition(".")[2] for key in outputs}
    found = {key for key, own in names.items() if fnmatchcase(own, name)}
    if not found:
        hint = suggest(name, names.values(), f"the outputs are {', '.join(outputs)}")
        raise InvalidInputError(f"the selection {name!r} matches no output", hint=hint)
    # Two buckets may have a table with this name.
    if len(found) > 1 and not _WILDCARDS & set(name):
        raise InvalidInputError(
            f"the selection {name!r} may be {' or '.join(sorted(found))}", hint="write the bucket, too"
        )
    return found


def _reachable(start: Collection[str], edges: Mapping[str, Collection[str]]) -> set[str]:
    found: set[str] = set()
    todo = list(start)
    while todo:
        for name in edges[todo.pop()]:
            if name not in found:
                found.add(name)
                todo.append(name)
    return found


def _changed_outputs(
    pipeline: PipelineDefinition, repo: "Repository", snapshot: Snapshot, *, since: str | None
) -> set[str]:
    """Return the outputs whose code or inputs are not those of their last build as of a ref, or that were not built."""
    at = snapshot if since is None else EngineAccess(repo).published_snapshot_of(since)
    builds = find_last_builds(at, pipeline=pipeline.name, outputs=list(pipeline.outputs))
    return {
        key
        for key, output in pipeline.outputs.items()
        if key not in snapshot or key not in builds or _has_changed(output, builds[key], repo, snapshot)
    }


def _has_changed(output: Output, build: GraphCommit, repo: "Repository", snapshot: Snapshot) -> bool:
    record = PipelineRecord.find(build.metadata)
    if record is None or record.outputs[output.key].code_hash != output.code_hash:
        return True
    return any(_state_of(snapshot, key) != _seen_state(repo, build, key) for key in output.inputs)


def _state_of(snapshot: Snapshot, key: str) -> StateId | None:
    return snapshot[key].entry.state if key in snapshot else None


def _seen_state(repo: "Repository", build: GraphCommit, key: str) -> StateId | None:
    try:
        return _state_of(seen_input(repo, build, key), key)
    except NotFoundError:
        return None  # collected since then: equality is unknown


def plan_pipeline(
    pipeline: PipelineDefinition,
    repo: "Repository",
    *,
    branch: str | None,
    parameters: Mapping[str, Any],
    selection: Selection,
) -> Plan:
    """Return what a run would do. Refuse a run that would fail."""
    if not pipeline.outputs:
        pipeline.location.fail(f"the pipeline {pipeline.name!r} has no outputs", hint="declare one with .sql or .table")
    values = bind_parameters(pipeline.parameters, parameters, pipeline.location)
    # Order all outputs, not only the selected ones: a cycle is refused in each run.
    order = in_order(pipeline.outputs)
    target = branch or repo.branch
    snapshot = repo.snapshot_of(target)
    chosen = select_outputs(pipeline, repo, snapshot, selection)
    before = steps_before(chosen)
    steps = tuple(
        Step(output=output, after=before[output.key], creates=output.key not in snapshot)
        for output in order
        if output.key in chosen
    )
    checks = [check for check in pipeline.checks.values() if selection.is_all or _concerns(check, chosen, snapshot)]
    # Before anything is started: otherwise a step would fail only after the steps before it were built.
    _refuse_missing(pipeline, steps, checks, snapshot)
    for step in steps:
        _refuse_other_key(step.output, snapshot)
    return Plan(
        pipeline=pipeline.name,
        source=pipeline.source,
        branch=target,
        parameters=values,
        steps=steps,
        checks=tuple(checks),
    )


def _refuse_missing(
    pipeline: PipelineDefinition, steps: Sequence[Step], checks: Sequence[DeclaredCheck], snapshot: Snapshot
) -> None:
    """Refuse outputs and checks that read a table which neither exists nor is built."""
    built = {step.key: step.output for step in steps}
    correct = "correct the name, declare it as an output, or load it first"
    readers = [
        (f"'{key}'", output.inputs, output.location, f"select '+{key}', which includes what it reads", correct)
        for key, output in built.items()
    ]
    # Without the check, data might be published that it would have refused.
    readers += [
        (f"the check {check.name!r}", check.tables, check.location, "select '{}', too", "correct the name")
        for check in checks
    ]
    for reader, tables, location, to_select, to_correct in readers:
        for key in tables:
            if key not in built and key not in snapshot:
                missing, hint = "an output", to_correct
                if key in pipeline.outputs:
                    missing, hint = "selected", to_select.format(key)
                location.fail(
                    f"{reader} reads '{key}', which is neither {missing} nor a table of the branch", hint=hint
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
    """Return whether a check may fail because of these outputs. A function may read any of them."""
    if check.owner is not None and check.owner not in chosen and check.owner not in snapshot:
        return False  # the table that it is about does not exist yet
    return (not check.tables and bool(chosen)) or any(key in chosen for key in check.tables)
