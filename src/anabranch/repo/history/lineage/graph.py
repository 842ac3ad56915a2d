"""The lineage graph of a table as a value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.repo.history.lineage.nodes import LineageEdge, LineageNode, NodeKind
from anabranch.repo.history.lineage.svg import draw_svg
from anabranch.repo.history.lineage.text import draw_text

__all__ = ["Lineage"]


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
