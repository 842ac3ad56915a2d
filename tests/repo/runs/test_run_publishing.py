"""Runs whose target moved concurrently: their rows are merged with what is there; conflicts change nothing."""

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    AnabranchError,
    BranchNotFoundError,
    BranchProtectedError,
    BusyError,
    ConflictError,
    MergeConflictError,
    RunEndedError,
    WriteConflictError,
)
from anabranch.format.staging import ColumnChange
from anabranch.repo.log.entries import CommitKind, GraphCommit, RunPhase
from anabranch.repo.repository import Repository
from anabranch.repo.run import Run
from anabranch.repo.transaction import Transaction
from tests.repo.conftest import (
    CUSTOMERS,
    ORDERS,
    SCHEMA,
    another,
    append,
    data_files,
    entry,
    ids,
    raw,
    rows,
    table,
)
from tests.repo.leases import expire

NEW = "in_c_sales.new"
EMPTY = "in_c_sales.empty"
Change = Callable[[Transaction], object]

CHANGES: dict[str, Change] = {
    "upsert": lambda tx: tx.upsert(ORDERS, table(3, 40, v="new")),
    "upsert of new keys": lambda tx: tx.upsert(ORDERS, table(41, 42)),
    "update": lambda tx: tx.update(ORDERS, {"v": "'new'"}, where="id > 1"),
    "delete": lambda tx: tx.delete(ORDERS, "id = 2"),
    "overwrite": lambda tx: tx.overwrite(ORDERS, table(7)),
    "add columns": lambda tx: tx.add_columns(ORDERS, {"w": "id * 2"}),
    "rename a column": lambda tx: tx.alter_columns(ORDERS, [ColumnChange(path="v", name="w")]),
    "drop columns": lambda tx: tx.drop_columns(ORDERS, ["v"]),
    "drop": lambda tx: tx.drop_table(ORDERS),
    "rename": lambda tx: tx.rename_table(ORDERS, NEW),
    "append": lambda tx: tx.append(ORDERS, table(50)),
}


@pytest.fixture(params=["main", "dev", "dev/deeper", "live"])
def target(request: pytest.FixtureRequest, lake: Repository) -> str:
    """A branch whose tables have a home of its own already, or are to be forked, or follow main."""
    name: str = request.param
    if name.startswith("dev"):
        lake.branch_create("dev")
    if name == "dev/deeper":
        append(lake, 100, branch="dev")
        lake.branch_create_from("dev", name)
    if name == "live":
        lake.branch_create_from("main", name, mode="live")
    return name


def begun(repo: Repository, target: str, *changes: Change) -> Run:
    """A run that has made these changes, each in a step of its own."""
    run = repo.begin_run(target)
    for change in changes:
        with run.transaction() as tx:
            change(tx)
    return run


def appended(*numbers: int, key: str = ORDERS) -> Change:
    return lambda tx: tx.append(key, table(*numbers))


def row_ids(repo: Repository, branch: str, key: str = ORDERS) -> dict[int, int]:
    found = repo.snapshot_of(branch)[key].version_ref.open().to_table(columns=["id"], with_row_id=True)
    return dict(zip(found.column("id").to_pylist(), found.column("_rowid").to_pylist(), strict=True))


def assert_refused(repo: Repository, run: Run, *kinds: type[AnabranchError]) -> None:
    """Nothing is published, for whatever of these reasons, and the run can be read and aborted still."""
    target = run.info().target
    before = (repo.reflog(target), {key: rows(t) for key, t in repo.snapshot_of(target).items()}, data_files(repo))
    with pytest.raises(kinds) as caught:
        run.publish()
    if isinstance(caught.value, MergeConflictError | WriteConflictError):
        assert re.search(r"'in_c_sales\.\w+'", caught.value.problem)
    now = (repo.reflog(target), {key: rows(t) for key, t in repo.snapshot_of(target).items()}, data_files(repo))
    assert now == before
    assert run.info().state is RunPhase.RUNNING
    run.snapshot()
    run.abort()
    assert run.info().state is RunPhase.ABORTED


def test_runs_on_other_tables_are_both_published(lake: Repository, target: str) -> None:
    one = begun(lake, target, lambda tx: tx.delete(ORDERS, "id = 1"))
    two = begun(lake, target, lambda tx: tx.overwrite(CUSTOMERS, table(5)), lambda tx: tx.create_table(NEW, SCHEMA))
    first, second = one.publish(), two.publish()
    assert first is not None
    assert second is not None
    assert second.parent_commit_id == first.graph_commit_id
    snapshot = lake.snapshot_of(target)
    assert 1 not in ids(snapshot)
    assert ids(snapshot, CUSTOMERS) == [5]
    assert ids(snapshot, NEW) == []
    assert_plain_lance_agrees(lake, target)


def assert_plain_lance_agrees(repo: Repository, branch: str) -> None:
    snapshot = repo.snapshot_of(branch)
    for key in snapshot:
        assert rows(raw(repo, key, branch)) == rows(snapshot[key])


@pytest.mark.s3
def test_runs_that_append_to_one_table_are_both_published(lake: Repository, target: str) -> None:
    before = ids(lake.snapshot_of(target))
    one = begun(lake, target, appended(4, 5), appended(6), appended(30, key=CUSTOMERS))
    two = begun(lake, target, appended(7), appended(8, 9), appended(30, key=CUSTOMERS))
    one.publish()
    known = row_ids(lake, target)
    two.publish()
    assert ids(lake.snapshot_of(target)) == sorted([*before, 4, 5, 6, 7, 8, 9])
    assert ids(lake.snapshot_of(target), CUSTOMERS) == [10, 20, 30, 30]
    found = row_ids(lake, target)
    assert len(set(found.values())) == len(found)
    assert {number: found[number] for number in known} == known
    assert entry(lake, ref=target).rows == len(found)
    assert_plain_lance_agrees(lake, target)
    append(lake, 10, branch=target)
    assert len(set(row_ids(lake, target).values())) == len(found) + 1


def test_appended_rows_meet_appends_and_deletes_of_transactions(lake: Repository, target: str) -> None:
    run = begun(lake, target, appended(4), appended(5))
    append(lake, 6, branch=target)
    with lake.transaction(target) as tx:
        tx.delete(ORDERS, "id = 1")
        tx.upsert(ORDERS, table(2, v="new"))
    run.publish()
    snapshot = lake.snapshot_of(target)
    assert set(ids(snapshot)) - {100} == {2, 3, 4, 5, 6}
    assert {"id": 2, "v": "new"} in rows(snapshot[ORDERS])


def test_append_detects_a_concurrent_equal_key(lake: Repository, target: str) -> None:
    one, two = begun(lake, target, appended(4, 5)), begun(lake, target, appended(6), appended(5))
    one.publish()
    two.publish()  # with the same row
    assert set(ids(lake.snapshot_of(target))) - {100} == {1, 2, 3, 4, 5, 6}
    three = begun(lake, target, lambda tx: tx.append(ORDERS, table(7, v="x")))
    four = begun(lake, target, lambda tx: tx.append(ORDERS, table(7, v="y")))
    three.publish()
    assert_refused(lake, four, MergeConflictError)


def test_runs_that_both_overwrite(lake: Repository, target: str) -> None:
    one = begun(lake, target, lambda tx: tx.overwrite(ORDERS, table(8)))
    two = begun(lake, target, lambda tx: tx.overwrite(ORDERS, table(9)))
    three = begun(lake, target, lambda tx: tx.overwrite(ORDERS, table(8, v="other")))
    one.publish()
    two.publish()
    assert ids(lake.snapshot_of(target)) == [8, 9]
    assert_refused(lake, three, MergeConflictError)
    assert_plain_lance_agrees(lake, target)


def test_runs_that_both_overwrite_a_table_without_rows(lake: Repository) -> None:
    with lake.transaction() as tx:
        tx.create_table(EMPTY, SCHEMA)
    one = begun(lake, "main", lambda tx: tx.overwrite(EMPTY, table(1)))
    two = begun(lake, "main", lambda tx: tx.overwrite(EMPTY, table(2)))
    three = begun(lake, "main", appended(3, key=EMPTY))
    one.publish()
    two.publish()
    three.publish()
    assert ids(lake, EMPTY) == [1, 2, 3]


def test_rows_without_a_key_that_both_add_are_there_twice(lake: Repository) -> None:
    one, two = (begun(lake, "main", lambda tx: tx.upsert(CUSTOMERS, table(30), keys=["id"])) for _ in range(2))
    one.publish()
    two.publish()
    assert ids(lake, CUSTOMERS) == [10, 20, 30, 30]


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_change_of_a_run_whose_table_moved_concurrently(lake: Repository, change: str) -> None:
    run = begun(lake, "main", CHANGES[change])
    alone = {key: ids(run.snapshot(), key) for key in run.snapshot() if key != CUSTOMERS}
    append(lake, 60)
    if change in {"drop", "drop columns"}:  # the new row has a value there
        assert_refused(lake, run, MergeConflictError)
        return
    run.publish()
    assert {key: ids(lake, key) for key in alone} == {key: sorted([*found, 60]) for key, found in alone.items()}
    assert_plain_lance_agrees(lake, "main")


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_append_of_a_run_whose_table_changed_concurrently(lake: Repository, change: str) -> None:
    run = begun(lake, "main", appended(60))
    with lake.transaction() as tx:
        CHANGES[change](tx)
    if change in {"drop", "drop columns"}:
        assert_refused(lake, run, MergeConflictError)
        return
    key = NEW if change == "rename" else ORDERS
    before = ids(lake, key)
    run.publish()
    assert ids(lake, key) == sorted([*before, 60])
    assert_plain_lance_agrees(lake, "main")


def test_append_that_was_changed_again_inside_the_run(lake: Repository) -> None:
    run = begun(lake, "main", appended(4, 5), lambda tx: tx.delete(ORDERS, "id = 4"))
    append(lake, 6)
    run.publish()
    assert ids(lake) == [1, 2, 3, 5, 6]


def test_runs_that_make_the_same_table(lake: Repository, target: str) -> None:
    make: Change = lambda tx: tx.create_table(NEW, SCHEMA)  # noqa: E731
    one, two = (begun(lake, target, make, appended(number, key=NEW)) for number in (1, 2))
    one.publish()
    assert_refused(lake, two, MergeConflictError)  # without a key their rows cannot be distinguished
    assert ids(lake.snapshot_of(target), NEW) == [1]
    assert_plain_lance_agrees(lake, target)


def test_location_of_a_new_table_that_was_taken_and_renamed_concurrently(lake: Repository) -> None:
    run = begun(lake, "main", lambda tx: tx.create_table(NEW, SCHEMA))
    with lake.transaction() as tx:
        tx.create_table(NEW, SCHEMA)
        tx.append(NEW, table(1))
    with lake.transaction() as tx:
        tx.rename_table(NEW, EMPTY)
    run.publish()
    assert (ids(lake, EMPTY), ids(lake, NEW)) == ([1], [])
    assert_plain_lance_agrees(lake, "main")


def test_aborted_run_leaves_room_for_the_next(lake: Repository, target: str) -> None:
    begun(lake, target, lambda tx: tx.create_table(NEW, SCHEMA), appended(1, key=NEW), appended(4)).abort()
    other = pa.schema([("n", pa.float64())])
    begun(lake, target, lambda tx: tx.create_table(NEW, other), appended(5)).publish()
    assert lake.snapshot_of(target)[NEW].schema == other
    assert 4 not in ids(lake.snapshot_of(target))
    assert_plain_lance_agrees(lake, target)


def test_main_moves_under_a_live_target(lake: Repository) -> None:
    lake.branch_create_from("main", "live", mode="live")
    run = begun(lake, "live", appended(4))
    append(lake, 5)
    append(lake, 30, key=CUSTOMERS)
    seen: list[list[int]] = []
    run.publish(checks=[lambda snapshot: seen.append(ids(snapshot, CUSTOMERS))])
    assert seen == [[10, 20, 30]]
    assert ids(lake.snapshot_of("live")) == [1, 2, 3, 4]  # a copy of main as the run saw it
    assert ids(lake.snapshot_of("live"), CUSTOMERS) == [10, 20, 30]
    assert lake.branch_get("live").own_tables == (ORDERS,)
    assert [drift.has_drifted for drift in lake.branch_drift("live")] == [True]


def test_live_target_is_frozen_concurrently(lake: Repository) -> None:
    lake.branch_create_from("main", "live", mode="live")
    fits, late = begun(lake, "live", appended(30, key=CUSTOMERS)), begun(lake, "live", appended(4))
    append(lake, 5)
    lake.branch_freeze("live")
    fits.publish()
    assert ids(lake.snapshot_of("live"), CUSTOMERS) == [10, 20, 30]
    late.publish()
    assert ids(lake.snapshot_of("live")) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", ["pinned", "live"])
def test_table_of_the_target_is_pulled_concurrently(lake: Repository, mode: str) -> None:
    lake.branch_create_from("main", "dev", mode=mode)
    append(lake, 4, branch="dev")
    run = begun(lake, "dev", appended(5))
    append(lake, 6)
    lake.branch_pull("dev", ORDERS)
    run.publish()
    # A live branch gets a copy of main as the run saw it.
    assert ids(lake.snapshot_of("dev")) == ([1, 2, 3, 5, 6] if mode == "pinned" else [1, 2, 3, 5])


def test_target_is_reset_concurrently(lake: Repository) -> None:
    start = lake.snapshot_of("main").id
    append(lake, 4)
    back, also_back, there = (begun(lake, "main", change) for change in (appended(5), appended(6), appended(7)))
    lake.reset("main", to=start)
    back.publish()
    assert ids(lake) == [1, 2, 3, 5]  # an append fits there, too
    lake.reset("main", to="main~1")
    also_back.publish()
    assert ids(lake) == [1, 2, 3, 6]
    lake.reset("main", to=start)
    there.publish()
    assert ids(lake) == [1, 2, 3, 7]
    assert_plain_lance_agrees(lake, "main")
    assert len(set(row_ids(lake, "main").values())) == 4


def test_published_run_that_was_reset_away_is_not_published_again(lake: Repository) -> None:
    run = begun(lake, "main", appended(4))
    run.publish()
    lake.reset("main", to="main~1")
    with pytest.raises(RunEndedError):
        run.publish()
    assert ids(lake) == [1, 2, 3]


def test_target_is_protected_concurrently(lake: Repository) -> None:
    run = begun(lake, "main", appended(4))
    lake.branch_protect("main")
    with pytest.raises(BranchProtectedError):
        run.publish()
    assert run.info().state is RunPhase.RUNNING
    lake.branch_unprotect("main")
    run.publish()
    assert ids(lake) == [1, 2, 3, 4]


def test_target_is_deleted_concurrently(tmp_path: Path) -> None:
    lake = ab.init(tmp_path / "lake")  # on local disk, where leases can be made old
    with lake.transaction() as tx:
        tx.create_table(ORDERS, SCHEMA)
        tx.append(ORDERS, table(1, 2, 3))
    lake.branch_create("dev")
    run, lost = begun(lake, "dev", appended(4)), begun(lake, "dev", appended(5))
    with pytest.raises(ConflictError, match=f"{run.id}|{lost.id}"):
        lake.branch_delete("dev")
    expire(lake)
    lake.branch_delete("dev")
    for each in (run, lost):
        with pytest.raises(BranchNotFoundError):
            each.publish()
    lake.branch_restore("dev")
    run.publish()
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4]
    lost.abort()
    gone = begun(lake, "dev", appended(6))
    expire(lake)
    lake.branch_delete("dev")
    lake.branch_create("dev")
    with pytest.raises(BranchNotFoundError, match="created again"):
        gone.publish()
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3]
    gone.abort()


def test_target_moves_right_before_the_entry_is_put(lake: Repository) -> None:
    run = begun(lake, "main", appended(4))
    coming = [11, 12]

    def cross(_: object) -> None:
        if coming:
            append(another(lake), coming.pop())

    assert run.publish(checks=[cross]) == lake.snapshot_of("main").commit
    assert ids(lake) == [1, 2, 3, 4, 11, 12]
    overwrites = begun(lake, "main", lambda tx: tx.overwrite(ORDERS, table(9)))
    coming.append(13)
    overwrites.publish(checks=[cross])
    assert ids(lake.snapshot_of("main")) == [9, 13]


def test_two_handles_publish_one_run(lake: Repository) -> None:
    run = begun(lake, "main", appended(4))
    others: list[GraphCommit | None] = []

    def cross(_: object) -> None:
        others.append(another(lake).run_get(run.id).publish())

    assert run.publish(checks=[cross]) == others[0] == lake.snapshot_of("main").commit
    assert len(others) == 1
    assert ids(lake.snapshot_of("main")) == [1, 2, 3, 4]
    with pytest.raises(RunEndedError, match="published"):
        another(lake).run_get(run.id).publish()


@pytest.mark.s3
def test_threads_publish_one_run(lake: Repository) -> None:
    for number in range(4, 8):
        run = begun(lake, "main", appended(number))
        reported: list[object] = []
        barrier = threading.Barrier(4)

        def publish(run: Run = run, reported: list[object] = reported, barrier: threading.Barrier = barrier) -> None:
            mine = another(lake).run_get(run.id)
            barrier.wait()
            try:
                reported.append(mine.publish())
            except (BusyError, RunEndedError) as err:
                reported.append(type(err))

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        commits = {answer for answer in reported if isinstance(answer, GraphCommit)}
        assert commits == {lake.snapshot_of("main").commit}
        assert len(reported) == 4
    assert ids(lake) == [1, 2, 3, 4, 5, 6, 7]
    assert len([c for c in lake.list_commits() if c.kind is CommitKind.PUBLISH_RUN]) == 4
