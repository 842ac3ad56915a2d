"""Draw a graph of boxes and arrows as SVG, in columns from left to right, or as a tree of text."""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from xml.sax.saxutils import escape, quoteattr

_GAP_X = 56.0
_GAP_Y = 18.0
# The number of passes that sort the columns and move boxes next to their neighbours. More passes change nothing
# visible.
_SWEEPS = 6

Size = tuple[float, float]
Point = tuple[float, float]
Edge = tuple[str, str]
# The point where an edge crosses a column: the number of the edge and the column.
Crossing = tuple[int, int]
# A node, or a crossing.
Spot = str | Crossing

_MARGIN = 24.0
_PADDING = 12.0
_NAME_SIZE = 13.0
_ABOUT_SIZE = 11.0
# The width of a character of the fonts below, as a fraction of its height.
_ASPECT = 0.62
_LINE = 16.0
# The maximum number of characters to show. The whole text is in the title of the box.
_MAX_CHARACTERS = 44
# How far back edges curve below the boxes.
_SWING = 44.0


@cache
def box_style() -> str:
    """Return the style sheet of the drawings of boxes."""
    return Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBox:
    """A box: its name, lines of description, a title that is shown as a tooltip, and where it links to."""

    id: str
    style: str
    name: str
    about: tuple[str, ...]
    title: str
    href: str | None = None


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


def draw_boxes(
    drawn: Sequence[DrawnBox], edges: Sequence[tuple[str, str, str]], *, title: str, with_style: bool = True
) -> str:
    """Draw boxes and arrows, the first box rightmost. The colours follow the dark or light mode of the reader.

    An arrow is the ids of its source and its target, and its style. Without a style, the page that contains the drawing
    must have `box_style`.
    """
    sizes = {each.id: _size(each) for each in drawn}
    boxes, arrows = lay_out(sizes, [(source, target) for source, target, _ in edges])
    width, height = _size_of_drawing(boxes.values(), arrows)
    role = "group" if any(each.href for each in drawn) else "img"
    lines = [
        # An image has no content for a screen reader, so that links need a group.
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lineage" role="{role}" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{-_MARGIN:.0f} {-_MARGIN:.0f} {width:.0f} {height:.0f}">',
        f"<title>{_text(title)}</title>",
        *((f"<style>{box_style()}</style>",) if with_style else ()),
        '<defs><marker id="lineage-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        f'<rect class="paper" x="{-_MARGIN:.0f}" y="{-_MARGIN:.0f}" width="100%" height="100%"/>',
        *(_arrow_line(arrow, style) for arrow, (_, _, style) in zip(arrows, edges, strict=True)),
        *(line for each in drawn for line in _box_lines(each, boxes[each.id])),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _size_of_drawing(boxes: Collection[Box], arrows: Sequence[Arrow]) -> Size:
    swing = _SWING if any(arrow.is_back for arrow in arrows) else 0
    right, bottom = max(box.x + box.width for box in boxes), max(box.y + box.height for box in boxes)
    return right + 2 * _MARGIN, bottom + 2 * _MARGIN + swing


def _size(drawn: DrawnBox) -> Size:
    widths = (_cells(_cut(drawn.name)) * _NAME_SIZE, *(_cells(_cut(line)) * _ABOUT_SIZE for line in drawn.about))
    return round(max(widths) * _ASPECT + 2 * _PADDING, 1), _LINE * (1 + len(drawn.about)) + _PADDING


def _box_lines(drawn: DrawnBox, box: Box) -> Iterator[str]:
    x, y = box.x + _PADDING, box.y + _PADDING / 2 + _LINE * 0.75
    if drawn.href is not None:
        yield f"<a href={quoteattr(drawn.href)}>"
    yield f'<g class="{drawn.style}"><title>{_text(drawn.title)}</title>'
    yield (
        f'<rect class="box" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="7"/>'
    )
    yield f'<text class="name" x="{x:.1f}" y="{y:.1f}">{_text(_cut(drawn.name))}</text>'
    for number, line in enumerate(drawn.about, 1):
        yield f'<text class="about" x="{x:.1f}" y="{y + number * _LINE:.1f}">{_text(_cut(line))}</text>'
    yield "</g>" if drawn.href is None else "</g></a>"


def _arrow_line(arrow: Arrow, style: str) -> str:
    (x, y), *_ = arrow.points
    path = f"M{x:.1f},{y:.1f}"
    for (x1, y1), (x2, y2) in pairwise(arrow.points):
        if arrow.is_back:
            low = max(y1, y2) + _SWING
            path += f" C{x1:.1f},{low:.1f} {x2:.1f},{low:.1f} {x2:.1f},{y2:.1f}"
        else:
            middle = (x1 + x2) / 2
            path += f" C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    return f'<path class="edge {style}{" back" if arrow.is_back else ""}" marker-end="url(#lineage-head)" d="{path}"/>'


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[: _MAX_CHARACTERS - 1]}…"


def _cells(text: str) -> int:
    """Return the display width of a text. East Asian wide characters take two columns."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _text(text: str) -> str:
    """Escape a text for XML. Replace control characters, which XML cannot contain even when escaped."""
    return escape("".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split())))


def lay_out(sizes: Mapping[str, Size], edges: Sequence[Edge]) -> tuple[dict[str, Box], list[Arrow]]:
    """Return the boxes of nodes with these sizes, the first one rightmost, and the arrows of the edges."""
    # A pipeline may read what it writes. Columns exist only in a graph without cycles, so that the edges that close
    # one are left out and drawn as arrows back.
    back = _find_back(list(sizes), edges)
    columns_of = _find_columns(list(sizes), [edge for edge in edges if edge not in back])
    crossings = [_list_crossings(number, edge, columns_of) for number, edge in enumerate(edges)]
    columns = _list_columns(columns_of, chain.from_iterable(crossings))
    heights = dict.fromkeys(chain.from_iterable(columns), 0.0)
    for name, (_, height) in sizes.items():
        heights[name] = height
    middles = _find_middles(columns, _neighbours_of(edges, crossings, back), heights)
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
    for edge, crossed in zip(edges, crossings, strict=True):
        points = [(lefts[column], widths[column], middles[number, column]) for number, column in crossed]
        arrows.append(_arrow(boxes[edge[0]], boxes[edge[1]], points, is_back=edge in back))
    return boxes, arrows


def _find_back(names: Sequence[str], edges: Sequence[Edge]) -> set[Edge]:
    """Return edges whose removal breaks all cycles. They are found by a walk against the edges from the first node."""
    sources: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        sources[target].append(source)
    back: set[Edge] = set()
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


def _find_columns(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the column of each node, 0 on the right: one left of its leftmost target."""
    targets: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        targets[source].append(target)
    columns: dict[str, int] = {}
    for name in TopologicalSorter(targets).static_order():
        columns[name] = 1 + max((columns[target] for target in targets[name]), default=-1)
    return {name: columns[name] for name in names}


def _list_crossings(number: int, edge: Edge, columns: Mapping[str, int]) -> list[Crossing]:
    source, target = edge
    return [(number, column) for column in range(columns[source] - 1, columns[target], -1)]


def _list_columns(columns_of: Mapping[str, int], crossings: Iterable[Crossing]) -> list[list[Spot]]:
    """Return the spots of each column, the nodes before the crossings."""
    columns: list[list[Spot]] = [[] for _ in range(1 + max(columns_of.values()))]
    for name, column in columns_of.items():
        columns[column].append(name)
    for crossing in crossings:
        columns[crossing[1]].append(crossing)
    return columns


def _neighbours_of(
    edges: Sequence[Edge], crossings: Sequence[Sequence[Crossing]], back: Collection[Edge]
) -> Mapping[Spot, Sequence[Spot]]:
    """Return the spots next to each spot, along the edges that do not point back."""
    neighbours: defaultdict[Spot, list[Spot]] = defaultdict(list)
    for edge, crossed in zip(edges, crossings, strict=True):
        if edge not in back:
            route: list[Spot] = [edge[0], *crossed, edge[1]]
            for left, right in pairwise(route):
                neighbours[left].append(right)
                neighbours[right].append(left)
    return neighbours


def _find_middles(
    columns: Sequence[list[Spot]], neighbours: Mapping[Spot, Sequence[Spot]], heights: Mapping[Spot, float]
) -> dict[Spot, float]:
    """Return the vertical middle of each spot: close to its neighbours, without overlap."""
    middles = {spot: float(row) for column in columns for row, spot in enumerate(column)}
    for sweep in range(_SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            ideal = _ideal_middles(column, neighbours, middles)
            # The first half of the sweeps finds the order within the columns, the second half only the positions.
            if sweep < _SWEEPS // 2:
                column.sort(key=ideal.__getitem__)
            middles.update(_spread(column, ideal, heights))
    top = min(middle - heights[spot] / 2 for spot, middle in middles.items())
    return {spot: middle - top for spot, middle in middles.items()}


def _ideal_middles(
    column: Sequence[Spot], neighbours: Mapping[Spot, Sequence[Spot]], middles: Mapping[Spot, float]
) -> dict[Spot, float]:
    """Return the average of the neighbours of each spot. A spot without neighbours stays where it is."""
    return {spot: fmean([middles[other] for other in neighbours.get(spot, [spot])]) for spot in column}


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


def _arrow(source: Box, target: Box, passing: Sequence[tuple[float, float, float]], *, is_back: bool) -> Arrow:
    if is_back:
        points = [(box.x + box.width / 2, box.y + box.height) for box in (source, target)]
        return Arrow(points=tuple(points), is_back=True)
    points = [(source.x + source.width, source.y + source.height / 2)]
    for left, width, middle in passing:
        points += [(left, middle), (left + width, middle)]
    points.append((target.x, target.y + target.height / 2))
    return Arrow(points=tuple(points), is_back=False)


# The prefix of a branch of the tree, and of the lines below it. The second pair is for the last branch.
_BRANCHES = (("├─ ", "│  "), ("└─ ", "   "))


def draw_tree(
    roots: Sequence[str], branches: Mapping[str, Sequence[tuple[str, str]]], describe: Callable[[str], tuple[str, str]]
) -> str:
    """Draw each node with the branches below it once. If it occurs again, only its name is repeated.

    `branches` are the nodes below a node, with a remark or ''. `describe` returns the name and a description of a node.
    """
    lines = []
    drawn: set[str] = set()
    # A loop with a stack, because a chain of tables may be longer than the recursion limit of Python.
    stack = [(root, "", "", "", frozenset[str]()) for root in reversed(roots)]
    while stack:
        node, before, below, remark, path = stack.pop()
        name, about = describe(node)
        found = branches.get(node, ())
        if node in drawn:
            about = "(as it was before)" if node in path else "(see above)"
            found = ()
        parts = (name, about, f"({remark})" if remark else "")
        lines.append(before + "  ".join(" ".join(part.split()) for part in parts if part))
        drawn.add(node)
        for number, (other, how) in reversed(list(enumerate(found))):
            here, after = _BRANCHES[number == len(found) - 1]
            stack.append((other, below + here, below + after, how, path | {node}))
    return "\n".join(lines)
