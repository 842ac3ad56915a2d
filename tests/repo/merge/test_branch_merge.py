"""The commit of a merge: its parents, message and metadata, its expected heads, and the checks of its result."""

from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    BranchNotFoundError,
    CheckFailedError,
    InvalidInputError,
    InvalidNameError,
    MergeConflictError,
    NotFoundError,
    WriteConflictError,
)
from anabranch.repo.log.commits import Once
from anabranch.repo.log.entries import CommitKind
from anabranch.repo.merge.plan import MergeOutcome
from anabranch.repo.runs.engine_access import publishing_once
from anabranch.repo.snapshot import Snapshot
from tests.repo.conftest import CUSTOMERS, ORDERS, append, data_files, ids, nothing_changes, objects, table
from tests.repo.rivals import raced_by


@pytest.fixture
def forked(lake: ab.Repository) -> ab.Repository:
    """Orders 7 on dev, and 8 on main."""
    lake.branch_create("dev")
    append(lake, 7, branch="dev")
    append(lake, 8)
    return lake


def test_a_merge_is_a_commit_with_two_parents(forked: ab.Repository) -> None:
    parents = forked.head_commit_id_for_branch("main"), forked.head_commit_id_for_branch("dev")
    done = forked.merge("dev", message="bring it in", metadata={"ticket": "7"})
    assert done.outcome is MergeOutcome.MERGED
    assert done.commit is not None
    assert forked.get_commit("main") == done.commit
    assert (done.commit.parent_commit_id, done.commit.merged_parent_commit_id) == parents
    assert (done.commit.kind, done.commit.message) == (CommitKind.MERGE, "bring it in")
    assert (dict(done.commit.metadata), done.commit.tables) == ({"ticket": "7"}, (ORDERS,))
    assert ids(forked) == [1, 2, 3, 7, 8]
    assert ids(forked.snapshot_of("dev")) == [1, 2, 3, 7]


def test_a_branch_that_did_not_move_takes_the_other_as_it_is(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    assert lake.merge("dev").outcome is MergeOutcome.ALREADY_UP_TO_DATE
    append(lake, 7, branch="dev")
    done = lake.merge("dev")
    assert (done.outcome, done.commit and done.commit.message) == (MergeOutcome.FAST_FORWARD, "Merge dev into main")
    assert lake.merge("dev").outcome is MergeOutcome.ALREADY_UP_TO_DATE
    assert lake.merge("main", into="dev").outcome is MergeOutcome.FAST_FORWARD
    assert ids(lake) == ids(lake.snapshot_of("dev")) == [1, 2, 3, 7]


def test_any_ref_can_be_merged_but_only_into_a_branch(forked: ab.Repository) -> None:
    append(forked, 9, branch="dev")
    forked.merge("dev~1")
    assert ids(forked) == [1, 2, 3, 7, 8]
    forked.tag_create("v1", ref="dev")
    forked.merge("v1")
    assert ids(forked) == [1, 2, 3, 7, 8, 9]
    for into in ("v1", "nowhere"):
        with pytest.raises(BranchNotFoundError):
            forked.merge("dev", into=into)
    for into in ("__history", "a//b", ""):
        with pytest.raises(InvalidNameError):
            forked.merge("dev", into=into)
    with pytest.raises(NotFoundError):
        forked.merge("nowhere")
    with pytest.raises(NotFoundError):
        list(forked.conflicts("nowhere"))


def test_a_merge_that_expects_another_head_does_nothing(forked: ab.Repository) -> None:
    head = forked.head_commit_id_for_branch("main")
    append(forked, 9)
    for is_dry in (True, False):
        with nothing_changes(forked), pytest.raises(WriteConflictError, match=head):
            forked.merge("dev", expected_head=head, dry_run=is_dry)
    forked.merge("dev", expected_head=forked.head_commit_id_for_branch("main"))
    assert ids(forked) == [1, 2, 3, 7, 8, 9]


def test_a_dry_run_writes_nothing_at_all(forked: ab.Repository) -> None:
    with forked.transaction("dev") as tx:
        tx.add_columns(ORDERS, {"w": "id * 2"})
        tx.create_table("s.new", table(1).schema)
        tx.delete(CUSTOMERS, "id = 10")
    before = objects(forked)
    plan = forked.merge("dev", dry_run=True).plan
    assert objects(forked) == before
    assert [(found.table, found.action, found.added_columns) for found in plan.tables] == [
        (CUSTOMERS, "merged", ()),
        (ORDERS, "merged", ("w",)),
        ("s.new", "added", ()),
    ]
    assert plan.base_commit_ids == (forked.get_commit("main~1").graph_commit_id,)
    assert forked.merge("dev").plan == plan


def test_merge_with_a_column_conflict_writes_no_data_of_other_tables(forked: ab.Repository) -> None:
    for branch, kind in (("dev", pa.int64()), ("main", pa.string())):
        with forked.transaction(branch) as tx:
            tx.add_columns(ORDERS, pa.schema([("w", kind)]))
            tx.append(CUSTOMERS, table(30 if branch == "dev" else 40))
    before = data_files(forked)
    with nothing_changes(forked), pytest.raises(MergeConflictError) as caught:
        forked.merge("dev")
    assert [(found.table, found.column) for found in caught.value.conflicts] == [(ORDERS, "w")]
    assert data_files(forked) == before


def test_checks_see_the_merged_state_before_it_is_published(forked: ab.Repository) -> None:
    seen: list[list[int]] = []

    def look(snapshot: Snapshot) -> bool:
        seen.append(ids(snapshot))
        assert ids(forked.snapshot_of("main")) == [1, 2, 3, 8]
        return True

    forked.merge("dev", checks={"look": look, "small": "SELECT * FROM in_c_sales.orders WHERE id > 100"})
    assert seen == [[1, 2, 3, 7, 8]]


def test_a_check_that_fails_leaves_both_branches_as_they_were(forked: ab.Repository) -> None:
    with nothing_changes(forked), pytest.raises(CheckFailedError, match="no sevens"):
        forked.merge("dev", checks={"no sevens": "SELECT * FROM in_c_sales.orders WHERE id = 7"})
    assert ids(forked) == [1, 2, 3, 8]
    forked.merge("dev")


def test_concurrent_commits_are_merged_too(forked: ab.Repository) -> None:
    crossed = raced_by(forked, lambda other: append(other, 9))
    done = crossed.merge("dev")
    assert ids(forked) == [1, 2, 3, 7, 8, 9]
    assert done.commit is not None
    assert done.commit.parent_commit_id == forked.get_commit("main~1").graph_commit_id
    assert done.plan.target_commit_id == done.commit.parent_commit_id


def test_concurrent_commits_may_conflict(forked: ab.Repository) -> None:
    def change(other: ab.Repository) -> None:
        with other.transaction("main") as tx:
            tx.upsert(ORDERS, table(7, v="mine"))

    with pytest.raises(MergeConflictError) as caught:
        raced_by(forked, change).merge("dev")
    assert [(found.key, found.column) for found in caught.value.conflicts] == [({"id": 7}, "v")]
    assert ids(forked) == [1, 2, 3, 7, 8]


def test_a_merge_that_another_writer_made_concurrently_is_not_made_again(forked: ab.Repository) -> None:
    done = raced_by(forked, lambda other: other.merge("dev")).merge("dev")
    assert (done.outcome, done.commit) == (MergeOutcome.ALREADY_UP_TO_DATE, None)
    assert forked.get_commit("main").message == "Merge dev into main"
    assert forked.get_commit("main~1").message == "append (8,)"


@pytest.mark.parametrize("words", [{"message": 3}, {"metadata": {"a": 1}}, {"metadata": ["a"]}, {"checks": 3}])
def test_values_of_wrong_types_are_refused(forked: ab.Repository, words: dict[str, object]) -> None:
    with nothing_changes(forked), pytest.raises(InvalidInputError):
        forked.merge("dev", **words)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_same", [True, False], ids=["the same request", "another one"])
def test_squash_that_arrives_late_is_not_made_twice(repo: ab.Repository, *, is_same: bool) -> None:
    """The commit of an earlier attempt appears while the next attempt is checked. A second one would add 7 again."""
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    with repo.transaction() as tx:
        tx.create_table("s.t", schema, primary_key=["id"])
        tx.append("s.t", [{"id": 1, "n": 0}])
    repo.branch_create("dev")
    for branch, number in (("dev", 7), ("main", 5)):
        repo.update("s.t", {"n": str(number)}, where="id = 1", branch=branch)
    request: dict[str, Any] = {"squash": True, "resolvers": {"n": "sum_delta" if is_same else "max"}}
    made: list[ab.MergeResult] = []

    def arrive(_: Snapshot) -> bool:
        if not made:
            made.append(ab.open(repo.uri).merge("dev", **request, metadata={"request": "1"} if is_same else {}))
        return True

    handle = publishing_once(repo, Once(key="request", value="1", since=0) if is_same else None)
    result = handle.merge("dev", **request, checks={"arrive": arrive})
    assert result.outcome is MergeOutcome.ALREADY_UP_TO_DATE
    assert result.commit == (made[0].commit if is_same else None)
    assert repo["s.t"].to_arrow()["n"].to_pylist() == [12 if is_same else 7]
    assert repo.get_commit("main") == made[0].commit
    if is_same:
        assert handle.merge("dev", **request, expected_head="0" * 26).commit == made[0].commit
