"""Revert and cherry-pick: one commit is undone, or applied to another branch, and merged with its state."""

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import CommitNotFoundError, InvalidInputError, MergeConflictError
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, another, append, entry, ids, nothing_changes, raw, table
from tests.repo.rivals import raced_by


def raw_ids(repo: ab.Repository, key: str = ORDERS, ref: str | None = None) -> list[int]:
    return sorted(raw(repo, key, ref).to_table().column("id").to_pylist())


@pytest.mark.s3
def test_a_revert_undoes_one_commit_and_leaves_the_others(lake: ab.Repository) -> None:
    wrong = append(lake, 4)
    append(lake, 30, key=CUSTOMERS)
    made = lake.revert(wrong.graph_commit_id).commit
    assert made is not None
    assert (made.kind, made.message, made.metadata) == ("revert", "Revert append (4,)", {"commit": str(wrong.id)})
    assert made.tables == (ORDERS,)
    assert (ids(lake), ids(lake, CUSTOMERS)) == ([1, 2, 3], [10, 20, 30])
    assert (raw_ids(lake), raw_ids(lake, CUSTOMERS)) == ([1, 2, 3], [10, 20, 30])
    assert ids(lake.snapshot()) == [1, 2, 3]
    append(lake, 5)
    assert (ids(lake), raw_ids(lake)) == ([1, 2, 3, 5], [1, 2, 3, 5])


def test_a_revert_of_a_revert_brings_the_change_back(lake: ab.Repository) -> None:
    append(lake, 4)
    lake.revert("main", message="no")
    made = lake.revert("main").commit
    assert made is not None
    assert made.message == "Revert no"
    assert (ids(lake), raw_ids(lake)) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_a_revert_brings_back_a_dropped_table_and_takes_away_a_new_one(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.drop_table(ORDERS)
        tx.create_table("a.b", SCHEMA)
    lake.revert("main")
    assert set(lake.snapshot_of("main")) == {ORDERS, CUSTOMERS}
    append(lake, 4)
    assert (ids(lake), raw_ids(lake)) == ([1, 2, 3, 4], [1, 2, 3, 4])


def test_a_revert_undoes_a_rename(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.rename_table(ORDERS, "x.y")
    lake.revert("main")
    assert set(lake.snapshot_of("main")) == {ORDERS, CUSTOMERS}
    assert ids(lake) == [1, 2, 3]


def test_a_revert_of_a_table_changed_since_keeps_what_came_after(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        tx.append(CUSTOMERS, table(30))
    append(lake, 5)
    lake.revert("main~1")
    assert (ids(lake), ids(lake, CUSTOMERS)) == ([1, 2, 3, 5], [10, 20])
    assert (raw_ids(lake), raw_ids(lake, CUSTOMERS)) == ([1, 2, 3, 5], [10, 20])


def test_a_revert_of_rows_that_were_changed_since_is_a_conflict_and_changes_nothing(lake: ab.Repository) -> None:
    append(lake, 4)
    with lake.transaction() as tx:
        tx.update(ORDERS, {"v": "'other'"}, where="id = 4")
    with nothing_changes(lake), pytest.raises(MergeConflictError, match=r"orders' \(1\)") as caught:
        lake.revert("main~1")
    assert [(conflict.kind, conflict.key) for conflict in caught.value.conflicts] == [("delete_vs_update", {"id": 4})]
    assert not caught.value.retryable
    lake.revert("main~1", strategy="source")
    assert ids(lake) == [1, 2, 3]


def test_reverted_drop_uses_a_new_location_if_the_old_one_is_taken(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.create_table("a.b", SCHEMA)
    made = lake.list_commits(limit=1)[0].graph_commit_id
    with lake.transaction() as tx:
        tx.rename_table("a.b", "a.c")
    append(lake, 7, key="a.c")
    lake.cherry_pick(made)
    assert (ids(lake, "a.b"), ids(lake, "a.c")) == ([], [7])


@pytest.mark.parametrize("ref", ["main@v1", "still"])
def test_commit_that_changed_no_table_is_not_reverted_or_picked(lake: ab.Repository, ref: str) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 4)
    lake.branch_create_from("dev", "still")
    with nothing_changes(lake):
        for act in (lake.revert, lake.cherry_pick):
            with pytest.raises(InvalidInputError, match="no tables"):
                act(ref)
            with pytest.raises(InvalidInputError, match="no tables"):
                act(ref, branch="nowhere")  # reported before the missing branch


def test_commit_that_was_not_published_is_not_reverted_or_picked(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    one, two = another(lake).transaction("dev"), another(lake).transaction("dev")
    assert len(one.tables) == len(two.tables) == 2
    one.append(CUSTOMERS, table(30))
    two.append(ORDERS, table(4))
    two.commit()
    one.commit()
    known = {commit.graph_commit_id for commit in lake.list_commits("dev")}
    stored = {info.path for info in testing.store_of(lake).list("_commits")}
    lost = [path[len("_commits/") : -len(".json")] for path in stored if path[9:-5] not in known]
    assert len(lost) == 1
    with nothing_changes(lake), pytest.raises(CommitNotFoundError, match="never published"):
        lake.cherry_pick(lost[0])


def test_a_picked_commit_changes_the_same_tables_and_leaves_its_branch_alone(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 30, branch="dev", key=CUSTOMERS)
    picked = append(lake, 4, branch="dev")
    made = lake.cherry_pick(picked.graph_commit_id).commit
    assert made is not None
    assert (made.kind, made.message, made.tables) == ("cherry_pick", "append (4,)", (ORDERS,))
    assert made.metadata == {"commit": picked.graph_commit_id}
    assert (ids(lake), ids(lake, CUSTOMERS)) == ([1, 2, 3, 4], [10, 20])
    append(lake, 5)
    append(lake, 6, branch="dev")
    assert (ids(lake), ids(lake.snapshot_of("dev"))) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 6])
    assert (raw_ids(lake), raw_ids(lake, ref="dev")) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 6])
    home = entry(lake).home
    append(lake, 7)
    assert entry(lake).home == home


def test_a_commit_picked_from_a_branch_deleted_since_stays(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    picked = append(lake, 4, branch="dev")
    lake.branch_delete("dev")
    lake.cherry_pick(picked.graph_commit_id)
    assert ids(lake) == [1, 2, 3, 4]


def test_a_pick_leaves_the_raw_head_of_the_branch_it_came_from(lake: ab.Repository) -> None:
    picked = append(lake, 4)
    append(lake, 5)
    lake.branch_create_from("main@v2", "dev")
    lake.cherry_pick(picked.graph_commit_id, branch="dev")
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4]
    assert raw_ids(lake) == ids(lake) == [1, 2, 3, 4, 5]


def test_a_pick_where_a_table_differs_is_merged_with_it(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.append(CUSTOMERS, table(30))
        tx.append(ORDERS, table(4))
    append(lake, 5)
    lake.cherry_pick("dev")
    assert (ids(lake), ids(lake, CUSTOMERS)) == ([1, 2, 3, 4, 5], [10, 20, 30])
    assert raw_ids(lake) == [1, 2, 3, 4, 5]


def test_a_commit_is_not_picked_twice(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    lake.cherry_pick("dev")
    with nothing_changes(lake), pytest.raises(InvalidInputError, match="would change nothing"):
        lake.cherry_pick("dev")


def test_a_commit_that_the_branch_has_does_not_double_rows_without_a_key(lake: ab.Repository) -> None:
    append(lake, 30, key=CUSTOMERS)
    lake.branch_create("dev")
    append(lake, 40, branch="dev", key=CUSTOMERS)
    (planned,) = lake.cherry_pick("main", branch="dev", dry_run=True).plan
    assert not any(one.counts.total for one in planned.tables)
    with nothing_changes(lake), pytest.raises(InvalidInputError, match="would change nothing"):
        lake.cherry_pick("main", branch="dev")
    assert ids(lake.snapshot_of("dev"), CUSTOMERS) == [10, 20, 30, 40]


def test_a_pick_of_a_commit_that_the_branch_has_takes_only_its_rows_that_are_gone(lake: ab.Repository) -> None:
    append(lake, 30, 31, 32, key=CUSTOMERS)
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.update(CUSTOMERS, {"v": "'changed'"}, where="id = 30")
        tx.delete(CUSTOMERS, "id = 31")
    lake.compact([CUSTOMERS], branch="dev")
    (planned,) = lake.cherry_pick("main", branch="dev", dry_run=True).plan
    assert [one.counts.inserted for one in planned.tables] == [1]
    lake.cherry_pick("main", branch="dev")
    found = lake.table(CUSTOMERS, "dev").to_arrow().to_pylist()
    assert sorted((row["id"], row["v"]) for row in found if row["id"] >= 30) == [(30, "changed"), (31, "e"), (32, "f")]


def test_many_rows_without_a_key_that_the_branch_has_are_not_picked_again(lake: ab.Repository) -> None:
    lake.append(CUSTOMERS, table(*range(100, 3100)))
    lake.branch_create("dev")
    lake.delete(CUSTOMERS, "id % 10 = 0", branch="dev")
    append(lake, 5000, branch="dev", key=CUSTOMERS)
    lake.cherry_pick("main", branch="dev")
    assert ids(lake.snapshot_of("dev"), CUSTOMERS) == [*range(100, 3100), 5000]


def test_a_deletion_is_reverted_once_in_a_table_without_a_key(lake: ab.Repository) -> None:
    deleted = lake.delete(CUSTOMERS, "id = 20")
    assert deleted is not None
    lake.revert(deleted.graph_commit_id)
    append(lake, 30, key=CUSTOMERS)
    with nothing_changes(lake), pytest.raises(InvalidInputError, match="would change nothing"):
        lake.revert(deleted.graph_commit_id)
    assert ids(lake, CUSTOMERS) == [10, 20, 30]


@pytest.mark.parametrize("undone_by", ["revert", "delete"])
def test_a_commit_that_was_undone_is_picked_again_without_a_key(lake: ab.Repository, undone_by: str) -> None:
    picked = append(lake, 30, key=CUSTOMERS)
    if undone_by == "revert":
        lake.revert(picked.graph_commit_id)
        append(lake, 50, key=CUSTOMERS)  # the revert took the old version, so that this row gets the row id of 30
    else:
        append(lake, 50, key=CUSTOMERS)
        lake.delete(CUSTOMERS, "id = 30")
    lake.cherry_pick(picked.graph_commit_id)
    assert ids(lake, CUSTOMERS) == [10, 20, 30, 50]


def test_a_revert_of_a_first_write_lets_the_table_follow_main_again(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 30, branch="dev", key=CUSTOMERS)
    append(lake, 4)
    wrong = append(lake, 5, branch="dev")
    append(lake, 6)
    lake.revert(wrong.graph_commit_id, branch="dev")
    assert lake.branch_get("dev").own_tables == (CUSTOMERS,)
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4, 6]
    append(lake, 7)
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4, 6, 7]


def test_a_revert_of_a_second_write_on_a_live_branch_keeps_the_first(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 4, branch="dev")
    wrong = append(lake, 5, branch="dev")
    append(lake, 6)
    lake.revert(wrong.graph_commit_id, branch="dev")
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4]
    assert raw_ids(lake, ref="dev") == [1, 2, 3, 4]
    assert lake.branch_get("dev").own_tables == (ORDERS,)


def test_a_revert_undoes_a_pull(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 4, branch="dev")
    lake.branch_pull("dev", ORDERS)
    lake.revert("dev", branch="dev")
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4]
    assert lake.branch_get("dev").own_tables == (ORDERS,)


def test_revert_on_a_branch_of_a_live_branch_restores_the_state_before(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 30, branch="dev", key=CUSTOMERS)
    append(lake, 4)
    lake.branch_create_from("dev", "child")
    append(lake, 5, branch="child")
    lake.revert("child", branch="child")
    assert ids(lake.snapshot_of("child")) == [1, 2, 3, 4]


def test_a_commit_of_a_live_branch_can_be_picked_onto_main(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 4)
    append(lake, 5, branch="dev")
    lake.cherry_pick("dev")
    assert ids(lake) == [1, 2, 3, 4, 5]
    append(lake, 6)
    append(lake, 7, branch="dev")
    lake.cherry_pick("dev")
    assert ids(lake) == raw_ids(lake) == [1, 2, 3, 4, 5, 6, 7]


def test_a_commit_of_main_picked_onto_a_live_branch_is_the_branchs_own(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    lake.branch_create("fix")
    append(lake, 4, branch="fix")
    lake.cherry_pick("fix", branch="dev")
    append(lake, 5)
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4]
    append(lake, 6, branch="dev")
    assert (ids(lake.snapshot_of("dev")), ids(lake.snapshot_of("fix"))) == ([1, 2, 3, 4, 6], [1, 2, 3, 4])


def test_revert_follows_a_concurrent_commit_to_another_table(lake: ab.Repository) -> None:
    append(lake, 4)
    raced_by(lake, lambda other: append(other, 30, key=CUSTOMERS)).revert(lake.head_commit_id_for_branch("main"))
    assert (ids(lake), ids(lake, CUSTOMERS)) == ([1, 2, 3], [10, 20, 30])
    assert (raw_ids(lake), raw_ids(lake, CUSTOMERS)) == ([1, 2, 3], [10, 20, 30])


def test_revert_is_merged_with_a_concurrent_commit_to_its_table(lake: ab.Repository) -> None:
    commit = append(lake, 4).graph_commit_id
    raced_by(lake, lambda other: append(other, 5)).revert(commit)
    assert ids(lake) == raw_ids(lake) == [1, 2, 3, 5]


def test_revert_on_a_live_branch_that_is_frozen_concurrently_is_made_on_the_frozen_branch(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 4, branch="dev")
    raced_by(lake, lambda other: other.branch_freeze("dev")).revert("dev", branch="dev")
    append(lake, 5)
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3]
    assert lake.branch_get("dev").mode == "pinned"


def test_revert_of_a_first_write_keeps_a_concurrent_second_one(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    commit = append(lake, 4, branch="dev").graph_commit_id
    raced_by(lake, lambda other: append(other, 5, branch="dev")).revert(commit, branch="dev")
    append(lake, 6)
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 5]
