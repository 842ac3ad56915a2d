"""Differences between two refs: tables, columns, rows."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, NotFoundError, TableNotFoundError
from anabranch.repo.history.comparer import TableCounts
from anabranch.repo.history.diff import Diff, RowChangeKind, TableChangeKind, TableDiff
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, append, table


def only(repo: ab.Repository, before: str, after: str | None = None) -> TableDiff:
    """The one table that differs."""
    found = [table for table in repo.diff(before, after).tables if not table.is_empty]
    assert len(found) == 1
    return found[0]


def tables_of(diff: Diff) -> list[tuple[str, TableChangeKind, str | None, TableCounts]]:
    return [(found.key, found.change, found.renamed_from, found.counts) for found in diff.tables]


def shown(diff: TableDiff) -> list[tuple[str, Any, Any, tuple[str, ...]]]:
    return sorted(
        (
            (
                row.change.value,
                None if row.before is None else tuple(row.before.values()),
                None if row.after is None else tuple(row.after.values()),
                row.columns,
            )
            for row in diff.iter_rows()
        ),
        key=repr,
    )


def schema_changes(diff: TableDiff) -> list[tuple[str, str, str | None, str | None]]:
    return [(change.change, change.column, change.before, change.after) for change in diff.columns]


@pytest.mark.s3
def test_rows_are_reported_with_their_values_before_and_after(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.upsert(ORDERS, pa.table({"id": [1, 2, 9], "v": ["a", "z", "n"]}))
        tx.delete(ORDERS, "id = 3")
    diff = only(lake, "main", "dev")
    assert shown(diff) == [
        ("deleted", (3, "c"), None, ()),
        ("inserted", None, (9, "n"), ()),
        ("updated", (2, "b"), (2, "z"), ("v",)),
    ]
    assert diff.counts == TableCounts(inserted=1, updated=1, deleted=1)
    assert lake.diff("main", "dev").summary() == {ORDERS: diff.counts}
    assert diff.to_arrow().schema.names == ["change", "columns", "before", "after"]
    assert [row.table for row in lake.diff("dev", "main").iter_rows()] == [ORDERS] * 3


def test_only_rows_that_may_differ_are_read(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        for key in (ORDERS, CUSTOMERS):
            tx.append(key, table(*range(100, 5000)))
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        for key in (ORDERS, CUSTOMERS):
            tx.update(key, {"v": "'new'"}, where="id in (200, 400)")
            tx.delete(key, "id = 300")
            tx.append(key, table(6000))
    for diff in lake.diff("main", "dev").tables:
        assert diff.rows_to_compare == 6
        assert diff.counts == TableCounts(inserted=1, updated=2, deleted=1)


def test_of_a_new_column_only_rows_that_have_a_value_are_read(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, table(*range(100, 5000)))
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.add_columns(ORDERS, {"low": "nullif(greatest(id, 2), 2)"})
        tx.update(ORDERS, {"low": "NULL"}, where="id > 3")
    diff = only(lake, "main", "dev")
    assert shown(diff) == [("updated", (3, "c"), (3, "c", 3), ("low",))]
    lake.branch_create("other")
    with lake.transaction("other") as tx:
        tx.add_columns(ORDERS, {"high": "nullif(least(id, 4999), id)"})
    diff = only(lake, "main", "other")
    assert (diff.rows_to_compare, diff.counts.total) == (0, 0)


@pytest.mark.both_engines
@pytest.mark.parametrize("key", [ORDERS, CUSTOMERS])
def test_rows_that_were_rewritten_unchanged_are_not_reported(lake: ab.Repository, key: str) -> None:
    lake.branch_create("dev")
    append(lake, 31, branch="dev", key=key)
    with lake.transaction("dev") as tx:
        tx.delete(key, "id = 31")
        tx.update(key, {"v": "v"}, where="true")
    with lake.transaction("dev") as tx:
        tx.overwrite(key, lake.snapshot()[key].to_arrow())
    lake.compact(branch="dev")
    diff = lake.diff("main", "dev")
    assert diff.is_empty
    assert diff.summary() == {}
    assert list(diff.iter_rows()) == []


def test_equal_states_are_found_from_pointers_alone(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4)
    assert [diff.key for diff in lake.diff("dev", "main").tables] == [ORDERS]
    assert lake.diff("dev", "dev").tables == ()


def test_the_bound_branch_is_the_newer_side_by_default(lake: ab.Repository) -> None:
    before = lake.snapshot().id
    append(lake, 4)
    assert shown(only(lake, before)) == [("inserted", None, (4, "d"), ())]
    assert shown(only(lake, "main", before)) == [("deleted", (4, "d"), None, ())]


@pytest.mark.both_engines
def test_tables_come_go_and_get_other_names(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.create_table("out.new", SCHEMA)
        tx.append("out.new", table(1, 2))
        tx.rename_table(ORDERS, "out.orders")
        tx.append("out.orders", table(4))
        tx.drop_table(CUSTOMERS)
    diff = lake.diff("main", "dev")
    assert [(found.key, found.change, found.renamed_from) for found in diff.tables] == [
        (CUSTOMERS, TableChangeKind.REMOVED, None),
        ("out.new", TableChangeKind.ADDED, None),
        ("out.orders", TableChangeKind.CHANGED, ORDERS),
    ]
    assert {key: counts.total for key, counts in diff.summary().items()} == {
        CUSTOMERS: 2,
        "out.new": 2,
        "out.orders": 1,
    }
    back = {found.key: found for found in lake.diff("dev", "main").tables}
    assert back[ORDERS].renamed_from == "out.orders"
    assert [found.key for found in lake.diff("main", "dev", tables=[ORDERS]).tables] == ["out.orders"]


def test_renamed_table_is_found_although_a_new_table_has_its_old_name(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.rename_table(ORDERS, "out.orders")
        tx.update("out.orders", {"v": "'changed'"}, where="id = 3")
    with lake.transaction("dev") as tx:
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
        tx.append(ORDERS, table(1, 2, v="other"))
    assert tables_of(lake.diff("main", "dev")) == [
        (ORDERS, TableChangeKind.ADDED, None, TableCounts(inserted=2, updated=0, deleted=0)),
        ("out.orders", TableChangeKind.CHANGED, ORDERS, TableCounts(inserted=0, updated=1, deleted=0)),
    ]
    assert [found.key for found in lake.diff("main", "dev", tables=[ORDERS]).tables] == [ORDERS, "out.orders"]
    assert [found.key for found in lake.diff("main", "dev", tables=["out.orders"]).tables] == ["out.orders"]


def test_tables_that_swapped_their_names_have_no_changed_rows(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev", message="swap") as tx:
        tx.rename_table(ORDERS, "out.tmp")
        tx.rename_table(CUSTOMERS, ORDERS)
        tx.rename_table("out.tmp", CUSTOMERS)
        tx.append(CUSTOMERS, table(4))
    assert tables_of(lake.diff("main", "dev")) == [
        (CUSTOMERS, TableChangeKind.CHANGED, ORDERS, TableCounts(inserted=1, updated=0, deleted=0)),
        (ORDERS, TableChangeKind.CHANGED, CUSTOMERS, TableCounts(inserted=0, updated=0, deleted=0)),
    ]
    # The feed follows a name. It has the rows of one table as deleted and those of the other as inserted.
    step = list(lake.changes(ORDERS, until="dev"))[-1]
    assert (step.commit.message, step.renamed_from, step.renamed_to) == ("swap", CUSTOMERS, CUSTOMERS)


def test_removed_table_whose_name_another_table_got_is_listed_beside_it(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.drop_table(CUSTOMERS)
        tx.rename_table(ORDERS, CUSTOMERS)
    diff = lake.diff("main", "dev")
    assert tables_of(diff) == [
        (CUSTOMERS, TableChangeKind.REMOVED, None, TableCounts(inserted=0, updated=0, deleted=2)),
        (CUSTOMERS, TableChangeKind.CHANGED, ORDERS, TableCounts(inserted=0, updated=0, deleted=0)),
    ]
    assert {name: counts.total for name, counts in diff.summary().items()} == {
        f"{CUSTOMERS} (removed)": 2,
        CUSTOMERS: 0,
    }
    assert {name: len(rows) for name, rows in diff.to_arrow().items()} == {f"{CUSTOMERS} (removed)": 2, CUSTOMERS: 0}


@pytest.mark.both_engines
def test_columns_that_were_added_dropped_or_changed(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.add_columns(ORDERS, {"twice": "id * 2"})
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="v", name="Vé x")])
        tx.alter_columns(CUSTOMERS, [ab.ColumnChange(path="id", type=pa.int32(), nullable=False)])
        tx.drop_columns(CUSTOMERS, ["v"])
        tx.set_primary_key(CUSTOMERS, ["id"])
    found = {diff.key: diff for diff in lake.diff("main", "dev").tables}
    assert schema_changes(found[ORDERS]) == [("renamed", "Vé x", "v", "Vé x"), ("added", "twice", None, "int64")]
    assert shown(found[ORDERS])[0] == ("updated", (1, "a"), (1, "a", 2), ("twice",))
    assert schema_changes(found[CUSTOMERS]) == [
        ("type", "id", "int64", "int32"),
        ("nullable", "id", "True", "False"),
        ("removed", "v", "string", None),
        ("primary key", "id", "", "id"),
    ]
    assert [row[3] for row in shown(found[CUSTOMERS])] == [("v",), ("v",)]


def test_a_column_that_holds_nothing_changes_no_row(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.add_columns(ORDERS, pa.schema([("note", pa.string())]))
        tx.add_columns(CUSTOMERS, {"some": "nullif(id, 10)"})
    found = {diff.key: diff for diff in lake.diff("main", "dev").tables}
    assert not found[ORDERS].is_empty
    assert found[ORDERS].counts.total == 0
    assert shown(found[CUSTOMERS]) == [("updated", (20, "t"), (20, "t", 20), ("some",))]
    assert found[CUSTOMERS].counts == TableCounts(inserted=0, updated=1, deleted=0)


@pytest.mark.both_engines
def test_a_new_key_leaves_rows_to_be_matched_by_their_ids(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.set_primary_key(CUSTOMERS, ["id"])
        tx.update(CUSTOMERS, {"v": "'new'"}, where="id = 10")
    diff = only(lake, "main", "dev")
    assert shown(diff) == [("updated", (10, "j"), (10, "new"), ("v",))]


@pytest.mark.both_engines
def test_equal_rows_without_a_key_are_reported_as_often_as_they_came(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(CUSTOMERS, pa.table({"id": [7, 7, 7], "v": ["x", "x", "x"]}))
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.append(CUSTOMERS, pa.table({"id": [7, 7], "v": ["x", "x"]}))
    assert only(lake, "main", "dev").counts == TableCounts(inserted=2, updated=0, deleted=0)
    with lake.transaction("dev") as tx:
        tx.overwrite(CUSTOMERS, pa.table({"id": [7, 20], "v": ["x", "t"]}))
    assert shown(only(lake, "main", "dev")) == [
        ("deleted", (10, "j"), None, ()),
        ("deleted", (7, "x"), None, ()),
        ("deleted", (7, "x"), None, ()),
    ]


@pytest.mark.both_engines
def test_tables_of_one_name_that_share_nothing_are_compared_by_their_rows(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        for key in (ORDERS, CUSTOMERS):
            tx.drop_table(key)
    with lake.transaction("dev") as tx:
        tx.create_table(ORDERS, pa.schema([("id", pa.string()), ("w", pa.float32())]), primary_key=["id"])
        tx.append(ORDERS, pa.table({"id": ["2", "x"], "w": pa.array([1.5, None], pa.float32())}))
        tx.create_table(CUSTOMERS, SCHEMA)
        tx.append(CUSTOMERS, table(20, 30))
    found = {diff.key: diff for diff in lake.diff("main", "dev").tables}
    assert shown(found[ORDERS]) == [
        ("deleted", (1, "a"), None, ()),
        ("deleted", (3, "c"), None, ()),
        ("inserted", None, ("x", None), ()),
        ("updated", (2, "b"), ("2", 1.5), ("w", "v")),
    ]
    assert shown(found[CUSTOMERS]) == [("deleted", (10, "j"), None, ()), ("inserted", None, (30, "d"), ())]


def test_a_live_branch_is_compared_with_main_as_it_is_now(lake: ab.Repository) -> None:
    lake.branch_create_from("main", "dev", mode="live")
    append(lake, 30, branch="dev", key=CUSTOMERS)
    append(lake, 4)
    assert only(lake, "main", "dev").key == CUSTOMERS
    lake.branch_create_from("dev", "dev/nested")
    append(lake, 5, branch="dev/nested")
    assert shown(only(lake, "dev", "dev/nested")) == [("inserted", None, (5, "e"), ())]


def test_diff_after_a_reset_shows_the_deleted_rows(lake: ab.Repository) -> None:
    append(lake, 4)
    lake.branch_create("dev")
    lake.reset("dev", to="main~1")
    append(lake, 5, branch="dev")
    assert [row[:3] for row in shown(only(lake, "main", "dev"))] == [
        ("deleted", (4, "d"), None),
        ("inserted", None, (5, "e")),
    ]


def test_empty_tables_differ_in_their_columns_alone(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.create_table("x.none", SCHEMA)
    lake.branch_create("dev")
    with lake.transaction("dev") as tx:
        tx.overwrite("x.none", pa.table({"other": pa.array([], pa.int8())}))
    diff = only(lake, "main", "dev")
    assert [change.change for change in diff.columns] == ["added", "removed", "removed"]
    assert (diff.counts.total, diff.rows_to_compare, shown(diff)) == (0, 0, [])


def test_columns_that_differ_in_case_stay_separate(repo: ab.Repository) -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("A", pa.int64())])
    with repo.transaction() as tx:
        tx.create_table("x.t", schema, primary_key=["id"])
        tx.append("x.t", pa.table({"id": [1, 2], "a": [1, 1], "A": [2, 2]}))
    with repo.transaction() as tx:
        tx.update("x.t", {"A": "5"}, where="id = 2")
    assert shown(only(repo, "main~1")) == [("updated", (2, 1, 2), (2, 1, 5), ("A",))]
    with repo.transaction() as tx:
        tx.drop_columns("x.t", ["a"])
    assert [row[3] for row in shown(only(repo, "main~1"))] == [("a",), ("a",)]


def test_unknown_refs_and_tables_are_not_compared(lake: ab.Repository) -> None:
    with pytest.raises(NotFoundError):
        lake.diff("nowhere")
    with pytest.raises(TableNotFoundError, match=r"no table 'x\.y' on either side"):
        lake.diff("main", tables=["x.y"])
    with pytest.raises(InvalidInputError):
        lake.diff("main", tables=ORDERS)


def test_a_lost_file_is_named(lake: ab.Repository, tmp_path: Path) -> None:
    before = lake.snapshot().id
    append(lake, 4, 5)
    append(lake, 6)
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id = 4")
    deleted = list((tmp_path / "lake").rglob("_deletions/*"))
    assert deleted
    for file in deleted:
        file.unlink()
    # In another process: this one has kept what it wrote.
    command = [sys.executable, "-m", "anabranch", "diff", "main~1", "--repo", lake.uri]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "is missing" in ran.stderr
    assert lake.diff(before, "main~1").tables[0].counts.inserted == 3


def test_kinds_are_plain_words() -> None:
    assert [kind.value for kind in RowChangeKind] == ["inserted", "updated", "deleted"]
