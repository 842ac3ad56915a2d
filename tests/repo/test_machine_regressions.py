"""Histories that random machines found, each as short as possible."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, MergeConflictError
from anabranch.format.staging import ColumnChange
from tests.repo.gc.object_ages import pass_time

KEY = "s.a"
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> ab.Repository:
    """Rows 0, 1 and 2 of a table with a key, and a branch that has them too."""
    repo = ab.init(tmp_path / "lake")
    with repo.transaction() as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
        tx.append(KEY, pa.table({"id": [0, 1, 2], "n": [0, 1, 2]}, schema=SCHEMA))
    repo.branch_create("dev")
    return repo


@pytest.mark.parametrize("change", ["updated", "inserted"])
def test_rows_that_changed_beside_two_columns_of_one_name_do_not_hide_the_conflict(
    lake: ab.Repository, change: str
) -> None:
    with lake.transaction("dev") as tx:
        tx.alter_columns(KEY, [ColumnChange(path="n", name="m")])
        number = 1 if change == "updated" else 9
        tx.upsert(KEY, pa.table({"id": [number], "m": [7]}))
    with lake.transaction("main") as tx:
        tx.add_columns(KEY, pa.schema([("m", pa.int64())]))
    plan = lake.merge("dev", into="main", dry_run=True).plan
    assert plan.conflict_count == 1
    with pytest.raises(MergeConflictError) as caught:
        lake.merge("dev", into="main")
    assert [conflict.problem for conflict in caught.value.conflicts] == ["two columns would have this name"]


def test_young_commit_of_another_branch_that_main_once_was_on_is_kept(lake: ab.Repository) -> None:
    with lake.transaction("dev") as tx:
        tx.delete(KEY, "id = 0")
    lake.reset("main", to="dev")
    version = lake.branch_get("main").version
    lake.undo()
    lake.branch_delete("dev")
    pass_time(lake)
    with lake.transaction() as tx:
        tx.delete(KEY, "id = 1")
    pass_time(lake)
    lake.gc(keep_newer_than=timedelta(days=30), keep_last=1)
    assert lake.snapshot_of(f"main@v{version}")[KEY].count_rows() == 2


@pytest.mark.parametrize("strategy", ["fail", "source", "target"])
def test_empty_table_that_took_over_the_name_of_an_empty_one_is_merged(tmp_path: Path, strategy: str) -> None:
    """Both are at their first version, each of its own dataset."""
    repo = ab.init(tmp_path / "lake")
    with repo.transaction() as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
    repo.branch_create("dev")
    with repo.transaction() as tx:
        tx.rename_table(KEY, "s.b")
    with repo.transaction() as tx:
        tx.create_table(KEY, pa.schema([("id", pa.int64())]), primary_key=["id"])
    repo.merge("main", into="dev", strategy=strategy)
    merged = repo.snapshot_of("dev")
    assert {key: merged[key].schema.names for key in merged} == {"s.a": ["id"], "s.b": ["id", "n"]}


@pytest.mark.parametrize("strategy", ["fail", "source", "target"])
def test_rows_merge_with_a_table_that_was_created_again_without_its_key(lake: ab.Repository, strategy: str) -> None:
    with lake.transaction("dev") as tx:
        tx.drop_table(KEY)
    with lake.transaction("dev") as tx:
        tx.create_table(KEY, pa.schema([("id", pa.int64()), ("m", pa.int64()), ("n", pa.int64())]))
        tx.append(KEY, pa.table({"id": [9], "m": [9]}))
    with lake.transaction("main") as tx:
        tx.append(KEY, pa.table({"id": [8], "n": [8]}))
    lake.merge("dev", into="main", strategy=strategy)
    merged = lake.snapshot()[KEY]
    assert merged.primary_key == ()
    assert merged.to_arrow().to_pylist() == [{"id": 8, "n": 8, "m": None}, {"id": 9, "n": None, "m": 9}]


def test_cherry_pick_of_a_table_whose_column_was_renamed_since_changes_nothing(lake: ab.Repository) -> None:
    created = lake.head_commit_id_for_branch("dev")
    with lake.transaction("dev") as tx:
        tx.alter_columns(KEY, [ColumnChange(path="n", name="m")])
    with pytest.raises(InvalidInputError, match="would change nothing"):
        lake.cherry_pick(created, branch="dev")


def test_cherry_pick_of_an_equal_column_merges_with_a_new_key(tmp_path: Path) -> None:
    repo = ab.init(tmp_path / "lake")
    with repo.transaction() as tx:
        tx.create_table(KEY, SCHEMA)
        tx.append(KEY, pa.table({"id": [0, 1], "n": [0, 1]}, schema=SCHEMA))
    repo.branch_create("dev")
    for branch in ("main", "dev"):
        with repo.transaction(branch) as tx:
            tx.add_columns(KEY, {"m": "id"})
    with repo.transaction("dev") as tx:
        tx.set_primary_key(KEY, ["id"])
    plan = repo.cherry_pick("main", branch="dev", dry_run=True).plan
    assert [(one.conflict_count, one.tables[0].counts.updated) for one in plan] == [(0, 0)]
