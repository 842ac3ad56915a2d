"""Merges during concurrent changes of the branch, and rebases of branches into which another one was merged."""

from typing import Any

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import KeyConflictError
from anabranch.testing import CountingStore
from tests.repo.conftest import ORDERS, SCHEMA, nothing_changes, rows, table
from tests.repo.rivals import raced_by


def upsert(repo: ab.Repository, branch: str, *ids: int, v: str) -> None:
    with repo.transaction(branch) as tx:
        tx.upsert(ORDERS, table(*ids, v=v))


def values(repo: ab.Repository, branch: str = "main", key: str = ORDERS) -> dict[int, Any]:
    return {row["id"]: row["v"] for row in rows(repo.snapshot_of(branch)[key])}


def test_a_live_branch_that_is_frozen_concurrently_keeps_its_own_rows(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    lake.branch_create("feature")
    upsert(lake, "dev", 1, v="dev")
    upsert(lake, "feature", 2, v="feature")
    raced_by(lake, lambda other: other.branch_freeze("dev")).merge("feature", into="dev")
    assert values(lake, "dev") == {1: "dev", 2: "feature", 3: "c"}


def test_renamed_table_takes_a_name_that_another_rename_frees(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        for key, number in (("s.a", 1), ("s.c", 3)):
            tx.create_table(key, SCHEMA, primary_key=["id"])
            tx.append(key, table(number))
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.rename_table("s.c", "s.d")
        tx.rename_table("s.a", "s.b")
    with lake.transaction() as tx:
        tx.rename_table("s.c", "s.b")
    lake.merge("dev", strategy="source")
    assert values(lake, key="s.b") == {1: "a"}
    assert values(lake, key="s.d") == {3: "c"}


def test_rebase_keeps_newer_values_of_a_merged_source(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    upsert(lake, "dev", 1, v="dev")
    upsert(lake, "main", 2, v="old")
    lake.merge("main", into="dev")
    upsert(lake, "dev", 3, v="late")
    upsert(lake, "main", 2, v="new")
    made = lake.rebase("dev", onto="main").commits
    assert values(lake, "dev") == {1: "dev", 2: "new", 3: "late"}
    assert len(made) == 2


@pytest.mark.parametrize(
    ("source", "target"),
    [("repeats", "deletes"), ("updates", "repeats"), ("deletes", "repeats"), ("updates both", "nothing")],
)
def test_a_key_that_is_there_twice_is_refused_where_a_change_would_be_lost(
    lake: ab.Repository, source: str, target: str
) -> None:
    def change(branch: str, what: str) -> None:
        with lake.transaction(branch) as tx:
            match what:
                case "repeats":
                    tx.append(ORDERS, table(1, v="twice"), check_keys=False)
                case "updates" | "updates both":
                    tx.update(ORDERS, {"v": "concat(v, '!')"}, where="id = 1")
                case "deletes":
                    tx.delete(ORDERS, "id = 1")

    if source == "updates both":
        change("main", "repeats")
    lake.branch_create("dev")
    change("dev", source)
    change("main", target)
    with nothing_changes(lake), pytest.raises(KeyConflictError, match=r"holds the key \{'id': 1\} more than once"):
        lake.merge("dev", strategy="source")


def test_a_merge_asks_for_no_more_where_the_target_changed_many_other_tables(lake: ab.Repository) -> None:
    others = [f"s.t{number}" for number in range(9)]
    with lake.transaction() as tx:
        for key in others:
            tx.create_table(key, SCHEMA)
    lake.branch_create("dev")
    upsert(lake, "dev", 1, v="dev")

    def gets() -> int:
        store = CountingStore(testing.store_of(lake))
        planned = testing.open(lake, store=store).merge("dev", dry_run=True).plan
        assert [table.table for table in planned.tables] == [ORDERS]
        return store.counts["get"]

    with lake.transaction() as tx:
        tx.append(others[0], table(1))
    one = gets()
    with lake.transaction() as tx:
        for key in others:
            tx.append(key, table(2))
    assert gets() == one


def _make_another_column(repo: ab.Repository, branch: str) -> None:
    with repo.transaction(branch) as tx:
        tx.drop_columns(ORDERS, ["v"])
        tx.add_columns(ORDERS, {"v": "CAST(7 AS BIGINT)"})


def test_a_column_that_was_made_again_with_another_type_replaces_the_old_one(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    _make_another_column(lake, "dev")
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id = 1")
    lake.merge("dev")
    assert values(lake) == {2: 7, 3: 7}


def test_a_column_that_was_made_again_conflicts_with_new_values_of_the_old_one(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    _make_another_column(lake, "dev")
    upsert(lake, "main", 2, v="main")
    assert [(found.kind, found.column) for found in lake.conflicts("dev")] == [("schema", "v")]
    lake.branch_create("other")
    lake.merge("dev", into="other", strategy="target")
    assert values(lake, "other") == {1: "a", 2: "main", 3: "c"}
    lake.merge("dev", strategy="source")
    assert values(lake) == {1: 7, 2: 7, 3: 7}


def test_a_column_that_the_target_made_again_stays_as_it_is(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.delete(ORDERS, "id = 1")
    _make_another_column(lake, "main")
    lake.merge("dev")
    assert values(lake) == {2: 7, 3: 7}
    upsert(lake, "dev", 2, v="dev")
    assert [(found.kind, found.column) for found in lake.conflicts("dev")] == [("schema", "v")]
    lake.merge("dev", strategy="target")
    assert values(lake) == {2: 7, 3: 7}


def test_key_that_the_target_replaced_another_one_by_is_found_although_no_row_was_touched_by_both(
    lake: ab.Repository,
) -> None:
    """The rows of the target are not read if both sides changed different rows, unless the source has new keys."""
    lake.branch_create("dev")
    upsert(lake, "dev", 1, 9, v="dev")
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id = 2")
        tx.append(ORDERS, table(9, v="main"))
    conflicts = [(one.kind.value, one.key, one.source, one.target) for one in lake.conflicts("dev")]
    assert conflicts == [("divergent_insert", {"id": 9}, "dev", "main")]
    lake.merge("dev", strategy="source")
    assert values(lake) == {1: "dev", 3: "c", 9: "dev"}
