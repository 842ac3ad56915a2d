"""The commits of several branches as a graph in lanes, with the branches and tags that name them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from anabranch.display import short_id, text_table, to_text
from anabranch.drawing.commit_graph import (
    GraphLine,
    GraphTarget,
    LaneRow,
    Node,
    draw_graph,
    draw_svg,
    lay_out_lanes,
    newest_first,
)
from anabranch.drawing.html import in_notebook
from anabranch.repo.log.entries import GraphCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitGraph:
    """Commits, newest first, and the names of the branches and tags at them, by commit id.

    A notebook shows it as a picture. `has_more` is True if there are older commits.
    """

    commits: tuple[GraphCommit, ...]
    branches: Mapping[str, Sequence[str]]
    tags: Mapping[str, Sequence[str]]
    rows: tuple[LaneRow, ...]
    has_more: bool

    def __len__(self) -> int:
        return len(self.commits)

    def __iter__(self) -> Iterator[GraphCommit]:
        return iter(self.commits)

    def __repr__(self) -> str:
        cells = [
            (short_id(one.id), to_text(one.created), one.actor_id, ", ".join(self._names(one.id)), one.message)
            for one in self.commits
        ]
        return text_table(("commit", "created", "actor", "branches and tags", "message"), cells)

    def _repr_html_(self) -> str:
        return in_notebook(f'<table class="list graph">{self.to_html()}</table>')

    def to_html(
        self,
        *,
        link: Callable[[GraphTarget, str], str] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> str:
        """Return the graph as the content of an HTML table.

        `link` returns the address of a commit, branch or tag. `names` are other names of branches to show.
        """
        return draw_graph(self._lines(names or {}), link=link)

    def to_svg(self) -> str:
        """Return the graph as one SVG picture, with a line of text for each commit."""
        return draw_svg(self._lines({}))

    def _lines(self, shown: Mapping[str, str]) -> list[GraphLine]:
        return [
            GraphLine(
                row=row,
                message=commit.message,
                actor=commit.actor_id,
                created=commit.created,
                is_merge=commit.merged_parent_commit_id is not None,
                branches=[(name, shown.get(name, name)) for name in self.branches.get(commit.id, ())],
                tags=self.tags.get(commit.id, ()),
            )
            for commit, row in zip(self.commits, self.rows, strict=True)
        ]

    def _names(self, commit_id: str) -> list[str]:
        return [*self.branches.get(commit_id, ()), *self.tags.get(commit_id, ())]


def draw_commits(
    commits: Iterable[GraphCommit],
    *,
    branches: Iterable[tuple[str, str]],
    tags: Iterable[tuple[str, str]],
    offset: int,
    limit: int | None,
    is_filtered: bool,
) -> CommitGraph:
    """Return a page of commits, which come newest first. The branches and tags are pairs of a commit id and a name."""
    # The lanes of a page follow from all commits above it.
    end = None if limit is None else offset + limit
    found = list(islice(commits, None if end is None else end + 1))
    kept = {commit.id: commit for commit in found[:end]}
    nodes = {commit.id: _node(commit) for commit in kept.values()}
    if is_filtered:
        # Most parents are left out, so that lines would end nowhere.
        rows = [LaneRow(id=one, lane=0, above=(), below=()) for one in list(nodes)[offset:]]
    else:
        rows = lay_out_lanes(newest_first(nodes), start=offset)
    shown = {row.id for row in rows}
    return CommitGraph(
        commits=tuple(kept[row.id] for row in rows),
        branches=_by_commit(branches, shown),
        tags=_by_commit(tags, shown),
        rows=tuple(rows),
        has_more=len(found) > len(kept),
    )


def _node(commit: GraphCommit) -> Node:
    parents = (commit.parent_commit_id, commit.merged_parent_commit_id)
    return Node(
        id=commit.id, parents=tuple(parent for parent in parents if parent is not None), created_at=commit.created_at
    )


def _by_commit(pairs: Iterable[tuple[str, str]], shown: set[str]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for commit_id, name in pairs:
        if commit_id in shown:
            found.setdefault(commit_id, []).append(name)
    return found
