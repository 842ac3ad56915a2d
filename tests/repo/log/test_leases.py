"""Leases: an expired one blocks no operation, and its owner can continue."""

import gc
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import BranchInUseError, BranchNotFoundError, BusyError, StorageDeniedError
from anabranch.ids import BranchName
from anabranch.repo.log.entries import RunPhase
from anabranch.repo.repository import Repository
from anabranch.repo.run import Run
from anabranch.repo.runs.runs import get_run, move_run, next_run_entry, run_state
from anabranch.testing import CountingStore, Fault, FaultyStore
from tests.repo.conftest import ORDERS, another, ids, objects, table
from tests.repo.leases import expire

DEV = BranchName("dev")


@pytest.fixture
def local(tmp_path: Path) -> Repository:
    """A repository on local disk, where a lease can be made old; with a table on main, and a branch."""
    repo = ab.init(tmp_path / "lake", actor="ada")
    with repo.transaction() as tx:
        tx.create_table(ORDERS, table(1).schema)
    repo.branch_create("dev")
    return repo


def append_in(run: Run, *numbers: int) -> None:
    with run.transaction() as tx:
        tx.append(ORDERS, table(*numbers))


def test_expired_run_is_reported_and_blocks_no_deletion(local: Repository) -> None:
    run = local.begin_run("dev")
    append_in(run, 1)
    with pytest.raises(BranchInUseError, match=f"run {run.id} is active"):
        local.branch_delete("dev")
    expire(local)
    assert run.info().state is RunPhase.EXPIRED
    assert [info.state for info in another(local).run_list()] == [RunPhase.EXPIRED]
    local.branch_delete("dev")
    assert run.info().state is RunPhase.EXPIRED
    run.abort()
    assert run.info().state is RunPhase.ABORTED


def test_lease_given_before_the_clock_was_set_back_blocks_nothing(local: Repository) -> None:
    run = local.begin_run("dev")
    killed = testing.config_of(local).leases.new(BranchName("__gc__"), "X")
    killed.start()
    with pytest.raises(BusyError, match="garbage is being collected"):
        local.gc()
    expire(local, after=86_400)
    local.gc()
    local.branch_delete("dev")
    assert run.info().state is RunPhase.EXPIRED
    killed.release()


def test_expired_run_can_continue_and_be_published(local: Repository) -> None:
    run = local.begin_run("dev")
    append_in(run, 1)
    expire(local)
    assert ids(run.snapshot()) == [1]
    append_in(run, 2)
    assert run.info().state is RunPhase.RUNNING
    expire(local)
    another(local).run_get(run.id).publish()
    assert run.info().state is RunPhase.PUBLISHED
    assert ids(local.snapshot_of("dev")) == [1, 2]


def test_ended_runs_block_no_deletion_however_alive_their_process(local: Repository) -> None:
    run, published, nothing = local.begin_run("dev"), local.begin_run("dev"), local.begin_run("dev")
    append_in(published, 1)
    another(local).run_get(published.id).publish()
    another(local).run_get(run.id).abort()
    nothing.abort()
    for ended in (run, published, nothing):
        testing.config_of(local).leases.new(DEV, ended.id).renew()
    local.branch_delete("dev")


def test_run_on_another_branch_blocks_no_deletion(local: Repository) -> None:
    local.branch_create("dev2")
    local.branch_create("dev/x")
    runs = [local.begin_run(), local.begin_run("dev2"), local.begin_run("dev/x")]
    local.branch_delete("dev")
    assert {run.info().state for run in runs} == {RunPhase.RUNNING}


@pytest.mark.s3
def test_leases_lapse_by_the_clock_of_the_store(lake: Repository) -> None:
    lake.branch_create("dev")
    config = testing.config_of(lake)
    lease = config.leases.new(DEV, "x")
    lease.start()
    assert config.leases.list_alive(DEV) == ("x",)
    assert replace(config, lease=timedelta(0)).leases.list_alive(DEV) == ()
    assert config.leases.list_alive(BranchName("main")) == ()
    lease.release()
    lease.release()
    assert config.leases.list_alive(DEV) == ()
    assert [path for path in objects(lake) if path.startswith("_leases/")] == []


def is_renewed(run_id: str) -> bool:
    return any(lease.path.endswith(run_id) for lease in testing.active_leases())


def test_renewal_ends_with_the_run(local: Repository) -> None:
    for end in ("publish", "abort"):
        run = local.begin_run("dev")
        assert is_renewed(run.id)
        getattr(run, end)()
        assert not is_renewed(run.id)
    run = local.begin_run("dev")
    with pytest.raises(KeyError), run:
        raise KeyError
    assert not is_renewed(run.id)


def test_renewal_thread_does_not_keep_the_process_alive(local: Repository) -> None:
    run = local.begin_run("dev")
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "anabranch-leases"]
    assert thread.daemon
    run.abort()


def test_renewal_ends_when_the_run_is_dropped_but_not_while_a_step_is_open(local: Repository) -> None:
    run = local.begin_run("dev")
    run_id = run.id
    tx = run.transaction()
    del run
    gc.collect()
    assert is_renewed(run_id)
    del tx
    gc.collect()
    assert not is_renewed(run_id)
    assert local.run_get(run_id).info().state is RunPhase.RUNNING  # until the lease expires
    expire(local)
    assert local.run_get(run_id).info().state is RunPhase.EXPIRED


def test_leases_are_renewed(local: Repository) -> None:
    quick = testing.open(local, lease=timedelta(milliseconds=30))
    run = quick.begin_run("dev")
    lost = Path(local.uri, "_leases", "dev", run.id)
    for _ in range(3):
        lost.unlink()
        while not lost.exists():  # until the next renewal
            threading.Event().wait(0.001)
    run.abort()


def test_renewal_in_progress_does_not_outlive_its_lease(local: Repository) -> None:
    store = FaultyStore(testing.store_of(local), nth=2, fault=Fault.STALL, operation="put")
    lease = replace(testing.config_of(local), store=store, lease=timedelta(milliseconds=30)).leases.new(DEV, "x")
    lease.start()
    store.reached.wait()  # the first renewal is in progress
    release = threading.Thread(target=lease.release)
    release.start()
    store.release()
    release.join()
    assert [path for path in objects(local) if path.startswith("_leases/")] == []


def test_reader_without_write_permission_sees_which_runs_are_alive(local: Repository) -> None:
    run = local.begin_run("dev")

    class ReadOnly(CountingStore):
        def put(self, path: str, *_data: object, **_options: object) -> None:
            raise StorageDeniedError(f"{path!r} cannot be written", hint="ask for the right to")

    reader = testing.open(local, store=ReadOnly(testing.store_of(local)))
    assert reader.run_get(run.id).info().state is RunPhase.RUNNING
    expire(local)
    assert reader.run_get(run.id).info().state is RunPhase.EXPIRED


def test_run_on_an_earlier_branch_of_the_name_blocks_no_deletion(local: Repository) -> None:
    run = local.begin_run("dev")
    expire(local)
    local.branch_delete("dev")
    local.branch_create("dev")
    with pytest.raises(BranchNotFoundError, match="deleted and created again"):
        run.publish()  # renews the lease nevertheless
    assert testing.config_of(local).leases.list_alive(DEV) == (run.id,)
    local.branch_delete("dev")


def test_undo_looks_past_the_end_of_a_run_that_died_while_publishing(local: Repository) -> None:
    with local.transaction() as tx:
        tx.append(ORDERS, table(1))
    run = local.begin_run()
    append_in(run, 2)
    entry = get_run(testing.repo_store_of(local), run.id)
    head = testing.repo_store_of(local).heads.get(BranchName("main"))
    state = replace(run_state(entry), phase=RunPhase.PUBLISHING, published_after=head.number)
    move_run(
        testing.repo_store_of(local), run.id, lambda newest: next_run_entry(testing.repo_store_of(local), newest, state)
    )
    expire(local)
    run.abort()
    assert [movement.event for movement in local.reflog(limit=2)] == ["aborted", "committed"]
    local.sync_branch()
    local.undo()
    assert ids(local) == []
