"""A commit graph: the lanes of its commits, and its drawing as a table of HTML or as SVG."""

import html
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from anabranch.display import html_line, html_text, html_time, in_notebook, short_id, text_table, to_text

if TYPE_CHECKING:
    from anabranch.repo.log.entries import GraphCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """The row of one commit: its lane, and the lines from the row above and to the row below, as pairs of lanes."""

    id: str
    lane: int
    above: tuple[tuple[int, int], ...]
    below: tuple[tuple[int, int], ...]


def newest_first(nodes: "Mapping[str, GraphCommit]") -> "list[GraphCommit]":
    """Sort commits by age, but never a parent before its child, even if clocks were wrong."""
    children = Counter(parent for node in nodes.values() for parent in node.parents)
    ready = [(-node.created_at, node.id) for node in nodes.values() if not children[node.id]]
    heapify(ready)
    ordered = []
    while ready:
        node = nodes[heappop(ready)[1]]
        ordered.append(node)
        for parent in node.parents:
            children[parent] -= 1
            # Only after all its children: by time alone, a parent would precede a child of a writer with a slow clock.
            if not children[parent] and parent in nodes:
                heappush(ready, (-nodes[parent].created_at, parent))
    return ordered


def lay_out_lanes(nodes: "Iterable[GraphCommit]", *, start: int = 0) -> list[LaneRow]:
    """Return the rows of commits, which come newest first. A line whose commit does not come continues to the end.

    The line of the first parent continues straight on. Rows before `start` determine the lanes, but are not returned.
    """
    lanes, steps = _Lanes(), []
    for number, node in enumerate(nodes):
        lane = lanes.enter(node)
        # The row before the first one has the lines to it.
        if number < start - 1:
            lanes.leave(node, lane)
        else:
            steps.append(_Step(node.id, lane, (*lanes.list_passing(), *lanes.leave(node, lane))))
    if not steps:
        return []
    lines = [upper.lines_to(lower) for upper, lower in pairwise(steps)]
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

    def lines_to(self, lower: "_Step") -> tuple[tuple[int, int], ...]:
        """Return the lanes where each line starts, and where it is at the next commit."""
        return tuple((line.start, lower.lane if line.wanted == lower.id else line.lane) for line in self.lines)


class _Lanes:
    """The lanes that are open, and the commit that each of them waits for."""

    def __init__(self) -> None:
        self._waiting: dict[int, str] = {}
        self._by_commit: dict[str, list[int]] = {}
        self._free: list[int] = []
        self._count = 0

    def enter(self, node: "GraphCommit") -> int:
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

    def leave(self, node: "GraphCommit", lane: int) -> list[_Line]:
        """Open a lane to each parent of a commit, and return the lines to them."""
        if not node.parents:
            heappush(self._free, lane)
        lines = []
        for number, parent in enumerate(node.parents):
            # A lane of its own up to the parent, even if another lane waits for it: a line that joined another one
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


ROW_HEIGHT = 30
_STEP = 14
_RADIUS = 4.5
# Lanes beyond this share the last one, so that a graph of many branches stays narrow.
_MOST = 24
# Rows with many branches at one commit name the first of them.
_LABELS = 6
# Readable on light and on dark paper. Attributes and not classes: they are the same in a notebook.
_COLOURS = ("#0b7285", "#c2410c", "#7048e8", "#2b8a3e", "#c2255c", "#1971c2", "#8a6d00")
_NONE = "\u2013"
_HEAD = "".join(
    f'<th scope="col">{name}</th>'
    for name in ('<span class="unseen">Graph</span>', "Message", "Commit", "By", "Time (UTC)")
)


class GraphTarget(StrEnum):
    """What a link of a graph leads to."""

    COMMIT = "commit"
    BRANCH = "branch"
    TAG = "tag"


# Return the address of a commit, branch or tag.
Link = Callable[[GraphTarget, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitGraph:
    """Commits, newest first, and the names of the branches and tags at them, by commit id.

    A notebook shows it as a picture. `has_more` is True if there are older commits.
    """

    commits: "tuple[GraphCommit, ...]"
    branches: Mapping[str, Sequence[str]]
    tags: Mapping[str, Sequence[str]]
    rows: tuple[LaneRow, ...]
    has_more: bool

    def __len__(self) -> int:
        return len(self.commits)

    def __iter__(self) -> "Iterator[GraphCommit]":
        return iter(self.commits)

    def __repr__(self) -> str:
        cells = [
            (short_id(one.id), to_text(one.created), one.actor_id, ", ".join(self._names(one.id)), one.message)
            for one in self.commits
        ]
        return text_table(("commit", "created", "actor", "branches and tags", "message"), cells)

    def _repr_html_(self) -> str:
        return in_notebook(f'<table class="list graph">{self.to_html()}</table>')

    def to_html(self, *, link: Link | None = None, names: Mapping[str, str] | None = None) -> str:
        """Return the graph as the content of an HTML table.

        `link` returns the address of a commit, branch or tag. `names` are other names of branches to show.
        """
        rows = "".join(
            f'<tr><td class="picture">{picture}</td>{self._cells(commit, link=link, names=names or {})}</tr>'
            for commit, picture in self._pictures()
        )
        body = rows or '<tr><td colspan="5">No commits.</td></tr>'
        return f"<thead><tr>{_HEAD}</tr></thead><tbody>{body}</tbody>"

    def _cells(self, commit: "GraphCommit", *, link: Link | None, names: Mapping[str, str]) -> str:
        branches, tags = self.branches.get(commit.id, ()), self.tags.get(commit.id, ())
        labels = [_label(GraphTarget.BRANCH, ref, names.get(ref, ref), link) for ref in branches[:_LABELS]]
        labels += [_label(GraphTarget.TAG, name, name, link) for name in tags[:_LABELS]]
        more = max(0, len(branches) - _LABELS) + max(0, len(tags) - _LABELS)
        if more:
            labels.append(f'<span class="muted">+{more:,} more</span>')
        # In bdi, because text that runs from right to left would otherwise reorder the labels beside it.
        message = f"<bdi>{html_line(commit.message) or '(no message)'}</bdi>"
        return (
            f'<td class="message">{" ".join([*labels, message])}</td>'
            f"<td>{_linked(GraphTarget.COMMIT, commit.id, html_text(short_id(commit.id)), 'mono', link)}</td>"
            f"<td><bdi>{html_line(commit.actor_id or _NONE, 40)}</bdi></td>"
            f'<td class="nowrap">{html_time(commit.created)}</td>'
        )

    def to_svg(self) -> str:
        """Return the graph as one SVG picture, with a line of text for each commit."""
        left = lane_count(self.rows) * _STEP + 12
        width, height = left + 888, max(len(self.commits), 1) * ROW_HEIGHT
        parts = []
        for number, (commit, picture) in enumerate(self._pictures()):
            top = number * ROW_HEIGHT
            parts.append(f'<g transform="translate(0 {top})">{picture}</g>')
            names = [*self.branches.get(commit.id, ()), *(f"tag: {name}" for name in self.tags.get(commit.id, ()))]
            label = f"({', '.join(names)}) " if names else ""
            words = f"{short_id(commit.id)} {label}{commit.message.strip().partition(chr(10))[0]}"
            parts.append(f'<text x="{left}" y="{top + ROW_HEIGHT / 2 + 5:g}">{html_text(words)}</text>')
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="14">{"".join(parts)}</svg>\n'
        )

    def _pictures(self) -> "Iterator[tuple[GraphCommit, str]]":
        lanes = lane_count(self.rows)
        for commit, row in zip(self.commits, self.rows, strict=True):
            yield commit, draw_row(row, lanes=lanes, is_merge=commit.merged_parent_commit_id is not None)

    def _names(self, commit_id: str) -> list[str]:
        return [*self.branches.get(commit_id, ()), *self.tags.get(commit_id, ())]


def select_commits(found: "Iterable[GraphCommit]", *, table: str | None, actor: str | None) -> "Iterator[GraphCommit]":
    """Yield the commits that changed a table and were made by an actor. None selects all."""
    for commit in found:
        if (table is None or table in commit.tables) and (actor is None or actor == commit.actor_id):
            yield commit


def draw_commits(
    commits: "Iterable[GraphCommit]",
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
    if is_filtered:
        # Most parents are left out, so that lines would end nowhere.
        rows = [LaneRow(id=one, lane=0, above=(), below=()) for one in list(kept)[offset:]]
    else:
        rows = lay_out_lanes(newest_first(kept), start=offset)
    shown = {row.id for row in rows}
    return CommitGraph(
        commits=tuple(kept[row.id] for row in rows),
        branches=_by_commit(branches, shown),
        tags=_by_commit(tags, shown),
        rows=tuple(rows),
        has_more=len(found) > len(kept),
    )


def _by_commit(pairs: Iterable[tuple[str, str]], shown: set[str]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for commit_id, name in pairs:
        if commit_id in shown:
            found.setdefault(commit_id, []).append(name)
    return found


def _label(target: GraphTarget, ref: str, name: str, link: Link | None) -> str:
    return _linked(target, ref, f"<bdi>{html_line(name, 60)}</bdi>", f"pill {target}", link)


def _linked(target: GraphTarget, ref: str, content: str, classes: str, link: Link | None) -> str:
    if link is None:
        return f'<span class="{classes}">{content}</span>'
    return f'<a class="{classes}" href="{html.escape(link(target, ref))}">{content}</a>'


def lane_count(rows: Sequence[LaneRow]) -> int:
    """Return how many lanes a drawing of the rows needs."""
    lanes = [row.lane for row in rows] + [lane for row in rows for line in (*row.above, *row.below) for lane in line]
    return min(max(lanes, default=0), _MOST) + 1


def draw_row(row: LaneRow, *, lanes: int, is_merge: bool = False) -> str:
    """Draw the commit of a row, and the halves of the lines to the rows above and below it."""
    middle, width = ROW_HEIGHT / 2, lanes * _STEP + 2
    parts = [f'<path d="{"".join(found)}" stroke="{colour}"/>' for colour, found in _paths_of(row).items()]
    colour, x = _COLOURS[_shown(row.lane) % len(_COLOURS)], _x(_shown(row.lane))
    # A ring, so that a merge is recognised without its colour.
    fill = "var(--paper, #fff)" if is_merge else colour
    parts.append(f'<circle cx="{x:g}" cy="{middle:g}" r="{_RADIUS}" fill="{fill}" stroke="{colour}"/>')
    return (
        f'<svg class="lanes" xmlns="http://www.w3.org/2000/svg" width="{width}" height="{ROW_HEIGHT}" '
        f'viewBox="0 0 {width} {ROW_HEIGHT}" fill="none" stroke-width="2" aria-hidden="true" focusable="false">'
        f"{''.join(parts)}</svg>"
    )


def _paths_of(row: LaneRow) -> dict[str, list[str]]:
    """Draw the lines of a row, by colour."""
    # Sets, because lanes beyond the last one are drawn at one position: each line is drawn once.
    above, below = ({(_shown(start), _shown(end)) for start, end in lines} for lines in (row.above, row.below))
    # One path for each colour, and one line for a lane that passes: a graph of many branches has many lanes.
    paths: dict[str, list[str]] = defaultdict(list)
    for start, end in sorted(above):
        is_passing = start == end and (start, end) in below
        path = f"M{_x(start):g} 0V{ROW_HEIGHT}" if is_passing else _half(start, end, upper=True)
        paths[_colour(start, end)].append(path)
    for start, end in sorted(below):
        if start != end or (start, end) not in above:
            paths[_colour(start, end)].append(_half(start, end, upper=False))
    return paths


def _half(start: int, end: int, *, upper: bool) -> str:
    """Draw the half of a line that is in a row: its end in the row below the line, its start in the row above it."""
    left, right, height = _x(start), _x(end), ROW_HEIGHT
    edge = (left + right) / 2
    if start == end:
        return f"M{left:g} 0V{height / 2:g}" if upper else f"M{left:g} {height / 2:g}V{height}"
    # The halves of one cubic curve, cut in its middle, where it crosses the edge between the rows.
    if upper:
        return f"M{edge:g} 0C{(edge + right) / 2:g} {height / 8:g} {right:g} {height / 4:g} {right:g} {height / 2:g}"
    control = f"{left:g} {height * 0.75:g} {(left + edge) / 2:g} {height * 0.875:g}"
    return f"M{left:g} {height / 2:g}C{control} {edge:g} {height}"


def _colour(start: int, end: int) -> str:
    return _COLOURS[max(start, end) % len(_COLOURS)]


def _shown(lane: int) -> int:
    return min(lane, _MOST)


def _x(lane: int) -> float:
    return 1 + _STEP * (lane + 0.5)
