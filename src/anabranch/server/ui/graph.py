"""The commit graph of all branches, or of one ref, in lanes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from markupsafe import Markup

from anabranch.drawing.graph_svg import draw_row, lane_count
from anabranch.drawing.lanes import LaneRow, Node, lay_out_lanes, newest_first
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.repository import Repository
from anabranch.server.ui.lake import Lake
from anabranch.server.ui.paging import Paged
from anabranch.server.ui.site import Page, Shown, Visit, get

__all__ = ["PAGES", "GraphRow", "GraphView"]

_SIZE = 100
# Rows with many branches at one commit name the first of them.
_LABELS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRow:
    """A commit, the picture of its lanes, and the branches and tags that name it.

    A branch has the name that people gave it besides its name in the repository.
    """

    commit: GraphCommit
    picture: Markup
    branches: tuple[tuple[str, str], ...]
    tags: tuple[str, ...]
    more_labels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    ref: str
    table: str
    actor: str
    rows: Paged[GraphRow]


def show_graph(visit: Visit) -> Shown:
    """Show the commits of all branches, newest first. With a table or an actor, only theirs."""
    repository = visit.lake.repository
    ref, table, actor = visit.query("ref"), visit.query("table"), visit.query("actor")
    number = visit.number("page")
    wanted = (
        commit
        for commit in repository.iter_graph(ref or None)
        if (not table or table in commit.tables) and (not actor or actor == commit.actor_id)
    )
    # The lanes of a page follow from all commits above it.
    commits = list(islice(wanted, number * _SIZE + 1))
    is_filtered = bool(table or actor)
    drawn = _lay_out(commits[: number * _SIZE], is_filtered=is_filtered)
    rows = _rows(visit.lake, drawn[(number - 1) * _SIZE :], {commit.id: commit for commit in commits})
    page = Paged(items=rows, number=number, size=_SIZE, has_more=len(commits) > number * _SIZE)
    return Shown("graph/graph.html", GraphView(ref=ref, table=table, actor=actor, rows=page))


def _lay_out(commits: Sequence[GraphCommit], *, is_filtered: bool) -> list[LaneRow]:
    nodes = {commit.id: _node(commit) for commit in commits}
    if is_filtered:
        # Most parents are left out, so that lines would end nowhere.
        return [LaneRow(id=node.id, lane=0, above=(), below=()) for node in nodes.values()]
    return lay_out_lanes(newest_first(nodes))


def _node(commit: GraphCommit) -> Node:
    parents = (commit.parent_commit_id, commit.merged_parent_commit_id)
    return Node(
        id=commit.id, parents=tuple(parent for parent in parents if parent is not None), created_at=commit.created_at
    )


def _rows(lake: Lake, drawn: Sequence[LaneRow], commits: Mapping[str, GraphCommit]) -> list[GraphRow]:
    branches, tags = _labels(lake.repository)
    names, lanes = lake.host.branch_names(), lane_count(drawn)
    return [
        GraphRow(
            commit=commits[row.id],
            picture=Markup(  # noqa: S704 - it contains numbers only
                draw_row(row, lanes=lanes, is_merge=commits[row.id].merged_parent_commit_id is not None)
            ),
            branches=tuple((name, names.get(name, name)) for name in branches[row.id][:_LABELS]),
            tags=tuple(tags[row.id][:_LABELS]),
            more_labels=max(0, len(branches[row.id]) - _LABELS) + max(0, len(tags[row.id]) - _LABELS),
        )
        for row in drawn
    ]


def _labels(repository: Repository) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    branches = ((info.head_commit_id, info.name) for info in repository.branch_list())
    return _grouped(branches), _grouped((tag.commit_id, tag.name) for tag in repository.tag_list())


def _grouped(pairs: Iterable[tuple[str, str]]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for commit_id, name in pairs:
        found[commit_id].append(name)
    return found


PAGES: tuple[Page, ...] = (get("/graph", show_graph),)
