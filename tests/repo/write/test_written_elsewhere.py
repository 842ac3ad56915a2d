"""Data files that other processes write between two transactions."""

import pickle

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    InvalidInputError,
    KeyConflictError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    WriteConflictError,
)
from anabranch.format import staging
from anabranch.format.staging import WrittenFragment
from anabranch.repo.runs.engine_access import table_writes
from anabranch.repo.write.staged_table import StagedTable
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, append, ids, nothing_changes, rows, table


def prepare(repo: ab.Repository, key: str = ORDERS, branch: str | None = None) -> StagedTable:
    """A table made ready, as another process gets it."""
    with repo.transaction(branch) as tx:
        prepared = table_writes(tx).prepare(key)
    assert tx.published is None
    return sent(prepared)


def sent(prepared: StagedTable) -> StagedTable:
    arrived: StagedTable = pickle.loads(pickle.dumps(prepared))  # noqa: S301
    return arrived


def written(prepared: StagedTable, *parts: pa.Table, for_overwrite: bool = False) -> list[WrittenFragment]:
    """What several writers leave behind, as their messages show it."""
    found = [
        f for part in parts for f in staging.write_fragments(prepared.version_ref, part, for_overwrite=for_overwrite)
    ]
    return [WrittenFragment.from_json(fragment.to_json()) for fragment in found]


@pytest.mark.s3
def test_rows_of_many_writers_are_one_commit(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    prepared = prepare(lake, branch="dev")
    fragments = written(prepared, table(4, 5), table(6))
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3]
    with lake.transaction("dev", message="many") as tx:
        table_writes(tx).append_fragments(prepared, fragments)
        assert ids(tx[ORDERS]) == [1, 2, 3, 4, 5, 6]
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4, 5, 6]
    assert ids(lake.snapshot_of("main")) == [1, 2, 3]


def test_preparing_changes_nothing(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    with nothing_changes(lake):
        prepared = prepare(lake, branch="dev")
        written(prepared, table(4))


def test_no_files_make_no_commit(lake: ab.Repository) -> None:
    prepared = prepare(lake)
    with lake.transaction() as tx:
        table_writes(tx).append_fragments(prepared, [])
    assert tx.published is None
    with lake.transaction() as tx:
        table_writes(tx).upsert_fragments(prepared, [], columns=["id", "v"])
    assert tx.published is None


def test_keys_are_checked(lake: ab.Repository) -> None:
    prepared = prepare(lake)
    for parts, message in (((table(3),), "{'id': 3}"), ((table(7), table(7)), "more than once")):
        with pytest.raises(KeyConflictError, match=message), nothing_changes(lake), lake.transaction() as tx:
            table_writes(tx).append_fragments(prepared, written(prepared, *parts))
    with lake.transaction() as tx:
        table_writes(tx).append_fragments(prepared, written(prepared, table(3)), check_keys=False)
    assert ids(lake) == [1, 2, 3, 3]


def test_an_upsert_keeps_columns_that_were_not_given(lake: ab.Repository) -> None:
    prepared = prepare(lake)
    with lake.transaction() as tx:
        table_writes(tx).upsert_fragments(prepared, written(prepared, table(3, 4, v="new")), columns=["id", "v"])
    prepared = prepare(lake)
    given = pa.table({"id": pa.array([4, 5], pa.int64())})
    with lake.transaction() as tx:
        table_writes(tx).upsert_fragments(prepared, written(prepared, given), columns=["id"])
    found = {row["id"]: row["v"] for row in rows(lake.snapshot()[ORDERS])}
    assert found == {1: "a", 2: "b", 3: "new", 4: "new", 5: None}


def test_an_overwrite_brings_its_columns(lake: ab.Repository) -> None:
    prepared = prepare(lake)
    other = pa.table({"id": pa.array([9], pa.int64()), "w": [1.5]})
    with lake.transaction() as tx:
        table_writes(tx).overwrite_fragments(
            prepared, written(prepared, other, for_overwrite=True), schema=other.schema
        )
    assert rows(lake.snapshot()[ORDERS]) == [{"id": 9, "w": 1.5}]
    prepared = prepare(lake)
    twice = [table(1), table(1)]
    with pytest.raises(KeyConflictError), nothing_changes(lake), lake.transaction() as tx:
        table_writes(tx).overwrite_fragments(prepared, written(prepared, *twice, for_overwrite=True), schema=SCHEMA)


def test_a_new_table(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        prepared = sent(table_writes(tx).prepare_new("in_c_sales.fresh", SCHEMA, primary_key=["id"]))
        with pytest.raises(TableExistsError):
            table_writes(tx).prepare_new(ORDERS, SCHEMA)
        with pytest.raises(TableNotFoundError):
            table_writes(tx).prepare("in_c_sales.fresh")
    assert "in_c_sales.fresh" not in lake.snapshot_of("main")
    with lake.transaction() as tx:
        table_writes(tx).append_fragments(prepared, written(prepared, table(1), table(2)))
    assert ids(lake.snapshot_of("main"), "in_c_sales.fresh") == [1, 2]
    with pytest.raises(WriteConflictError, match="created, dropped or replaced"), lake.transaction() as tx:
        table_writes(tx).append_fragments(prepared, written(prepared, table(3)))


def test_append_is_published_after_concurrent_commits(lake: ab.Repository) -> None:
    prepared = prepare(lake)
    fragments = written(prepared, table(4))
    append(lake, 5)
    append(lake, 30, key=CUSTOMERS)
    with lake.transaction() as tx:
        table_writes(tx).append_fragments(prepared, fragments)
    assert ids(lake) == [1, 2, 3, 4, 5]
    assert ids(lake, CUSTOMERS) == [10, 20, 30]


def test_refused_files_are_not_published_by_a_later_commit(lake: ab.Repository) -> None:
    """A caller that catches the conflict and commits the rest must not undo the commit of the other writer."""
    prepared = prepare(lake)
    fragments = written(prepared, table(9), for_overwrite=True)
    append(lake, 4)
    with lake.transaction() as tx:
        with pytest.raises(WriteConflictError):
            table_writes(tx).overwrite_fragments(prepared, fragments, schema=SCHEMA)
        assert ids(tx[ORDERS]) == [1, 2, 3, 4]
        tx.append(CUSTOMERS, table(30))
        tx.append(ORDERS, table(5))
    assert ids(lake) == [1, 2, 3, 4, 5]
    assert ids(lake, CUSTOMERS) == [10, 20, 30]


def test_two_first_writers_of_a_branch_both_get_in(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    first, second = prepare(lake, branch="dev"), prepare(lake, branch="dev")
    assert first.version_ref.home != second.version_ref.home
    for prepared, number in ((first, 4), (second, 5)):
        with lake.transaction("dev") as tx:
            table_writes(tx).append_fragments(prepared, written(prepared, table(number)))
    assert ids(lake.snapshot_of("dev")) == [1, 2, 3, 4, 5]


def test_concurrent_equal_key_is_detected(lake: ab.Repository) -> None:
    prepared = prepare(lake)
    fragments = written(prepared, table(4))
    append(lake, 4)
    with pytest.raises(KeyConflictError, match=r"\{'id': 4\}"), lake.transaction() as tx:
        table_writes(tx).append_fragments(prepared, fragments)
    assert ids(lake) == [1, 2, 3, 4]


def test_what_hangs_on_the_old_state_is_a_conflict(lake: ab.Repository) -> None:
    prepared = prepare(lake)
    fragments = written(prepared, table(9), for_overwrite=True)
    append(lake, 4)
    with pytest.raises(WriteConflictError), lake.transaction() as tx:
        table_writes(tx).overwrite_fragments(prepared, fragments, schema=SCHEMA)
    prepared = prepare(lake)
    fragments = written(prepared, table(9))
    with lake.transaction() as tx:
        tx.add_columns(ORDERS, {"w": "id * 2"})
    with pytest.raises(WriteConflictError, match="columns of the table were changed"), lake.transaction() as tx:
        table_writes(tx).append_fragments(prepared, fragments)
    with lake.transaction() as tx:
        tx.drop_table(ORDERS)
    with pytest.raises(WriteConflictError, match="created, dropped or replaced"), lake.transaction() as tx:
        table_writes(tx).append_fragments(prepared, fragments)


def test_files_of_another_table_or_branch_are_refused(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    orders, customers = prepare(lake), prepare(lake, CUSTOMERS)
    with pytest.raises(SchemaMismatchError, match="were written for"), nothing_changes(lake), lake.transaction() as tx:
        table_writes(tx).append_fragments(orders, written(customers, table(7)))


def test_a_table_is_taken_in_before_other_changes_of_it(lake: ab.Repository) -> None:
    prepared = prepare(lake)
    tx = lake.transaction()
    tx.append(ORDERS, table(8))
    with pytest.raises(InvalidInputError, match=r"has changed table 'in_c_sales\.orders' already"), tx:
        table_writes(tx).append_fragments(prepared, written(prepared, table(9)))
    with lake.transaction() as tx:
        table_writes(tx).append_fragments(prepared, written(prepared, table(9)))
        tx.append(ORDERS, table(8))
        tx.append(CUSTOMERS, table(30))
    assert ids(lake) == [1, 2, 3, 8, 9]


def test_an_upsert_needs_a_key(lake: ab.Repository) -> None:
    prepared = prepare(lake, CUSTOMERS)
    with pytest.raises(InvalidInputError, match="has no primary key"), lake.transaction() as tx:
        table_writes(tx).upsert_fragments(prepared, written(prepared, table(1)), columns=["id", "v"])


def test_a_stream_without_rows_is_appended_to_a_keyed_table(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, pa.RecordBatchReader.from_batches(SCHEMA, []))
    assert tx.published is None
