"""Decisions of a merge that could not be published are kept, and used while the values are the same."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import CheckFailedError, InvalidInputError, MergeConflictError, WriteConflictError
from anabranch.storage import ObjectStore
from anabranch.testing import WrappedStore
from tests.repo.conftest import ORDERS, nothing_changes, objects
from tests.repo.gc.object_ages import pass_time

T = TypeVar("T")


def put(repo: ab.Repository, branch: str, word: str, where: str = "id < 4") -> None:
    repo.update(ORDERS, {"v": f"concat('{word}', arrow_cast(id, 'Utf8'))"}, where=where, branch=branch)


@pytest.fixture
def parted(lake: ab.Repository) -> ab.Repository:
    """A lake in which main and dev gave orders 1, 2 and 3 different words."""
    lake.branch_create("dev")
    put(lake, "dev", "dev")
    put(lake, "main", "main")
    return lake


def decide(number: int, **how: Any) -> dict[str, Any]:
    return {"table": ORDERS, "key": {"id": number}, "column": "v", **how}


def words(repo: ab.Repository) -> dict[int, str]:
    return {row["id"]: row["v"] for row in repo.table(ORDERS).to_arrow().to_pylist()}


def try_merge(repo: ab.Repository, *resolutions: dict[str, Any], **how: Any) -> None:
    with pytest.raises((MergeConflictError, WriteConflictError, CheckFailedError)):
        repo.merge("dev", resolutions=resolutions, keep_decisions=True, **how)


def test_decisions_are_used_by_the_next_merge(parted: ab.Repository) -> None:
    try_merge(parted, decide(1, take="source"), decide(2, value="two"))
    assert [one.key for one in parted.conflicts("dev")] == [{"id": 3}]
    parted.merge("dev", resolutions=[decide(3, take="base")])
    assert words(parted) == {1: "dev1", 2: "two", 3: "c"}
    assert parted.decision_list("dev") == []
    assert objects(parted, "_decisions") == {}
    assert parted.doctor().is_clean


@pytest.mark.parametrize("moved", ["base of another row", "target", "source"])
def test_decision_is_used_only_while_the_values_are_the_same(parted: ab.Repository, moved: str) -> None:
    try_merge(parted, *(decide(number, take="source") for number in (1, 2)))
    match moved:
        case "target":
            put(parted, "main", "later", "id = 1")
        case "source":
            put(parted, "dev", "later", "id = 1")
        case _:
            put(parted, "main", "later", "id = 3")
    left = [(one.key or {})["id"] for one in parted.conflicts("dev")]
    assert left == ([3] if moved == "base of another row" else [1, 3])


def test_decisions_are_kept_if_the_target_moved_or_a_check_failed(parted: ab.Repository) -> None:
    old = parted.head_commit_id_for_branch("main")
    parted.append(ORDERS, [{"id": 9, "v": "new"}])
    try_merge(parted, decide(1, take="source"), expected_head=old)
    assert [entry["key"] for entry in parted.decision_list("dev")] == [{"id": 1}]
    failing = {"none": f"SELECT * FROM {ORDERS}"}
    try_merge(parted, decide(2, take="target"), decide(3, take="target"), checks=failing)
    entries = parted.decision_list("dev")
    assert [(entry["key"], entry["take"], entry["target"]) for entry in entries] == [
        ({"id": 1}, "source", "main1"),
        ({"id": 2}, "target", "main2"),
        ({"id": 3}, "target", "main3"),
    ]
    parted.merge("dev")
    assert words(parted) == {1: "dev1", 2: "main2", 3: "main3", 9: "new"}


def test_new_decision_comes_before_the_kept_one_and_replaces_it(parted: ab.Repository) -> None:
    try_merge(parted, decide(1, take="source"))
    try_merge(parted, decide(1, take="target"))
    assert [entry["take"] for entry in parted.decision_list("dev")] == ["target"]
    parted.merge("dev", resolutions=[decide(1, take="base")], strategy="source")
    assert words(parted) == {1: "a", 2: "dev2", 3: "dev3"}


class RacingStore(WrappedStore):
    """A store in which another merge keeps its decisions right before an object with decisions is put."""

    def __init__(self, inner: ObjectStore, rivals: list[Callable[[], None]]) -> None:
        super().__init__(inner)
        self._rivals = rivals

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        if operation == "put" and path.startswith("_decisions/") and self._rivals:
            self._rivals.pop()()
        return send()


def test_two_merges_that_fail_at_the_same_time_both_keep_their_decisions(parted: ab.Repository) -> None:
    try_merge(parted, decide(3, take="base"))
    rivals = [lambda: try_merge(parted, decide(2, take="target"))]
    slow = testing.open(parted, store=RacingStore(testing.store_of(parted), rivals))
    try_merge(slow, decide(1, take="source"))
    assert rivals == []
    kept = {(entry["key"]["id"], entry["take"]) for entry in parted.decision_list("dev")}
    assert kept == {(1, "source"), (2, "target"), (3, "base")}
    # The next one that fails puts all of them together.
    try_merge(parted, decide(1, take="target"), checks={"none": f"FROM {ORDERS}"})
    assert len(objects(parted, "_decisions")) == 1
    parted.merge("dev")
    assert words(parted) == {1: "main1", 2: "main2", 3: "c"}
    assert objects(parted, "_decisions") == {}


class StoppedStore(WrappedStore):
    """A store of a process that is stopped before it deletes an object with decisions."""

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        if operation == "delete" and path.startswith("_decisions/"):
            raise KeyboardInterrupt
        return send()


def test_newest_decision_wins_if_its_clock_was_behind_and_its_process_stopped(parted: ab.Repository) -> None:
    try_merge(parted, decide(1, take="source"))
    store = testing.store_of(parted)
    (path,) = objects(parted, "_decisions")
    # The name that a machine gives whose clock is ahead.
    store.put(f"{path.rpartition('/')[0]}/7ZZZZZZZZZZZZZZZZZZZZZZZZZ.json", store.get(path))
    store.delete(path)
    stopped = testing.open(parted, store=StoppedStore(store))
    with pytest.raises(KeyboardInterrupt):
        stopped.merge("dev", resolutions=[decide(1, take="target")], keep_decisions=True)
    assert len(objects(parted, "_decisions")) == 2
    assert [entry["take"] for entry in parted.decision_list("dev")] == ["target"]
    try_merge(parted, decide(2, take="target"))
    assert len(objects(parted, "_decisions")) == 1
    assert [entry["take"] for entry in parted.decision_list("dev")] == ["target", "target"]


def test_conflicts_show_which_ones_are_decided(parted: ab.Repository) -> None:
    try_merge(parted, decide(1, take="source"))
    found = parted.conflicts("dev", resolutions=[decide(3, value="x")], include_decided=True)
    assert [((one.key or {})["id"], one.decision) for one in found] == [
        (2, None),
        (1, {"take": "source"}),
        (3, {"value": "x"}),
    ]


def test_decisions_on_rows_columns_and_notes_are_kept(parted: ab.Repository) -> None:
    parted.delete(ORDERS, "id = 1", branch="dev")
    for branch in ("dev", "main"):
        with parted.transaction(branch) as tx:
            tx.annotate(ORDERS, {}, columns={"v": {"unit": branch}})
    note = next(one for one in parted.conflicts("dev") if one.key is None)
    values = {name: getattr(note, name) for name in ("base", "source", "target")}
    noted = {"table": ORDERS, "column": note.column, "kind": "schema", **values, "take": "source"}
    try_merge(parted, noted, {"table": ORDERS, "key": {"id": 1}, "value": {"id": 1, "v": "kept"}})
    assert [one.key for one in parted.conflicts("dev")] == [{"id": 2}, {"id": 3}]
    parted.merge("dev", strategy="target")
    assert words(parted) == {1: "kept", 2: "main2", 3: "main3"}


def test_nothing_is_kept_unless_it_is_asked_for(parted: ab.Repository) -> None:
    with nothing_changes(parted), pytest.raises(MergeConflictError):
        parted.merge("dev", resolutions=[decide(1, take="source")])
    parted.merge("dev", resolutions=[decide(1, take="source")], keep_decisions=True, dry_run=True)
    assert parted.decision_list("dev") == []


def test_decisions_can_be_cleared(parted: ab.Repository) -> None:
    try_merge(parted, decide(1, take="source"))
    assert parted.decision_clear("dev", "main")
    assert not parted.decision_clear("dev", "main")
    assert len(list(parted.conflicts("dev"))) == 3


def test_decisions_are_kept_for_branches_only(parted: ab.Repository) -> None:
    parted.tag_create("v1", "dev")
    for act in (lambda: parted.merge("v1", keep_decisions=True), lambda: parted.decision_list("dev~1")):
        with pytest.raises(InvalidInputError, match="is not one"):
            act()


def test_garbage_collection_removes_decisions_of_deleted_branches(parted: ab.Repository) -> None:
    try_merge(parted, decide(1, take="source"))
    pass_time(parted)
    parted.gc()
    assert len(objects(parted, "_decisions")) == 1
    parted.branch_delete("dev")
    pass_time(parted)
    parted.gc()
    assert objects(parted, "_decisions") == {}


def test_newest_decision_wins_if_the_table_was_renamed_in_between(parted: ab.Repository) -> None:
    try_merge(parted, decide(1, take="source"))
    with parted.transaction() as tx:
        tx.rename_table(ORDERS, "s.renamed")
    try_merge(parted, {**decide(1, take="target"), "table": "s.renamed"})
    parted.merge("dev", "main", strategy="source")
    found = {row["id"]: row["v"] for row in parted.table("s.renamed").to_arrow().to_pylist()}
    assert found == {1: "main1", 2: "dev2", 3: "dev3"}


def test_decision_that_was_changed_back_is_the_newest(parted: ab.Repository) -> None:
    try_merge(parted, decide(1, take="source"))
    with parted.transaction() as tx:
        tx.rename_table(ORDERS, "s.renamed")
    try_merge(parted, {**decide(1, take="target"), "table": "s.renamed"})
    with parted.transaction() as tx:
        tx.rename_table("s.renamed", ORDERS)
    try_merge(parted, decide(1, take="source"))
    with parted.transaction() as tx:
        tx.rename_table(ORDERS, "s.renamed")
    parted.merge("dev", "main", strategy="target")
    found = {row["id"]: row["v"] for row in parted.table("s.renamed").to_arrow().to_pylist()}
    assert found == {1: "dev1", 2: "main2", 3: "main3"}
