"""Native `cleanup_old_versions` on managed tables: what it may remove, and what is noticed."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import DamagedFileError
from tests.repo.conftest import CUSTOMERS, ORDERS, another, append, entry, ids, objects, raw, rows, table
from tests.repo.gc.object_ages import pass_time


def clean_natively(repo: ab.Repository) -> None:
    raw(repo).cleanup_old_versions(timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False)


def slowly(repo: ab.Repository, minutes: float) -> ab.Repository:
    """The same repository, whose clock goes forward by some minutes each time that it is read."""
    clock, passed = testing.config_of(repo).clock, count(1)
    step = int(minutes * 60 * 1_000_000)
    return testing.open(repo, clock=lambda: clock() + next(passed) * step, checks_clock=False)


def publish_a_run(repo: ab.Repository, between: Callable[[], None]) -> None:
    with repo.begin_run() as run:
        with run.transaction() as tx:
            tx.append(ORDERS, table(4))
        between()


def publish_a_transaction(repo: ab.Repository, between: Callable[[], None]) -> None:
    with repo.transaction() as tx:
        tx.append(ORDERS, table(4))
        assert len(tx[ORDERS]) == 4  # a read stages the rows
        between()


@pytest.mark.parametrize("publish", [publish_a_run, publish_a_transaction])
def test_change_whose_files_native_cleanup_removed_is_not_published(
    lake: ab.Repository, publish: Callable[[ab.Repository, Callable[[], None]], None]
) -> None:
    repo = slowly(lake, 10)
    with pytest.raises(DamagedFileError, match=f"files of the change to '{ORDERS}' are gone"):
        publish(repo, lambda: clean_natively(lake))
    assert ids(another(lake)) == [1, 2, 3]
    append(another(lake), 5)
    assert ids(another(lake)) == [1, 2, 3, 5]


@pytest.mark.parametrize("publish", [publish_a_run, publish_a_transaction])
def test_old_change_with_all_its_files_is_published(
    lake: ab.Repository, publish: Callable[[ab.Repository, Callable[[], None]], None]
) -> None:
    publish(slowly(lake, 10), lambda: None)
    assert ids(another(lake)) == [1, 2, 3, 4]


@pytest.mark.parametrize("commits", ["main", "main~2..main"])
def test_revert_to_a_state_whose_files_native_cleanup_removed_is_refused(lake: ab.Repository, commits: str) -> None:
    for number in (4, 5):
        with lake.transaction() as tx:
            tx.overwrite(ORDERS, table(number))
    clean_natively(lake)
    with pytest.raises(DamagedFileError, match=f"files of the change to '{ORDERS}' are gone"):
        slowly(lake, 10).revert(commits)
    assert ids(another(lake)) == [5]


def test_published_state_survives_native_cleanup(lake: ab.Repository) -> None:
    append(lake, 4)
    clean_natively(lake)
    assert ids(another(lake)) == [1, 2, 3, 4]
    append(another(lake), 5)
    assert ids(another(lake)) == [1, 2, 3, 4, 5]
    assert another(lake).list_external_writes() == []


@pytest.mark.s3
def test_native_cleanup_of_a_managed_table_is_refused_unless_it_is_forced(lake: ab.Repository) -> None:
    append(lake, 4)
    before = raw(lake).versions()
    for options in ({"older_than": timedelta(0)}, {"retain_versions": 1}):
        with pytest.raises(OSError, match="anabranch-managed"):
            raw(lake).cleanup_old_versions(**options)
    assert len(raw(lake).versions()) == len(before)


@pytest.mark.local
def test_mark_of_a_managed_table_does_not_keep_a_dropped_one(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.drop_table(CUSTOMERS)
    assert any("customers.lance" in path for path in objects(lake, "tables"))
    for _ in range(2):
        pass_time(lake)
        lake.gc(keep_last=1)
    assert not any("customers.lance" in path for path in objects(lake, "tables"))


def test_native_restore_is_an_external_write(lake: ab.Repository) -> None:
    append(lake, 4)
    older: Any = raw(lake).checkout_version(1)
    older.restore()
    assert raw(lake).count_rows() == 0
    assert ids(another(lake)) == [1, 2, 3, 4]
    assert [write.table for write in lake.list_external_writes()] == [ORDERS]
    lake.settle(ORDERS, force=True)
    assert raw(lake).count_rows() == 4


def test_native_compaction_and_index_can_be_adopted(lake: ab.Repository) -> None:
    append(lake, 4)
    native: Any = raw(lake)
    native.optimize.compact_files()
    native.create_scalar_index("id", "BTREE")
    lake.adopt(ORDERS)
    assert ids(another(lake)) == [1, 2, 3, 4]
    assert [index.name for index in raw(lake).describe_indices()] == ["id_idx"]
    append(lake, 5)
    assert rows(raw(lake)) == rows(lake.snapshot()[ORDERS])


def test_transaction_of_a_commit_names_the_published_version(lake: ab.Repository) -> None:
    append(lake, 4)
    found: Any = raw(lake).read_transaction(raw(lake).version)
    assert found.transaction_properties["anabranch.settle"] == str(entry(lake).version)


def test_native_tags_and_branches_survive_gc(lake: ab.Repository) -> None:
    native: Any = raw(lake)
    native.tags.create("kept", native.version)
    native.create_branch("theirs", native.version)
    for number in (4, 5, 6):
        append(lake, number)
    if not lake.storage_options:
        pass_time(lake)
    lake.gc(keep_last=1)
    assert raw(lake).checkout_version("kept").count_rows() == 3
    assert raw(lake).checkout_version(("theirs", None)).count_rows() == 3
