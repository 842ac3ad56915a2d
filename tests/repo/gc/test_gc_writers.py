"""After garbage collection every branch continues: all that can be written, moved and merged still can be."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch import testing
from anabranch.errors import CollectedError
from anabranch.format.staging import ColumnChange
from anabranch.format.staging.settle_version import _SETTLED
from anabranch.repo.repository import Repository
from tests.lake_templates import Cast
from tests.repo.conftest import CUSTOMERS, ORDERS, append, entry, fill_lake, ids, nothing_changes, raw, table
from tests.repo.gc.needed import find_unreachable, read_all
from tests.repo.gc.object_ages import pass_time

pytestmark = pytest.mark.local

BRANCHES = ("main", "untouched", *(pytest.param(name, marks=pytest.mark.proof) for name in ("dev", "dev/x", "view")))


def fill(lake: Repository) -> None:
    """Branches of every kind, each with more history than is to be kept."""
    fill_lake(lake)
    lake.branch_create("untouched")
    lake.branch_create("dev")
    for number in (4, 5):
        append(lake, number, branch="dev")
        append(lake, number + 20, branch="dev", key=CUSTOMERS)
    lake.branch_create_from("dev", "dev/x")
    append(lake, 6, branch="dev/x")
    lake.branch_create_from("main", "view", mode="live")
    append(lake, 7, branch="view")
    for number in (8, 9):
        append(lake, number)
        append(lake, number + 30, key=CUSTOMERS)


@pytest.fixture
def swept(cast: Cast) -> Repository:
    lake = cast(fill)
    pass_time(lake)
    assert lake.gc(keep_last=2).commits
    assert find_unreachable(lake) == {}
    return testing.open(lake)


def change_everything(repo: Repository, branch: str) -> None:
    with repo.transaction(branch) as tx:
        tx.append(ORDERS, table(100))
        tx.append(CUSTOMERS, table(100))
    with repo.transaction(branch) as tx:
        tx.upsert(ORDERS, table(1, 101, v="new"))
        tx.update(CUSTOMERS, {"v": "'changed'"}, where="id = 10")
        tx.delete(CUSTOMERS, "id = 20")
    repo.index(ORDERS, "id", branch=branch)
    with repo.transaction(branch) as tx:
        tx.add_columns(ORDERS, {"w": "id * 2"})
        tx.alter_columns(CUSTOMERS, [ColumnChange(path="v", name="value")])
    repo.compact([ORDERS, CUSTOMERS], branch=branch)
    with repo.transaction(branch) as tx:
        tx.rename_table(CUSTOMERS, "in_c_sales.clients")
        tx.create_table("in_c_sales.more", pa.schema([("id", pa.int64())]))


@pytest.mark.parametrize("branch", BRANCHES)
def test_everything_can_be_written(swept: Repository, branch: str) -> None:
    before = ids(swept.snapshot_of(branch))
    change_everything(swept, branch)
    assert ids(swept.snapshot_of(branch)) == [*before, 100, 101]
    assert sorted(raw(swept, ORDERS, branch).to_table().column("id").to_pylist()) == [*before, 100, 101]
    pass_time(swept)
    swept.gc(keep_last=1)
    assert find_unreachable(swept) == {}
    assert ids(swept.snapshot_of(branch)) == [*before, 100, 101]
    with swept.transaction(branch) as tx:
        tx.append(ORDERS, table(102).append_column("w", pa.array([1], pa.int64())))
    assert ids(swept.snapshot_of(branch)) == [*before, 100, 101, 102]


_OTHERS = [("dev", "main"), ("main", "dev"), ("main", "untouched")]
MERGES = [("dev/x", "dev"), ("view", "main"), *(pytest.param(*sides, marks=pytest.mark.proof) for sides in _OTHERS)]


@pytest.mark.parametrize(("source", "into"), MERGES)
def test_branches_are_merged(swept: Repository, source: str, into: str) -> None:
    sides = [swept.snapshot_of(ref) for ref in (source, into)]
    wanted = {key: {number for side in sides for number in ids(side, key)} for key in swept.snapshot()}
    append(swept, 110, branch=source)
    append(swept, 111, branch=source, key=CUSTOMERS)
    swept.merge(source, into=into)
    merged = swept.snapshot_of(into)
    assert set(ids(merged)) == {*wanted[ORDERS], 110}
    assert set(ids(merged, CUSTOMERS)) == {*wanted[CUSTOMERS], 111}
    assert len(ids(merged, CUSTOMERS)) == len(wanted[CUSTOMERS]) + 1


def test_rows_without_a_key_are_merged_row_by_row(lake: Repository) -> None:
    lake.branch_create("dev")
    for number in range(3):
        with lake.transaction("dev") as tx:
            tx.update(CUSTOMERS, {"v": f"'dev {number}'"}, where="id = 10")
            tx.append(CUSTOMERS, table(30 + number))
        with lake.transaction() as tx:
            tx.update(CUSTOMERS, {"v": f"'main {number}'"}, where="id = 20")
            tx.append(CUSTOMERS, table(40 + number))
    pass_time(lake)
    assert lake.gc(keep_last=1).commits
    lake.merge("dev", into="main")
    found = {row["id"]: row["v"] for row in lake.snapshot()[CUSTOMERS].to_arrow().to_pylist()}
    assert (found[10], found[20]) == ("dev 2", "main 2")
    assert sorted(found) == [10, 20, 30, 31, 32, 40, 41, 42]


def test_torn_step_between_two_states_is_reported_and_others_are_swept(lake: Repository) -> None:
    lake.tag_create("first")
    append(lake, 30, key=CUSTOMERS)
    torn = Path(raw(lake, CUSTOMERS).uri, "_versions", f"d{entry(lake, CUSTOMERS).version}.manifest")
    append(lake, 40, key=CUSTOMERS)
    pass_time(lake)
    lake.gc(keep_last=1)
    torn.write_bytes(torn.read_bytes()[:20])
    testing.config_of(lake).home_of(entry(lake, CUSTOMERS)).forget()
    append(lake, 4)
    append(lake, 5)
    pass_time(lake)
    report = lake.gc(keep_last=1)
    assert report.damaged == (f"tables/in_c_sales/customers.lance/_versions/{torn.name}",)
    assert any("orders.lance" in found.path for found in report.objects)


MOVES: dict[str, Callable[[Repository, str], object]] = {
    "undo": lambda repo, branch: repo.undo(branch),
    "reset": lambda repo, branch: repo.reset(branch, to=f"{branch}~1"),
    "revert": lambda repo, branch: repo.revert(branch, branch=branch),
}


@pytest.mark.parametrize(("move", "branch"), [("undo", "main"), ("reset", "dev"), ("revert", "dev")])
def test_branches_go_back_within_what_is_kept(swept: Repository, move: str, branch: str) -> None:
    before = read_all(swept, f"{branch}~1")
    MOVES[move](swept, branch)
    assert read_all(swept, branch) == before
    append(swept, 120, branch=branch)
    pass_time(swept)
    swept.gc(keep_last=1)
    assert 120 in ids(swept.snapshot_of(branch))


def test_main_can_be_reset_to_a_tag_older_than_collected_versions(lake: Repository) -> None:
    """What was settled since is gone, and is not taken for an external write."""
    lake.tag_create("first")
    for number in range(5):
        with lake.transaction() as tx:
            tx.overwrite(ORDERS, table(50 + number))
            tx.overwrite(CUSTOMERS, table(50 + number))
    pass_time(lake)
    report = lake.gc(keep_last=1)
    assert len([found for found in report.objects if "/data/" in found.path and "orders" in found.path]) == 3
    fresh = testing.open(lake)
    forget_settled()
    fresh.reset("main", to="first")
    assert fresh.external_writes == ()
    append(fresh, 4)
    assert fresh.list_external_writes() == []
    assert sorted(raw(fresh).to_table().column("id").to_pylist()) == [1, 2, 3, 4]


def forget_settled() -> None:
    """Read the homes as another process would."""
    _SETTLED.forget(lambda _: True)


def test_branches_are_rebased_frozen_and_pulled(swept: Repository) -> None:
    swept.rebase("dev/x", onto="dev")
    swept.branch_freeze("view")
    swept.branch_pull("dev", ORDERS)
    assert ids(swept.snapshot_of("dev/x")) == [1, 2, 3, 4, 5, 6]
    assert ids(swept.snapshot_of("view")) == [1, 2, 3, 7]
    assert ids(swept.snapshot_of("dev")) == [1, 2, 3, 8, 9]


@pytest.fixture
def apart(lake: Repository) -> Repository:
    """Two branches that were merged with each other, and continued since; what they parted from was collected."""
    for name in ("one", "two"):
        lake.branch_create(name)
        append(lake, 10 + len(name) + ord(name[0]), branch=name)
    lake.merge("one", into="two")
    for number in range(3):
        for name in ("one", "two"):
            with lake.transaction(name) as tx:
                tx.upsert(ORDERS, table(1 if name == "one" else 2, v=str(number)))
    pass_time(lake)
    lake.gc(keep_last=1)
    return lake


def test_merge_over_a_base_that_was_collected_is_reported(apart: Repository) -> None:
    with nothing_changes(apart):
        for ask in (
            lambda: apart.merge("one", into="two"),
            lambda: apart.merge("one", into="two", dry_run=True),
            lambda: list(apart.conflicts("one", into="two")),
        ):
            with pytest.raises(CollectedError, match="collected"):
                ask()
    apart.merge("two", into="main")
    assert {row["id"]: row["v"] for row in apart.snapshot()[ORDERS].to_arrow().to_pylist()}[2] == "2"


def test_merge_over_a_collected_base_that_need_not_be_read(lake: Repository) -> None:
    """Where only one side changed a table, its state is taken as it is."""
    for name in ("one", "two"):
        lake.branch_create(name)
        append(lake, 10 + ord(name[0]), branch=name)
    lake.merge("one", into="two")
    for number in range(3):
        append(lake, 50 + number, branch="one", key=CUSTOMERS)
    pass_time(lake)
    lake.gc(keep_last=1)
    lake.merge("one", into="two")
    assert ids(lake.snapshot_of("two"), CUSTOMERS) == [10, 20, 50, 51, 52]


def test_long_grace_keeps_what_a_short_one_would_not(lake: Repository) -> None:
    append(lake, 4)
    append(lake, 5)
    pass_time(lake)
    assert lake.gc(keep_last=1, grace=timedelta(days=3)).objects == ()
    assert ids(lake.snapshot_of("main~2")) == [1, 2, 3]
