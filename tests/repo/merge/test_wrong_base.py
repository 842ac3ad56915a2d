"""Merges whose result is right only with the right base."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.repo.merge.plan import MergeOutcome
from tests.repo.conftest import nothing_changes
from tests.repo.gc.object_ages import pass_time

T = "s.t"
SCHEMA = pa.schema([("id", pa.int64()), pa.field("a", pa.int64(), nullable=False), ("b", pa.int64())])


@pytest.fixture
def known(repo: ab.Repository) -> ab.Repository:
    """A table with rows 1 to 4, each with a = 0 and b = 0; a is never null."""
    with repo.transaction() as tx:
        tx.create_table(T, SCHEMA, primary_key=["id"])
        tx.append(T, pa.table([[1, 2, 3, 4], [0] * 4, [0] * 4], schema=SCHEMA))
    return repo


def put(repo: ab.Repository, branch: str, number: int, **cells: int | None) -> str:
    with repo.transaction(branch) as tx:
        texts = {name: "NULL" if value is None else str(value) for name, value in cells.items()}
        assert tx.update(T, texts, where=f"id = {number}") == 1
    assert tx.published is not None
    return tx.published.graph_commit_id


def add(repo: ab.Repository, branch: str, number: int, value: int = 0) -> None:
    with repo.transaction(branch) as tx:
        tx.append(T, pa.table([[number], [value], [value]], schema=SCHEMA))


def delete(repo: ab.Repository, branch: str, number: int) -> None:
    with repo.transaction(branch) as tx:
        assert tx.delete(T, f"id = {number}") == 1


def cells(repo: ab.Repository, branch: str) -> dict[int, tuple[Any, Any]]:
    found = repo.snapshot_of(branch)[T].to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: (row["a"], row["b"]) for row in sorted(found, key=lambda row: row["id"])}


def cross(repo: ab.Repository, *, strategy: str = "fail") -> None:
    """Merge dev and main into each other, both as they are now."""
    repo.tag_create("main-before", ref="main")
    repo.tag_create("dev-before", ref="dev")
    repo.merge("dev-before", into="main", strategy=strategy)
    repo.merge("main-before", into="dev", strategy=strategy)


@pytest.mark.s3
def test_the_base_is_the_lowest_common_ancestor_and_not_the_nearest(known: ab.Repository) -> None:
    put(known, "main", 1, a=1)
    known.branch_create("from-first")
    second = put(known, "main", 1, a=2)
    known.branch_create("from-second")
    for value in (1, 2, 3):
        put(known, "main", 2, b=value)
    put(known, "from-first", 3, a=3)
    known.merge("from-first", into="main")
    put(
        known, "from-second", 1, a=1
    )  # back to what it was at the first, which only the right base distinguishes from no change
    done = known.merge("from-second", into="main")
    assert done.plan.base_commit_ids == (second,)
    assert cells(known, "main") == {1: (1, 0), 2: (0, 3), 3: (3, 0), 4: (0, 0)}


@pytest.mark.parametrize(("source", "into"), [("dev", "main"), ("main", "dev")])
def test_change_undone_after_a_criss_cross_stays_undone(known: ab.Repository, source: str, into: str) -> None:
    known.branch_create("dev")
    put(known, "dev", 1, a=7)
    put(known, "main", 2, a=8)
    delete(known, "dev", 3)
    add(known, "main", 5)
    cross(known)
    assert cells(known, "main") == cells(known, "dev") == {1: (7, 0), 2: (8, 0), 4: (0, 0), 5: (0, 0)}
    put(known, "main", 1, a=0)  # as it was before all this
    put(known, "dev", 2, a=0)
    add(known, "main", 3)
    delete(known, "dev", 5)
    done = known.merge(source, into=into)
    assert len(done.plan.base_commit_ids) == 2
    assert cells(known, into) == {1: (0, 0), 2: (0, 0), 3: (0, 0), 4: (0, 0)}


def test_cell_that_a_criss_cross_decided_twice_is_a_conflict(known: ab.Repository) -> None:
    known.branch_create("dev")
    put(known, "dev", 1, a=7, b=7)
    put(known, "main", 1, a=8, b=8)
    put(known, "dev", 2, a=7)
    delete(known, "main", 2)
    cross(known, strategy="source")
    assert cells(known, "main")[1] == (7, 7)
    assert cells(known, "dev")[1] == (8, 8)
    conflicts = [(found.key, found.column, found.base) for found in known.conflicts("dev", into="main")]
    assert conflicts == [({"id": 1}, "a", None), ({"id": 1}, "b", None), ({"id": 2}, None, conflicts[-1][2])]
    with nothing_changes(known), pytest.raises(MergeConflictError):
        known.merge("dev", into="main")
    known.merge("dev", into="main", strategy="target")
    known.merge("main", into="dev")
    assert cells(known, "dev") == cells(known, "main") == {1: (7, 7), 2: (7, 0), 3: (0, 0), 4: (0, 0)}


def test_null_in_one_base_of_a_criss_cross_is_still_a_conflict(known: ab.Repository) -> None:
    known.branch_create("dev")
    put(known, "dev", 1, b=None)
    put(known, "main", 1, b=5)
    put(known, "dev", 2, b=5)
    put(known, "main", 2, b=None)
    cross(known, strategy="source")
    conflicts = [(found.key, found.column, found.source, found.target) for found in known.conflicts("dev")]
    assert conflicts == [({"id": 1}, "b", 5, None), ({"id": 2}, "b", None, 5)]


def test_criss_cross_with_equal_decisions_is_not_a_conflict(known: ab.Repository) -> None:
    known.branch_create("dev")
    put(known, "dev", 1, a=7)
    put(known, "main", 1, a=8)
    known.tag_create("main-before", ref="main")
    known.tag_create("dev-before", ref="dev")
    known.merge("dev-before", into="main", strategy="source")
    known.merge("main-before", into="dev", strategy="target")
    put(known, "dev", 2, a=1)
    known.merge("dev", into="main")
    assert cells(known, "main") == {1: (7, 0), 2: (1, 0), 3: (0, 0), 4: (0, 0)}


@pytest.mark.parametrize("mode", ["pinned", "live"])
def test_branches_merge_again_and_again_while_both_continue(known: ab.Repository, mode: str) -> None:
    known.branch_create_from("main", "dev", mode=mode)
    for turn in range(1, 4):
        put(known, "dev", 1, a=turn)
        put(known, "main", 2, a=turn)
        add(known, "dev", 10 + turn)
        known.merge("dev", into="main")
        put(known, "main", 1, b=turn)
        delete(known, "main", 10 + turn)  # the next merge must not bring it back
        if turn == 2:
            known.merge("main", into="dev")
            assert cells(known, "dev") == cells(known, "main")
    assert cells(known, "main") == {1: (3, 3), 2: (3, 0), 3: (0, 0), 4: (0, 0)}
    known.merge("main", into="dev")
    assert cells(known, "dev") == cells(known, "main")
    assert known.merge("main", into="dev").outcome is MergeOutcome.ALREADY_UP_TO_DATE


def test_a_live_branch_merges_what_it_forked_and_nothing_that_main_did_before(known: ab.Repository) -> None:
    known.branch_create_from("main", "dev", mode="live")
    put(known, "main", 1, a=5)  # the branch follows
    put(known, "dev", 2, a=6)  # from here on it does not
    put(known, "main", 1, a=0)
    known.merge("dev", into="main")
    assert cells(known, "main") == {1: (0, 0), 2: (6, 0), 3: (0, 0), 4: (0, 0)}


@pytest.mark.parametrize("strategy", ["fail", "source", "target"])
@pytest.mark.parametrize("release", ["pull", "revert"])
def test_live_branch_that_continues_from_its_own_state_on_main_forks_there(
    known: ab.Repository, release: str, strategy: str
) -> None:
    """Main takes a commit of the branch itself, so the branch continues in the files that it wrote before."""
    known.branch_create("live", mode="live")
    taken = put(known, "live", 1, a=1, b=1)
    known.reset("main", to=taken)
    if release == "pull":
        known.branch_pull("live", T)
    else:
        known.revert(taken, branch="live")
    put(known, "live", 1, b=2)
    # The value from before the branch. With that state as the base, this would not be a change.
    put(known, "main", 1, a=0)
    known.merge("live", into="main", strategy=strategy)
    assert cells(known, "main")[1] == (0, 2)


def test_base_of_a_live_branch_that_continued_is_found_after_a_collection(known: ab.Repository) -> None:
    """The versions between two commits, which show what the newer one was made from, are collected."""
    known.branch_create("live", mode="live")
    put(known, "live", 1, a=1)
    put(known, "live", 1, a=2)
    known.reset("main", to="live")
    known.branch_pull("live", T)
    with known.transaction("live") as tx:
        for number in (1, 2):
            tx.update(T, {"b": str(number)}, where="id = 1")
    put(known, "main", 1, a=0)
    pass_time(known)
    assert known.gc(keep_newer_than=timedelta(days=30)).objects
    known.merge("live", into="main")
    assert cells(known, "main")[1] == (0, 2)


def test_live_branch_that_renamed_a_column_of_its_own_state_on_main_is_merged_by_way_of_another(
    known: ab.Repository,
) -> None:
    known.branch_create("dev")
    known.branch_create("live", mode="live")
    with known.transaction("live") as tx:
        tx.append(T, pa.table([[5], [5], [5]], schema=SCHEMA))
    known.rebase("main", onto="live")
    known.branch_pull("live", T)
    with known.transaction("live") as tx:
        tx.alter_columns(T, [ab.ColumnChange(path="b", name="c")])
    known.merge("live", into="dev")
    put(known, "main", 5, b=None)
    known.merge("dev", into="main", strategy="source")
    assert known.snapshot()[T].to_arrow().to_pylist()[-1] == {"id": 5, "a": 5, "c": None}


def test_a_pulled_table_continues_from_what_was_pulled(known: ab.Repository) -> None:
    known.branch_create("dev")
    put(known, "dev", 1, a=9)
    put(known, "main", 2, a=1)
    known.branch_pull("dev", T)
    put(known, "dev", 2, a=0)  # as it was when the branch was made
    put(known, "main", 3, a=3)
    known.merge("dev", into="main")
    assert cells(known, "main") == {1: (0, 0), 2: (0, 0), 3: (3, 0), 4: (0, 0)}


def test_a_squashed_merge_has_one_parent_and_the_same_rows(known: ab.Repository) -> None:
    known.branch_create("dev")
    for value in (1, 2):
        put(known, "dev", 1, a=value)
    put(known, "main", 2, b=3)
    head = known.head_commit_id_for_branch("main")
    done = known.merge("dev", into="main", squash=True)
    assert done.commit is not None
    assert (done.commit.parent_commit_id, done.commit.merged_parent_commit_id) == (head, None)
    assert cells(known, "main") == {1: (2, 0), 2: (0, 3), 3: (0, 0), 4: (0, 0)}
    assert known.merge("dev", into="main", squash=True).outcome is MergeOutcome.ALREADY_UP_TO_DATE
    put(known, "dev", 3, a=4)
    known.merge("dev", into="main")  # what is there already is not a conflict
    assert cells(known, "main") == {1: (2, 0), 2: (0, 3), 3: (4, 0), 4: (0, 0)}


def test_a_branch_that_was_merged_can_be_deleted_at_once(known: ab.Repository) -> None:
    known.branch_create("dev")
    put(known, "dev", 1, a=1)
    with known.transaction("dev") as tx:
        tx.create_table("s.new", SCHEMA)
        tx.append("s.new", pa.table([[1], [1], [1]], schema=SCHEMA))
    put(known, "main", 2, a=2)
    known.merge("dev", into="main")
    known.branch_delete("dev")
    assert cells(known, "main") == {1: (1, 0), 2: (2, 0), 3: (0, 0), 4: (0, 0)}
    put(known, "main", 1, a=5)
    assert known.snapshot()["s.new"].count_rows() == 1


def test_a_live_branch_that_was_merged_is_merged_again_only_when_it_or_main_moved(known: ab.Repository) -> None:
    known.branch_create("release")
    known.branch_create_from("main", "dev", mode="live")
    put(known, "main", 1, a=1)
    put(known, "release", 2, a=2)
    for _ in range(2):
        assert known.merge("dev", into="release").outcome is MergeOutcome.MERGED
        assert known.merge("dev", into="release").outcome is MergeOutcome.ALREADY_UP_TO_DATE
        assert cells(known, "release") == {1: (1, 0), 2: (2, 0), 3: (0, 0), 4: cells(known, "main")[4]}
        put(known, "main", 4, a=4)
    put(known, "dev", 3, a=3)
    assert known.merge("dev", into="release").outcome is MergeOutcome.MERGED
    assert known.merge("dev", into="release").outcome is MergeOutcome.ALREADY_UP_TO_DATE
    assert cells(known, "release") == {1: (1, 0), 2: (2, 0), 3: (3, 0), 4: (4, 0)}
