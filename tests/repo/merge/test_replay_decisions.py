"""Cherry-pick, revert and rebase: resolutions, their conflicts, and resolvers whose names match nothing."""

from collections.abc import Callable
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, MergeConflictError
from tests.repo.conftest import ORDERS, nothing_changes

Act = Callable[..., Any]


def put(repo: ab.Repository, branch: str, word: str, where: str) -> None:
    repo.update(ORDERS, {"v": f"'{word}'"}, where=where, branch=branch)


@pytest.fixture
def parted(lake: ab.Repository) -> ab.Repository:
    """A lake in which dev changed order 3, then 1, then 2; and main changed 1 and 2."""
    lake.branch_create("dev")
    for number in (3, 1, 2):
        put(lake, "dev", f"dev{number}", f"id = {number}")
    put(lake, "main", "main", "id < 3")
    return lake


def words(repo: ab.Repository, ref: str = "main") -> dict[int, str]:
    return {row["id"]: row["v"] for row in repo.table(ORDERS, ref=ref).to_arrow().to_pylist()}


def decide(number: int, **how: Any) -> dict[str, Any]:
    return {"table": ORDERS, "key": {"id": number}, "column": "v", **how}


ACTS: dict[str, tuple[Act, Act, str]] = {
    "cherry_pick": (
        lambda repo, **how: repo.cherry_pick("main..dev", **how),
        lambda repo, **how: repo.conflicts("main..dev", by="cherry_pick", **how),
        "main",
    ),
    "rebase": (
        lambda repo, **how: repo.rebase("dev", "main", **how),
        lambda repo, **how: repo.conflicts("dev", "main", by="rebase", **how),
        "dev",
    ),
}


@pytest.mark.parametrize("name", ACTS)
def test_conflicts_are_those_of_the_first_commit_that_has_any(parted: ab.Repository, name: str) -> None:
    act, conflicts, branch = ACTS[name]
    # The commits before the one with conflicts are staged, so that files appear, but no branch moves.
    versions = [each.version for each in parted.branch_list()]
    assert [(one.key, one.source, one.target) for one in conflicts(parted)] == [({"id": 1}, "dev1", "main")]
    left = conflicts(parted, resolutions=[decide(1, take="source")])
    assert [one.key for one in left] == [{"id": 2}]
    with pytest.raises(MergeConflictError):
        act(parted, resolutions=[decide(1, take="source")])
    assert [each.version for each in parted.branch_list()] == versions
    decided = [decide(1, take="source"), decide(2, value="both")]
    assert list(conflicts(parted, resolutions=decided)) == []
    assert act(parted, resolutions=decided, dry_run=True).is_clean
    assert len(act(parted, resolutions=decided).commits) == 3
    assert words(parted, branch) == {1: "dev1", 2: "both", 3: "dev3"}


def test_revert_takes_resolutions(parted: ab.Repository) -> None:
    put(parted, "main", "later", "id = 1")
    (found,) = parted.conflicts("main~1", by="revert")
    assert (found.key, found.base, found.source, found.target) == ({"id": 1}, "main", "a", "later")
    parted.revert("main~1", resolutions=[decide(1, take="source", target="later")])
    assert words(parted) == {1: "a", 2: "b", 3: "c"}


@pytest.mark.parametrize("name", ACTS)
@pytest.mark.parametrize(
    "given", [{"resolvers": {"vv": "max"}}, {"resolutions": [decide(1, take="source") | {"column": "w"}]}]
)
def test_name_that_no_commit_has_is_refused(parted: ab.Repository, name: str, given: Any) -> None:
    act, conflicts, _ = ACTS[name]
    with nothing_changes(parted):
        for call, how in ((act, {}), (act, {"dry_run": True}), (conflicts, {})):
            with pytest.raises(InvalidInputError, match="matches no table and no column"):
                list(call(parted, **given, **how))


def test_unknown_operation_is_refused(parted: ab.Repository) -> None:
    with pytest.raises(InvalidInputError, match="use one of 'merge'"):
        parted.conflicts("dev", "main", by="rebsae")


def test_conflicts_of_a_single_commit_on_a_live_branch(lake: ab.Repository) -> None:
    lake.branch_create("dev", mode="live")
    put(lake, "main", "main", "id = 1")
    commit = lake.head_commit_id_for_branch("main")
    put(lake, "dev", "dev", "id = 1")
    (found,) = lake.conflicts(commit, "dev", by="revert")
    assert (found.source, found.target) == ("a", "dev")


@pytest.mark.parametrize("dry_run", [True, False])
def test_rebase_that_applies_no_commit_accepts_resolvers(lake: ab.Repository, *, dry_run: bool) -> None:
    lake.branch_create("dev")
    put(lake, "main", "main", "id = 1")
    how: dict[str, Any] = {"resolvers": {"v": "max"}, "resolutions": [decide(1, take="source")]}
    assert list(lake.conflicts("dev", "main", by="rebase", **how)) == []
    done = lake.rebase("dev", "main", **how, dry_run=dry_run)
    assert (done.commits, done.plan) == ((), ())
    assert words(lake, "dev")[1] == ("a" if dry_run else "main")
