"""Checks see what a run makes of its target before any other reader does, and stop what is wrong."""

from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc
import pytest

from anabranch.errors import (
    CheckFailedError,
    InvalidExpressionError,
    InvalidInputError,
    MergeConflictError,
    TableNotFoundError,
)
from anabranch.repo.log.entries import CommitKind, RunPhase
from anabranch.repo.repository import Repository
from anabranch.repo.run import Run
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.write.publish_checks import Check, Checks
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, another, append, ids, raw, rows, table

NEW = "in_c_sales.new"


@pytest.fixture
def run(lake: Repository) -> Run:
    """A run with one more order and a new table."""
    run = lake.begin_run(message="checked")
    with run.transaction() as tx:
        tx.append(ORDERS, table(4))
        tx.create_table(NEW, SCHEMA)
    return run


def fails(_: Snapshot) -> bool:
    return False


def breaks(_: Snapshot) -> None:
    raise ZeroDivisionError("by zero")


async def waits(_: Snapshot) -> bool:
    return False


def yields(_: Snapshot) -> Iterator[bool]:
    yield False


def select(where: str) -> str:
    return f"SELECT id FROM {ORDERS} WHERE {where} ORDER BY id"


def test_checks_that_find_nothing_let_the_run_pass(lake: Repository, run: Run) -> None:
    called: list[str] = []
    checks: list[Check] = [select("id < 0"), lambda snapshot: called.append(snapshot.id), lambda _: None, lambda _: 0]
    commit = run.publish(checks=checks)
    assert commit is not None
    assert called == [commit.graph_commit_id]
    assert ids(lake) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("checks", "reported"),
    [
        ([waits], r"'waits' returned a coroutine and checked nothing"),
        ([yields], r"'yields' returned a generator and checked nothing"),
        ([select("id > 3")], r"'SELECT id FROM .*' found rows, such as \{'id': 4\}"),
        ({"too many": select("id > 0")}, r"'too many' found rows, such as \{'id': 1\}, \{'id': 2\}, \{'id': 3\};"),
        ([fails], "the check 'fails' failed;"),
        ({"numpy": lambda s: (s[ORDERS].to_pandas()["id"] < 4).all()}, "the check 'numpy' failed;"),
        ({"arrow": lambda s: pc.all(pc.less(s[ORDERS].to_arrow()["id"], 4))}, "the check 'arrow' failed;"),
        ({"sums": fails}, "the check 'sums' failed;"),
        ([breaks], r"the check 'breaks' failed: ZeroDivisionError\('by zero'\)"),
        (["SELECT " + "1 + " * 100 + "1"], r"'SELECT 1 \+ .*\.\.\.' found rows"),
        ([select("id < 0"), lambda _: True, fails], "'fails'"),
    ],
)
def test_check_that_fails_publishes_nothing_and_the_run_continues(
    lake: Repository, run: Run, checks: Any, reported: str
) -> None:
    before = lake.reflog("main")
    with pytest.raises(CheckFailedError, match=reported):
        run.publish(checks=checks)
    assert lake.reflog("main") == before
    assert rows(raw(lake)) == table(1, 2, 3).to_pylist()
    assert run.info().state is RunPhase.RUNNING
    with run.transaction() as tx:
        tx.append(ORDERS, table(5))
    with pytest.raises(CheckFailedError, match=reported):
        run.publish()  # the checks stay with the run
    run.publish(checks=[])
    assert ids(lake) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("checks", "error"),
    [
        (["SELEC 1"], InvalidExpressionError),
        (["SELECT * FROM nowhere.at_all"], TableNotFoundError),
        (["DROP TABLE x"], InvalidInputError),
        ([""], InvalidInputError),
        ("SELECT 1", InvalidInputError),
        ([7], InvalidInputError),
        ({"a": None}, InvalidInputError),
        ({1: "SELECT 1"}, InvalidInputError),
        (7, InvalidInputError),
    ],
)
def test_what_is_not_a_check_publishes_nothing(lake: Repository, run: Run, checks: Any, error: type[Exception]) -> None:
    before = lake.reflog("main")
    with pytest.raises(error):
        run.publish(checks=checks)
    assert lake.reflog("main") == before
    assert run.info().state is RunPhase.RUNNING


def test_errors_of_ours_inside_a_check_stay_what_they_are(lake: Repository, run: Run) -> None:
    with pytest.raises(TableNotFoundError):
        run.publish(checks=[lambda snapshot: snapshot["in_c_sales.nothing"]])
    assert ids(lake) == [1, 2, 3]


def test_checks_of_the_same_text_or_name_all_count(lake: Repository, run: Run) -> None:
    checks = [lambda _: True, lambda _: False, lambda _: True]
    with pytest.raises(CheckFailedError):
        run.publish(checks=checks)
    assert ids(lake) == [1, 2, 3]


def test_checks_see_the_target_as_it_will_be_and_no_other_process_does(lake: Repository, run: Run) -> None:
    append(lake, 30, key=CUSTOMERS)
    append(lake, 7)
    seen: list[object] = []

    def look(snapshot: Snapshot) -> None:
        seen.extend([ids(snapshot), ids(snapshot, CUSTOMERS), ids(snapshot, NEW), snapshot.version])
        seen.append((snapshot.commit.kind, snapshot.commit.message, snapshot.commit.branch))
        others = another(lake)
        assert ids(others.snapshot()) == ids(raw_ids(others)) == [1, 2, 3, 7]
        assert NEW not in others.snapshot()
        assert ids(run.snapshot()) == [1, 2, 3, 4]

    system = {
        "tables": f"SELECT 1 WHERE (SELECT count(*) FROM tables WHERE table_key = '{NEW}') <> 1",
        "commits": "SELECT 1 WHERE (SELECT first(message) FROM commits) <> 'checked'",
        "number": "SELECT 1 WHERE (SELECT count(*) FROM commits) <> 5",
        "before": f"SELECT id FROM {ORDERS} AT 'main' WHERE id = 4",
        "now": f"SELECT 1 WHERE (SELECT max(id) FROM {ORDERS}) <> 7",
    }
    commit = run.publish(checks={"look": look, **system})
    assert commit is not None
    assert seen == [
        [1, 2, 3, 4, 7],
        [10, 20, 30],
        [],
        commit.manifest_version,
        (CommitKind.PUBLISH_RUN, "checked", "main"),
    ]


def raw_ids(repo: Repository) -> Any:
    """The orders that plain Lance sees, as something `ids` reads."""

    class Plain:
        def to_arrow(self, *, columns: list[str]) -> Any:
            return raw(repo).to_table(columns=columns)

    return Plain()


def test_checks_are_made_again_where_the_target_moves_concurrently(lake: Repository, run: Run) -> None:
    seen: list[list[int]] = []

    def look(snapshot: Snapshot) -> None:
        seen.append(ids(snapshot))
        if len(seen) == 1:
            append(another(lake), 8)

    with pytest.raises(CheckFailedError, match="no eights"):
        run.publish(checks={"look": look, "no eights": select("id = 8")})
    assert seen == [[1, 2, 3, 4], [1, 2, 3, 4, 8]]
    assert ids(lake.snapshot_of("main")) == [1, 2, 3, 8]


def test_conflicts_come_before_checks(lake: Repository) -> None:
    run = lake.begin_run()
    with run.transaction() as tx:
        tx.append(ORDERS, table(4, v="mine"))
    append(lake, 4)
    with pytest.raises(MergeConflictError):
        run.publish(checks=[fails])


def test_run_without_changes_has_nothing_to_check(lake: Repository) -> None:
    assert lake.begin_run().publish(checks=[fails]) is None


def test_sql_of_a_run_knows_its_own_commits(lake: Repository, run: Run) -> None:
    with run.transaction(message="inner") as tx:
        tx.append(ORDERS, table(5))
    assert run.sql("SELECT message FROM commits LIMIT 1").to_pylist() == [{"message": "inner"}]
    assert run.sql("SELECT ? AS n", params=[7]).to_pylist() == [{"n": 7}]
    assert "inner" not in [row["message"] for row in lake.sql("SELECT message FROM commits").to_pylist()]


NEGATIVE: dict[str, Check] = {"no id above 3": select("id > 3")}


def test_block_does_not_publish_a_run_whose_failed_check_was_caught(lake: Repository) -> None:
    before = lake.reflog("main")
    run = lake.begin_run()

    def catch_the_error() -> None:
        with run:
            append_and_publish(run, NEGATIVE)

    with pytest.raises(CheckFailedError, match="no id above 3"):
        catch_the_error()
    assert lake.reflog("main") == before
    assert run.info().state is RunPhase.FAILED
    assert "no id above 3" in (run.info().error or "")


def append_and_publish(run: Run, checks: dict[str, Check]) -> None:
    """Add an order and catch the error of a check, as a program does that wants to correct the rows."""
    with run.transaction() as tx:
        tx.append(ORDERS, table(4))
    with pytest.raises(CheckFailedError):
        run.publish(checks=checks)


def test_block_publishes_a_run_that_was_corrected_after_a_failed_check(lake: Repository) -> None:
    with lake.begin_run() as run:
        append_and_publish(run, NEGATIVE)
        with run.transaction() as tx:
            tx.delete(ORDERS, "id >= 3")
    assert ids(lake) == [1, 2]
    assert run.info().state is RunPhase.PUBLISHED


@pytest.mark.parametrize("checks", [NEGATIVE, {"a function": fails}])
def test_checks_of_begin_run_hold_at_the_end_of_the_block(lake: Repository, checks: Any) -> None:
    with pytest.raises(CheckFailedError), lake.begin_run(checks=checks) as run, run.transaction() as tx:
        tx.append(ORDERS, table(4))
    assert ids(lake) == [1, 2, 3]
    assert run.info().state is RunPhase.FAILED


def test_other_checks_of_publish_do_not_replace_those_of_begin_run(lake: Repository) -> None:
    run = lake.begin_run(checks=NEGATIVE)
    with run.transaction() as tx:
        tx.append(ORDERS, table(4))
    others: list[Checks | None] = [[], {"passes": select("id < 0")}, None]
    for checks in others:
        with pytest.raises(CheckFailedError, match="no id above 3"):
            run.publish(checks=checks)
    run.abort()
    assert ids(lake) == [1, 2, 3]


def test_another_process_runs_the_checks_that_a_run_began_with(lake: Repository) -> None:
    run = lake.begin_run(checks=NEGATIVE)
    with run.transaction() as tx:
        tx.append(ORDERS, table(4))
    with pytest.raises(CheckFailedError, match="no id above 3"):
        another(lake).run_get(run.id).publish()
    run.abort()
    with lake.begin_run(checks={"a function": lambda _: True}) as run:
        with run.transaction() as tx:
            tx.append(ORDERS, table(5))
        with pytest.raises(InvalidInputError, match="'a function' is a function of the process that began the run"):
            another(lake).run_get(run.id).publish()
    assert ids(lake) == [1, 2, 3, 5]


@pytest.mark.parametrize("checks", ["SELECT 1", [7], {"a": None}, {1: "SELECT 1"}, [" "], {"a": ""}])
def test_what_is_not_a_check_begins_no_run(lake: Repository, checks: Any) -> None:
    with pytest.raises(InvalidInputError):
        lake.begin_run(checks=checks)
    assert lake.run_list() == []
