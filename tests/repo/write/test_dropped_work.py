"""Transactions without `with`: commit and rollback, and a warning about changes that would be lost silently."""

import gc
import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, KeyConflictError
from tests.repo.conftest import ORDERS, append, ids, table


def _dropped(act: Callable[[], object]) -> list[str]:
    """The resource warnings while something is done, and while what it left is collected."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        act()
        gc.collect()
    return [str(warning.message) for warning in caught if warning.category is ResourceWarning]


def test_commit_outside_a_block_publishes_and_returns_the_commit(lake: ab.Repository) -> None:
    tx = lake.transaction(message="begun")
    tx.append(ORDERS, table(4))
    assert tx.published is None
    commit = tx.commit("ended")
    assert commit is not None
    assert tx.published == commit == lake.get_commit("main")
    assert commit.message == "ended"
    assert ids(lake) == [1, 2, 3, 4]
    with pytest.raises(InvalidInputError, match="has ended"):
        tx.commit()


def test_commit_inside_a_block_ends_the_transaction(lake: ab.Repository) -> None:
    with lake.transaction(message="one") as tx:
        tx.append(ORDERS, table(4))
        commit = tx.commit()
        with pytest.raises(InvalidInputError, match="has ended"):
            tx.append(ORDERS, table(5))
    assert tx.published == commit == lake.get_commit("main")
    assert (lake.get_commit("main").message, ids(lake)) == ("one", [1, 2, 3, 4])


def test_commit_without_changes_returns_none(lake: ab.Repository) -> None:
    before = lake.reflog("main")
    tx = lake.transaction()
    assert tx.commit("nothing") is None
    assert tx.published is None
    assert lake.reflog("main") == before


@pytest.mark.parametrize("message", ["x" * 10_001, "\ud800", 7])
def test_commit_refuses_a_bad_message_and_stays_open(lake: ab.Repository, message: str) -> None:
    tx = lake.transaction()
    tx.append(ORDERS, table(4))
    with pytest.raises(InvalidInputError):
        tx.commit(message)
    tx.commit("good")
    assert ids(lake) == [1, 2, 3, 4]


def test_rollback_discards_all_changes(lake: ab.Repository) -> None:
    before = lake.reflog("main")
    tx = lake.transaction()
    tx.append(ORDERS, table(4))
    tx.rollback()
    tx.rollback()
    with pytest.raises(InvalidInputError, match="has ended"):
        tx.commit()
    with lake.transaction() as inside:
        inside.delete(ORDERS, "true")
        inside.rollback()
    assert inside.published is None
    assert lake.reflog("main") == before
    append(lake, 4)


def test_dropped_transaction_with_changes_warns(lake: ab.Repository) -> None:
    def drop() -> None:
        tx = lake.transaction()
        tx.append(ORDERS, table(4))

    assert _dropped(drop) == [
        f"a transaction on branch 'main' was dropped with changes to '{ORDERS}', which are lost: "
        "use it in a 'with' block, or call commit() or rollback()"
    ]
    assert ids(lake) == [1, 2, 3]


def test_nothing_is_warned_about_work_that_ended(lake: ab.Repository) -> None:
    def end_all() -> None:
        lake.transaction()
        reading = lake.transaction()
        assert reading[ORDERS].count_rows() == 3
        for end in ("commit", "rollback"):
            tx = lake.transaction()
            tx.append(ORDERS, table(4 if end == "commit" else 5))
            getattr(tx, end)()
        failed = lake.transaction()
        failed.append(ORDERS, table(6))
        with pytest.raises(KeyConflictError), failed:
            failed.append(ORDERS, table(6))
        for end in ("publish", "abort"):
            run = lake.begin_run()
            with run.transaction() as tx:
                tx.append(ORDERS, table(7 if end == "publish" else 8))
            getattr(run, end)()
            lake.run_get(run.id)
        with pytest.raises(KeyConflictError), lake.begin_run() as run, run.transaction() as tx:
            tx.append(ORDERS, table(1))
        with lake.begin_run():
            pass

    assert _dropped(end_all) == []
    assert ids(lake) == [1, 2, 3, 4, 7]


def test_failed_commit_is_not_warned_about(lake: ab.Repository) -> None:
    def lose() -> None:
        tx = lake.transaction()
        tx.delete(ORDERS, "id = 1")
        with lake.transaction() as faster:
            faster.delete(ORDERS, "id = 1")
        with pytest.raises(ab.errors.WriteConflictError):
            tx.commit()

    assert _dropped(lose) == []


def test_dropped_run_warns_and_can_be_got_again(lake: ab.Repository) -> None:
    found: list[str] = []

    def drop() -> None:
        run = lake.begin_run()
        with run.transaction() as tx:
            tx.append(ORDERS, table(4))
        found.append(run.id)

    assert _dropped(drop) == [
        f"run {found[0]} was dropped before it ended: its lease is not renewed any more, and it expires. Use it in a "
        "'with' block, call publish() or abort(), or get it again with run_get()"
    ]
    lake.run_get(found[0]).publish()
    assert ids(lake) == [1, 2, 3, 4]


@pytest.mark.parametrize("where", ["at the end of the interpreter", "in a function"])
@pytest.mark.local
def test_warning_is_seen_by_a_program(lake: ab.Repository, where: str) -> None:
    program = f"""
import sys
import anabranch as ab, pyarrow as pa

def work():
    tx = ab.open({lake.uri!r}, actor="ada").transaction()
    tx.append({ORDERS!r}, pa.table({{"id": [4], "v": ["d"]}}))
    return tx

kept = work() if {where == "at the end of the interpreter"} else None
kept or work()
"""
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program], capture_output=True, text=True, check=True
    )
    assert "ResourceWarning: a transaction on branch 'main' was dropped with changes" in done.stderr
    assert done.stderr.count("ResourceWarning: a transaction") == 1
    assert ids(lake) == [1, 2, 3]
