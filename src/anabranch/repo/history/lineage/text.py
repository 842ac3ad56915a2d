"""Draw a lineage as a text tree."""

from collections.abc import Iterator, Sequence

from anabranch.repo.history.lineage.nodes import EdgeKind, LineageEdge, LineageNode, NodeKind

__all__ = ["draw_text"]

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
