"""One side makes a column NOT NULL, the other one has nulls there: each such row is a conflict that can be decided."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, MergeConflictError
from anabranch.format.staging import DEFAULT
from anabranch.repo.merge.conflict_types import Conflict
from anabranch.repo.transaction import Transaction
from tests.repo.conftest import nothing_changes

KEY = "s.t"
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("b", pa.int64())])
Step = Callable[[Transaction], object]


@pytest.fixture(params=["keyed", "keyless"])
def lake(repo: ab.Repository, request: pytest.FixtureRequest) -> ab.Repository:
    """A table with the rows 1, 2, 3, with or without a key. The branch `strict` makes b NOT NULL, `nulls` has nulls."""
    with repo.transaction() as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"] if request.param == "keyed" else [])
        tx.append(KEY, pa.table([[1, 2, 3], [0, 0, 0], [10, 20, 30]], schema=SCHEMA))
    repo.branch_create("strict")
    repo.branch_create("nulls")
    change(repo, "strict", lambda tx: tx.alter_columns(KEY, [ab.ColumnChange(path="b", nullable=False)]))
    return repo


@pytest.fixture(params=["nulls_into_strict", "strict_into_nulls"])
def sides(request: pytest.FixtureRequest) -> tuple[str, str]:
    source, _, target = request.param.partition("_into_")
    return source, target


def change(repo: ab.Repository, branch: str, *steps: Step) -> None:
    with repo.transaction(branch) as tx:
        for step in steps:
            step(tx)


def insert(number: int, **values: int | None) -> Step:
    return lambda tx: tx.append(KEY, pa.Table.from_pylist([{"id": number, "n": 0, "b": None, **values}], schema=SCHEMA))


def put(column: str, value: str, where: str) -> Step:
    return lambda tx: tx.update(KEY, {column: value}, where=where)


def cells(repo: ab.Repository, branch: str, column: str = "b") -> dict[int, Any]:
    rows = repo.snapshot_of(branch)[KEY].to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row[column] for row in rows}


def found_conflicts(repo: ab.Repository, source: str, target: str) -> list[Conflict]:
    """Return the conflicts, which a dry run, the merge and `conflicts` report alike."""
    found = list(repo.conflicts(source, target))
    assert repo.merge(source, target, dry_run=True).plan.conflicts == tuple(found)
    with nothing_changes(repo), pytest.raises(MergeConflictError) as caught:
        repo.merge(source, target)
    assert caught.value.conflicts == tuple(found)
    return found


def check_merge(repo: ab.Repository, source: str, target: str, **how: Any) -> None:
    """Merge, as planned, into a branch without nulls."""
    planned = repo.merge(source, target, dry_run=True, **how).plan
    assert planned.is_clean
    assert repo.merge(source, target, **how).plan == planned
    assert not repo.snapshot_of(target)[KEY].schema.field("b").nullable
    assert None not in cells(repo, target).values()


def test_each_row_with_a_null_is_a_conflict(lake: ab.Repository, sides: tuple[str, str]) -> None:
    change(lake, "nulls", insert(4), insert(5, b=50), put("b", "NULL", "id = 2"))
    change(lake, "strict", put("n", "1", "id = 3"))
    found = found_conflicts(lake, *sides)
    value = {"nulls": None, "strict": 20}
    assert sorted((one.kind, one.column, one.base, one.source, one.target) for one in found) == [
        ("divergent_insert", "b", None, None, None),
        ("divergent_update", "b", 20, value[sides[0]], value[sides[1]]),
    ]
    has_null = "source" if sides[0] == "nulls" else "target"
    assert {one.problem for one in found} == {f"the column takes no nulls, but the {has_null} has one"}


def test_a_strategy_for_the_strict_side_takes_its_cells_and_rows(lake: ab.Repository, sides: tuple[str, str]) -> None:
    change(lake, "nulls", insert(4), insert(5, b=50), put("b", "NULL", "id = 2"), put("n", "7", "id = 2"))
    strategy = "source" if sides[0] == "strict" else "target"
    check_merge(lake, *sides, strategy=strategy)
    assert cells(lake, sides[1]) == {1: 10, 2: 20, 3: 30, 5: 50}
    assert cells(lake, sides[1], "n")[2] == 7


def test_a_strategy_for_the_other_side_leaves_the_conflicts_open(lake: ab.Repository, sides: tuple[str, str]) -> None:
    change(lake, "nulls", insert(4), put("b", "NULL", "id = 2"))
    strategy = "source" if sides[0] == "nulls" else "target"
    with nothing_changes(lake), pytest.raises(MergeConflictError, match="2 conflicts"):
        lake.merge(*sides, strategy=strategy)


@pytest.mark.parametrize("by", ["column", "table", "function"])
def test_a_resolver_decides(lake: ab.Repository, sides: tuple[str, str], by: str) -> None:
    change(lake, "nulls", insert(4), put("b", "NULL", "id = 2"))
    side = "source" if sides[0] == "strict" else "target"
    resolvers: dict[str, dict[str, Any]] = {
        "column": {"b": side},
        "table": {KEY: side},
        "function": {"s.t.b": lambda conflict: (conflict.base or 0) + 1},
    }
    check_merge(lake, *sides, resolvers=resolvers[by])
    expected = {1: 10, 2: 21, 3: 30, 4: 1} if by == "function" else {1: 10, 2: 20, 3: 30}
    assert cells(lake, sides[1]) == expected


def test_resolutions_decide_single_rows(lake: ab.Repository, sides: tuple[str, str]) -> None:
    change(lake, "nulls", insert(4), insert(5, n=5), put("b", "NULL", "id = 2"))
    found = found_conflicts(lake, *sides)
    resolutions = [{**asdict(one), "value": 100 + number} for number, one in enumerate(found)]
    check_merge(lake, *sides, resolutions=resolutions)
    assert {**cells(lake, sides[1]), 2: 0, 4: 0, 5: 0} == {1: 10, 2: 0, 3: 30, 4: 0, 5: 0}
    assert sorted(cells(lake, sides[1])[number] for number in (2, 4, 5)) == [100, 101, 102]


@pytest.mark.parametrize("how", ["value", "take", "function"])
def test_a_decision_that_leaves_a_null_is_refused(lake: ab.Repository, sides: tuple[str, str], how: str) -> None:
    change(lake, "nulls", put("b", "NULL", "id = 2"))
    (found,) = lake.conflicts(*sides)
    taken = "source" if sides[0] == "nulls" else "target"
    given: dict[str, dict[str, Any]] = {
        "value": {"resolutions": [{**asdict(found), "value": None}]},
        "take": {"resolutions": [{**asdict(found), "take": taken}]},
        "function": {"resolvers": {"b": lambda _: None}},
    }
    for dry_run in (True, False):
        with nothing_changes(lake), pytest.raises(InvalidInputError, match="leaves a null in column 'b'"):
            lake.merge(*sides, dry_run=dry_run, **given[how])


def test_a_row_that_both_sides_changed(lake: ab.Repository, sides: tuple[str, str]) -> None:
    """One side changes the cell, the other one makes it null, and both change another cell to the same value."""
    change(lake, "nulls", put("b", "NULL", "id < 3"), put("n", "7", "id = 1"))
    change(lake, "strict", put("b", "25", "id = 2"), put("n", "7", "id = 1"))
    found = found_conflicts(lake, *sides)
    values: dict[str, dict[int, int | None]] = {"nulls": {10: None, 20: None}, "strict": {10: 10, 20: 25}}
    assert sorted((one.base, one.source, one.target) for one in found) == [
        (base, values[sides[0]][base], values[sides[1]][base]) for base in (10, 20)
    ]
    null_side, strict_side = ("source", "target") if sides[0] == "nulls" else ("target", "source")
    with nothing_changes(lake), pytest.raises(MergeConflictError, match="2 conflicts"):
        lake.merge(*sides, strategy=null_side)
    check_merge(lake, *sides, strategy=strict_side)
    assert cells(lake, sides[1]) == {1: 10, 2: 25, 3: 30}


def test_nulls_of_the_base_that_the_strict_side_replaced_merge(repo: ab.Repository) -> None:
    with repo.transaction() as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
        tx.append(KEY, pa.table([[1, 2, 3], [0, 0, 0], [10, None, None]], schema=SCHEMA))
    for branch in ("strict", "nulls"):
        repo.branch_create(branch)
    strict: Step = lambda tx: tx.alter_columns(KEY, [ab.ColumnChange(path="b", nullable=False)])  # noqa: E731
    change(repo, "strict", put("b", "5", "b IS NULL"), strict)
    change(repo, "nulls", put("n", "7", "id = 2"), insert(9, b=9))
    for source, target in (("strict", "nulls"), ("nulls", "strict")):
        repo.branch_create(f"into_{target}", target)
        check_merge(repo, source, f"into_{target}")
        assert cells(repo, f"into_{target}") == {1: 10, 2: 5, 3: 5, 9: 9}
        assert cells(repo, f"into_{target}", "n")[2] == 7


@pytest.mark.parametrize("is_dropped", ["kept", "dropped"])
def test_a_new_column_without_nulls_and_without_a_default(
    repo: ab.Repository, sides: tuple[str, str], is_dropped: str
) -> None:
    with repo.transaction() as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
        tx.append(KEY, pa.table([[1, 2], [0, 0], [10, 20]], schema=SCHEMA))
    for branch in ("strict", "nulls"):
        repo.branch_create(branch)
    change(repo, "strict", lambda tx: tx.add_columns(KEY, {"w": "id * 100", "d": "3"}))
    with repo.transaction("strict") as tx:
        tx.annotate(KEY, {}, columns={"d": {DEFAULT: "4"}})
        tx.alter_columns(KEY, [ab.ColumnChange(path=name, nullable=False) for name in ("w", "d")])
    change(repo, "nulls", insert(4, b=40), put("n", "7", "id = 1"))
    (found,) = found_conflicts(repo, *sides)
    assert (found.key, found.column, found.kind) == ({"id": 4}, "w", "divergent_insert")
    if is_dropped == "dropped":
        repo.merge(*sides, strategy="source" if sides[0] == "strict" else "target")
        assert cells(repo, sides[1], "w") == {1: 100, 2: 200}
        return
    repo.merge(*sides, resolutions=[{**asdict(found), "value": 400}])
    assert cells(repo, sides[1], "w") == {1: 100, 2: 200, 4: 400}
    assert cells(repo, sides[1], "d") == {1: 3, 2: 3, 4: 4}
    assert cells(repo, sides[1], "n") == {1: 7, 2: 0, 4: 0}


def test_a_kept_row_with_a_null_is_a_conflict_of_the_cell(lake: ab.Repository, sides: tuple[str, str]) -> None:
    """The strict side deleted the row, the other one set the cell to null, and wins."""
    change(lake, "strict", lambda tx: tx.delete(KEY, "id = 2"))
    change(lake, "nulls", put("b", "NULL", "id = 2"))
    null_side = "source" if sides[0] == "nulls" else "target"
    with nothing_changes(lake), pytest.raises(MergeConflictError) as caught:
        lake.merge(*sides, strategy=null_side)
    (found,) = caught.value.conflicts
    assert (found.column, found.target) == ("b", None)
    check_merge(lake, *sides, strategy=null_side, resolutions=[{**asdict(found), "value": 5}])
    assert cells(lake, sides[1]) == {1: 10, 2: 5, 3: 30}


def test_keyless_rows_that_were_only_appended(repo: ab.Repository) -> None:
    """Rows of the target have no known base, because it was overwritten."""
    with repo.transaction() as tx:
        tx.create_table(KEY, SCHEMA)
        tx.append(KEY, pa.table([[1], [0], [10]], schema=SCHEMA))
    for branch in ("strict", "nulls"):
        repo.branch_create(branch)
    change(repo, "strict", lambda tx: tx.alter_columns(KEY, [ab.ColumnChange(path="b", nullable=False)]))
    change(repo, "strict", insert(2, b=20))
    change(repo, "nulls", lambda tx: tx.overwrite(KEY, pa.table([[5, 6], [0, 0], [50, None]], schema=SCHEMA)))
    (found,) = found_conflicts(repo, "strict", "nulls")
    check_merge(repo, "strict", "nulls", resolutions=[{**asdict(found), "value": 60}])
    assert cells(repo, "nulls") == {5: 50, 6: 60, 2: 20}


@pytest.mark.parametrize("lake", ["keyed"], indirect=True)
def test_nulls_of_a_column_with_another_conflict_are_not_reported(lake: ab.Repository, sides: tuple[str, str]) -> None:
    """The column was dropped on one side, so the rows inserted there have nulls if it is kept."""
    change(lake, "nulls", lambda tx: tx.drop_columns(KEY, ["b"]), lambda tx: tx.append(KEY, [{"id": 4, "n": 0}]))
    assert [(one.kind, one.column) for one in found_conflicts(lake, *sides)] == [("schema", "b")]
