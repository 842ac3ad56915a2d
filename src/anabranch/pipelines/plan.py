"""The plan of a run: steps in the order in which they can be built, drawn as text or as SVG."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.pipelines.declarations import DeclaredCheck, Output
from anabranch.pipelines.loading import Source
from anabranch.repo.history.lineage.svg import DrawnBox, DrawnEdge, draw_boxes

__all__ = ["Plan", "Step"]

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
