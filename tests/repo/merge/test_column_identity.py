"""A column has the same identity on all branches: if it was added on both sides, picked, squashed or restored."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.repo.transaction import Transaction

KEY = "s.t"
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("a", pa.int64())])


@pytest.fixture
def table(repo: ab.Repository) -> ab.Repository:
    """A table with rows 1, 2, 3, and the branch dev."""
    change(repo, "main", create)
    repo.branch_create("dev")
    return repo


def create(tx: Transaction) -> None:
    tx.create_table(KEY, SCHEMA, primary_key=["id"])
    tx.append(KEY, pa.table([[1, 2, 3], [0, 0, 0], [1, 2, 3]], schema=SCHEMA))


def change(repo: ab.Repository, branch: str, *steps: Callable[[Transaction], object]) -> None:
    """Make each change in a commit of its own."""
    for step in steps:
        with repo.transaction(branch) as tx:
            step(tx)


def rename(old: str, new: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.alter_columns(KEY, [ab.ColumnChange(path=old, name=new)])


def put(column: str, value: str, where: str = "id = 1") -> Callable[[Transaction], object]:
    return lambda tx: tx.update(KEY, {column: value}, where=where)


def drop(column: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.drop_columns(KEY, [column])


def add(column: str, expression: str) -> Callable[[Transaction], object]:
    return lambda tx: tx.add_columns(KEY, {column: expression})


def insert(number: int, **values: int) -> Callable[[Transaction], object]:
    return lambda tx: tx.append(KEY, [{"id": number, "a": number, **values}])


def rewrite(tx: Transaction) -> None:
    """Write all rows again, so that no data file matches the columns any more."""
    tx.update(KEY, {"n": "n"}, where="true")


def rows(repo: ab.Repository, ref: str = "main") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = repo.snapshot_of(ref)[KEY].to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def cells(repo: ab.Repository, column: str, ref: str = "main") -> list[Any]:
    return [row[column] for row in rows(repo, ref)]


def names(repo: ab.Repository, ref: str = "main") -> list[str]:
    """Return the columns that a test may change."""
    return [name for name in repo.snapshot_of(ref)[KEY].schema.names if name not in ("id", "n")]


@pytest.mark.parametrize("strategy", ["fail", "source", "target"])
@pytest.mark.parametrize("renamed_on", ["main", "dev"])
@pytest.mark.parametrize("last", ["one_way", "both_ways"])
def test_a_column_that_both_sides_added_is_one_column_after_a_merge(
    table: ab.Repository, strategy: str, renamed_on: str, last: str
) -> None:
    for branch in ("dev", "main"):
        change(table, branch, add("w", "7"))
    table.merge("dev", "main")
    if last == "both_ways":
        table.merge("main", "dev")
    other = {"main": "dev", "dev": "main"}[renamed_on]
    change(table, renamed_on, rename("w", "x"), rewrite)
    change(table, other, put("w", "9"), insert(4, w=4))
    table.branch_create("copy", "main")
    table.merge("dev", "main", strategy=strategy)
    table.merge("copy", "dev", strategy=strategy)
    for branch in ("main", "dev"):
        assert (names(table, branch), cells(table, "x", branch)) == (["a", "x"], [9, 7, 7, 4])


def test_a_branch_from_before_the_merge_follows_the_column(table: ab.Repository) -> None:
    """The column of either side is the merged one for every branch that has it."""
    for branch in ("dev", "main"):
        change(table, branch, add("w", "7"))
        table.branch_create(f"old-{branch}", branch)
    table.merge("dev", "main")
    change(table, "main", rename("w", "x"), rewrite)
    for number, branch in enumerate(("old-dev", "old-main"), start=1):
        change(table, branch, put("w", str(100 + number), f"id = {number}"))
        table.merge(branch, "main")
    assert (names(table), cells(table, "x")) == (["a", "x"], [101, 102, 7])


def test_columns_of_a_table_that_both_sides_created_are_followed(repo: ab.Repository) -> None:
    repo.branch_create("dev")
    for branch in ("main", "dev"):
        change(repo, branch, create)
    repo.merge("dev", "main")
    change(repo, "main", rename("a", "b"), rewrite)
    change(repo, "dev", put("a", "9"))
    repo.merge("dev", "main")
    assert (names(repo), cells(repo, "b")) == (["b"], [9, 2, 3])


def pick(repo: ab.Repository) -> None:
    repo.cherry_pick("dev", branch="main")


def squash(repo: ab.Repository) -> None:
    repo.merge("dev", "main", squash=True)


@pytest.mark.parametrize("bring", [pick, squash])
@pytest.mark.parametrize("renamed_on", ["main", "dev"])
@pytest.mark.parametrize("into", ["main", "dev"])
def test_a_picked_column_that_one_side_renamed_has_one_name(
    table: ab.Repository, bring: Callable[[ab.Repository], None], renamed_on: str, into: str
) -> None:
    change(table, "dev", add("w", "7"))
    change(table, "main", insert(4))
    bring(table)
    change(table, renamed_on, rename("w", "x"), rewrite)
    table.merge({"main": "dev", "dev": "main"}[into], into)
    assert (names(table, into), cells(table, "x", into)) == (["a", "x"], [7, 7, 7, None])
    change(table, "dev", rewrite)
    if into == "dev":
        table.merge("dev", "main")
        assert names(table) == ["a", "x"]


def test_a_picked_column_that_both_sides_renamed_is_a_conflict(table: ab.Repository) -> None:
    change(table, "dev", add("w", "7"))
    change(table, "main", insert(4))
    pick(table)
    change(table, "dev", rename("w", "x"))
    change(table, "main", rename("w", "y"))
    (found,) = table.conflicts("dev", "main")
    assert (found.kind, found.column, found.problem) == ("schema", "y", "both sides changed its name")
    assert (found.base, found.source, found.target) == ("w", "x", "y")
    with pytest.raises(MergeConflictError):
        table.merge("dev", "main")
    table.branch_create("copy", "main")
    table.merge("dev", "main", strategy="source")
    table.merge("dev", "copy", strategy="target")
    assert (names(table), names(table, "copy")) == (["a", "x"], ["a", "y"])


def test_a_column_that_both_sides_added_takes_nulls_if_one_side_allows_them(table: ab.Repository) -> None:
    change(table, "dev", add("w", "7"), insert(4))
    change(table, "main", add("w", "7"), lambda tx: tx.alter_columns(KEY, [ab.ColumnChange(path="w", nullable=False)]))
    table.merge("dev", "main")
    assert table.snapshot_of("main")[KEY].schema.field("w").nullable
    assert cells(table, "w") == [7, 7, 7, None]


def restore_by_merge(repo: ab.Repository) -> None:
    """Bring back a column that main dropped, because dev changed it."""
    change(repo, "main", drop("a"))
    change(repo, "dev", put("a", "10"))
    repo.merge("dev", "main", strategy="source")


def restore_by_revert(repo: ab.Repository) -> None:
    change(repo, "main", drop("a"))
    repo.append(KEY, [{"id": 4}])
    repo.revert("main~1")
    repo.delete(KEY, "id = 4")
    change(repo, "dev", put("a", "10"))
    change(repo, "main", put("a", "10"))


@pytest.mark.parametrize("restore", [restore_by_merge, restore_by_revert])
def test_a_restored_column_is_the_same_column(table: ab.Repository, restore: Callable[[ab.Repository], None]) -> None:
    restore(table)
    assert cells(table, "a") == [10, 2, 3]
    change(table, "main", rename("a", "b"), rewrite)
    change(table, "dev", put("a", "20", "id = 2"))
    table.merge("dev", "main")
    assert (names(table), cells(table, "b")) == (["b"], [10, 20, 3])
