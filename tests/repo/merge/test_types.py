"""Cells of every type are merged, each from the side that changed it."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from tests.duck.test_comparer import CASES, column

NAMES = [f"c{number}" for number in range(len(CASES))]


def rows(*which: str) -> pa.Table:
    """A row for each text: by its letters, each column has its value, the other one or none."""
    chosen = {"v": 1, "o": 2}
    columns = {"id": pa.array(range(len(which)), pa.int64())}
    for number, (name, case) in enumerate(zip(NAMES, CASES, strict=True)):
        letters = [text[number % len(text)] for text in which]
        columns[name] = column(case[0], *(case[chosen[letter]] if letter in chosen else None for letter in letters))
    return pa.table(columns)


def test_each_cell_comes_from_the_side_that_changed_it(repo: ab.Repository) -> None:
    base = rows("v", "v", "v", "-", "v", "vv")
    with repo.transaction() as tx:
        tx.create_table("s.t", base.schema, primary_key=["id"])
        tx.append("s.t", base)
    repo.branch_create("dev")
    with repo.transaction("dev") as tx:
        tx.upsert("s.t", rows("o", "v", "o", "v", "-", "ov", "o"))
    with repo.transaction() as tx:
        tx.upsert("s.t", rows("v", "o", "o", "-", "v", "vo"))
    assert repo.merge("dev").plan.is_clean
    found = repo.snapshot()["s.t"].to_arrow().sort_by("id")
    assert found.schema == base.schema
    expected = rows("o", "o", "o", "v", "-", "oo", "o")
    for name in base.schema.names:
        assert found.column(name).to_pylist() == expected.column(name).to_pylist(), name


@pytest.mark.parametrize(("number", "is_clean"), [(3.0, True), (2.5, False)])
def test_new_rows_fit_a_narrower_type_in_both_directions_if_no_number_changes(
    repo: ab.Repository, number: float, *, is_clean: bool
) -> None:
    with repo.transaction() as tx:
        tx.create_table("s.t", pa.schema([("id", pa.int64()), ("a", pa.int64())]), primary_key=["id"])
        tx.append("s.t", pa.table({"id": [1], "a": [1]}))
    repo.branch_create("dev")
    with repo.transaction() as tx:
        tx.alter_columns("s.t", [ab.ColumnChange(path="a", type=pa.float64())])
        tx.append("s.t", pa.table({"id": [2], "a": [number]}))
    with repo.transaction("dev") as tx:
        tx.alter_columns("s.t", [ab.ColumnChange(path="a", type=pa.int32())])
    for source, target, strategy in (("dev", "main", "source"), ("main", "dev", "target")):
        repo.branch_create(f"into-{target}", target)
        plan = repo.merge(source, into=f"into-{target}", strategy=strategy, dry_run=True).plan
        assert plan.is_clean == is_clean
        if is_clean:
            repo.merge(source, into=f"into-{target}", strategy=strategy)
            found = repo.snapshot_of(f"into-{target}")["s.t"].to_arrow()
            assert found.schema.field("a").type == pa.int32()
            assert sorted(found.to_pylist(), key=str) == [{"id": 1, "a": 1}, {"id": 2, "a": 3}]


DAY, NEXT_DAY = dt.date(2024, 2, 29), dt.date(2024, 3, 1)
SECOND, MINUTE = dt.timedelta(seconds=1), dt.timedelta(minutes=1)
# The old and the new type of a column, its value, and the value that the other side writes in the old type.
RETYPED: list[tuple[pa.DataType, pa.DataType, Any, Any]] = [
    (pa.date32(), pa.timestamp("us"), DAY, NEXT_DAY),
    (pa.date32(), pa.timestamp("ns"), DAY, NEXT_DAY),
    (pa.date32(), pa.date64(), DAY, NEXT_DAY),
    (pa.date64(), pa.timestamp("s"), DAY, NEXT_DAY),
    (pa.timestamp("s"), pa.timestamp("ns"), dt.datetime(2024, 2, 29), dt.datetime(2024, 3, 1)),
    (pa.duration("s"), pa.duration("us"), SECOND, MINUTE),
    (pa.decimal128(10, 2), pa.decimal256(50, 4), Decimal("1.50"), Decimal("2.25")),
    (pa.int64(), pa.decimal256(50, 4), 1, 2),
]


@pytest.mark.parametrize(("old", "new", "value", "other"), RETYPED, ids=[f"{old}-{new}" for old, new, *_ in RETYPED])
def test_new_type_does_not_change_a_value(
    repo: ab.Repository, old: pa.DataType, new: pa.DataType, value: object, other: object
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", old)])
    with repo.transaction() as tx:
        tx.create_table("s.t", schema, primary_key=["id"])
        tx.append("s.t", pa.table([[1, 2], pa.array([value, value], old)], schema=schema))
    repo.branch_create("dev")
    with repo.transaction("dev") as tx:
        tx.alter_columns("s.t", [ab.ColumnChange(path="v", type=new)])
    with repo.transaction() as tx:
        tx.upsert("s.t", pa.table([[1], pa.array([other], old)], schema=schema))
    repo.branch_create("into_main", "main")
    repo.branch_create("into_dev", "dev")
    repo.merge("dev", "into_main")
    repo.merge("main", "into_dev")
    expected = pa.array([other, value], old).cast(new)
    for branch in ("into_main", "into_dev"):
        found = repo.snapshot_of(branch)["s.t"].to_arrow().sort_by("id")["v"].combine_chunks()
        assert found.equals(expected), branch


def test_duration_of_another_unit_with_the_same_number_is_a_change(repo: ab.Repository) -> None:
    """A second became a microsecond, and this was lost without a conflict: both have the number 1."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.duration("s")), ("w", pa.int64())])
    with repo.transaction() as tx:
        tx.create_table("s.t", schema, primary_key=["id"])
        tx.append("s.t", pa.table([[1], pa.array([SECOND], pa.duration("s")), [0]], schema=schema))
    repo.branch_create("dev")
    with repo.transaction("dev") as tx:
        tx.alter_columns("s.t", [ab.ColumnChange(path="v", type=pa.duration("us"))])
        changed = pa.array([dt.timedelta(microseconds=1)], pa.duration("us"))
        tx.upsert("s.t", pa.table({"id": pa.array([1], pa.int64()), "v": changed}))
    with repo.transaction() as tx:
        tx.update("s.t", {"w": "1"}, where="id = 1")
    assert [one.columns for one in repo.diff("main~1", "dev").iter_rows()] == [("v",)]
    repo.merge("dev", "main")
    assert repo["s.t"].to_arrow()["v"].to_pylist() == [dt.timedelta(microseconds=1)]
