"""Pairs of changes to one table, made on the same state: which of them both succeed, and which are conflicts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pyarrow as pa
import pytest

from anabranch.errors import BranchNotFoundError, KeyConflictError, WriteConflictError
from anabranch.format.staging import ColumnChange
from anabranch.ids import new_ulid
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.repository import Repository
from anabranch.repo.transaction import Transaction
from anabranch.storage import open_store
from tests.conftest import Location
from tests.handles import open_with
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, another, append, ids, objects, raw, rows, table

Change = Callable[[Transaction, int], object]

# Each gets a number, so that the keys of the two sides differ.
REPEATABLE: dict[str, Change] = {
    "append": lambda tx, n: tx.append(ORDERS, table(n)),
    "append a stream": lambda tx, n: tx.append(ORDERS, table(n).to_reader()),
    "append without checking keys": lambda tx, n: tx.append(ORDERS, table(n), check_keys=False),
    "upsert": lambda tx, n: tx.upsert(ORDERS, table(n)),
}
ONE_TIME: dict[str, Change] = {
    "delete": lambda tx, _: tx.delete(ORDERS, "id = 1"),
    "update": lambda tx, n: tx.update(ORDERS, {"v": f"'{n}'"}, where="true"),
    "overwrite": lambda tx, n: tx.overwrite(ORDERS, table(n)),
    "drop": lambda tx, _: tx.drop_table(ORDERS),
    "rename": lambda tx, n: tx.rename_table(ORDERS, f"s.renamed_{n}"),
}
OF_COLUMNS: dict[str, Change] = {
    "add columns": lambda tx, n: tx.add_columns(ORDERS, {f"w{n}": "id * 2"}),
    "rename a column": lambda tx, n: tx.alter_columns(ORDERS, [ColumnChange(path="v", name=f"v{n}")]),
    "change a type": lambda tx, _: tx.alter_columns(ORDERS, [ColumnChange(path="v", type=pa.large_string())]),
    "drop columns": lambda tx, _: tx.drop_columns(ORDERS, ["v"]),
    "overwrite with other columns": lambda tx, n: tx.overwrite(ORDERS, pa.table({"id": [n], "other": [1.5]})),
}
ALL = REPEATABLE | ONE_TIME | OF_COLUMNS


@pytest.fixture(params=["main", "dev"])
def branch(request: pytest.FixtureRequest, lake: Repository) -> str:
    """Main, where the table has its home, and a fresh branch, where both sides have to fork it first."""
    name: str = request.param
    if name == "dev":
        lake.branch_create(name)
    return name


def meet(lake: Repository, branch: str, first: Change, second: Change) -> Transaction:
    """Make two changes on the same state and publish the first; the second is returned unpublished."""
    faster, slower = lake.transaction(branch), another(lake).transaction(branch)
    second(slower, 100)
    first(faster, 200)
    faster.commit()
    return slower


@pytest.mark.parametrize("second", sorted(REPEATABLE))
@pytest.mark.parametrize("first", ["append", "upsert", "delete", "update"])
def test_append_is_repeated_on_any_newer_rows(lake: Repository, branch: str, first: str, second: str) -> None:
    meet(lake, branch, ALL[first], ALL[second]).commit()
    kept = [2, 3] if first == "delete" else [1, 2, 3]
    assert ids(lake.snapshot_of(branch)) == [*kept, 100, *([200] if first in REPEATABLE else [])]
    assert rows(raw(lake, ref=branch)) == rows(lake.snapshot_of(branch)[ORDERS])


@pytest.mark.parametrize("second", sorted(ONE_TIME | OF_COLUMNS))
@pytest.mark.parametrize("first", ["append", "overwrite", "add columns"])
def test_changes_of_what_is_there_conflict_with_any_other(lake: Repository, first: str, second: str) -> None:
    slower = meet(lake, "main", ALL[first], ALL[second])
    assert_conflict(lake, slower)


@pytest.mark.parametrize("second", sorted(REPEATABLE))
@pytest.mark.parametrize("first", sorted([*OF_COLUMNS, "drop", "rename"]))
def test_new_rows_conflict_with_other_columns(lake: Repository, first: str, second: str) -> None:
    slower = meet(lake, "main", ALL[first], ALL[second])
    assert_conflict(lake, slower)


def test_new_rows_conflict_with_other_columns_on_a_fresh_branch(lake: Repository) -> None:
    lake.branch_create("dev")
    slower = meet(lake, "dev", OF_COLUMNS["add columns"], REPEATABLE["append"])
    assert_conflict(lake, slower)


def assert_conflict(lake: Repository, slower: Transaction) -> None:
    with nothing_moves(lake), pytest.raises(WriteConflictError) as caught:
        slower.commit()
    assert caught.value.retryable
    assert slower.published is None


@contextmanager
def nothing_moves(lake: Repository) -> Iterator[None]:
    """No branch gets an entry, and plain Lance sees what it saw; unpublished commits may remain."""
    before = set(objects(lake, "_versions")), _seen_by_plain_lance(lake)
    yield
    assert (set(objects(lake, "_versions")), _seen_by_plain_lance(lake)) == before


def _seen_by_plain_lance(lake: Repository) -> dict[tuple[str, str], int]:
    found = [(branch.name, key) for branch in lake.branch_list() for key in lake.snapshot_of(branch.name)]
    return {(name, key): int(raw(lake, key, name).version) for name, key in found}


def test_same_keys_are_refused_on_a_fresh_branch_too(lake: Repository, branch: str) -> None:
    first, second = lake.transaction(branch), another(lake).transaction(branch)
    first.append(ORDERS, table(4, v="first"))
    second.append(ORDERS, table(4, v="second"))
    first.commit()
    with pytest.raises(KeyConflictError):
        second.commit()
    assert rows(lake.snapshot_of(branch)[ORDERS])[3] == {"id": 4, "v": "first"}


def test_one_conflict_keeps_the_whole_commit_back(lake: Repository) -> None:
    late = another(lake).transaction()
    late.append(CUSTOMERS, table(30))
    late.delete(ORDERS, "id = 1")
    append(lake, 4)
    with nothing_moves(lake), pytest.raises(WriteConflictError):
        late.commit()
    assert ids(lake, CUSTOMERS) == [10, 20]


def test_same_table_created_twice_is_made_once(lake: Repository, branch: str) -> None:
    first, second = lake.transaction(branch), another(lake).transaction(branch)
    for number, tx in enumerate((first, second)):
        tx.create_table("s.new", SCHEMA)
        tx.append("s.new", table(number + 1))
    second.commit()
    with pytest.raises(WriteConflictError):
        first.commit()
    assert ids(lake.snapshot_of(branch), "s.new") == [2]
    assert rows(raw(lake, "s.new", branch)) == rows(lake.snapshot_of(branch)["s.new"])


def test_transaction_continues_on_a_branch_deleted_and_brought_back(lake: Repository) -> None:
    lake.branch_create("dev")
    late = another(lake).transaction("dev")
    late.append(ORDERS, table(4))
    lake.branch_delete("dev")
    lake.branch_restore("dev")
    late.commit()
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_transaction_on_a_deleted_branch_changes_nothing(lake: Repository, *, is_made_again: bool) -> None:
    lake.branch_create("dev")
    late = another(lake).transaction("dev")
    late.append(ORDERS, table(4))
    lake.branch_delete("dev")
    if is_made_again:
        lake.branch_create("dev")
    with nothing_moves(lake), pytest.raises(BranchNotFoundError):
        late.commit()


def test_writer_that_keeps_losing_gives_way_and_gets_there(lake: Repository, location: Location) -> None:
    gave_way: list[int] = []
    attempts = count(1)

    def lose_three_times() -> str:
        # An id is made for each attempt, after the head was read and before the entry is put.
        if (attempt := next(attempts)) <= 3:
            append(lake, 200 + attempt)
        return new_ulid()

    uri = location / "lake"
    config = RepoConfig(
        root=uri,
        store=open_store(uri, location.storage_options),
        storage_options=location.storage_options,
        new_id=lose_three_times,
        give_way=lambda losses, _: gave_way.append(losses),
    )
    with open_with(config).transaction() as tx:
        tx.append(ORDERS, table(100))
    assert gave_way == [1, 2, 3]
    assert ids(lake) == [1, 2, 3, 100, 201, 202, 203]
    assert tx.published is not None
    assert lake.head_commit_id_for_branch("main") == tx.published.graph_commit_id
