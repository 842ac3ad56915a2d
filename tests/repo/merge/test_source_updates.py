"""Rows that only the source updated: they are taken as they are, and keep the row ids of the target."""

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import MergeConflictError
from anabranch.repo.history import memory_comparer

KEY = "s.t"
SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string())])


def rows(*found: tuple[int, int, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in found], schema=SCHEMA)


@pytest.fixture
def forked(repo: ab.Repository) -> ab.Repository:
    with repo.transaction() as tx:
        tx.create_table(KEY, SCHEMA, primary_key=["id"])
        tx.append(KEY, rows(*((number, 0, "base") for number in range(8))))
    repo.branch_create("dev")
    return repo


def upsert(repo: ab.Repository, branch: str, *found: tuple[int, int, str]) -> None:
    with repo.transaction(branch) as tx:
        tx.upsert(KEY, rows(*found))


def contents(repo: ab.Repository) -> dict[int, tuple[int, str]]:
    return {row["id"]: (row["a"], row["b"]) for row in repo.snapshot_of("main")[KEY].to_arrow().to_pylist()}


def row_ids(repo: ab.Repository) -> dict[int, int]:
    dataset = repo.snapshot_of("main")[KEY].version_ref.open()
    found = dataset.scanner(columns=["id"], with_row_id=True).to_table().to_pylist()
    return {row["id"]: row["_rowid"] for row in found}


@pytest.fixture
def unmatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the rows of four sides are matched."""
    monkeypatch.setattr(memory_comparer.MatchedRows, "__init__", lambda *_: pytest.fail("four sides were matched"))


@pytest.mark.usefixtures("unmatched")
def test_rows_of_the_source_are_taken_in_any_order(forked: ab.Repository) -> None:
    upsert(forked, "dev", (6, 1, "dev"), (2, 1, "dev"), (4, 1, "dev"))
    upsert(forked, "main", (5, 2, "main"), (1, 2, "main"))
    before = row_ids(forked)
    result = forked.merge("dev", into="main")
    assert [table.counts.updated for table in result.plan.tables] == [3]
    changed = {2: (1, "dev"), 4: (1, "dev"), 6: (1, "dev"), 1: (2, "main"), 5: (2, "main")}
    assert contents(forked) == {number: changed.get(number, (0, "base")) for number in range(8)}
    assert row_ids(forked) == before


@pytest.mark.usefixtures("unmatched")
def test_rows_written_again_without_a_change_are_not_counted(forked: ab.Repository) -> None:
    upsert(forked, "dev", (2, 0, "base"), (3, 1, "dev"))
    upsert(forked, "main", (5, 2, "main"))
    result = forked.merge("dev", into="main")
    assert [table.counts.updated for table in result.plan.tables] == [1]
    assert contents(forked) == {**dict.fromkeys(range(8), (0, "base")), 3: (1, "dev"), 5: (2, "main")}


@pytest.mark.usefixtures("unmatched")
def test_dry_run_counts_the_same_rows(forked: ab.Repository) -> None:
    upsert(forked, "dev", (2, 0, "base"), (3, 1, "dev"))
    upsert(forked, "main", (5, 2, "main"))
    [table] = forked.merge("dev", into="main", dry_run=True).plan.tables
    assert (table.counts.inserted, table.counts.updated, table.counts.deleted) == (0, 1, 0)


def test_a_row_deleted_and_another_inserted_are_not_an_update(forked: ab.Repository) -> None:
    with forked.transaction("dev") as tx:
        tx.delete(KEY, "id = 3")
        tx.append(KEY, rows((30, 1, "dev")))
    upsert(forked, "main", (5, 2, "main"))
    result = forked.merge("dev", into="main")
    [counts] = [table.counts for table in result.plan.tables]
    assert (counts.inserted, counts.updated, counts.deleted) == (1, 0, 1)
    assert contents(forked) == {
        **{number: (0, "base") for number in range(8) if number != 3},
        5: (2, "main"),
        30: (1, "dev"),
    }


def test_a_row_that_both_sides_updated_is_a_conflict(forked: ab.Repository) -> None:
    upsert(forked, "main", (5, 2, "main"))
    with forked.transaction("dev") as tx:
        tx.delete(KEY, "id = 5")
        tx.append(KEY, rows((5, 1, "dev")))
    with pytest.raises(MergeConflictError):
        forked.merge("dev", into="main")
