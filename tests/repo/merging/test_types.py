"""Cells of every type are merged, each from the side that changed it."""

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
