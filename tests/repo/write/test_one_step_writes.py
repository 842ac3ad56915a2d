"""Writes of one commit each, and functions that run in a transaction until no other writer is faster."""

from typing import Any

import pandas as pd
import pytest

import anabranch as ab
from anabranch.errors import (
    BranchNotFoundError,
    InvalidInputError,
    InvalidNameError,
    KeyConflictError,
    TableNotFoundError,
    WriteConflictError,
)
from tests.repo.conftest import CUSTOMERS, ORDERS, another, append, ids, nothing_changes, rows, table

WRITES = {
    "append": lambda repo, **options: repo.append(ORDERS, [{"id": 4, "v": "d"}], **options),
    "upsert": lambda repo, **options: repo.upsert(ORDERS, {"id": [1, 4], "v": ["A", "d"]}, **options),
    "update": lambda repo, **options: repo.update(ORDERS, {"v": "upper(v)"}, "id = 1", **options),
    "delete": lambda repo, **options: repo.delete(ORDERS, "id = 1", **options),
    "overwrite": lambda repo, **options: repo.overwrite(ORDERS, pd.DataFrame({"id": [9], "v": ["z"]}), **options),
}
AFTER = {
    "append": {1: "a", 2: "b", 3: "c", 4: "d"},
    "upsert": {1: "A", 2: "b", 3: "c", 4: "d"},
    "update": {1: "A", 2: "b", 3: "c"},
    "delete": {2: "b", 3: "c"},
    "overwrite": {9: "z"},
}
MESSAGES = {
    "append": f"Append to {ORDERS}",
    "upsert": f"Upsert into {ORDERS}",
    "update": f"Update {ORDERS}",
    "delete": f"Delete from {ORDERS}",
    "overwrite": f"Overwrite {ORDERS}",
}


def values(repo: ab.Repository, ref: str = "main") -> dict[int, str]:
    return {row["id"]: row["v"] for row in rows(repo.snapshot_of(ref)[ORDERS])}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_one_commit_of_the_bound_branch(lake: ab.Repository, name: str) -> None:
    before = lake.head_commit_id_for_branch("main")
    made = WRITES[name](lake)
    assert made == lake.get_commit(lake.head_commit_id_for_branch("main"))
    assert (made.parent_commit_id, made.message, made.tables) == (before, MESSAGES[name], (ORDERS,))
    assert values(lake) == AFTER[name]


@pytest.mark.parametrize("name", WRITES)
def test_a_write_takes_a_branch_a_message_and_metadata(lake: ab.Repository, name: str) -> None:
    lake.branch_create("dev")
    made = WRITES[name](lake, branch="dev", message="why", metadata={"ticket": "7"})
    assert (made.message, dict(made.metadata)) == ("why", {"ticket": "7"})
    assert (values(lake, "dev"), values(lake)) == (AFTER[name], {1: "a", 2: "b", 3: "c"})
    with nothing_changes(lake), pytest.raises(BranchNotFoundError, match="nope"):
        WRITES[name](lake, branch="nope")


def test_a_write_that_changes_nothing_is_not_a_commit(lake: ab.Repository) -> None:
    with nothing_changes(lake):
        assert lake.append(ORDERS, []) is None
        assert lake.upsert(ORDERS, table(1).slice(0, 0)) is None
        assert lake.update(ORDERS, {"v": "'x'"}, "id = 99") is None
        assert lake.delete(ORDERS, "id = 99") is None


def test_writes_take_the_options_of_the_transaction(lake: ab.Repository) -> None:
    with nothing_changes(lake), pytest.raises(KeyConflictError):
        lake.append(ORDERS, table(1))
    lake.append(ORDERS, table(1), check_keys=False)
    assert ids(lake) == [1, 1, 2, 3]
    lake.upsert(CUSTOMERS, [{"id": 10, "v": "new"}], keys=["id"])
    assert rows(lake.snapshot()[CUSTOMERS])[0] == {"id": 10, "v": "new"}


def test_a_stream_of_rows_is_appended_once(lake: ab.Repository) -> None:
    assert lake.append(ORDERS, table(4, 5).to_reader()) is not None
    assert ids(lake) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", WRITES)
def test_a_write_to_a_table_that_does_not_exist_is_refused(lake: ab.Repository, name: str) -> None:
    lake.transact(lambda tx: tx.drop_table(ORDERS))
    with nothing_changes(lake), pytest.raises(TableNotFoundError, match=ORDERS):
        WRITES[name](lake)


def test_wrong_arguments_are_refused_with_their_value(lake: ab.Repository) -> None:
    wrong: Any = 7
    for use, error in (
        (lambda: lake.append(wrong, []), InvalidNameError),
        (lambda: lake.append(ORDERS, wrong), InvalidInputError),
        (lambda: lake.append(ORDERS, [], branch=wrong), InvalidNameError),
        (lambda: lake.append(ORDERS, [], message=wrong), InvalidInputError),
        (lambda: lake.append(ORDERS, [], metadata=wrong), InvalidInputError),
        (lambda: lake.upsert(ORDERS, [], keys=wrong), InvalidInputError),
        (lambda: lake.update(ORDERS, wrong, "true"), InvalidInputError),
        (lambda: lake.update(ORDERS, {"v": "'x'"}, wrong), InvalidInputError),
        (lambda: lake.delete(ORDERS, wrong), InvalidInputError),
        (lambda: lake.overwrite(ORDERS, wrong), InvalidInputError),
        (lambda: lake.transact(wrong), InvalidInputError),
        (lambda: lake.transact(lambda tx: tx.tables, wrong), InvalidNameError),
    ):
        with nothing_changes(lake), pytest.raises(error, match="7"):
            use()
    for retries in ("3", 1.5, None, True, -1):
        with nothing_changes(lake), pytest.raises(InvalidInputError, match=str(retries)):
            lake.transact(lambda tx: tx.tables, retries=retries)  # type: ignore[arg-type]


# Updates and deletes without a predicate


def test_an_update_or_a_delete_without_a_predicate_is_refused(lake: ab.Repository) -> None:
    for use in (
        lambda: lake.update(ORDERS, {"v": "'x'"}),
        lambda: lake.delete(ORDERS),
        lambda: lake.transact(lambda tx: tx.update(ORDERS, {"v": "'x'"})),
        lambda: lake.transact(lambda tx: tx.delete(ORDERS)),
    ):
        with nothing_changes(lake), pytest.raises(InvalidInputError, match=r"no predicate.*where='true'"):
            use()
    lake.update(ORDERS, {"v": "'x'"}, where="true")
    assert values(lake) == {1: "x", 2: "x", 3: "x"}
    lake.delete(ORDERS, where="true")
    assert values(lake) == {}


# Functions in a transaction


def test_transact_publishes_and_returns_what_the_function_returns(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    found = lake.transact(lambda tx: tx.delete(ORDERS, "id > 1"), "dev", message="fewer", metadata={"a": "b"})
    assert (found, ids(lake.snapshot_of("dev")), ids(lake)) == (2, [1], [1, 2, 3])
    commit = lake.list_commits("dev", limit=1)[0]
    assert (commit.message, dict(commit.metadata)) == ("fewer", {"a": "b"})


def test_transact_runs_again_on_the_new_state_after_a_conflict(lake: ab.Repository) -> None:
    seen: list[list[int]] = []

    def change(tx: ab.Transaction) -> ab.Transaction:
        seen.append(ids(tx[ORDERS]))
        tx.update(ORDERS, {"v": "concat(v, '!')"}, where="true")
        if len(seen) <= 2:
            append(another(lake), 10 + len(seen))  # another process was faster
        return tx

    tx = lake.transact(change, message="louder")
    assert seen == [[1, 2, 3], [1, 2, 3, 11], [1, 2, 3, 11, 12]]
    assert tx.published is not None
    assert tx.published.graph_commit_id == lake.head_commit_id_for_branch("main")
    assert values(lake) == {1: "a!", 2: "b!", 3: "c!", 11: "k!", 12: "l!"}


def test_transact_fails_after_its_retries_and_leaves_nothing(lake: ab.Repository) -> None:
    runs: list[int] = []

    def change(tx: ab.Transaction) -> None:
        runs.append(len(runs))
        tx.delete(ORDERS, "id = 1")
        append(another(lake), 10 + len(runs))

    for retries, expected in ((0, 1), (2, 3)):
        runs.clear()
        lake.transact(lambda tx: tx.delete(ORDERS, "id > 10"))
        with pytest.raises(WriteConflictError):
            lake.transact(change, retries=retries)
        assert len(runs) == expected
    assert ids(lake) == [1, 2, 3, 11, 12, 13]


def test_transact_does_not_run_again_after_other_errors(lake: ab.Repository) -> None:
    runs: list[int] = []

    def change(tx: ab.Transaction) -> None:
        runs.append(1)
        tx.append(CUSTOMERS, table(30))
        tx.append(ORDERS, table(1))

    with nothing_changes(lake), pytest.raises(KeyConflictError):
        lake.transact(change)
    assert runs == [1]


class Rows:
    """Rows for which another writer commits whenever they are read, up to a number of times."""

    def __init__(self, repo: ab.Repository, *, conflicts: int) -> None:
        self.repo, self.conflicts, self.reads = repo, conflicts, 0

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.reads += 1
        if self.reads <= self.conflicts:
            append(another(self.repo), 10 + self.reads)
        return table(9).__arrow_c_stream__(requested_schema)


def test_a_one_step_write_is_tried_again_after_a_conflict(lake: ab.Repository) -> None:
    data = Rows(lake, conflicts=2)
    assert lake.overwrite(ORDERS, data) is not None
    assert (data.reads, ids(lake), len(lake.list_commits())) == (3, [9], 5)


@pytest.mark.parametrize(
    "use",
    [
        lambda repo, wrong: repo.compact(target_rows_per_fragment=wrong),
        lambda repo, wrong: repo.index(ORDERS, wrong),
        lambda repo, wrong: repo.load("s.new", [{"id": 1}], primary_key=wrong),
        lambda repo, wrong: repo.schema_apply(wrong),
        lambda repo, wrong: repo.transact(lambda tx: tx.annotate(ORDERS, wrong)),
        lambda repo, wrong: repo.transact(lambda tx: tx.annotate(ORDERS, {}, columns=wrong)),
        lambda repo, wrong: repo.transact(lambda tx: tx.create_table("s.new", wrong)),
    ],
    ids=["compact", "index", "load", "schema_apply", "annotate", "annotate columns", "create_table"],
)
def test_a_wrong_type_is_refused_with_its_value(lake: ab.Repository, use: Any) -> None:
    with nothing_changes(lake), pytest.raises(InvalidInputError, match=r"7\.5"):
        use(lake, 7.5)
