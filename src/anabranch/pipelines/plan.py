"""The plan of a run: steps in the order in which they can be built, drawn as text or as SVG."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from anabranch.pipelines.declarations import DeclaredCheck, Output, SourceLocation
from anabranch.pipelines.outputs import Source
from anabranch.repo.history.lineage.drawings import DrawnBox, DrawnEdge, draw_boxes

__all__ = ["Plan", "Step", "chosen_outputs", "in_order", "steps_before"]

# What is drawn before an item of the tree and before what is below it; the second pair is for the last one.
_BRANCHES = (("├─ ", "│  "), ("└─ ", "   "))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An output to be built `after` others; `creates`: its table does not exist yet."""

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

    def to_text(self) -> str:
        """Draw the graph as a tree: each table above those that are made from it. A repeated table is only named."""
        return "\n".join(_iter_lines(self))

    def to_svg(self) -> str:
        """Draw the graph as boxes and arrows."""
        return _draw_svg(self)


def _iter_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines of the tree, depth first."""
    steps = {step.key: step for step in plan.steps}
    readers = _readers(plan)
    roots = [*plan.tables_read, *(step.key for step in plan.steps if not step.output.inputs)]
    drawn: set[str] = set()
    # A stack instead of recursion: a chain of tables may be longer than Python's recursion limit.
    waiting = [(key, "", "") for key in reversed(roots)]
    while waiting:
        key, before, below = waiting.pop()
        if key in drawn:
            yield f"{before}{key}  (see above)"
            continue
        drawn.add(key)
        about = f"  {_about_step(steps[key])}" if key in steps else ""
        yield f"{before}{key}{about}"
        found = readers.get(key, [])
        for number, reader in reversed(list(enumerate(found))):
            here, after = _BRANCHES[number == len(found) - 1]
            waiting.append((reader, below + here, below + after))


def _readers(plan: Plan) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for step in plan.steps:
        for key in step.output.inputs:
            found.setdefault(key, []).append(step.key)
    return found


def _about_step(step: Step) -> str:
    """Describe in a few words how a step makes its table."""
    return f"{step.output.kind}, {step.output.write.value}, {step.output.engine.value}"


def _draw_svg(plan: Plan) -> str:
    """Draw the tables as boxes, from those that are read on the left to those that are made last on the right."""
    checked = {step.key: sum(step.key == check.owner for check in plan.checks) for step in plan.steps}
    boxes = [
        DrawnBox(
            id=step.key,
            style="pipeline",
            name=step.key,
            about=(_about_step(step), *([f"{checked[step.key]} checks"] if checked[step.key] else [])),
            title=f"{step.key}: {step.output.description or _about_step(step)}",
        )
        for step in reversed(plan.steps)
    ]
    boxes += [
        DrawnBox(id=key, style="table", name=key, about=("table of the branch",), title=key) for key in plan.tables_read
    ]
    if not boxes:
        boxes = [DrawnBox(id="", style="change", name="nothing to do", about=(), title="no step is selected")]
    edges = [DrawnEdge(source=key, target=step.key, style="read") for step in plan.steps for key in step.output.inputs]
    return draw_boxes(boxes, edges, title=f"The pipeline {plan.pipeline}")


def steps_before(outputs: Mapping[str, Output]) -> dict[str, tuple[str, ...]]:
    """For each output those of the others that it reads."""
    return {key: tuple(name for name in output.inputs if name in outputs) for key, output in outputs.items()}


def in_order(outputs: Mapping[str, Output]) -> list[Output]:
    """The outputs with each one after those that it reads, else as they are declared; refuse a cycle."""
    sorter = TopologicalSorter(steps_before(outputs))
    try:
        sorter.prepare()
    except CycleError as err:
        # The error lists them from input to reader, with the first one repeated at the end.
        circle = list(reversed(err.args[1]))
        first = outputs[min(circle, key=lambda key: outputs[key].location.line)]
        start = circle.index(first.key)
        shown = [*circle[start:-1], *circle[: start + 1]] if start else circle
        first.location.fail(
            f"the outputs read each other in a circle: {' reads '.join(shown)}",
            hint="let one of them read another table",
        )
    declared, found = list(outputs), []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=declared.index)
        found += ready
        sorter.done(*ready)
    return [outputs[key] for key in found]


def chosen_outputs(outputs: Mapping[str, Output], only: Collection[str], location: SourceLocation) -> dict[str, Output]:
    """Those that are asked for, by default all."""
    for key in only:
        if key not in outputs:
            location.fail(f"the pipeline has no output {key!r}", hint=f"its outputs are {', '.join(outputs)}")
    return {key: output for key, output in outputs.items() if not only or key in only}
