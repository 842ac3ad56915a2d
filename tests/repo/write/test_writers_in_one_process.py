"""Threads and transactions of one process: writers of one table queue up, and none waits for ever."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import pytest

import anabranch as ab
from anabranch.ids import BranchName, TableKey
from anabranch.repo.repository import Repository
from anabranch.repo.write.write_set import WRITERS, Writer, WriterQueue
from tests.conftest import Location
from tests.repo.programs import ledger

THREADS, ROUNDS = 8, 4


@pytest.fixture
def lake(location: Location) -> Repository:
    repo = ab.init(location / "lake", storage_options=location.storage_options)
    ledger.create(repo)
    return repo


def in_threads(work: Callable[[int], None]) -> None:
    """Let threads do their work at the same time; raise what any of them raised."""
    all_threads = threading.Barrier(THREADS)

    def together(number: int) -> None:
        all_threads.wait()
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(together, number) for number in range(THREADS)]:
            done.result(timeout=120)


def another(lake: Repository) -> Repository:
    return ab.open(lake.uri, storage_options=lake.storage_options)


def marks_of_all() -> set[str]:
    return {ledger.mark_of(number, turn) for number in range(THREADS) for turn in range(ROUNDS)}


@pytest.mark.s3
def test_threads_that_share_a_handle_commit_all(lake: Repository) -> None:
    def work(number: int) -> None:
        for turn in range(ROUNDS):
            ledger.commit(lake, ledger.mark_of(number, turn))

    in_threads(work)
    published = ledger.marks(lake)
    assert len(published) == THREADS * ROUNDS
    assert set(published) == marks_of_all()
    assert ledger.read(lake) == ledger.expected(published)
    assert lake.snapshot().id == lake.head_commit_id_for_branch("main")


def key_of(table: str) -> tuple[str, BranchName, TableKey]:
    return "lake", BranchName("main"), TableKey.parse(table)


def test_threads_with_handles_of_their_own_commit_all(lake: Repository) -> None:
    def work(number: int) -> None:
        repo = another(lake)
        for turn in range(ROUNDS):
            ledger.commit(repo, ledger.mark_of(number, turn))

    in_threads(work)
    assert set(ledger.marks(lake)) == marks_of_all()
    assert ledger.read(lake) == ledger.expected(ledger.marks(lake))


def test_changes_that_cannot_be_replayed_queue_up_without_conflict(lake: Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ledger.ORDERS, ledger.rows([(0, "start")]))

    def work(_: int) -> None:
        for _turn in range(ROUNDS):
            with lake.transaction() as tx:
                tx.update(ledger.ORDERS, {"mark": "concat(mark, '+')"}, where="true")

    in_threads(work)
    [(_, mark)] = ledger.found(lake.snapshot_of("main")[ledger.ORDERS].to_arrow())
    assert mark == "start" + "+" * (THREADS * ROUNDS)


def test_tables_in_any_order_do_not_block(lake: Repository) -> None:
    orders = list(permutations(ledger.TABLES))

    def work(number: int) -> None:
        for turn in range(ROUNDS):
            with lake.transaction(message=ledger.mark_of(number, turn)) as tx:
                for key in orders[(number + turn) % len(orders)]:
                    mine = ledger.rows([(number * ROUNDS + turn, "x")])
                    tx.upsert(key, mine, keys=["id"])

    in_threads(work)
    assert {lake.snapshot_of("main")[key].count_rows() for key in ledger.TABLES} == {THREADS * ROUNDS}


def test_transaction_begins_again_if_others_were_faster_before_its_first_write(lake: Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ledger.ORDERS, ledger.rows([(1, "old")]))
    late = lake.transaction()
    with lake.transaction() as tx:
        tx.delete(ledger.ORDERS, "id = 1")
        tx.append(ledger.ORDERS, ledger.rows([(2, "new")]))
    assert late.delete(ledger.ORDERS, "true") == 1
    late.commit()
    assert lake.snapshot()[ledger.ORDERS].count_rows() == 0


def test_transaction_that_has_read_keeps_its_snapshot(lake: Repository) -> None:
    late = lake.transaction()
    assert late[ledger.ORDERS].count_rows() == 0
    with lake.transaction() as tx:
        tx.append(ledger.ORDERS, ledger.rows([(1, "new")]))
    assert late.delete(ledger.ORDERS, "true") == 0


def test_transactions_open_in_one_thread_do_not_wait_for_each_other(lake: Repository) -> None:
    with lake.transaction() as outer:
        outer.append(ledger.EVENTS, ledger.rows([(1, "outer")]))
        with lake.transaction() as inner:
            inner.append(ledger.EVENTS, ledger.rows([(2, "inner")]))
    assert lake.snapshot()[ledger.EVENTS].count_rows() == 2


def _in_a_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_forgotten_transaction_does_not_block(lake: Repository) -> None:
    def forget() -> None:
        lake.transaction().append(ledger.EVENTS, ledger.rows([(1, "forgotten")]))

    with pytest.warns(ResourceWarning, match="dropped with changes"):
        _in_a_thread(forget)
    queue = WRITERS
    before = queue.patience_seconds
    queue.patience_seconds = 600  # a wait would be noticed
    try:
        with lake.transaction() as tx:
            tx.append(ledger.EVENTS, ledger.rows([(2, "kept")]))
    finally:
        queue.patience_seconds = before
    assert ledger.found(lake.snapshot()[ledger.EVENTS].to_arrow()) == [(2, "kept")]


def test_transaction_that_is_held_open_keeps_others_waiting_once(lake: Repository) -> None:
    held = lake.transaction()
    held.append(ledger.EVENTS, ledger.rows([(0, "held")]))
    queue = WRITERS
    before = queue.patience_seconds
    queue.patience_seconds = 0.05

    def write() -> None:
        for number in range(1, 4):
            with another(lake).transaction() as tx:
                tx.append(ledger.EVENTS, ledger.rows([(number, "passes")]))

    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(write).result(timeout=60)
    finally:
        queue.patience_seconds = before
    held.commit()
    assert [i for i, _ in ledger.found(lake.snapshot()[ledger.EVENTS].to_arrow())] == [0, 1, 2, 3]


def test_waiting_writer_continues_after_the_previous_one() -> None:
    queue, first, second = WriterQueue(patience_seconds=600), Writer(), Writer(thread=-1)
    key = key_of("s.orders")
    queue.take(first, key)
    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(queue.take, second, key)
        queue.leave(first)
        taking.result(timeout=60)
    assert queue.generation == 1


def test_writers_that_gave_up_waiting_have_the_turn() -> None:
    queue, first, second = WriterQueue(patience_seconds=0), Writer(thread=-1), Writer(thread=-2)
    key = key_of("s.orders")
    queue.take(first, key)
    queue.take(second, key)
    queue.leave(first)
    assert queue._turns.get(key) is second


def test_no_writer_waits_for_an_earlier_key_while_others_may_wait_for_a_later_one() -> None:
    queue, mine, theirs = WriterQueue(patience_seconds=600), Writer(), Writer(thread=-1)
    queue.take(mine, key_of("b.b"))
    queue.take(theirs, key_of("a.a"))
    queue.take(mine, key_of("a.a"))
    assert queue._turns.get(key_of("a.a")) is theirs
