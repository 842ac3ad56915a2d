"""The commits of all branches, and how far branches are apart."""

from pathlib import Path

import pytest

import anabranch as ab


@pytest.fixture
def shop(tmp_path: Path) -> ab.Repository:
    repository = ab.init(tmp_path / "shop", durability="none")
    repository.load("shop.orders", [{"id": 1}], primary_key=["id"], message="one")
    return repository


def append(repository: ab.Repository, number: int, branch: str) -> str:
    commit = repository.append("shop.orders", [{"id": number}], branch=branch, message=f"{number} on {branch}")
    assert commit is not None
    return commit.id


def test_graph_has_the_commits_of_all_branches_newest_first(shop: ab.Repository) -> None:
    shop.branch_create("dev")
    append(shop, 2, "dev")
    append(shop, 3, "main")
    shop.merge("dev", "main", message="merge")
    append(shop, 4, "dev")
    expected = ["4 on dev", "merge", "3 on main", "2 on dev", "one", "Begin the repository"]
    assert [commit.message for commit in shop.iter_graph()] == expected
    assert [commit.message for commit in shop.iter_graph("main")] == expected[1:]
    assert [commit.message for commit in shop.iter_graph("main~1")] == ["3 on main", *expected[4:]]


def test_graph_leaves_out_deleted_branches(shop: ab.Repository) -> None:
    shop.branch_create("dev")
    append(shop, 2, "dev")
    shop.branch_delete("dev")
    assert [commit.message for commit in shop.iter_graph()] == ["one", "Begin the repository"]


def test_long_graph_is_read_once(shop: ab.Repository) -> None:
    for number in range(2, 150):
        append(shop, number, "main")
    ids = [commit.id for commit in shop.iter_graph()]
    assert len(ids) == len(set(ids)) == 150


def test_ahead_and_behind(shop: ab.Repository) -> None:
    shop.branch_create("dev")
    append(shop, 2, "dev")
    append(shop, 3, "dev")
    append(shop, 4, "main")
    assert shop.ahead_behind(["dev", "main"], "main") == {"dev": (2, 1), "main": (0, 0)}
    shop.merge("dev", "main")
    assert shop.ahead_behind(["dev"], "main") == {"dev": (0, 2)}
    assert shop.ahead_behind(["main"], "dev") == {"main": (2, 0)}


def test_counting_stops_at_the_limit(shop: ab.Repository) -> None:
    shop.branch_create("dev")
    for number in range(2, 8):
        append(shop, number, "main")
    assert shop.ahead_behind(["dev"], "main", limit=3) == {"dev": (0, 3)}
