"""Threads that share one transaction, one run or one handle."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError
from tests.repo.conftest import CUSTOMERS, ORDERS, ids, table

THREADS = 3


def at_once(act: Callable[[int], None], *, rounds: int) -> list[int]:
    """Run an action in several threads, which begin each round at the same moment; return the numbers it got."""
    barrier = threading.Barrier(THREADS)
    numbers = list(range(100, 100 + THREADS * rounds))

    def run(thread: int) -> None:
        try:
            for number in numbers[thread::THREADS]:
                barrier.wait(timeout=60)
                act(number)
        except BaseException:
            barrier.abort()  # the others need not wait
            raise

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(run, thread) for thread in range(THREADS)]:
            done.result()
    return numbers


def test_appends_of_threads_in_one_transaction_all_arrive(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        added = at_once(lambda number: tx.append(ORDERS, table(number)), rounds=10)
        assert len(tx[ORDERS].to_arrow()) == 3 + len(added)
    assert ids(lake) == [1, 2, 3, *added]


def test_different_changes_of_threads_in_one_transaction_all_arrive(lake: ab.Repository) -> None:
    """Each thread appends, updates and deletes rows of its own, in two tables, and reads in between."""

    def change(number: int) -> None:
        tx.append(ORDERS, table(number, number + 1000))
        tx.append(CUSTOMERS, table(number))
        assert tx.tables == (CUSTOMERS, ORDERS)
        assert tx.update(ORDERS, {"v": "'seen'"}, where=f"id = {number}") == 1
        assert tx.delete(ORDERS, f"id = {number + 1000}") == 1

    with lake.transaction() as tx:
        added = at_once(change, rounds=3)
    rows = {row["id"]: row["v"] for row in lake.snapshot()[ORDERS].to_arrow().to_pylist()}
    assert rows == {1: "a", 2: "b", 3: "c", **dict.fromkeys(added, "seen")}
    assert ids(lake, CUSTOMERS) == [10, 20, *added]


def test_tables_made_by_threads_in_one_transaction_are_all_there(repo: ab.Repository) -> None:
    def make(number: int) -> None:
        key = f"in_c_sales.t{number}"
        tx.create_table(key, pa.schema([("id", pa.int64())]))
        assert key in tx.tables

    with repo.transaction() as tx:
        added = at_once(make, rounds=4)
    assert list(repo.snapshot()) == [f"in_c_sales.t{number}" for number in added]


def test_transaction_that_one_thread_publishes_has_ended_for_the_others(lake: ab.Repository) -> None:
    tx = lake.transaction()
    tx.append(ORDERS, table(4))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(tx.commit).result()
    with pytest.raises(InvalidInputError, match="ended"):
        tx.append(ORDERS, table(5))
    assert ids(lake) == [1, 2, 3, 4]


def test_transactions_of_threads_in_one_run_all_arrive(lake: ab.Repository) -> None:
    def append(number: int) -> None:
        with run.transaction() as tx:
            tx.append(ORDERS, table(number))

    with lake.begin_run("main") as run:
        added = at_once(append, rounds=3)
    assert ids(lake) == [1, 2, 3, *added]
