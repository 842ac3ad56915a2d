"""The drawing of a commit graph, apart from where the commits come from."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.commands.history import draw
from anabranch.repo.history.commit_graph import newest_first
from anabranch.repo.log.entries import GraphCommit
from tests.repo.graphs import node


def drawing(*commits: str) -> str:
    """Draw commits given newest first, each as 'name parent parent'."""
    nodes = []
    for age, commit in enumerate(commits):
        name, *parents = commit.split()
        nodes.append(node(name, parents, created_at=-age))
    return "\n".join(draw(nodes, {one.id: one.id for one in nodes}))


def test_a_single_line() -> None:
    assert drawing("c b", "b a", "a") == "* c\n* b\n* a"


def test_two_lines_that_part() -> None:
    assert drawing("d b", "c b", "b a", "a") == "* d\n| * c\n|/\n* b\n* a"


def test_a_merge() -> None:
    assert drawing("m c d", "d b", "c b", "b a", "a") == "* m\n|\\\n| * d\n* | c\n|/\n* b\n* a"


def test_a_merge_beside_another_line_makes_room() -> None:
    assert drawing("x a", "m c d", "d a", "c a", "a") == "* x\n| * m\n| |\\\n| | * d\n| * | c\n|_|/\n|/\n* a"
    assert drawing("m c d", "x a", "d a", "c a", "a").splitlines()[:4] == ["* m", "|\\", "| | * x", "| * | d"]


def test_a_merge_left_of_another_line_pushes_it() -> None:
    assert drawing("y m", "x a", "m c d", "d a", "c a", "a") == (
        "* y\n| * x\n* | m\n|\\ \\\n| * | d\n* | | c\n|_|/\n|/\n* a"
    )


def test_a_line_far_to_the_right_joins_below_the_others() -> None:
    assert drawing("z a", "y b", "x a", "a b", "b") == "* z\n| * y\n| | * x\n|_|/\n* | a\n|/\n* b"


def test_lines_right_of_a_joining_one_move_up() -> None:
    assert drawing("z a", "y a", "x b", "a b", "b") == "* z\n| * y\n| | * x\n|/ /\n* | a\n|/\n* b"


def test_a_line_that_ends_lets_others_move_up() -> None:
    assert drawing("z a", "y b", "a", "b") == "* z\n| * y\n* | a\n /\n* b"


@st.composite
def histories(draw_: st.DrawFn) -> dict[str, GraphCommit]:
    """Commits with up to two parents, and clocks that may be wrong."""
    nodes: dict[str, GraphCommit] = {}
    for number in range(draw_(st.integers(1, 12))):
        known = sorted(nodes)
        parents = draw_(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else []
        name = f"c{number:02d}"
        nodes[name] = node(name, parents, created_at=draw_(st.integers(0, 3)))
    return nodes


@given(histories())
def test_a_parent_never_comes_before_its_child(nodes: dict[str, GraphCommit]) -> None:
    order = [one.id for one in newest_first(nodes)]
    assert sorted(order) == sorted(nodes)
    for one in nodes.values():
        assert all(order.index(parent) > order.index(one.id) for parent in one.parents)


@given(histories())
def test_every_commit_is_drawn_once_on_a_line_of_its_own(nodes: dict[str, GraphCommit]) -> None:
    lines = list(draw(newest_first(nodes), {name: name for name in nodes}))
    stars = [line for line in lines if "*" in line]
    assert sorted(line.split()[-1] for line in stars) == sorted(nodes)
    assert all(line.count("*") == 1 for line in stars)
    assert all(set(line) <= set("|/\\_ ") for line in lines if "*" not in line)
    assert all(line == line.rstrip() for line in lines)
