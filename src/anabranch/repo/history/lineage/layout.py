"""Layout of a graph: nodes in columns from left to right, each one left of its targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

__all__ = ["Arrow", "Box", "Size", "lay_out"]

_GAP_X = 56.0
_GAP_Y = 18.0
# The number of passes that sort the columns and move boxes next to their neighbours. More passes change nothing
# visible.
_SWEEPS = 6

Size = tuple[float, float]
Point = tuple[float, float]
# A node, or the point where an edge crosses a column.
Spot = str | tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """The position of a node: its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """The points of an edge. `is_back` is True if it points from right to left, as part of a cycle."""

    points: tuple[Point, ...]
    is_back: bool


def lay_out(sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]]) -> tuple[dict[str, Box], list[Arrow]]:
    """Return the boxes of nodes with these sizes, the first one rightmost, and the arrows of the edges."""
    # A pipeline may read what it writes. Columns exist only in a graph without cycles, so that the edges that close
    # one are left out and drawn as arrows back.
    back = _find_back(list(sizes), edges)
    columns_of = _find_columns(list(sizes), [edge for edge in edges if edge not in back])
    routes = [_route(number, edge, columns_of) for number, edge in enumerate(edges)]
    links = [link for edge, route in zip(edges, routes, strict=True) if edge not in back for link in pairwise(route)]
    columns: list[list[Spot]] = [[] for _ in range(1 + max(columns_of.values()))]
    for name, column in columns_of.items():
        columns[column].append(name)
    for spot in (spot for route in routes for spot in route if not isinstance(spot, str)):
        columns[spot[1]].append(spot)
    heights = {spot: sizes[spot][1] if isinstance(spot, str) else 0.0 for column in columns for spot in column}
    middles = _find_middles(columns, links, heights)
    lefts, widths = _find_lefts(columns, sizes)
    boxes = {
        name: Box(
            x=lefts[columns_of[name]] + (widths[columns_of[name]] - width) / 2,
            y=middles[name] - height / 2,
            width=width,
            height=height,
        )
        for name, (width, height) in sizes.items()
    }
    arrows = []
    for edge, route in zip(edges, routes, strict=True):
        if edge in back:
            arrows.append(_back_arrow(boxes, edge))
            continue
        passing = [(spot[1], middles[spot]) for spot in route if not isinstance(spot, str)]
        arrows.append(_arrow(boxes, edge, [(lefts[column], widths[column], middle) for column, middle in passing]))
    return boxes, arrows


def _find_back(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return edges whose removal breaks all cycles. They are found by a walk against the edges from the first node."""
    sources: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        sources[target].append(source)
    back: set[tuple[str, str]] = set()
    done: set[str] = set()
    for start in names:
        # A dict as a stack: its keys are the nodes on the path, and a step back to one of them closes a cycle.
        # Recursion would fail on a long chain.
        path = {start: iter(sources[start])} if start not in done else {}
        while path:
            name = next(reversed(path))
            for source in path[name]:
                if source in path:
                    back.add((source, name))
                elif source not in done:
                    path[source] = iter(sources[source])
                    break
            else:
                done.add(name)
                del path[name]
    return back


def _find_columns(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the column of each node, 0 on the right: one left of its leftmost target."""
    waiting = dict.fromkeys(names, 0)
    sources: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        waiting[source] += 1
        sources[target].append(source)
    columns = dict.fromkeys(names, 0)
    ready = [name for name in names if not waiting[name]]
    for name in ready:  # The list grows during the loop.
        for source in sources[name]:
            columns[source] = max(columns[source], columns[name] + 1)
            waiting[source] -= 1
            if not waiting[source]:
                ready.append(source)
    return columns


def _route(number: int, edge: tuple[str, str], columns: Mapping[str, int]) -> list[Spot]:
    source, target = edge
    between: list[Spot] = [(number, column) for column in range(columns[source] - 1, columns[target], -1)]
    return [source, *between, target]


def _find_middles(
    columns: Sequence[list[Spot]], links: Sequence[tuple[Spot, Spot]], heights: Mapping[Spot, float]
) -> dict[Spot, float]:
    """Return the vertical middle of each spot: close to its neighbours, without overlap."""
    neighbours: dict[Spot, list[Spot]] = {spot: [] for column in columns for spot in column}
    for left, right in links:
        neighbours[left].append(right)
        neighbours[right].append(left)
    middles = {spot: float(row) for column in columns for row, spot in enumerate(column)}
    for sweep in range(_SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            ideal = {spot: fmean([middles[other] for other in neighbours[spot]] or [middles[spot]]) for spot in column}
            # The first half of the sweeps finds the order within the columns, the second half only the positions.
            if sweep < _SWEEPS // 2:
                column.sort(key=ideal.__getitem__)
            middles.update(_spread(column, ideal, heights))
    top = min((middles[spot] - heights[spot] / 2 for spot in middles), default=0.0)
    return {spot: middle - top for spot, middle in middles.items()}


def _spread(column: Sequence[Spot], ideal: Mapping[Spot, float], heights: Mapping[Spot, float]) -> dict[Spot, float]:
    """Move overlapping spots apart, then shift the column to the average of the ideal positions."""
    placed: dict[Spot, float] = {}
    end = float("-inf")
    for spot in column:
        placed[spot] = max(ideal[spot], end + _GAP_Y + heights[spot] / 2)
        end = placed[spot] + heights[spot] / 2
    shift = fmean([ideal[spot] - placed[spot] for spot in column])
    return {spot: middle + shift for spot, middle in placed.items()}


def _find_lefts(columns: Sequence[Sequence[Spot]], sizes: Mapping[str, Size]) -> tuple[list[float], list[float]]:
    widths = [max((sizes[spot][0] for spot in column if isinstance(spot, str)), default=0.0) for column in columns]
    lefts = [0.0] * len(columns)
    left = 0.0
    # Column 0 is the rightmost one: the result of the lineage is at the right, its sources at the left.
    for column in reversed(range(len(columns))):
        lefts[column] = left
        left += widths[column] + _GAP_X
    return lefts, widths


def _arrow(boxes: Mapping[str, Box], edge: tuple[str, str], passing: Sequence[tuple[float, float, float]]) -> Arrow:
    source, target = boxes[edge[0]], boxes[edge[1]]
    points = [(source.x + source.width, source.y + source.height / 2)]
    for left, width, middle in passing:
        points += [(left, middle), (left + width, middle)]
    points.append((target.x, target.y + target.height / 2))
    return Arrow(points=tuple(points), is_back=False)


def _back_arrow(boxes: Mapping[str, Box], edge: tuple[str, str]) -> Arrow:
    source, target = boxes[edge[0]], boxes[edge[1]]
    start = (source.x + source.width / 2, source.y + source.height)
    end = (target.x + target.width / 2, target.y + target.height)
    return Arrow(points=(start, end), is_back=True)
