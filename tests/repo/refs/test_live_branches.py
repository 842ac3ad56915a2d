"""Live branches: they follow main, table by table, until they write."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import (
    BranchInUseError,
    BranchNotFoundError,
    InvalidInputError,
    StorageUnavailableError,
    TableNotFoundError,
    WriteConflictError,
)
from anabranch.format.staging import ColumnChange
from anabranch.repo.log.numbered_log import NumberedLog
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.storage import open_store
from anabranch.testing import CountingStore, WrappedStore
from tests.processes import Program
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, another, append, data_files, entry, ids, raw, table
from tests.repo.rivals import raced_by

T = TypeVar("T")
Write = Callable[[ab.Transaction], object]

WRITES: dict[str, Write] = {
    "append": lambda tx: tx.append(ORDERS, table(4)),
    "upsert": lambda tx: tx.upsert(ORDERS, table(2, 9, v="new")),
    "update": lambda tx: tx.update(ORDERS, {"v": "'z'"}, where="id = 1"),
    "delete": lambda tx: tx.delete(ORDERS, "id = 1"),
    "overwrite": lambda tx: tx.overwrite(ORDERS, table(7)),
    "add_columns": lambda tx: tx.add_columns(ORDERS, {"w": "id * 2"}),
    "alter_columns": lambda tx: tx.alter_columns(ORDERS, [ColumnChange(path="v", name="text")]),
    "drop_columns": lambda tx: tx.drop_columns(ORDERS, ["v"]),
    "rename_table": lambda tx: tx.rename_table(ORDERS, "in_c_sales.sales"),
    "drop_table": lambda tx: tx.drop_table(ORDERS),
    "create_table": lambda tx: tx.create_table("in_c_sales.new", SCHEMA),
}


@pytest.fixture
def live(lake: ab.Repository) -> ab.Repository:
    """The lake with a live branch dev."""
    lake.branch_create_from("main", "dev", mode="live")
    return lake


def write(repo: ab.Repository, write: Write, *, branch: str = "dev") -> None:
    with repo.transaction(branch) as tx:
        write(tx)


def of_main(repo: ab.Repository) -> dict[str, str]:
    """A checksum of every file of main: its log, and all of each table but the Lance branches of others."""
    store = open_store(repo.uri, repo.storage_options)
    listed = [info.path for prefix in ("_versions/main", "tables") for info in store.list(prefix)]
    kept = [path for path in listed if "/tree/" not in path and "/_refs/" not in path]
    return {path: hashlib.sha256(store.get(path)).hexdigest() for path in kept}


@contextmanager
def main_stays(repo: ab.Repository) -> Iterator[None]:
    before, shown = of_main(repo), repo.snapshot_of("main").entries
    yield
    after = of_main(repo)
    assert {path: after[path] for path in before} == before
    # A new table begins as an empty dataset at its root; nothing of main's tables is added to.
    assert {path for path in after.keys() - before.keys() if "/new.lance/" not in path} == set()
    assert repo.snapshot_of("main").entries == shown


@pytest.mark.s3
def test_seed_003_from_the_first_read_to_the_pull(repo: ab.Repository) -> None:
    with repo.transaction() as tx:
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
        tx.append(ORDERS, table(*range(1, 101)))
    before = data_files(repo)
    made = repo.branch_create_from("main", "feature-new-report", mode="live", description="Testing new report logic")
    assert (made.mode, made.parent, made.own_tables) == ("live", "main", ())
    assert data_files(repo) == before
    dev = another(repo, "feature-new-report")
    assert dev.snapshot()[ORDERS].count_rows() == 100
    append(repo, *range(101, 151))
    assert dev.snapshot()[ORDERS].count_rows() == 150
    append(dev, *range(1001, 1011))
    assert dev.snapshot()[ORDERS].count_rows() == 160
    assert repo.branch_get("feature-new-report").own_tables == (ORDERS,)
    append(repo, *range(151, 171))
    assert repo.snapshot()[ORDERS].count_rows() == 170
    assert ids(dev) == [*range(1, 151), *range(1001, 1011)]
    assert sorted(raw(dev).to_table().column("id").to_pylist()) == ids(dev)
    assert dev.branch_pull("feature-new-report", ORDERS) is True
    assert ids(dev.snapshot()) == ids(repo) == list(range(1, 171))
    append(repo, 171)
    assert dev.snapshot()[ORDERS].count_rows() == 171
    repo.branch_delete("feature-new-report")
    with pytest.raises(BranchNotFoundError):
        repo.snapshot_of("feature-new-report")
    assert ids(repo) == list(range(1, 172))


@pytest.mark.parametrize("name", WRITES)
def test_a_first_write_leaves_main_as_it_is_to_the_byte(live: ab.Repository, name: str) -> None:
    with main_stays(live):
        write(live, WRITES[name])
        write(live, lambda tx: tx.append(CUSTOMERS, table(30)))
    changed = "in_c_sales.new" if name == "create_table" else ORDERS
    assert changed in live.branch_get("dev").own_tables
    append(live, 50)
    dev = live.snapshot_of("dev")
    if name == "create_table":
        assert ids(dev) == [1, 2, 3, 50]
    else:
        assert all(50 not in dev[key].to_arrow().column("id").to_pylist() for key in dev)


def test_only_the_written_table_stops_following_main(live: ab.Repository) -> None:
    append(live, 4, branch="dev")
    append(live, 30, key=CUSTOMERS)
    append(live, 5)
    assert ids(live.snapshot_of("dev")) == [1, 2, 3, 4]
    assert ids(live.snapshot_of("dev"), CUSTOMERS) == [10, 20, 30]


def test_a_table_made_on_main_appears_and_one_made_on_the_branch_stays_there(live: ab.Repository) -> None:
    write(live, lambda tx: tx.create_table("a.b", SCHEMA), branch="main")
    write(live, lambda tx: tx.create_table("c.d", SCHEMA))
    assert set(live.snapshot_of("dev")) == {ORDERS, CUSTOMERS, "a.b", "c.d"}
    assert set(live.snapshot_of("main")) == {ORDERS, CUSTOMERS, "a.b"}


def test_a_table_made_on_both_is_the_branchs_own_until_it_is_pulled(live: ab.Repository) -> None:
    for branch, number in (("dev", 1), ("main", 2)):
        write(live, lambda tx: tx.create_table("a.b", SCHEMA), branch=branch)
        append(live, number, branch=branch, key="a.b")
    assert (ids(live.snapshot_of("dev"), "a.b"), ids(live, "a.b")) == ([1], [2])
    assert live.branch_pull("dev", "a.b") is True
    assert ids(live.snapshot_of("dev"), "a.b") == [2]


def test_table_dropped_on_main_is_kept_only_where_the_branch_changed_it(live: ab.Repository) -> None:
    append(live, 4, branch="dev")
    for key in (ORDERS, CUSTOMERS):
        with live.transaction() as tx:
            tx.drop_table(key)
    dev = live.snapshot_of("dev")
    assert set(dev) == {ORDERS}
    assert ids(dev) == [1, 2, 3, 4]
    append(live, 5, branch="dev")
    assert ids(live.snapshot_of("dev")) == [1, 2, 3, 4, 5]
    assert live.branch_pull("dev", ORDERS) is True
    assert set(live.snapshot_of("dev")) == set()


def test_a_drop_hides_a_table_on_the_branch_until_it_is_pulled(live: ab.Repository) -> None:
    write(live, lambda tx: tx.drop_table(ORDERS))
    append(live, 4)
    assert set(live.snapshot_of("dev")) == {CUSTOMERS}
    assert live.branch_pull("dev", ORDERS) is True
    assert ids(live.snapshot_of("dev")) == [1, 2, 3, 4]


def test_pulling_what_follows_main_changes_nothing_and_what_is_nowhere_is_refused(live: ab.Repository) -> None:
    version = live.branch_get("dev").version
    assert live.branch_pull("dev", ORDERS) is False
    with pytest.raises(TableNotFoundError, match=r"no\.where"):
        live.branch_pull("dev", "no.where")
    assert live.branch_get("dev").version == version


def test_pulling_on_a_pinned_branch_takes_the_table_as_its_source_has_it(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    append(lake, 5)
    append(lake, 30, key=CUSTOMERS)
    assert lake.branch_pull("dev", ORDERS) is True
    assert lake.branch_pull("dev", ORDERS) is False
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 5]
    assert ids(lake.snapshot_of("dev"), CUSTOMERS) == [10, 20]
    append(lake, 6)
    append(lake, 7, branch="dev")
    assert (ids(lake.snapshot_of("dev")), ids(lake)) == ([1, 2, 3, 5, 7], [1, 2, 3, 5, 6])


def test_a_frozen_branch_shows_what_it_showed_and_follows_nothing(live: ab.Repository) -> None:
    append(live, 4, branch="dev")
    append(live, 30, key=CUSTOMERS)
    assert live.branch_freeze("dev").mode == "pinned"
    append(live, 40, key=CUSTOMERS)
    dev = another(live, "dev")
    assert (ids(dev), ids(dev, CUSTOMERS)) == ([1, 2, 3, 4], [10, 20, 30])
    assert dev.snapshot().main_commit_id is None
    append(dev, 50, key=CUSTOMERS)
    assert (ids(dev, CUSTOMERS), ids(live, CUSTOMERS)) == ([10, 20, 30, 50], [10, 20, 30, 40])
    with pytest.raises(InvalidInputError, match="pinned"):
        live.branch_freeze("dev")


def test_drift_shows_what_main_did_since_each_copy(live: ab.Repository) -> None:
    append(live, 4, branch="dev")
    append(live, 30, branch="dev", key=CUSTOMERS)
    append(live, 5, 6)
    found = {drift.table: drift for drift in live.branch_drift("dev")}
    assert set(found) == {ORDERS, CUSTOMERS}
    orders, customers = found[ORDERS], found[CUSTOMERS]
    assert (orders.has_drifted, orders.branch_rows, orders.main_rows) == (True, 4, 5)
    assert (customers.has_drifted, customers.branch_rows, customers.main_rows) == (False, 3, 2)
    assert customers.forked_version == customers.main_version == entry(live, CUSTOMERS).version
    live.branch_pull("dev", ORDERS)
    assert [drift.table for drift in live.branch_drift("dev")] == [CUSTOMERS]


def test_a_copy_that_a_revert_took_drifts_when_main_continues(live: ab.Repository) -> None:
    commit = append(live, 4).graph_commit_id
    live.revert(commit, branch="dev")
    assert ids(live.snapshot_of("dev")) == [1, 2, 3]
    assert [drift.has_drifted for drift in live.branch_drift("dev")] == [False]
    append(live, 5)
    assert [drift.has_drifted for drift in live.branch_drift("dev")] == [True]


def test_a_pull_shows_raw_readers_too_what_main_took_from_the_branch(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    lake.cherry_pick("dev")
    append(lake, 5, branch="dev")
    assert lake.branch_pull("dev", ORDERS) is True
    assert sorted(raw(lake, ref="dev").to_table().column("id").to_pylist()) == [1, 2, 3, 4]
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4]


@pytest.mark.parametrize("source", ["dev", "main@v2", "main~1", "v1", "commit"])
def test_a_live_branch_follows_nothing_but_main_as_it_is(lake: ab.Repository, source: str) -> None:
    append(lake, 4)
    lake.branch_create("dev")
    lake.tag_create("v1")
    ref = lake.head_commit_id_for_branch("main") if source == "commit" else source
    with pytest.raises(InvalidInputError, match="main"):
        lake.branch_create_from(ref, "other", mode="live")
    assert [info.name for info in lake.branch_list()] == ["dev", "main"]


def test_a_live_snapshot_is_on_one_state_of_main_while_main_moves(live: ab.Repository) -> None:
    writer, stop = another(live), threading.Event()

    def move() -> None:
        for number in range(100, 115):
            with writer.transaction() as tx:
                tx.append(ORDERS, table(number))
                tx.append(CUSTOMERS, table(number))
        stop.set()

    write(live, lambda tx: tx.create_table("a.b", SCHEMA))
    dev, seen = another(live, "dev"), 0
    thread = threading.Thread(target=move)
    thread.start()
    while not stop.is_set():
        snapshot = dev.snapshot()
        assert ids(snapshot)[3:] == ids(snapshot, CUSTOMERS)[2:]
        assert "a.b" in snapshot
        assert len(snapshot[ORDERS].to_arrow()) >= seen
        seen = snapshot[ORDERS].count_rows()
    thread.join()
    assert dev.snapshot()[ORDERS].count_rows() == 18


def test_a_pinned_child_of_a_live_branch_keeps_what_that_showed(live: ab.Repository) -> None:
    append(live, 4, branch="dev")
    append(live, 30, key=CUSTOMERS)
    live.branch_create_from("dev", "child")
    append(live, 40, key=CUSTOMERS)
    append(live, 5, branch="dev")
    child = another(live, "child")
    for ref in ("child", "child@v1", child.head_commit_id_for_branch("child")):
        assert ids(child.snapshot_of(ref)) == [1, 2, 3, 4]
        assert ids(child.snapshot_of(ref), CUSTOMERS) == [10, 20, 30]
    cached = child.snapshot()
    append(another(live), 50, branch="child", key=CUSTOMERS)
    assert child.snapshot() is cached
    assert ids(child.snapshot_of("child"), CUSTOMERS) == [10, 20, 30, 50]
    assert ids(child.snapshot_of("child~1"), CUSTOMERS) == [10, 20, 30]
    assert [commit.branch for commit in child.list_commits("child")] == ["child", "child", "dev", "main", "main"]
    with pytest.raises(BranchInUseError):
        live.branch_delete("dev")


def test_a_tag_names_what_a_commit_holds_and_no_passing_view(live: ab.Repository) -> None:
    append(live, 4, branch="dev")
    live.tag_create("v1", ref="dev")
    append(live, 30, key=CUSTOMERS)
    with pytest.raises(InvalidInputError, match="no commit"):
        live.tag_create("v2", ref="dev")
    live.branch_create_from("dev", "still")
    live.tag_create("v2", ref="still")
    assert ids(live.snapshot_of("v1"), CUSTOMERS) == [10, 20]
    assert ids(live.snapshot_of("v2"), CUSTOMERS) == [10, 20, 30]


def test_restored_live_branch_has_its_tables_and_follows_main(live: ab.Repository) -> None:
    append(live, 4, branch="dev")
    live.branch_delete("dev")
    append(live, 30, key=CUSTOMERS)
    append(live, 5)
    live.branch_restore("dev")
    dev = live.snapshot_of("dev")
    assert (ids(dev), ids(dev, CUSTOMERS)) == ([1, 2, 3, 4], [10, 20, 30])
    live.branch_delete("dev")
    live.branch_create_from("main", "dev", mode="live")
    assert ids(live.snapshot_of("dev")) == [1, 2, 3, 5]


def test_a_transaction_on_a_live_branch_keeps_to_the_main_it_began_on(live: ab.Repository) -> None:
    with live.transaction("dev") as tx:
        assert ids(tx[ORDERS]) == [1, 2, 3]
        append(another(live), 4)
        assert ids(tx[ORDERS]) == [1, 2, 3]
        tx.append(ORDERS, table(9))
    assert ids(live.snapshot_of("dev")) == [1, 2, 3, 9]


def test_a_transaction_notices_that_its_branch_was_frozen_on_other_rows(live: ab.Repository) -> None:
    tx = live.transaction("dev")
    tx.append(ORDERS, table(9))
    append(live, 4)
    another(live).branch_freeze("dev")
    with pytest.raises(WriteConflictError):
        tx.commit()
    assert ids(live.snapshot_of("dev")) == [1, 2, 3, 4]


def forks_in_effect(repo: ab.Repository) -> set[str | None]:
    """The homes that the table ever had on the branch."""
    versions = range(2, repo.branch_get("dev").version + 1)
    return {entry(repo, ref=f"dev@v{version}").home for version in versions}


def test_first_writes_of_eight_threads_fork_once_in_effect(live: ab.Repository) -> None:
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        mine = another(live, "dev")
        with mine.transaction("dev") as tx:
            assert len(tx[ORDERS].to_arrow()) == 3  # who has read does not wait for others to publish
            barrier.wait()
            tx.append(ORDERS, table(100 + number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert ids(live.snapshot_of("dev")) == [1, 2, 3, *range(100, 108)]
    assert len(forks_in_effect(live)) == 1
    assert ids(live) == [1, 2, 3]


def test_first_writes_of_four_processes_fork_once_in_effect(live: ab.Repository) -> None:
    with ThreadPoolExecutor(4) as pool, ExitStack() as started:
        programs = [started.enter_context(Program("first_write")) for _ in range(4)]
        begin = {"uri": live.uri, "storage_options": live.storage_options, "branch": "dev", "key": ORDERS}
        ready = pool.map(lambda program: program.ask("begin", **begin), programs)
        assert list(ready) == [{"rows": 3}] * 4
        done = pool.map(lambda one: one[1].ask("append", ids=[100 + one[0]]), enumerate(programs))
        assert list(done) == [{"done": True}] * 4
    assert ids(live.snapshot_of("dev")) == [1, 2, 3, 100, 101, 102, 103]
    assert len(forks_in_effect(live)) == 1
    assert ids(live) == [1, 2, 3]


def test_rows_of_a_first_write_on_a_newer_main_go_onto_the_copy_that_was_first(live: ab.Repository) -> None:
    slow, fast = another(live), another(live)
    first = fast.transaction("dev")
    first.append(ORDERS, table(100))
    append(live, 4)
    second = slow.transaction("dev")
    assert ids(second[ORDERS]) == [1, 2, 3, 4]
    # The other one has the table's position in the queue of this process until it has published.
    first.commit()
    second.append(ORDERS, table(101))
    second.commit()
    assert ids(live.snapshot_of("dev")) == [1, 2, 3, 100, 101]


def test_branches_list_their_modes(live: ab.Repository) -> None:
    assert [(info.name, str(info.mode)) for info in live.branch_list()] == [("dev", "live"), ("main", "pinned")]
    with pytest.raises(InvalidInputError, match="liv"):
        live.branch_create_from("main", "x", mode="liv")


def test_every_kind_of_second_write_stays_on_the_branch(live: ab.Repository) -> None:
    append(live, 4, branch="dev")
    home = entry(live, ref="dev").home
    with main_stays(live):
        write(live, lambda tx: tx.overwrite(ORDERS, pa.table({"id": [1], "w": ["x"]})))
        write(live, lambda tx: tx.update(ORDERS, {"w": "'y'"}, where="true"))
    assert entry(live, ref="dev").home == home
    assert live.snapshot_of("dev")[ORDERS].to_arrow().to_pylist() == [{"id": 1, "w": "y"}]


def test_a_freeze_that_a_commit_crosses_keeps_the_commit(live: ab.Repository) -> None:
    raced_by(live, lambda other: append(other, 4, branch="dev")).branch_freeze("dev")
    append(live, 5)
    assert ids(live.snapshot_of("dev")) == [1, 2, 3, 4]
    assert live.branch_get("dev").mode == "pinned"


@pytest.mark.parametrize("name", ["pull", "freeze"])
def test_a_branch_frozen_concurrently_is_neither_pulled_nor_frozen_again(live: ab.Repository, name: str) -> None:
    append(live, 4, branch="dev")
    crossed = raced_by(live, lambda other: other.branch_freeze("dev"))
    with pytest.raises(WriteConflictError, match="frozen"):
        crossed.branch_pull("dev", ORDERS) if name == "pull" else crossed.branch_freeze("dev")
    assert ids(live.snapshot_of("dev")) == [1, 2, 3, 4]
    assert live.branch_get("dev").version == 3


def test_a_pull_that_a_write_to_another_table_crosses_keeps_that(live: ab.Repository) -> None:
    append(live, 4, branch="dev")
    crossed = raced_by(live, lambda other: append(other, 30, branch="dev", key=CUSTOMERS))
    assert crossed.branch_pull("dev", ORDERS) is True
    dev = live.snapshot_of("dev")
    assert (ids(dev), ids(dev, CUSTOMERS)) == ([1, 2, 3], [10, 20, 30])
    assert live.branch_get("dev").own_tables == (CUSTOMERS,)


@pytest.mark.s3
def test_what_a_live_branch_costs_does_not_grow_with_history(live: ab.Repository) -> None:
    append(live, 4, branch="dev")

    def costs() -> list[int]:
        store = CountingStore(testing.store_of(live))
        counted = testing.open(live, store=store, branch="dev")
        counted.snapshot()
        opened = store.counts.total()
        store.reset()
        counted.snapshot()
        looked = store.counts.total()
        store.reset()
        counted.branch_create_from("dev", f"child{looked}-{live.branch_get('dev').version}")
        made = store.counts
        return [opened, looked, made["put_if_absent"]]

    first = costs()
    for number in range(30, 50):
        append(live, number, key=CUSTOMERS)
        append(live, number, branch="dev")
    opened, looked, put = costs()
    assert opened <= 8
    assert looked <= 2 * 2  # the head of each, where nothing moved: one probe, on S3 perhaps a listing
    assert put <= 2
    assert [opened, looked] == first[:2]


def test_live_branches_created_together_are_like_others(lake: ab.Repository) -> None:
    alone = lake.branch_create("alone", mode="live", description="why")
    assert EngineAccess(lake).create_live_branches({"one": "why", "two": "because"})
    one, two = lake.branch_get("one"), another(lake).branch_get("two")
    assert (one.mode, one.parent, one.head_commit_id) == (alone.mode, alone.parent, alone.head_commit_id)
    assert (one.description, two.description) == ("why", "because")
    with lake.transaction(branch="one") as tx:
        tx.append(ORDERS, table(4))
    assert ids(lake.snapshot_of("one")) == [1, 2, 3, 4]
    assert ids(lake.snapshot_of("two")) == [1, 2, 3]


def test_live_branches_are_created_together_or_not_at_all(lake: ab.Repository) -> None:
    lake.branch_create("taken")
    assert not EngineAccess(lake).create_live_branches({"new": "", "taken": ""})
    lake.tag_create("release")
    with pytest.raises(InvalidInputError):
        EngineAccess(lake).create_live_branches({"newer": "", "release": ""})
    # A tag that another process creates at the same time is found after the put.
    crossed = raced_by(lake, lambda other: other.tag_create("late"))
    with pytest.raises(InvalidInputError):
        EngineAccess(crossed).create_live_branches({"newest": "", "late": ""})
    assert [branch.name for branch in lake.branch_list()] == ["main", "taken"]
    assert lake.branch_create("new", mode="live").version > 1  # follows the tombstone


class BrokenStore(WrappedStore):
    """Fail the requests that a predicate selects."""

    def __init__(self, repo: ab.Repository, is_broken: Callable[[str, str], bool]) -> None:
        super().__init__(testing.store_of(repo))
        self._is_broken = is_broken

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        if self._is_broken(operation, path):
            raise StorageUnavailableError(f"{operation} of {path!r} got no answer", hint="try again")
        return send()


def test_live_branches_are_rolled_back_if_the_store_fails_for_one_of_them(lake: ab.Repository) -> None:
    wanted = {"one": "", "two": "", "three": ""}
    # Neither the put of an entry nor the read that follows is answered.
    broken = BrokenStore(lake, lambda _, path: path.startswith("_versions/two/"))
    assert not EngineAccess(testing.open(lake, store=broken)).create_live_branches(wanted)
    assert [branch.name for branch in lake.branch_list()] == ["main"]
    assert not list(testing.store_of(lake).list_leftovers("_versions"))


def test_live_branch_that_cannot_be_rolled_back_does_not_keep_the_others(lake: ab.Repository) -> None:
    lake.branch_create("taken")
    second = NumberedLog(testing.store_of(lake), "_versions/one").path(2)
    broken = BrokenStore(lake, lambda operation, path: operation == "put_if_absent" and path == second)
    with pytest.raises(StorageUnavailableError):
        EngineAccess(testing.open(lake, store=broken)).create_live_branches({"one": "", "two": "", "taken": ""})
    assert [branch.name for branch in lake.branch_list()] == ["main", "one", "taken"]


def test_live_branches_created_together_keep_what_others_do_at_the_same_time(lake: ab.Repository) -> None:
    moved = raced_by(lake, lambda other: append(other, 9))
    assert EngineAccess(moved).create_live_branches({"one": "", "two": ""})
    assert ids(lake.snapshot_of("one")) == ids(lake.snapshot_of("two")) == [1, 2, 3, 9]
    # Another process creates a branch of one of the names, which stays as it is.
    beaten = raced_by(lake, lambda other: other.branch_create("mine", description="of another"))
    assert not EngineAccess(beaten).create_live_branches({"three": "", "mine": "", "four": ""})
    assert [branch.name for branch in lake.branch_list()] == ["main", "mine", "one", "two"]
    assert (lake.branch_get("mine").description, lake.branch_get("mine").version) == ("of another", 1)
