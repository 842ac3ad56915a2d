"""Two transactions at once: both succeed where they can, and one gets an error where they cannot."""

import pytest

import anabranch as ab
from anabranch.errors import (
    KeyConflictError,
    WriteConflictError,
)
from tests.repo.conftest import (
    CUSTOMERS,
    ORDERS,
    SCHEMA,
    another,
    append,
    ids,
    objects,
    raw,
    rows,
    table,
)


def test_appends_to_one_table_both_succeed(lake: ab.Repository) -> None:
    first, second = lake.transaction(), another(lake).transaction()
    first.append(ORDERS, table(4))
    second.append(ORDERS, table(5))
    first.commit()
    second.commit()
    assert ids(lake) == [1, 2, 3, 4, 5]
    assert rows(raw(lake)) == rows(lake.snapshot_of("main")[ORDERS])


def test_disjoint_tables_never_conflict(lake: ab.Repository) -> None:
    first, second = lake.transaction(), another(lake).transaction()
    first.delete(ORDERS, "true")
    second.overwrite(CUSTOMERS, table(30))
    second.commit()
    first.commit()
    assert (ids(lake), ids(lake, CUSTOMERS)) == ([], [30])


def test_a_true_conflict_is_retryable_and_changes_nothing(lake: ab.Repository) -> None:
    first, second = lake.transaction(), another(lake).transaction()
    first.append(ORDERS, table(4))
    second.delete(ORDERS, "id = 1")
    first.commit()
    before = lake.head_commit_id_for_branch("main")
    with pytest.raises(WriteConflictError, match=rf"'{ORDERS}'.*'delete'") as caught:
        second.commit()
    assert caught.value.retryable
    assert lake.head_commit_id_for_branch("main") == before
    assert ids(lake) == [1, 2, 3, 4]


def test_a_key_that_appeared_concurrently_is_refused(lake: ab.Repository) -> None:
    first, second = lake.transaction(), another(lake).transaction()
    first.append(ORDERS, table(4))
    second.append(ORDERS, table(4))
    first.commit()
    with pytest.raises(KeyConflictError, match=f"table '{ORDERS}': 1 key already exists in the table"):
        second.commit()
    assert ids(lake) == [1, 2, 3, 4]


def test_an_upsert_is_prepared_again_on_the_new_state(lake: ab.Repository) -> None:
    first, second = lake.transaction(), another(lake).transaction()
    first.upsert(ORDERS, table(4, v="first"))
    second.upsert(ORDERS, table(4, 5, v="second"))
    first.commit()
    second.commit()
    assert rows(lake.snapshot_of("main")[ORDERS])[3:] == [{"id": 4, "v": "second"}, {"id": 5, "v": "second"}]


def test_a_table_dropped_concurrently_is_a_conflict(lake: ab.Repository) -> None:
    second = another(lake).transaction()
    second.append(ORDERS, table(4))
    with lake.transaction() as tx:
        tx.drop_table(ORDERS)
    with pytest.raises(WriteConflictError, match="created, dropped or replaced"):
        second.commit()
    assert ORDERS not in lake.snapshot_of("main")


def test_rows_for_a_new_table_are_not_added_to_one_that_it_replaces(lake: ab.Repository) -> None:
    late = lake.transaction()
    late.rename_table(CUSTOMERS, "s.old")
    late.create_table(CUSTOMERS, SCHEMA)
    late.append(CUSTOMERS, table(1))
    append(another(lake), 30, key=CUSTOMERS)
    with pytest.raises(WriteConflictError, match="created, dropped or replaced"):
        late.commit()
    assert ids(lake, CUSTOMERS) == [10, 20, 30]


def test_one_folder_never_serves_two_tables(repo: ab.Repository) -> None:
    late = repo.transaction()
    late.create_table("s.a", SCHEMA)
    other = another(repo)
    with other.transaction() as tx:
        tx.create_table("s.a", SCHEMA)
        tx.rename_table("s.a", "s.b")
        tx.append("s.b", table(1))
    with pytest.raises(WriteConflictError, match=r"'s\.a'"):
        late.commit()
    assert list(repo.snapshot_of("main")) == ["s.b"]


def test_a_lost_transaction_leaves_only_unread_objects(lake: ab.Repository) -> None:
    first, second = lake.transaction(), another(lake).transaction()
    first.delete(ORDERS, "id = 2")
    second.delete(ORDERS, "id = 1")
    first.commit()
    log = set(objects(lake, "_versions"))
    with pytest.raises(WriteConflictError):
        second.commit()
    assert set(objects(lake, "_versions")) == log
    assert [commit.tables for commit in lake.list_commits()] == [(ORDERS,), (CUSTOMERS, ORDERS), ()]
