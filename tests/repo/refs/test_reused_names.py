"""A branch was renamed, and its old name is used again, or another operation happens around the rename."""

from collections.abc import Callable
from itertools import count

import lance
import pytest

import anabranch as ab
from anabranch import errors, testing
from anabranch.format.doctor.findings_and_repairs import Case
from anabranch.ids import BranchName
from anabranch.repo.doctor.inventory import Inventory
from anabranch.repo.doctor.logs import diagnose_renames
from anabranch.repo.log.config import now_in_microseconds
from tests.repo.conftest import ORDERS, another, append, ids, raw, table
from tests.repo.gc.interrupting import interrupted
from tests.repo.gc.object_ages import DAY, pass_time


@pytest.fixture
def dev(lake: ab.Repository) -> ab.Repository:
    """Branch dev with order 4."""
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    return lake


def reset_away(repo: ab.Repository, branch: str) -> str:
    """Return a commit with order 6 that only the reflog of a branch has."""
    commit = append(repo, 6, branch=branch).graph_commit_id
    repo.reset(branch, to=f"{branch}~1")
    return commit


def before_second_entry(repo: ab.Repository, act: Callable[[ab.Repository], object]) -> ab.Repository:
    """A handle whose rename is interrupted between its two entries: it reads the clock before each of them."""
    calls = count(1)

    def clock() -> int:
        if next(calls) == 2:
            act(testing.open(repo))
        return now_in_microseconds()

    return testing.open(repo, clock=clock)


def test_purge_of_another_branch_of_the_old_name_keeps_the_reflog(dev: ab.Repository) -> None:
    commit = reset_away(dev, "dev")
    dev.branch_rename("dev", "prices")
    dev.branch_create("dev")
    append(dev, 7, branch="dev")
    dev.branch_delete("dev", purge=True)
    later = another(dev)
    assert ids(later.snapshot_of("prices")) == [1, 2, 3, 4]
    assert ids(later.snapshot_of(commit)) == [1, 2, 3, 4, 6]
    assert later.doctor().findings == ()


def test_deleted_branch_keeps_the_reflog_before_its_rename_until_its_grace_period_ends(dev: ab.Repository) -> None:
    commit = reset_away(dev, "dev")
    dev.branch_rename("dev", "prices")
    pass_time(dev, 30 * DAY)
    later = another(dev)
    later.branch_delete("prices")
    later.gc()
    assert later.branch_restore("prices").name == "prices"
    assert ids(later.snapshot_of(commit)) == [1, 2, 3, 4, 6]


def test_time_before_two_renames_of_which_one_name_is_used_again(dev: ab.Repository) -> None:
    then = dev.reflog("dev")[0].moved.isoformat()
    dev.branch_rename("dev", "b")
    dev.branch_rename("b", "c")
    dev.branch_create("b")
    assert ids(dev.snapshot_of(f"c@{{{then}}}")) == [1, 2, 3, 4]


def test_time_at_which_the_new_name_was_deleted(dev: ab.Repository) -> None:
    dev.branch_create("prices")
    dev.branch_delete("prices")
    append(dev, 5, branch="dev")
    then = dev.reflog("dev")[0].moved.isoformat()
    dev.branch_rename("dev", "prices")
    assert ids(dev.snapshot_of(f"prices@{{{then}}}")) == [1, 2, 3, 4, 5]


def test_time_between_a_rename_and_the_rename_back(dev: ab.Repository) -> None:
    dev.branch_rename("dev", "prices")
    append(dev, 5, branch="prices")
    then = dev.reflog("prices")[0].moved.isoformat()
    dev.branch_rename("prices", "dev")
    append(dev, 6, branch="dev")
    assert ids(dev.snapshot_of(f"dev@{{{then}}}")) == [1, 2, 3, 4, 5]


def test_branch_from_an_old_version_belongs_to_the_renamed_branch(dev: ab.Repository) -> None:
    dev.branch_rename("dev", "prices")
    assert dev.branch_create("child", "dev@v2").parent == "prices"
    dev.branch_create("dev")
    assert dev.branch_create("other", "dev@v2").parent == "prices"
    dev.branch_delete("other")
    dev.branch_delete("child")
    dev.branch_delete("prices")
    assert dev.branch_create("child", "dev@v2").parent is None


def test_old_name_does_not_lead_to_another_branch(dev: ab.Repository) -> None:
    dev.branch_rename("dev", "prices")
    dev.branch_delete("prices")
    dev.branch_create("prices")
    with pytest.raises(errors.BranchNotFoundError, match="renamed to 'prices', which was deleted; name another") as got:
        dev.snapshot_of("dev")
    assert got.value.renamed_to is None


def test_drift_and_compaction_have_the_tables_written_under_the_old_name(dev: ab.Repository) -> None:
    append(dev, 5, branch="dev")
    drift = [(one.table, one.has_drifted, one.forked_version) for one in dev.branch_drift("dev")]
    dev.branch_rename("dev", "prices")
    assert [(one.table, one.has_drifted, one.forked_version) for one in dev.branch_drift("prices")] == drift
    assert dev.sql("SELECT branch, table_key FROM branch_tables WHERE branch = 'prices'").to_pylist() == [
        {"branch": "prices", "table_key": ORDERS}
    ]
    compacted = dev.compact(branch="prices")
    assert [(one.table, one.fragments_after) for one in compacted.tables] == [(ORDERS, 1)]
    # The compaction made a home of the new name, which is a fork of the old one.
    assert [(one.table, one.has_drifted, one.forked_version) for one in dev.branch_drift("prices")] == drift
    append(dev, 9)
    assert [one.has_drifted for one in dev.branch_drift("prices")] == [True]


def test_old_name_and_new_name_may_have_used_one_home(dev: ab.Repository) -> None:
    dev.branch_rename("dev", "prices")
    # The tables of prices are still in a home of the name dev, so that this branch continues there.
    dev.branch_create("dev", "prices")
    append(dev, 7, branch="dev")
    assert (ids(dev.snapshot_of("dev")), ids(dev.snapshot_of("prices"))) == ([1, 2, 3, 4, 7], [1, 2, 3, 4])
    dev.branch_delete("dev", purge=True)
    assert ids(another(dev).snapshot_of("prices")) == [1, 2, 3, 4]
    dev.branch_rename("prices", "dev")
    assert dev.doctor().findings == ()
    append(dev, 8, branch="dev")
    assert ids(another(dev).snapshot_of("dev")) == [1, 2, 3, 4, 8]
    assert sorted(raw(dev, ref="dev").to_table()["id"].to_pylist()) == [1, 2, 3, 4, 8]
    assert another(dev).doctor().findings == ()


def test_undo_after_a_rename_that_failed_undoes_the_last_commit(dev: ab.Repository) -> None:
    runs = []
    with pytest.raises(errors.BranchInUseError):
        before_second_entry(dev, lambda repo: runs.append(repo.begin_run("dev"))).branch_rename("dev", "prices")
    runs[0].abort()
    another(dev).undo("dev")
    assert ids(dev.snapshot_of("dev")) == [1, 2, 3]


def test_doctor_does_not_remove_a_name_whose_rename_has_finished(dev: ab.Repository) -> None:
    cases: list[Case] = []

    def scan(repo: ab.Repository) -> None:
        repo_store, inventory = testing.repo_store_of(repo), Inventory(None)
        for name in ("main", "dev", "prices"):
            inventory.add_entry(repo_store.heads.get(BranchName(name)), is_newest=True)
        cases.extend(diagnose_renames(repo_store, inventory))

    before_second_entry(dev, scan).branch_rename("dev", "prices")
    assert [case.kind.value for case in cases] == ["unfinished_rename"]
    assert cases[0].repair is not None
    assert not cases[0].repair()
    assert ids(another(dev).snapshot_of("prices")) == [1, 2, 3, 4]


def test_rename_while_gc_reads_the_logs_keeps_the_merge_base(dev: ab.Repository) -> None:
    for number in range(5, 8):
        append(dev, number)
    pass_time(dev, 30 * DAY)
    # Gc lists the runs three times: to end expired ones, and before it reads the logs, which it does again after the
    # marks. By the third time it has listed the branches, and has not read their logs.
    scans = count(1)
    collecting = interrupted(
        another(dev),
        lambda operation, path: (operation, path) == ("list_folders", "_runs") and next(scans) == 3,
        lambda: another(dev).branch_rename("dev", "prices"),
    )
    collecting.gc(keep_last=1)
    later = another(dev)
    assert later.branch_get("prices").name == "prices"
    later.merge("prices", into="main")
    assert ids(later) == [1, 2, 3, 4, 5, 6, 7]


def test_branch_that_is_restored_after_gc_can_be_merged(dev: ab.Repository) -> None:
    for number in range(5, 8):
        append(dev, number)
    pass_time(dev, 30 * DAY)
    later = another(dev)
    later.branch_delete("dev")
    later.gc(keep_last=1)
    later.branch_restore("dev")
    later.merge("dev", into="main")
    assert ids(later) == [1, 2, 3, 4, 5, 6, 7]


def test_live_branch_that_was_renamed_back_can_be_reset_to_its_first_versions(lake: ab.Repository) -> None:
    lake.branch_create("live", mode="live")
    first = append(lake, 4, branch="live").graph_commit_id
    lake.branch_rename("live", "other")
    append(lake, 5, branch="other")
    lake.branch_rename("other", "live")
    assert [drift.has_drifted for drift in lake.branch_drift("live")] == [False]
    lake.reset("live", to="live@v2")
    assert ids(lake.snapshot_of("live")) == [1, 2, 3, 4]
    lake.revert(first, branch="live")
    assert lake.branch_get("live").own_tables == ()


def test_external_write_on_a_branch_that_is_restored_after_gc_can_be_adopted(dev: ab.Repository) -> None:
    lance.write_dataset(table(9), raw(dev, ref="dev"), mode="append")
    pass_time(dev, 30 * DAY)
    later = another(dev)
    later.branch_delete("dev")
    later.gc()
    later.branch_restore("dev")
    later.adopt(ORDERS, branch="dev")
    assert ids(later.snapshot_of("dev")) == [1, 2, 3, 4, 9]
