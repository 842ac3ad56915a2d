"""Batches of streams become commits, each once, whichever process tries it and whatever else happens to the branch."""

from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.ids import TableKey
from anabranch.repo.runs.engine_access import EngineAccess, StreamBatch
from anabranch.repo.transaction import Transaction
from anabranch.testing import CountingStore
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, another, append, ids, nothing_changes, table
from tests.repo.rivals import raced_by


def publish(
    repo: ab.Repository, epoch: int, *numbers: int, query: str = "q", branch: str | None = None, key: str = CUSTOMERS
) -> ab.GraphCommit | None:
    """Append rows as one batch of a stream."""
    batch = StreamBatch(query=query, epoch=epoch, table=TableKey.parse(key))
    return EngineAccess(repo).publish_batch(batch, appending(key, *numbers), branch=branch, message=f"batch {epoch}")


def appending(key: str, *numbers: int) -> Callable[[Transaction], None]:
    return lambda tx: tx.append(key, table(*numbers))


@pytest.mark.s3
def test_a_batch_is_published_once(lake: ab.Repository) -> None:
    first = publish(lake, 0, 30)
    assert first is not None
    assert dict(first.metadata) == {"stream.query": "q", "stream.epoch": "0"}
    assert (first.message, first.kind, first.tables) == ("batch 0", "load", (CUSTOMERS,))
    assert publish(lake, 1, 31) is not None
    with nothing_changes(lake):
        assert publish(another(lake), 1, 31) is None
        assert publish(another(lake), 0, 30) is None  # an older one, too
    assert ids(lake, CUSTOMERS) == [10, 20, 30, 31]


def test_commits_of_others_do_not_hide_a_batch(lake: ab.Repository) -> None:
    publish(lake, 7, 30)
    for number in range(100, 170):  # more than a page of history
        append(lake, number)
    with nothing_changes(lake):
        assert publish(another(lake), 7, 30) is None
    assert publish(another(lake), 8, 31) is not None


def test_streams_do_not_know_each_other(lake: ab.Repository) -> None:
    assert publish(lake, 3, 30, query="one") is not None
    assert publish(lake, 3, 31, query="two") is not None
    assert publish(lake, 3, 40, query="one", key=ORDERS) is not None
    lake.branch_create_from("main~3", "dev")
    assert publish(lake, 3, 30, query="one", branch="dev") is not None
    assert ids(lake.snapshot_of("main"), CUSTOMERS) == [10, 20, 30, 31]
    assert ids(lake.snapshot_of("dev"), CUSTOMERS) == [10, 20, 30]


def test_a_branch_has_the_batches_of_its_source(lake: ab.Repository) -> None:
    publish(lake, 3, 30)
    lake.branch_create("dev")
    with nothing_changes(lake):
        assert publish(lake, 3, 30, branch="dev") is None
    assert publish(lake, 4, 31, branch="dev") is not None


def test_a_batch_on_a_live_branch_is_found_again(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "live", mode="live")
    assert publish(lake, 0, 30, branch="live") is not None
    append(lake, 4)
    with nothing_changes(lake):
        assert publish(another(lake), 0, 30, branch="live") is None
    assert publish(lake, 1, 31, branch="live") is not None
    assert ids(lake.snapshot_of("live"), CUSTOMERS) == [10, 20, 30, 31]


def test_of_two_who_publish_the_same_batch_one_does(lake: ab.Repository) -> None:
    other = raced_by(lake, lambda repo: publish(repo, 0, 30))
    assert publish(other, 0, 30) is None
    assert ids(lake.snapshot_of("main"), CUSTOMERS) == [10, 20, 30]
    assert [commit.message for commit in lake.list_commits("main")] == ["batch 0", "first", "Begin the repository"]


def test_a_batch_is_put_on_top_of_what_others_publish_concurrently(lake: ab.Repository) -> None:
    other = raced_by(lake, lambda repo: publish(repo, 0, 30, query="other"))
    assert publish(other, 0, 31) is not None
    assert ids(lake.snapshot_of("main"), CUSTOMERS) == [10, 20, 30, 31]


def test_what_a_reset_undoes_can_come_again(lake: ab.Repository) -> None:
    publish(lake, 0, 30)
    publish(lake, 1, 31)
    lake.reset("main", to="main~1")
    with nothing_changes(lake):
        assert publish(another(lake), 0, 30) is None
    assert publish(another(lake), 1, 31) is not None
    assert ids(lake.snapshot_of("main"), CUSTOMERS) == [10, 20, 30, 31]


def test_reverted_batch_is_not_published_again(lake: ab.Repository) -> None:
    commit = publish(lake, 0, 30)
    assert commit is not None
    lake.revert(commit.graph_commit_id)
    with nothing_changes(lake):
        assert publish(another(lake), 0, 30) is None
    assert publish(lake, 1, 31) is not None
    assert ids(lake.snapshot_of("main"), CUSTOMERS) == [10, 20, 31]


def test_dropped_table_has_no_batches(lake: ab.Repository) -> None:
    publish(lake, 0, 30)
    with lake.transaction() as tx:
        tx.drop_table(CUSTOMERS)
    batch = StreamBatch(query="q", epoch=0, table=TableKey.parse(CUSTOMERS))
    assert EngineAccess(lake).publish_batch(batch, lambda tx: tx.create_table(CUSTOMERS, SCHEMA)) is not None


def test_a_batch_that_fails_is_not_published(lake: ab.Repository) -> None:
    with nothing_changes(lake), pytest.raises(ab.AnabranchError, match="id"):
        publish(lake, 0, 1, key=ORDERS)
    assert publish(lake, 0, 4, key=ORDERS) is not None


def test_a_batch_without_changes_is_not_a_commit(lake: ab.Repository) -> None:
    with nothing_changes(lake):
        assert publish(lake, 0) is None


def test_finding_a_batch_costs_what_others_did_since(lake: ab.Repository) -> None:
    """One request for each 64 commits, back to the last one of the query, and none for a table that is new."""

    def cost(epoch: int, key: str) -> int:
        store = CountingStore(testing.store_of(lake))
        counted = testing.open(lake, store=store)
        batch = StreamBatch(query="q", epoch=epoch, table=TableKey.parse(key))
        # It changes nothing, so that all requests are for finding it.
        assert EngineAccess(counted).publish_batch(batch, lambda _: None) is None
        return store.counts["get"]

    publish(lake, 0, 30)
    near, new = cost(1, CUSTOMERS), cost(1, "in_c_sales.new")
    for number in range(100, 240):
        append(lake, number)
    assert cost(1, "in_c_sales.new") <= new + 1  # the tables are one request further away by now
    assert near + 1 <= cost(1, CUSTOMERS) <= near + 4
    publish(lake, 1, 31)
    assert cost(2, CUSTOMERS) <= near + 1
