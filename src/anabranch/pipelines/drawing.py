"""The graph of a plan: as a tree of text, and as SVG."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.repo.history.lineage.svg import DrawnBox, DrawnEdge, draw_boxes

if TYPE_CHECKING:
    from anabranch.pipelines.planning import Plan, Step

__all__ = ["draw_plan_svg", "draw_plan_text"]

# What is drawn before an item of the tree and before what is below it; the second pair is for the last one.
_BRANCHES = (("├─ ", "│  "), ("└─ ", "   "))


def draw_plan_text(plan: "Plan") -> str:
    """Draw each table above those that are made from it. One that comes again is only named."""
    return "\n".join(_iter_lines(plan))


def _iter_lines(plan: "Plan") -> Iterator[str]:
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
        about = f"  {about_step(steps[key])}" if key in steps else ""
        yield f"{before}{key}{about}"
        found = readers.get(key, [])
        for number, reader in reversed(list(enumerate(found))):
            here, after = _BRANCHES[number == len(found) - 1]
            waiting.append((reader, below + here, below + after))


def _readers(plan: "Plan") -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for step in plan.steps:
        for key in step.output.inputs:
            found.setdefault(key, []).append(step.key)
    return found


def about_step(step: "Step") -> str:
    """Say in a few words how a step makes its table."""
    return f"{step.output.kind}, {step.output.write.value}, {step.output.engine.value}"


def draw_plan_svg(plan: "Plan") -> str:
    """Draw the tables as boxes, from those that are read on the left to those that are made last on the right."""
    checked = {step.key: sum(step.key == check.owner for check in plan.checks) for step in plan.steps}
    boxes = [
        DrawnBox(
            id=step.key,
            style="pipeline",
            name=step.key,
            about=(about_step(step), *([f"{checked[step.key]} checks"] if checked[step.key] else [])),
            title=f"{step.key}: {step.output.description or about_step(step)}",
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
