"""Both branches merged each other, so that a later merge has two bases. Columns of these are merged like other ones."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.format.staging import DEFAULT
from anabranch.repo.transaction import Transaction

KEY = "s.t"
SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
Step = Callable[[Transaction], object]


def change(repo: ab.Repository, branch: str, *steps: Step) -> None:
    with repo.transaction(branch) as tx:
        for step in steps:
            step(tx)


def cross(repo: ab.Repository, on_main: Step, on_dev: Step) -> None:
    """Change both branches, then merge the change of each into the other one."""
    with repo.transaction() as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
        tx.append(KEY, pa.table([[0, 1, 2], [0, 1, 2], [0, 1, 2]], schema=SCHEMA))
    repo.branch_create("dev")
    change(repo, "main", on_main)
    change(repo, "dev", on_dev)
    before = repo.head_commit_id_for_branch("dev")
    repo.merge("main", "dev")
    repo.merge(before, "main")
    assert len(repo.merge_bases("main", "dev")) == 2


def put(column: str, value: str, where: str) -> Step:
    return lambda tx: tx.update(KEY, {column: value}, where=where)


def alter(column: str, **to: Any) -> Step:
    return lambda tx: tx.alter_columns(KEY, [ab.ColumnChange(path=column, **to)])


def insert(number: int, **values: int | None) -> Step:
    return lambda tx: tx.append(KEY, [{"id": number, "a": 0, "b": 0, **values}])


def add_with_default(tx: Transaction) -> None:
    tx.add_columns(KEY, {"w": "7"})
    tx.annotate(KEY, {}, columns={"w": {DEFAULT: "7"}})


def add_strict_with_default(tx: Transaction) -> None:
    add_with_default(tx)
    tx.alter_columns(KEY, [ab.ColumnChange(path="w", nullable=False)])


def cells(repo: ab.Repository, column: str, branch: str) -> dict[int, Any]:
    return {row["id"]: row[column] for row in repo.snapshot_of(branch)[KEY].to_arrow().to_pylist()}


def is_nullable(repo: ab.Repository, column: str, branch: str) -> bool:
    return bool(repo.snapshot_of(branch)[KEY].schema.field(column).nullable)


def merge_both_ways(repo: ab.Repository) -> None:
    """Merge each branch into a copy of the other one: `into_main` and `into_dev`."""
    for source, target in (("dev", "main"), ("main", "dev")):
        repo.branch_create(f"into_{target}", target)
        assert repo.merge(source, f"into_{target}", dry_run=True).plan.is_clean
        repo.merge(source, f"into_{target}")


def test_a_column_without_nulls_is_dropped(repo: ab.Repository) -> None:
    cross(repo, put("a", "10", "id = 1"), put("a", "20", "id = 2"))
    change(repo, "dev", lambda tx: tx.drop_columns(KEY, ["b"]))
    change(repo, "main", put("a", "30", "id = 0"))
    merge_both_ways(repo)
    for branch in ("into_main", "into_dev"):
        assert repo.snapshot_of(branch)[KEY].schema.names == ["id", "a"]
        assert cells(repo, "a", branch) == {0: 30, 1: 10, 2: 20}


def test_a_column_is_made_nullable(repo: ab.Repository) -> None:
    cross(repo, put("a", "10", "id = 1"), put("a", "20", "id = 2"))
    change(repo, "dev", alter("b", nullable=True), insert(9, b=None))
    change(repo, "main", put("a", "30", "id = 0"))
    merge_both_ways(repo)
    for branch in ("into_main", "into_dev"):
        assert is_nullable(repo, "b", branch)
        assert cells(repo, "b", branch) == {0: 0, 1: 1, 2: 2, 9: None}


def test_a_column_without_nulls_is_renamed_and_changed(repo: ab.Repository) -> None:
    cross(repo, put("a", "10", "id = 1"), put("b", "20", "id = 2"))
    change(repo, "dev", alter("b", name="z"))
    change(repo, "main", put("b", "30", "id = 0"))
    merge_both_ways(repo)
    for branch in ("into_main", "into_dev"):
        assert not is_nullable(repo, "z", branch)
        assert cells(repo, "z", branch) == {0: 30, 1: 1, 2: 20}


def test_a_column_is_made_nullable_if_the_bases_disagree_on_a_cell(repo: ab.Repository) -> None:
    """The virtual base has a null in that cell, although the column takes no nulls."""
    with repo.transaction() as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
        tx.append(KEY, pa.table([[1], [1], [1]], schema=SCHEMA))
    repo.branch_create("dev")
    change(repo, "main", put("b", "10", "id = 1"))
    change(repo, "dev", put("b", "20", "id = 1"))
    before = repo.head_commit_id_for_branch("dev")
    repo.merge("main", "dev", strategy="source")
    repo.merge(before, "main", strategy="target")
    change(repo, "dev", alter("b", nullable=True))
    change(repo, "main", put("a", "5", "id = 1"))
    merge_both_ways(repo)
    for branch in ("into_main", "into_dev"):
        assert is_nullable(repo, "b", branch)
        assert cells(repo, "b", branch) == {1: 10}


@pytest.mark.parametrize("add", [add_with_default, add_strict_with_default])
def test_a_default_fills_rows_of_the_virtual_base(repo: ab.Repository, add: Step) -> None:
    cross(repo, insert(9), add)
    change(repo, "dev", put("w", "8", "id = 9"))
    change(repo, "main", put("w", "6", "id = 1"))
    merge_both_ways(repo)
    for branch in ("into_main", "into_dev"):
        assert is_nullable(repo, "w", branch) is (add is add_with_default)
        assert cells(repo, "w", branch) == {0: 7, 1: 6, 2: 7, 9: 8}


@pytest.mark.parametrize("add", [add_with_default, add_strict_with_default])
def test_a_column_with_a_default_is_dropped(repo: ab.Repository, add: Step) -> None:
    cross(repo, insert(9), add)
    change(repo, "dev", lambda tx: tx.drop_columns(KEY, ["w"]))
    change(repo, "main", put("a", "6", "id = 1"))
    merge_both_ways(repo)
    for branch in ("into_main", "into_dev"):
        assert repo.snapshot_of(branch)[KEY].schema.names == ["id", "a", "b"]


@pytest.mark.parametrize("renamed_on", ["dev", "main"])
def test_base_of_a_table_that_one_of_two_bases_renamed(repo: ab.Repository, renamed_on: str) -> None:
    """The change that was put back was lost: the base had the name of one ancestor and so only the rows of it."""
    other = "main" if renamed_on == "dev" else "dev"

    def rename(tx: Transaction) -> None:
        tx.rename_table(KEY, "s.renamed")

    steps: dict[str, Step] = {renamed_on: rename, other: put("a", "5", "id = 1")}
    cross(repo, steps["main"], steps["dev"])
    for branch in ("main", "dev"):
        assert repo.snapshot_of(branch)["s.renamed"].count_rows("id = 1 AND a = 5") == 1
    with repo.transaction(other) as tx:
        tx.update("s.renamed", {"a": "1"}, where="id = 1")
    repo.branch_create("into_main", "main")
    repo.branch_create("into_dev", "dev")
    repo.merge("dev", "into_main")
    repo.merge("main", "into_dev")
    for branch in ("into_main", "into_dev"):
        table = repo.snapshot_of(branch)["s.renamed"].to_arrow()
        assert dict(zip(table["id"].to_pylist(), table["a"].to_pylist(), strict=True)) == {0: 0, 1: 1, 2: 2}
