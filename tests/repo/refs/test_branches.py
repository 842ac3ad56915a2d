"""Branches beyond what the specification says: nesting, deleting, restoring, making again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import (
    BranchExistsError,
    BranchInUseError,
    BranchNotFoundError,
    CollectedError,
    InvalidInputError,
    WriteConflictError,
)
from anabranch.repo.log.collected import mark_collected
from anabranch.repo.log.config import RepoConfig, now_in_microseconds
from anabranch.testing import WrappedStore
from tests.handles import open_with
from tests.repo.conftest import (
    CUSTOMERS,
    ORDERS,
    SCHEMA,
    another,
    append,
    entry,
    ids,
    nothing_changes,
    objects,
    raw,
    rows,
    table,
)


@pytest.fixture
def dev(lake: ab.Repository) -> ab.Repository:
    """The lake with a branch dev that has order 4 too."""
    lake.branch_create("dev", description="try things")
    append(lake, 4, branch="dev")
    return lake


def test_a_branch_records_where_it_comes_from(dev: ab.Repository) -> None:
    info = dev.branch_get("dev")
    assert (info.parent, info.description, info.created_by, info.version) == ("main", "try things", "ada", 2)
    assert info.parent_commit_id == dev.head_commit_id_for_branch("main")
    assert info.head_commit_id == dev.head_commit_id_for_branch("dev")
    assert dev.branch_get("main").parent is None


def test_branch_create_takes_the_source_as_second_argument(dev: ab.Repository) -> None:
    made = dev.branch_create("nested", "dev", description="below dev")
    assert (made.parent, made.description, ids(dev.snapshot_of("nested"))) == ("dev", "below dev", [1, 2, 3, 4])
    assert ids(dev.snapshot_of(dev.branch_create("before", "dev~1").name)) == [1, 2, 3]
    dev.switch("dev")
    assert dev.branch_create("from-the-bound-branch").parent == "dev"
    live = dev.branch_create("live", mode="live")
    assert (live.mode, live.parent) == ("live", "main")
    with nothing_changes(dev), pytest.raises(InvalidInputError, match="can only follow main"):
        dev.branch_create("other", "dev", mode="live")


def test_switch_binds_the_handle_to_another_branch(dev: ab.Repository) -> None:
    assert dev.switch("dev").id == dev.head_commit_id_for_branch("dev")
    assert (dev.branch, ids(dev.snapshot())) == ("dev", [1, 2, 3, 4])
    append(dev, 5)
    assert (ids(dev.snapshot_of("dev")), ids(dev.snapshot_of("main"))) == ([1, 2, 3, 4, 5], [1, 2, 3])


@pytest.mark.parametrize("wrong", ["nope", None, 7, "__run__1"])
def test_switch_to_what_is_not_a_branch_changes_nothing(dev: ab.Repository, wrong: Any) -> None:
    with pytest.raises((BranchNotFoundError, InvalidInputError)) as caught:
        dev.switch(wrong)
    assert str(wrong) in caught.value.problem
    assert dev.branch == "main"


def test_merge_takes_the_target_as_second_argument(dev: ab.Repository) -> None:
    dev.branch_create("other", "main")
    assert list(dev.conflicts("dev", "other")) == []
    assert dev.merge("dev", "other").outcome == "fast_forward"
    assert (ids(dev.snapshot_of("other")), ids(dev.snapshot_of("main"))) == ([1, 2, 3, 4], [1, 2, 3])


def test_reset_rebase_and_tags_take_a_ref_as_second_argument(dev: ab.Repository) -> None:
    append(dev, 9)
    assert len(dev.rebase("dev", "main").commits) == 1
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3, 4, 9]
    dev.reset("dev", "main~1")
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3]
    assert dev.tag_create("v1", "dev").commit_id == dev.head_commit_id_for_branch("dev")


def test_creating_a_branch_makes_one_object(lake: ab.Repository) -> None:
    before = set(objects(lake))
    lake.branch_create("dev")
    made = {path for path in set(objects(lake)) - before if not path.endswith("hint")}
    assert len(made) == 1
    assert made.pop().startswith("_versions/dev/")


def test_a_name_and_a_name_below_it_are_two_branches(lake: ab.Repository) -> None:
    for number, name in enumerate(["feature", "feature/x", "feature/x/y", "feature.x"], start=4):
        lake.branch_create(name)
        append(lake, number, branch=name)
    assert [ids(lake.snapshot_of(name))[-1] for name in ("feature", "feature/x", "feature/x/y", "feature.x")] == [
        4,
        5,
        6,
        7,
    ]
    for name in ("feature", "feature/x", "feature/x/y", "feature.x"):
        assert rows(raw(lake, ref=name)) == rows(lake.snapshot_of(name)[ORDERS])


def test_branches_of_branches_are_isolated_both_ways(dev: ab.Repository) -> None:
    dev.branch_create_from("dev", "dev/a")
    dev.branch_create_from("dev/a", "dev/a/b")
    append(dev, 5, branch="dev/a/b")
    append(dev, 6, branch="dev")
    append(dev, 7, branch="dev/a")
    append(dev, 8)
    found = {branch.name: ids(dev.snapshot_of(branch.name)) for branch in dev.branch_list()}
    assert found == {
        "main": [1, 2, 3, 8],
        "dev": [1, 2, 3, 4, 6],
        "dev/a": [1, 2, 3, 4, 7],
        "dev/a/b": [1, 2, 3, 4, 5],
    }


def test_error_for_a_deleted_branch_names_restore(dev: ab.Repository) -> None:
    dev.branch_delete("dev")
    assert [branch.name for branch in dev.branch_list()] == ["main"]
    for use in (
        lambda: dev.snapshot_of("dev"),
        lambda: dev.transaction("dev"),
        lambda: dev.branch_get("dev"),
        lambda: dev.head_commit_id_for_branch("dev"),
        lambda: dev.branch_create_from("dev", "x"),
        lambda: dev.sync_branch("dev"),
        lambda: dev.branch_delete("dev"),
        lambda: dev.list_commits("dev"),
    ):
        with (
            nothing_changes(dev),
            pytest.raises(BranchNotFoundError, match=r"'dev' was deleted; restore it"),
        ):
            use()


def test_a_restored_branch_is_as_it_was(dev: ab.Repository) -> None:
    head, home = dev.head_commit_id_for_branch("dev"), entry(dev, ref="dev")
    dev.branch_delete("dev")
    restored = dev.branch_restore("dev")
    assert restored.head_commit_id == head
    assert restored.description == "try things"
    assert entry(dev, ref="dev") == home
    append(dev, 5, branch="dev")
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3, 4, 5]
    assert entry(dev, ref="dev").home == home.home


def test_only_deleted_branches_are_restored(dev: ab.Repository) -> None:
    with nothing_changes(dev):
        with pytest.raises(BranchExistsError, match="'dev' is not deleted"):
            dev.branch_restore("dev")
        with pytest.raises(BranchNotFoundError, match="never was a branch 'nope'"):
            dev.branch_restore("nope")


def test_main_cannot_be_deleted(lake: ab.Repository) -> None:
    with nothing_changes(lake), pytest.raises(InvalidInputError, match="'main' cannot be deleted"):
        lake.branch_delete("main")


def test_a_branch_is_not_restored_without_its_parent(dev: ab.Repository) -> None:
    dev.branch_create_from("dev", "child")
    dev.branch_delete("child")
    dev.branch_delete("dev")
    with nothing_changes(dev), pytest.raises(BranchNotFoundError, match="restore 'dev' first"):
        dev.branch_restore("child")
    dev.branch_restore("dev")
    dev.branch_restore("child")
    with pytest.raises(BranchInUseError):
        dev.branch_delete("dev")


def test_a_branch_from_a_commit_has_no_parent_branch(dev: ab.Repository) -> None:
    made = dev.branch_create_from(dev.head_commit_id_for_branch("dev"), "from-commit")
    assert (made.parent, made.parent_commit_id) == (None, dev.head_commit_id_for_branch("dev"))
    dev.branch_delete("dev")
    assert ids(dev.snapshot_of("from-commit")) == [1, 2, 3, 4]
    append(dev, 5, branch="from-commit")
    assert ids(dev.snapshot_of("from-commit")) == [1, 2, 3, 4, 5]


def test_a_branch_made_again_has_no_old_history(dev: ab.Repository) -> None:
    old = entry(dev, ref="dev")
    dev.branch_delete("dev")
    dev.branch_create("dev", description="second try")
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3]
    append(dev, 9, branch="dev")
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3, 9]
    assert entry(dev, ref="dev").home != old.home
    assert dev.branch_get("dev").description == "second try"
    dev.branch_delete("dev")
    dev.branch_restore("dev")
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3, 9]


def test_old_versions_of_a_name_are_those_of_all_its_branches(dev: ab.Repository) -> None:
    dev.branch_delete("dev")
    assert ids(dev.snapshot_of("dev@v2")) == [1, 2, 3, 4]
    dev.branch_create("dev")
    bound = another(dev, "dev")
    assert [ids(bound.snapshot_at_version(number)) for number in (1, 2, 4)] == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3]]


def test_a_branch_can_be_made_from_an_old_version_of_a_deleted_one(dev: ab.Repository) -> None:
    dev.branch_delete("dev")
    made = dev.branch_create_from("dev@v2", "rescued")
    assert made.parent is None
    assert ids(dev.snapshot_of("rescued")) == [1, 2, 3, 4]
    assert dev.branch_create_from("main@v2", "other").parent == "main"


def test_a_branch_made_from_its_own_old_commit_continues_from_there(dev: ab.Repository) -> None:
    old = append(dev, 5, branch="dev")
    append(dev, 6, branch="dev")
    dev.branch_delete("dev")
    dev.branch_create_from(old.graph_commit_id, "dev")
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3, 4, 5]
    append(dev, 7, branch="dev")
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3, 4, 5, 7]
    assert rows(raw(dev, ref="dev")) == rows(dev.snapshot_of("dev")[ORDERS])


def test_a_transaction_on_a_branch_deleted_concurrently_is_lost(dev: ab.Repository) -> None:
    tx = dev.transaction("dev")
    tx.append(ORDERS, table(5))
    another(dev).branch_delete("dev")
    with pytest.raises(BranchNotFoundError, match="'dev' was deleted"):
        tx.commit()
    dev.branch_restore("dev")
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3, 4]


def test_a_transaction_on_a_branch_made_again_concurrently_is_lost(dev: ab.Repository) -> None:
    tx = dev.transaction("dev")
    tx.append(ORDERS, table(5))
    another(dev).branch_delete("dev")
    another(dev).branch_create("dev")
    with pytest.raises(BranchNotFoundError, match="deleted and created again"):
        tx.commit()
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3]


def test_a_transaction_survives_deleting_and_restoring_its_branch(dev: ab.Repository) -> None:
    tx = dev.transaction("dev")
    tx.append(ORDERS, table(5))
    another(dev).branch_delete("dev")
    another(dev).branch_restore("dev")
    tx.commit()
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3, 4, 5]


def test_deleting_a_branch_that_moved_concurrently_deletes_all_of_it(dev: ab.Repository) -> None:
    append(another(dev), 5, branch="dev")
    dev.branch_delete("dev")
    assert ids(dev.snapshot_of(f"dev@v{3}")) == [1, 2, 3, 4, 5]


# Tables on branches


def test_a_table_created_on_a_branch_is_there_only(dev: ab.Repository) -> None:
    with dev.transaction("dev") as tx:
        tx.create_table("s.new", SCHEMA, primary_key=["id"])
        tx.append("s.new", table(1))
    assert ids(dev.snapshot_of("dev"), "s.new") == [1]
    assert "s.new" not in dev.snapshot_of("main")
    assert rows(raw(dev, "s.new", "dev")) == rows(dev.snapshot_of("dev")["s.new"])


@pytest.mark.parametrize("first", ["main", "dev"])
def test_a_table_created_on_main_and_on_a_branch_is_two_tables(dev: ab.Repository, first: str) -> None:
    second = "dev" if first == "main" else "main"
    with dev.transaction(first) as tx:
        tx.create_table("s.new", SCHEMA)
        tx.append("s.new", table(1))
    with dev.transaction(second) as tx:
        tx.create_table("s.new", pa.schema([("x", pa.float64())]))
        tx.append("s.new", pa.table({"x": [1.5]}))
    append(dev, 2, branch=first, key="s.new")
    assert ids(dev.snapshot_of(first), "s.new") == [1, 2]
    assert rows(dev.snapshot_of(second)["s.new"]) == [{"x": 1.5}]
    for branch in (first, second):
        assert rows(raw(dev, "s.new", branch)) == rows(dev.snapshot_of(branch)["s.new"])


def test_a_table_dropped_on_a_branch_stays_on_main_and_the_other_way_round(dev: ab.Repository) -> None:
    with dev.transaction("dev") as tx:
        tx.drop_table(CUSTOMERS)
    with dev.transaction("main") as tx:
        tx.drop_table(ORDERS)
    assert list(dev.snapshot_of("dev")) == [ORDERS]
    assert list(dev.snapshot_of("main")) == [CUSTOMERS]
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3, 4]
    assert ids(dev.snapshot_of("main"), CUSTOMERS) == [10, 20]


def test_a_branch_keeps_what_main_drops_and_makes_again(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction() as tx:
        tx.drop_table(ORDERS)
        tx.create_table(ORDERS, pa.schema([("x", pa.string())]))
        tx.append(ORDERS, pa.table({"x": ["other"]}))
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3]
    append(lake, 4, branch="dev")
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4]
    assert rows(raw(lake)) == [{"x": "other"}]


def test_a_table_renamed_on_a_branch_and_made_again_there_is_another(dev: ab.Repository) -> None:
    with dev.transaction("dev") as tx:
        tx.rename_table(ORDERS, "s.old")
        tx.create_table(ORDERS, SCHEMA)
        tx.append(ORDERS, table(50))
    append(dev, 5, branch="dev", key="s.old")
    append(dev, 6)
    assert ids(dev.snapshot_of("dev")) == [50]
    assert ids(dev.snapshot_of("dev"), "s.old") == [1, 2, 3, 4, 5]
    assert ids(dev.snapshot_of("main")) == [1, 2, 3, 6]
    for key in (ORDERS, "s.old"):
        assert rows(raw(dev, key, "dev")) == rows(dev.snapshot_of("dev")[key])


def test_columns_change_on_a_branch_only(dev: ab.Repository) -> None:
    with dev.transaction("dev") as tx:
        tx.add_columns(ORDERS, {"w": "id + 1"})
        tx.drop_columns(ORDERS, ["v"])
        tx.append(ORDERS, pa.table({"id": [5], "w": [0]}))
    assert dev.snapshot_of("main")[ORDERS].schema == SCHEMA
    assert rows(dev.snapshot_of("dev")[ORDERS])[-1] == {"id": 5, "w": 0}
    append(dev, 6)
    assert ids(dev.snapshot_of("main")) == [1, 2, 3, 6]


def test_two_first_writes_to_a_branch_agree_on_one_home(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    first, second = lake.transaction("dev"), another(lake).transaction("dev")
    first.append(ORDERS, table(4))
    second.append(ORDERS, table(5))
    first.commit()
    second.commit()
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4, 5]
    assert rows(raw(lake, ref="dev")) == rows(lake.snapshot_of("dev")[ORDERS])


def test_two_first_writes_that_cannot_both_be_are_a_conflict(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    first, second = lake.transaction("dev"), another(lake).transaction("dev")
    first.update(ORDERS, {"v": "'first'"}, where="true")
    second.update(ORDERS, {"v": "'second'"}, where="true")
    first.commit()
    with pytest.raises(WriteConflictError):
        second.commit()
    assert {row["v"] for row in rows(lake.snapshot_of("dev")[ORDERS])} == {"first"}


@pytest.mark.parametrize("name", ["main/hotfix", "main/a/b", "2026"])
def test_names_below_main_and_numbers_are_refused(lake: ab.Repository, name: str) -> None:
    with nothing_changes(lake):
        for create in (lake.branch_create, lambda name: lake.branch_create_from("main", name, mode="live")):
            with pytest.raises(InvalidInputError, match=f"branch name '{name}'"):
                create(name)
    with pytest.raises(InvalidInputError, match="tag name '2026' is a number"):
        lake.tag_create("2026")


def test_homes_of_main_are_not_below_main(dev: ab.Repository) -> None:
    """Lance removes the whole dataset with the last branch below `main/`."""
    dev.reset("main", to="dev")
    append(dev, 5)
    home = entry(dev).home
    assert home is not None
    assert not home.startswith("main/")
    append(dev, 6)
    assert entry(dev).home == home
    assert ids(dev) == [1, 2, 3, 4, 5, 6]
    # Another tool that deletes the home takes nothing else with it.
    root = lance.dataset(
        f"{dev.uri}/tables/{entry(dev).dataset}", storage_options=dict(dev.storage_options or {}) or None
    )
    root.branches.delete(home)
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3, 4]


T = TypeVar("T")


class _SlowFirstPut(WrappedStore):
    """A store that answers the first put of a branch after an hour, in which the head of main is collected."""

    def __init__(self, config: RepoConfig, head: str) -> None:
        super().__init__(config.store)
        self._config, self._head, self._slept = config, head, 0

    def clock(self) -> int:
        return now_in_microseconds() + self._slept

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        try:
            return send()
        finally:
            if operation == "put_if_absent" and path.startswith("_versions/dev/") and not self._slept:
                self._slept = 3_600_000_000
                mark_collected(self._config, self._head, at=self._slept)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_branch_whose_creation_takes_long_notices_that_its_source_was_collected(
    lake: ab.Repository, *, is_new: bool
) -> None:
    if not is_new:
        lake.branch_create("dev")
        lake.branch_delete("dev")
    config = testing.config_of(lake)
    slow = _SlowFirstPut(config, lake.head_commit_id_for_branch("main"))
    with pytest.raises(CollectedError):
        open_with(replace(config, store=slow, clock=slow.clock)).branch_create("dev")
    assert [info.name for info in lake.branch_list()] == ["main"]
