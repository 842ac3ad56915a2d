"""Lay out a commit graph in lanes: each line of history that is open has one."""

from collections.abc import Iterable, Mapping
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
                # Only after all its children: by time alone, a parent would come before a child whose writer had a
                # slow clock.
                if not children[parent]:
                    heappush(ready, (-nodes[parent].created_at, parent))
    return ordered


def lay_out_lanes(nodes: Iterable[Node], *, start: int = 0) -> list[LaneRow]:
    """Return the rows of nodes, which come newest first. A line whose commit does not come continues to the end.

    The rows before `start` decide about the lanes, but are not returned.
    """
    lanes, steps = _Lanes(), []
    for number, node in enumerate(nodes):
        lane = lanes.enter(node)
        # The row before the first one has the lines to it.
        if number < start - 1:
            lanes.leave(node, lane)
        else:
            passing = lanes.list_passing()
            steps.append(_Step(node.id, lane, (*passing, *lanes.leave(node, lane))))
    if not steps:
        return []
    lines = [_lines_between(upper, lower) for upper, lower in pairwise(steps)]
    last = tuple((line.start, line.lane) for line in steps[-1].lines)
    rows = [
        LaneRow(id=step.id, lane=step.lane, above=above, below=below)
        for step, above, below in zip(steps, [(), *lines], [*lines, last], strict=True)
    ]
    # With `start`, the first step is the row before it, which was needed for the lines above the first returned row.
    return rows[1:] if start else rows


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


class _Lanes:
    """The lanes that are open, and the commit that each of them waits for."""

    def __init__(self) -> None:
        self._waiting: dict[int, str] = {}
        self._by_commit: dict[str, list[int]] = {}
        self._free: list[int] = []
        self._count = 0

    def enter(self, node: Node) -> int:
        """End the lanes that wait for a commit, and return the lane of the commit."""
        ending = sorted(self._by_commit.pop(node.id, ()))
        for lane in ending:
            del self._waiting[lane]
        for lane in ending[1:]:
            heappush(self._free, lane)
        return ending[0] if ending else self._take()

    def list_passing(self) -> list[_Line]:
        """Return the lines that pass the commit that was entered last."""
        return [_Line(lane, lane, wanted) for lane, wanted in self._waiting.items()]

    def leave(self, node: Node, lane: int) -> list[_Line]:
        """Open a lane to each parent of a commit, and return the lines to them."""
        if not node.parents:
            heappush(self._free, lane)
        lines = []
        for number, parent in enumerate(node.parents):
            # A lane of its own up to the parent, also if another lane waits for it: a line that joined another one
            # between two rows would seem to come from the commit above.
            chosen = self._take() if number else lane
            self._waiting[chosen] = parent
            self._by_commit.setdefault(parent, []).append(chosen)
            lines.append(_Line(lane, chosen, parent))
        return lines

    def _take(self) -> int:
        """Return the leftmost lane that is free."""
        if self._free:
            return heappop(self._free)
        self._count += 1
        return self._count - 1


def _lines_between(upper: _Step, lower: _Step) -> tuple[tuple[int, int], ...]:
    return tuple((line.start, lower.lane if line.wanted == lower.id else line.lane) for line in upper.lines)
