"""The order in which outputs can be built."""

from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter

from anabranch.pipelines.declarations import Output, SourceLocation

__all__ = ["chosen_outputs", "in_order", "steps_before"]


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
