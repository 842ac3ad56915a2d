"""The lanes of a commit graph."""

import xml.etree.ElementTree as ET
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from anabranch.repo.history.commit_graph import LaneRow, draw_row, lane_count, lay_out_lanes, newest_first
from anabranch.repo.log.entries import GraphCommit
from tests.repo.graphs import node


def lanes(*commits: str) -> list[LaneRow]:
    """Lay out commits given newest first, each as 'name parent parent'."""
    nodes = []
    for age, commit in enumerate(commits):
        name, *parents = commit.split()
        nodes.append(node(name, parents, created_at=-age))
    return lay_out_lanes(nodes)


def test_line_stays_in_one_lane() -> None:
    rows = lanes("c b", "b a", "a")
    assert [row.lane for row in rows] == [0, 0, 0]
    assert [row.below for row in rows] == [((0, 0),), ((0, 0),), ()]


def test_two_branches_part_and_a_merge_joins_them() -> None:
    rows = lanes("m c d", "d b", "c b", "b")
    assert [row.lane for row in rows] == [0, 1, 0, 0]
    assert rows[0].below == ((0, 0), (0, 1))
    # Both lines end at their common parent.
    assert set(rows[3].above) == {(0, 0), (1, 0)}


def test_lane_is_used_again_after_it_ended() -> None:
    rows = lanes("x a", "y a", "a", "z")
    assert [row.lane for row in rows] == [0, 1, 0, 0]


def test_line_to_a_later_page_continues_to_the_end() -> None:
    rows = lanes("x old", "y a", "a")
    assert rows[-1].below == ((0, 0),)


@st.composite
def histories(draw: st.DrawFn) -> list[GraphCommit]:
    count = draw(st.integers(0, 25))
    nodes = {}
    for number in range(count):
        parents = draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []
        nodes[str(number)] = node(str(number), list(map(str, parents)), created_at=number)
    return newest_first(nodes)


@given(histories())
def test_every_parent_is_reached_by_a_line_from_its_child(nodes: list[GraphCommit]) -> None:
    rows = lay_out_lanes(nodes)
    for index, one in enumerate(nodes):
        for parent in one.parents:
            positions = {rows[index].lane}
            for row in rows[index:]:
                if row.id == parent:
                    assert row.lane in positions
                    break
                positions = {end for start, end in row.below if start in positions}


@given(histories(), st.integers(0, 25))
def test_later_page_continues_the_lanes_of_the_first(nodes: list[GraphCommit], start: int) -> None:
    assert lay_out_lanes(nodes, start=start) == lay_out_lanes(nodes)[start:]


@given(histories())
def test_two_rows_draw_the_same_lines_at_their_edge(nodes: list[GraphCommit]) -> None:
    rows = lay_out_lanes(nodes)
    assert all(upper.below == lower.above for upper, lower in pairwise(rows))
    count = lane_count(rows)
    for row in rows:
        assert ET.fromstring(draw_row(row, lanes=count)).tag.endswith("svg")  # noqa: S314 - our own text
