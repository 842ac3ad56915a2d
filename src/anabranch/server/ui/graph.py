"""The commit graph of all branches, or of one ref, in lanes."""

from dataclasses import dataclass

from markupsafe import Markup

from anabranch.drawing.commit_graph import GraphTarget
from anabranch.server.ui.lake import Lake, RefChoices
from anabranch.server.ui.paging import Paged
from anabranch.server.ui.rendering import address
from anabranch.server.ui.site import Page, Shown, Visit, get

__all__ = ["PAGES", "GraphView"]

_SIZE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """A page of the graph, and the content of its table. Its head is the commit that follows a page above it."""

    ref: str
    table: str
    actor: str
    choices: RefChoices
    commits: Paged[str]
    picture: Markup


def show_graph(visit: Visit) -> Shown:
    """Show the commits of all branches, newest first. With a table or an actor, only theirs."""
    lake, number = visit.lake, visit.number("page")
    ref, table, actor = visit.query("ref"), visit.query("table"), visit.query("actor")
    graph = lake.repository.graph(
        ref or None, limit=_SIZE, offset=(number - 1) * _SIZE, table=table or None, actor=actor or None
    )
    html = graph.to_html(link=lambda target, name: _link(lake, target, name), names=lake.host.branch_names())
    view = GraphView(
        ref=ref,
        table=table,
        actor=actor,
        choices=lake.list_choices(),
        commits=Paged(items=[one.id for one in graph], number=number, size=_SIZE, has_more=graph.has_more),
        picture=Markup(html),  # noqa: S704 - the drawing escapes all texts
    )
    return Shown("graph.html", view)


def _link(lake: Lake, target: GraphTarget, name: str) -> str:
    match target:
        case GraphTarget.COMMIT:
            return address(f"{lake.path}/commits/{name}")
        case GraphTarget.BRANCH:
            return address(f"{lake.path}/graph", ref=name)
        case GraphTarget.TAG:
            return address(f"{lake.path}/", ref=name)


PAGES: tuple[Page, ...] = (get("/graph", show_graph),)
