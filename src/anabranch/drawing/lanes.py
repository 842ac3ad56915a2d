"""Lay out a commit graph in lanes: each line of history that is open has one."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

__all__ = ["LaneRow", "Node", "lay_out_lanes", "newest_first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A commit as the drawing needs it. The line of the first parent continues straight on."""

    id: str
    parents: tuple[str, ...]
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """The row of one commit: its lane, and the lines from the row above and to the row below, as pairs of lanes."""

    id: str
    lane: int
    above: tuple[tuple[int, int], ...]
    below: tuple[tuple[int, int], ...]


def newest_first(nodes: Mapping[str, Node]) -> list[Node]:
    """Sort nodes by age, but never a parent before its child, even if clocks were wrong."""
    children = dict.fromkeys(nodes, 0)
    for node in nodes.values():
        for parent in node.parents:
            if parent in children:
                children[parent] += 1
    ready = [(-node.created_at, node.id) for node in nodes.values() if not children[node.id]]
    heapify(ready)
    ordered = []
    while ready:
        node = nodes[heappop(ready)[1]]
        ordered.append(node)
        for parent in node.parents:
            if parent in children:
                children[parent] -= 1
                if not children[parent]:
                    heappush(ready, (-nodes[parent].created_at, parent))
    return ordered


def lay_out_lanes(nodes: Iterable[Node]) -> list[LaneRow]:
    """Return the rows of nodes, which come newest first. A line whose commit does not come continues to the end."""
    steps = list(_iter_steps(nodes))
    if not steps:
        return []
    lines = [_lines_between(upper, lower) for upper, lower in pairwise(steps)]
    last = tuple((line.start, line.lane) for line in steps[-1].lines)
    return [
        LaneRow(id=step.id, lane=step.lane, above=above, below=below)
        for step, above, below in zip(steps, [(), *lines], [*lines, last], strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line below a commit: the lanes where it starts and where it continues, and the commit it waits for."""

    start: int
    lane: int
    wanted: str


@dataclass(frozen=True, slots=True)
class _Step:
    """A commit, its lane, and the lines below it."""

    id: str
    lane: int
    lines: tuple[_Line, ...]


def _iter_steps(nodes: Iterable[Node]) -> Iterator[_Step]:
    waiting: dict[int, str] = {}  # the commit that each open lane waits for
    for node in nodes:
        ending = sorted(lane for lane, wanted in waiting.items() if wanted == node.id)
        lane = ending[0] if ending else _free(waiting)
        for other in ending:
            del waiting[other]
        lines = [_Line(other, other, wanted) for other, wanted in waiting.items()]
        for parent in node.parents:
            # A lane of its own up to the parent, also if another lane waits for it: a line that joined another one
            # between two rows would seem to come from the commit above.
            chosen = lane if lane not in waiting else _free(waiting)
            waiting[chosen] = parent
            lines.append(_Line(lane, chosen, parent))
        yield _Step(node.id, lane, tuple(lines))


def _free(waiting: Mapping[int, str]) -> int:
    lane = 0
    while lane in waiting:
        lane += 1
    return lane


def _lines_between(upper: _Step, lower: _Step) -> tuple[tuple[int, int], ...]:
    return tuple((line.start, lower.lane if line.wanted == lower.id else line.lane) for line in upper.lines)
