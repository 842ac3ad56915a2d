"""Drawings of lineages: well-formed with any names, complete, without overlaps."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.drawing import Box, lay_out
from anabranch.repo.history.lineage import EdgeKind, Lineage, LineageEdge, LineageNode, NodeKind
from tests.repo.history.test_lineage import load, run, write

SVG = "{http://www.w3.org/2000/svg}"


def overlaps(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def chain(length: int) -> Lineage:
    """A table behind a table behind a table."""
    keys = [f"s.t{number}" for number in range(length)]
    nodes = tuple(
        LineageNode(id=key, kind=NodeKind.TABLE, name=key, table=key, commit_id="c", created_at=0, rows=1)
        for key in keys
    )
    edges = tuple(LineageEdge(source=source, target=target, kind=EdgeKind.RENAMED) for target, source in pairwise(keys))
    return Lineage(table=keys[0], commit_id="c", nodes=nodes, edges=edges)


def test_a_drawing_has_a_box_for_each_node_and_an_arrow_for_each_edge(repo: ab.Repository) -> None:
    load(repo, "b.orders")
    load(repo, "b.customers")
    for _ in range(2):
        run(repo, "shop", {"s.orders": ["b.orders", "s.orders"], "g.all": ["s.orders", "b.customers"]}, how="append")
    lineage = repo.lineage("g.all")
    drawn = ElementTree.fromstring(lineage.to_svg())  # noqa: S314 - our own text
    boxes = drawn.findall(f"{SVG}g")
    assert [box.findtext(f"{SVG}text") for box in boxes] == [node.name for node in lineage.nodes]
    assert [box.get("class") for box in boxes] == [
        "table root",
        *(node.kind.value for node in lineage.nodes[1:]),
    ]
    arrows = [path.get("class") for path in drawn.findall(f"{SVG}path")]
    assert len(arrows) == len(lineage.edges)
    assert arrows.count("edge read back") == 1  # s.orders is made from what it was


def test_drawing_is_self_contained_and_has_a_dark_mode(repo: ab.Repository) -> None:
    load(repo, "b.orders")
    text = repo.lineage("b.orders").to_svg()
    assert "prefers-color-scheme: dark" in text
    assert text.count("http") == 1  # the name of the namespace
    assert "href" not in text


@pytest.mark.parametrize(
    "name", ["<b>&amp;", "a\nb\tc", "\x1b[2J\x07", 'quo"te', "漢字" * 60, "x" * 500, "]]>", "\u202e"]
)
def test_drawing_is_well_formed_with_any_names(repo: ab.Repository, name: str) -> None:
    write(repo, "s.out", metadata={"pipeline": name})
    write(repo, "s.out", message=name)
    lineage = repo.lineage("s.out")
    drawn = ElementTree.fromstring(lineage.to_svg())  # noqa: S314 - our own text
    assert len(drawn.findall(f"{SVG}g")) == 3
    lines = lineage.to_text().splitlines()
    assert len(lines) == 3
    assert lines[-1].startswith("└─ ")


def test_a_long_chain_is_drawn_to_its_end() -> None:
    lineage = chain(3_000)
    lines = lineage.to_text().splitlines()
    assert (len(lines), lines[-1].strip()) == (3_000, "└─ s.t2999  1 row  (the name before)")
    assert lineage.to_svg().count("<rect") == 3_001


names = st.lists(st.sampled_from("abcdefghij"), min_size=1, unique=True)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, tuple[float, float]], list[tuple[str, str]]]:
    nodes = draw(names)
    edges = draw(st.lists(st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)), unique=True, max_size=25))
    return {name: (draw(st.floats(10, 300)), 46.0) for name in nodes}, edges


@given(graphs())
def test_boxes_never_overlap_and_arrows_go_from_left_to_right(
    graph: tuple[dict[str, tuple[float, float]], list[tuple[str, str]]],
) -> None:
    sizes, edges = graph
    boxes, arrows = lay_out(sizes, edges)
    assert list(boxes) == list(sizes)
    placed = list(boxes.values())
    assert not any(overlaps(one, other) for n, one in enumerate(placed) for other in placed[:n])
    assert min(box.x for box in placed) >= 0
    assert min(box.y for box in placed) >= -1e-6
    assert len(arrows) == len(edges)
    for arrow, (source, target) in zip(arrows, edges, strict=True):
        xs = [x for x, _ in arrow.points]
        if arrow.is_back:
            continue
        assert xs == sorted(xs)
        assert xs[0] == boxes[source].x + boxes[source].width
        assert xs[-1] == boxes[target].x
    forward = [edge for edge, arrow in zip(edges, arrows, strict=True) if not arrow.is_back]
    again = lay_out(sizes, forward)[1]
    assert not any(arrow.is_back for arrow in again)
