"""The lineage graph of a table as a value, and how it is drawn: as SVG with boxes and arrows, or as a text tree."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from anabranch.repo.history.lineage.layout import Arrow, Box, Size, lay_out
from anabranch.repo.history.lineage.nodes import EdgeKind, LineageEdge, LineageNode, NodeKind

__all__ = ["DrawnBox", "DrawnEdge", "Lineage", "STYLE", "draw_boxes", "draw_svg", "draw_text"]


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

STYLE = """
.lineage { --paper: #ffffff; --ink: #1f2328; --faint: #59636e; --line: #8c959f;
  --table: #ddf4ff; --table-edge: #0969da; --pipeline: #dafbe1; --pipeline-edge: #1a7f37;
  --load: #fff1e5; --load-edge: #bc4c00; --change: #f6f8fa; --change-edge: #818b98; }
@media (prefers-color-scheme: dark) { .lineage { --paper: #0d1117; --ink: #e6edf3; --faint: #9198a1; --line: #6e7681;
  --table: #121d2f; --table-edge: #4493f8; --pipeline: #12261e; --pipeline-edge: #3fb950;
  --load: #2a1d12; --load-edge: #db6d28; --change: #161b22; --change-edge: #6e7681; } }
.lineage .paper { fill: var(--paper); }
.lineage text { font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: var(--ink); }
.lineage .name { font-size: 13px; font-weight: 600; }
.lineage .about { font-size: 11px; fill: var(--faint); }
.lineage .edge { fill: none; stroke: var(--line); stroke-width: 1.5; }
.lineage .back, .lineage .renamed { stroke-dasharray: 5 4; }
.lineage .head { fill: var(--line); }
.lineage .box { stroke-width: 1.5; }
.lineage .root .box { stroke-width: 3; }
.lineage .table .box { fill: var(--table); stroke: var(--table-edge); }
.lineage .pipeline .box { fill: var(--pipeline); stroke: var(--pipeline-edge); }
.lineage .load .box { fill: var(--load); stroke: var(--load-edge); }
.lineage .change .box { fill: var(--change); stroke: var(--change-edge); }
"""


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
class DrawnEdge:
    """An arrow between two boxes, by their ids."""

    source: str
    target: str
    style: str


def draw_svg(
    nodes: Sequence[LineageNode],
    edges: Sequence[LineageEdge],
    *,
    link: Callable[[LineageNode], str] | None = None,
    with_style: bool = True,
) -> str:
    """Draw a lineage. Its first node is the table that it belongs to. `link` returns the address of a node."""
    boxes = [
        DrawnBox(
            id=node.id,
            style=f"{node.kind.value} root" if node is nodes[0] else node.kind.value,
            name=node.name,
            # Put the time on a line of its own to keep the boxes narrow.
            about=tuple(node.about.rsplit(" · ", 1)),
            title=f"{node.name}: {node.about}, commit {node.commit_id}",
            href=None if link is None else link(node),
        )
        for node in nodes
    ]
    drawn = [DrawnEdge(source=edge.source, target=edge.target, style=edge.kind.value) for edge in edges]
    return draw_boxes(boxes, drawn, title=f"The lineage of {nodes[0].name}", with_style=with_style)


def draw_boxes(drawn: Sequence[DrawnBox], edges: Sequence[DrawnEdge], *, title: str, with_style: bool = True) -> str:
    """Draw boxes and arrows, the first box rightmost. The colours follow the dark or light mode of the reader.

    Without a style, the page that contains the drawing must have `STYLE`.
    """
    sizes = {each.id: _size(each) for each in drawn}
    boxes, arrows = lay_out(sizes, [(edge.source, edge.target) for edge in edges])
    has_back_arrow = any(arrow.is_back for arrow in arrows)
    width = max(box.x + box.width for box in boxes.values()) + 2 * _MARGIN
    height = max(box.y + box.height for box in boxes.values()) + 2 * _MARGIN + (_SWING if has_back_arrow else 0)
    role = "group" if any(each.href for each in drawn) else "img"
    lines = [
        # An image has no content for a screen reader, so that links need a group.
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lineage" role="{role}" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="{-_MARGIN:.0f} {-_MARGIN:.0f} {width:.0f} {height:.0f}">',
        f"<title>{_text(title)}</title>",
        *((f"<style>{STYLE}</style>",) if with_style else ()),
        '<defs><marker id="lineage-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        f'<rect class="paper" x="{-_MARGIN:.0f}" y="{-_MARGIN:.0f}" width="100%" height="100%"/>',
        *(_arrow_line(arrow, edge.style) for arrow, edge in zip(arrows, edges, strict=True)),
        *(line for each in drawn for line in _box_lines(each, boxes[each.id])),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


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
    classes = f"edge {style}{' back' if arrow.is_back else ''}"
    return f'<path class="{classes}" marker-end="url(#lineage-head)" d="{_path(arrow)}"/>'


def _path(arrow: Arrow) -> str:
    (x, y), *_ = arrow.points
    path = f"M{x:.1f},{y:.1f}"
    for (x1, y1), (x2, y2) in pairwise(arrow.points):
        if arrow.is_back:
            low = max(y1, y2) + _SWING
            path += f" C{x1:.1f},{low:.1f} {x2:.1f},{low:.1f} {x2:.1f},{y2:.1f}"
        else:
            middle = (x1 + x2) / 2
            path += f" C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    return path


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[: _MAX_CHARACTERS - 1]}…"


def _cells(text: str) -> int:
    """Return the display width of a text. East Asian wide characters take two columns."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _text(text: str) -> str:
    """Escape a text for XML. Replace control characters, which XML cannot contain even when escaped."""
    return escape("".join(character if character.isprintable() else "\ufffd" for character in " ".join(text.split())))


# The prefix of a branch of the tree, and of the lines below it. The second pair is for the last branch.
_BRANCHES = (("├─ ", "│  "), ("└─ ", "   "))


def draw_text(nodes: Sequence[LineageNode], edges: Sequence[LineageEdge]) -> str:
    """Draw each table with its inputs once. If it occurs again, only its name is repeated."""
    drawing = _Drawing({node.id: node for node in nodes}, edges)
    return "\n".join(drawing.lines(nodes[0].id))


class _Drawing:
    def __init__(self, nodes: dict[str, LineageNode], edges: Sequence[LineageEdge]) -> None:
        self._nodes = nodes
        self._edges: dict[str, list[LineageEdge]] = {}
        for edge in edges:
            self._edges.setdefault(edge.target, []).append(edge)
        self._drawn: set[str] = set()

    def lines(self, root: str) -> Iterator[str]:
        # A loop with a stack, because a chain of tables may be longer than the recursion limit of Python.
        stack = [(root, "", "", "", frozenset[str]())]
        while stack:
            node_id, before, below, remark, path = stack.pop()
            repeated = "as it was before" if node_id in path else "see above" if node_id in self._drawn else ""
            yield f"{before}{self._label(node_id, remark, repeated)}"
            if repeated:
                continue
            if self._nodes[node_id].kind is NodeKind.TABLE:
                self._drawn.add(node_id)
            found = self._edges.get(node_id, [])
            for number, edge in reversed(list(enumerate(found))):
                here, after = _BRANCHES[number == len(found) - 1]
                how = "the name before" if edge.kind is EdgeKind.RENAMED else ""
                stack.append((edge.source, below + here, below + after, how, path | {node_id}))

    def _label(self, node_id: str, remark: str, repeated: str) -> str:
        node = self._nodes[node_id]
        about = f"({repeated})" if repeated else node.about
        parts = (node.name, about, f"({remark})" if remark else "")
        return "  ".join(" ".join(part.split()) for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Everything that a table at one commit was made from.

    The first node is the table itself. A pipeline that reads its own output makes a cycle.
    """

    table: str
    commit_id: str
    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]

    def to_text(self) -> str:
        """Draw a tree: below each table the pipelines and commits that made it, below these their inputs."""
        return draw_text(self.nodes, self.edges)

    def to_svg(self, *, link: Callable[[LineageNode], str] | None = None, with_style: bool = True) -> str:
        """Draw the graph from left to right as a self-contained SVG file.

        `link` returns the address of a node. `with_style=False` is for pages that have the style already.
        """
        return draw_svg(self.nodes, self.edges, link=link, with_style=with_style)

    def _repr_html_(self) -> str:
        return self.to_svg()

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as a dict for JSON."""
        return {
            "table": self.table,
            "commit_id": self.commit_id,
            "nodes": [_node_document(node) for node in self.nodes],
            "edges": [{"source": edge.source, "target": edge.target, "kind": edge.kind.value} for edge in self.edges],
        }


def _node_document(node: LineageNode) -> dict[str, Any]:
    names = ["id", "kind", "name", "table", "commit_id", "created_at"]
    match node.kind:
        case NodeKind.TABLE:
            names += ["rows"]
        case NodeKind.PIPELINE:
            names += ["commits", "message", "write"]
        case NodeKind.LOAD | NodeKind.CHANGE:
            names += ["commits", "message"]
    return {**{name: getattr(node, name) for name in names}, "kind": node.kind.value}
