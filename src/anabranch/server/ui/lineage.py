"""The lineage of a table: what it was made from."""

from dataclasses import dataclass

from markupsafe import Markup

from anabranch.ids import MAIN
from anabranch.repo.history.lineage.graph import Lineage
from anabranch.repo.history.lineage.nodes import LineageNode, NodeKind
from anabranch.server.ui.lake import Lake
from anabranch.server.ui.site import Page, Shown, Visit, get

__all__ = ["PAGES", "LineageView"]

# A larger graph is only listed: a picture of it would be neither readable nor small.
_MOST_NODES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageView:
    """A lineage, and its picture with links. The picture is None if there are too many nodes."""

    ref: str
    lineage: Lineage
    picture: Markup | None
    most_nodes: int = _MOST_NODES


def show_lineage(visit: Visit) -> Shown:
    """Show what a table at a ref was made from."""
    ref, lake = visit.query("ref") or MAIN, visit.lake
    lineage = lake.repository.lineage(visit.request.path_params["table"], ref)
    picture = None
    if len(lineage.nodes) <= _MOST_NODES:
        svg = lineage.to_svg(link=lambda node: _link(lake, node), with_style=False)
        picture = Markup(svg)  # noqa: S704 - the drawing escapes all texts
    return Shown("lineage/lineage.html", LineageView(ref=ref, lineage=lineage, picture=picture))


def _link(lake: Lake, node: LineageNode) -> str:
    """Return the page of a node: the table as it was read, or the newest commit that made it."""
    if node.kind is NodeKind.TABLE:
        return f"{lake.path}/tables/{node.table}?ref={node.commit_id}"
    return f"{lake.path}/commits/{node.commit_id}"


PAGES: tuple[Page, ...] = (get("/lineage/{table}", show_lineage),)
