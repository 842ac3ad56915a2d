"""Transactions: one commit over many tables, or none."""

import gc
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import (
    InvalidInputError,
    KeyConflictError,
    TableExistsError,
    TableNotFoundError,
)
from tests.repo.conftest import (
    CUSTOMERS,
    ORDERS,
    SCHEMA,
    another,
    append,
    data_files,
    entry,
    ids,
    nothing_changes,
    raw,
    rows,
    table,
)


@pytest.mark.s3
def test_one_commit_changes_several_tables_at_once(lake: ab.Repository) -> None:
    before = lake.head_commit_id_for_branch("main")
    with lake.transaction(message="both") as tx:
        tx.append(ORDERS, table(4))
        tx.delete(CUSTOMERS, "id = 10")
        tx.create_table("out.report", SCHEMA)
    (newest, older) = lake.list_commits(limit=2)
    assert tx.published == newest
    assert newest.tables == (CUSTOMERS, ORDERS, "out.report")
    assert (newest.parent_commit_id, older.graph_commit_id) == (before, before)
    assert (ids(lake), ids(lake, CUSTOMERS), ids(lake, "out.report")) == ([1, 2, 3, 4], [20], [])


def test_several_operations_on_one_table_make_one_commit(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4, 5))
        assert tx.update(ORDERS, {"v": "'new'"}, where="id = 4") == 1
        assert tx.delete(ORDERS, "id IN (1, 5)") == 2
        tx.upsert(ORDERS, table(2, 6, v="up"))
        tx.add_columns(ORDERS, {"w": "id * 2"})
        tx.append(ORDERS, pa.table({"id": [7], "v": ["g"], "w": [0]}))
    assert len(lake.list_commits()) == 3
    found = lake.snapshot()[ORDERS]
    assert rows(found) == [
        {"id": 2, "v": "up", "w": 4},
        {"id": 3, "v": "c", "w": 6},
        {"id": 4, "v": "new", "w": 8},
        {"id": 6, "v": "up", "w": 12},
        {"id": 7, "v": "g", "w": 0},
    ]
    assert found.count_rows() == 5
    assert rows(raw(lake)) == rows(found)


def test_reads_inside_see_own_writes_and_no_other_process_does(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        tx.create_table("out.report", SCHEMA)
        tx.drop_table(CUSTOMERS)
        assert ids(tx[ORDERS]) == [1, 2, 3, 4]
        assert tx[ORDERS].count_rows() == 4
        assert tx.tables == (ORDERS, "out.report")
        assert "out.report" in tx
        assert CUSTOMERS not in tx
        with pytest.raises(TableNotFoundError, match=CUSTOMERS):
            tx[CUSTOMERS]
        assert ids(another(lake)) == [1, 2, 3]
        assert ids(lake) == [1, 2, 3]
        assert raw(lake).count_rows() == 3
        assert "out.report" not in another(lake).snapshot()


def test_reads_inside_keep_to_the_snapshot_it_began_with(lake: ab.Repository) -> None:
    tx = lake.transaction()
    append(another(lake), 10)
    assert ids(tx[ORDERS]) == [1, 2, 3]


def test_an_exception_leaves_the_repository_as_it_was(lake: ab.Repository) -> None:
    def fail() -> None:
        with lake.transaction() as tx:
            tx.append(ORDERS, table(4))
            tx.drop_table(CUSTOMERS)
            tx.create_table("out.report", SCHEMA)
            raise ZeroDivisionError

    with nothing_changes(lake), pytest.raises(ZeroDivisionError):
        fail()
    assert ids(lake) == [1, 2, 3]
    assert sorted(lake.snapshot_of("main")) == [CUSTOMERS, ORDERS]


def test_a_failed_operation_inside_can_be_caught_and_the_rest_is_published(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        with pytest.raises(KeyConflictError):
            tx.append(ORDERS, table(4, 5))
        tx.append(ORDERS, table(6))
    assert ids(lake) == [1, 2, 3, 4, 6]


def test_an_empty_transaction_makes_no_commit(lake: ab.Repository) -> None:
    with nothing_changes(lake):
        with lake.transaction() as tx:
            pass
        assert tx.published is None
        with lake.transaction() as tx:
            ids(tx[ORDERS])


def test_operations_that_change_nothing_make_no_commit(lake: ab.Repository) -> None:
    with nothing_changes(lake), lake.transaction() as tx:
        tx.append(ORDERS, table())
        assert tx.delete(ORDERS, "id > 100") == 0
        assert tx.update(ORDERS, {"v": "'x'"}, where="id > 100") == 0
        tx.upsert(ORDERS, table())
        tx.drop_columns(ORDERS, [])
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="v", nullable=True)])
        tx.create_table("out.report", SCHEMA)
        tx.drop_table("out.report")
    assert tx.published is None


def test_a_transaction_that_ended_is_refused(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
    with nothing_changes(lake):
        for use in (
            lambda: tx.append(ORDERS, table(5)),
            lambda: tx.drop_table(ORDERS),
            lambda: tx.create_table("out.report", SCHEMA),
            lambda: tx[ORDERS],
            lambda: tx.tables,
            tx.commit,
        ):
            with pytest.raises(InvalidInputError, match=r"has ended: .*; begin another transaction"):
                use()


def test_a_transaction_whose_block_failed_is_refused(lake: ab.Repository) -> None:
    with pytest.raises(ZeroDivisionError), lake.transaction() as tx:
        raise ZeroDivisionError
    with pytest.raises(InvalidInputError, match="has ended"):
        tx.append(ORDERS, table(4))


def test_publishing_inside_the_block_publishes_once(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        tx.commit()
    assert ids(lake) == [1, 2, 3, 4]
    assert len(lake.list_commits()) == 3


def test_an_abandoned_transaction_leaves_nothing_and_blocks_nothing(lake: ab.Repository) -> None:
    tx = lake.transaction()
    tx.append(ORDERS, table(4))
    append(lake, 5)
    with pytest.warns(ResourceWarning, match="dropped with changes"):
        del tx
    gc.collect()
    append(lake, 6)
    assert ids(lake) == [1, 2, 3, 5, 6]


def test_message_kind_metadata_and_actor_are_recorded(lake: ab.Repository) -> None:
    with lake.transaction(message="Load é\n\nthe rest", kind="load", metadata={"run": "7"}) as tx:
        tx.add_metadata({"ticket": "Ü-1"})
        tx.append(ORDERS, table(4))
    (commit, *_) = another(lake).list_commits()
    assert commit.message == "Load é\n\nthe rest"
    assert commit.kind == "load"
    assert commit.metadata == {"run": "7", "ticket": "Ü-1"}
    assert commit.actor_id == "ada"


# Primary keys


@pytest.mark.parametrize("operation", ["append", "upsert", "overwrite"])
def test_a_null_in_the_key_is_refused(lake: ab.Repository, operation: str) -> None:
    data = pa.table({"id": pa.array([7, None], pa.int64()), "v": ["x", "y"]})
    with (
        nothing_changes(lake),
        pytest.raises(KeyConflictError, match=r"'id'.*; fill"),
        lake.transaction() as tx,
    ):
        getattr(tx, operation)(ORDERS, data)


@pytest.mark.parametrize("operation", ["append", "upsert", "overwrite"])
def test_a_key_twice_in_the_data_is_refused(lake: ab.Repository, operation: str) -> None:
    with (
        nothing_changes(lake),
        pytest.raises(KeyConflictError, match="keep one row for each key"),
        lake.transaction() as tx,
    ):
        getattr(tx, operation)(ORDERS, table(7, 8, 7))


def test_appending_a_key_that_is_there_is_refused_by_name(lake: ab.Repository) -> None:
    with (
        nothing_changes(lake),
        pytest.raises(KeyConflictError, match=r"1 key already exists in the table, for example \{'id': 2\}"),
        lake.transaction() as tx,
    ):
        tx.append(ORDERS, table(2, 9))


def test_appending_a_key_that_this_transaction_wrote_is_refused(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, table(4))
        with pytest.raises(KeyConflictError):
            tx.append(ORDERS, table(4))


def test_a_key_that_this_transaction_deleted_can_be_appended(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id = 2")
        tx.append(ORDERS, table(2, v="again"))
    assert {"id": 2, "v": "again"} in rows(lake.snapshot()[ORDERS])


def test_without_key_checks_the_table_is_not_read(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, table(2), check_keys=False)
    assert ids(lake) == [1, 2, 2, 3]


def test_without_key_checks_the_data_must_still_have_good_keys(lake: ab.Repository) -> None:
    for data in (table(7, 7), pa.table({"id": pa.array([None], pa.int64()), "v": ["x"]})):
        for given in (data, data.to_reader()):
            with nothing_changes(lake), pytest.raises(KeyConflictError), lake.transaction() as tx:
                tx.append(ORDERS, given, check_keys=False)


def test_composite_keys_are_compared_whole(repo: ab.Repository) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
    with repo.transaction() as tx:
        tx.create_table("s.t", schema, primary_key=["a", "b"])
        tx.append("s.t", pa.table({"a": [1, 1], "b": ["x", "y"], "v": [1, 2]}))
    assert repo.snapshot()["s.t"].primary_key == ("a", "b")
    with repo.transaction() as tx:
        tx.append("s.t", pa.table({"a": [2], "b": ["x"], "v": [3]}))
        tx.upsert("s.t", pa.table({"a": [1, 3], "b": ["y", "y"], "v": [20, 4]}))
    assert {(r["a"], r["b"], r["v"]) for r in rows(repo.snapshot()["s.t"])} == {
        (1, "x", 1),
        (1, "y", 20),
        (2, "x", 3),
        (3, "y", 4),
    }
    with pytest.raises(KeyConflictError, match=r"\{'a': 1, 'b': 'x'\}"), repo.transaction() as tx:
        tx.append("s.t", pa.table({"a": [1], "b": ["x"], "v": [9]}))


def test_upsert_by_other_columns_keeps_the_primary_key_unique(lake: ab.Repository) -> None:
    with nothing_changes(lake), pytest.raises(KeyConflictError), lake.transaction() as tx:
        tx.upsert(ORDERS, pa.table({"id": [1], "v": ["new"]}), keys=["v"])
    with nothing_changes(lake), pytest.raises(KeyConflictError, match="'id'"), lake.transaction() as tx:
        tx.upsert(ORDERS, pa.table({"v": ["new"]}), keys=["v"])
    with lake.transaction() as tx:
        tx.upsert(ORDERS, pa.table({"id": [9], "v": ["a"]}), keys=["v"])
    assert ids(lake) == [2, 3, 9]


def test_upsert_without_a_key_asks_for_one(lake: ab.Repository) -> None:
    with (
        pytest.raises(InvalidInputError, match=r"'in_c_sales\.customers' has no primary key"),
        lake.transaction() as tx,
    ):
        tx.upsert(CUSTOMERS, table(1))
    with lake.transaction() as tx:
        tx.upsert(CUSTOMERS, table(10, 30, v="up"), keys=["id"])
    assert rows(lake.snapshot()[CUSTOMERS]) == [
        {"id": 10, "v": "up"},
        {"id": 20, "v": "t"},
        {"id": 30, "v": "up"},
    ]


def test_the_primary_key_survives_renaming_its_column(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="id", name="number")])
    assert lake.snapshot()[ORDERS].primary_key == ("number",)
    with pytest.raises(KeyConflictError), lake.transaction() as tx:
        tx.append(ORDERS, pa.table({"number": [1], "v": ["x"]}))


def test_columns_of_the_primary_key_are_kept(lake: ab.Repository) -> None:
    with pytest.raises(InvalidInputError, match="'id' is part of the primary key"), lake.transaction() as tx:
        tx.drop_columns(ORDERS, ["id"])
    with pytest.raises(InvalidInputError, match="'id' is part of the primary key"), lake.transaction() as tx:
        tx.update(ORDERS, {"id": "id + 1"}, where="true")
    with pytest.raises(InvalidInputError, match=r"'id'.*cannot be a key"), lake.transaction() as tx:
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="id", type=pa.float64())])
    with pytest.raises(InvalidInputError, match=r"'id'.*cannot be a key"), lake.transaction() as tx:
        tx.overwrite(ORDERS, pa.table({"id": [1.5]}))
    assert ids(lake) == [1, 2, 3]


# What data may be


def test_data_may_be_anything_that_arrow_reads(lake: ab.Repository, tmp_path: Path) -> None:
    pq.write_table(table(16), tmp_path / "rows.parquet")
    with lake.transaction() as tx:
        tx.append(ORDERS, table(10))
        tx.append(ORDERS, table(11).to_batches()[0])
        tx.append(ORDERS, table(12).to_reader())
        tx.append(ORDERS, pd.DataFrame({"id": [13], "v": ["p"]}))
        tx.append(ORDERS, pl.DataFrame({"id": [14], "v": ["p"]}))
        tx.append(ORDERS, pads.dataset(table(15)))
        tx.append(ORDERS, pads.dataset(tmp_path / "rows.parquet"))
        tx.append(ORDERS, pads.dataset(table(17)).scanner())
    assert ids(lake) == [1, 2, 3, *range(10, 18)]
    with lake.transaction() as tx:
        tx.upsert(ORDERS, table(1, v="r").to_reader())
        tx.upsert(ORDERS, pl.DataFrame({"id": [2], "v": ["r"]}))
        tx.overwrite(CUSTOMERS, pd.DataFrame({"id": [5], "v": ["r"]}))
    assert [row["v"] for row in rows(lake.snapshot()[ORDERS])][:2] != ["a", "b"]
    assert ids(lake, CUSTOMERS) == [5]


def test_keys_of_streams_are_checked_too(lake: ab.Repository) -> None:
    for stream in (table(2).to_reader(), table(8, 8).to_reader(), pads.dataset(table(3))):
        with nothing_changes(lake), pytest.raises(KeyConflictError), lake.transaction() as tx:
            tx.append(ORDERS, stream)
    with nothing_changes(lake), pytest.raises(KeyConflictError), lake.transaction() as tx:
        tx.overwrite(ORDERS, table(8, 8).to_reader())


def test_a_stream_that_breaks_halfway_changes_nothing(lake: ab.Repository) -> None:
    def batches() -> object:
        yield table(7).to_batches()[0]
        raise ZeroDivisionError("the source broke")

    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    with nothing_changes(lake), pytest.raises(ZeroDivisionError, match="the source broke"), lake.transaction() as tx:
        tx.append(ORDERS, reader)


def test_columns_that_are_missing_become_null_and_integers_widen(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, pa.table({"id": pa.array([9], pa.int8())}))
    assert rows(lake.snapshot()[ORDERS])[-1] == {"id": 9, "v": None}


# Tables


def test_rename_keeps_rows_files_and_history(lake: ab.Repository) -> None:
    before = entry(lake)
    files = data_files(lake)
    with lake.transaction() as tx:
        tx.rename_table(ORDERS, "archive.orders_2025")
    assert sorted(lake.snapshot()) == ["archive.orders_2025", CUSTOMERS]
    assert entry(lake, "archive.orders_2025").version == before.version
    assert data_files(lake) == files
    assert ids(lake, "archive.orders_2025") == [1, 2, 3]
    with pytest.raises(KeyConflictError), lake.transaction() as tx:
        tx.append("archive.orders_2025", table(1))
    append(lake, 4, key="archive.orders_2025")
    assert ids(lake.snapshot_of("main~2")) == [1, 2, 3]
    assert raw(lake, "archive.orders_2025").count_rows() == 4


def test_a_renamed_table_is_written_under_its_new_name(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.rename_table(ORDERS, "s.renamed")
        tx.append("s.renamed", table(4))
        tx.rename_table("s.renamed", "s.again")
        tx.delete("s.again", "id = 1")
        assert tx.tables == (CUSTOMERS, "s.again")
    assert sorted(lake.snapshot()) == [CUSTOMERS, "s.again"]
    assert ids(lake, "s.again") == [2, 3, 4]


def test_a_table_renamed_and_renamed_back_is_not_a_change(lake: ab.Repository) -> None:
    with nothing_changes(lake), lake.transaction() as tx:
        tx.rename_table(ORDERS, "s.renamed")
        tx.rename_table("s.renamed", ORDERS)


def test_a_new_table_may_take_the_name_of_a_renamed_one(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.rename_table(ORDERS, "s.old")
        tx.create_table(ORDERS, pa.schema([("x", pa.int32())]))
        tx.append(ORDERS, pa.table({"x": [1]}))
    append(lake, 4, key="s.old")
    assert rows(lake.snapshot()[ORDERS]) == [{"x": 1}]
    assert ids(lake, "s.old") == [1, 2, 3, 4]
    assert entry(lake).dataset != entry(lake, "s.old").dataset
    assert rows(raw(lake)) == [{"x": 1}]
    assert raw(lake, "s.old").count_rows() == 4


def test_two_tables_can_swap_names(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.rename_table(ORDERS, "s.between")
        tx.rename_table(CUSTOMERS, ORDERS)
        tx.rename_table("s.between", CUSTOMERS)
    assert (ids(lake), ids(lake, CUSTOMERS)) == ([10, 20], [1, 2, 3])
    assert lake.list_commits(limit=1)[0].tables == (CUSTOMERS, ORDERS)


def test_a_dropped_table_stays_in_older_commits(lake: ab.Repository) -> None:
    before = lake.head_commit_id_for_branch("main")
    with lake.transaction() as tx:
        tx.drop_table(ORDERS)
    assert ORDERS not in lake.snapshot()
    assert ids(lake.snapshot_of(before)) == [1, 2, 3]
    with pytest.raises(TableNotFoundError, match=ORDERS):
        lake.snapshot()[ORDERS]


@pytest.mark.parametrize("in_one", [True, False], ids=["one commit", "two commits"])
def test_a_dropped_table_can_be_made_again_with_another_schema(lake: ab.Repository, *, in_one: bool) -> None:
    before = lake.head_commit_id_for_branch("main")
    other = pa.schema([("id", pa.string()), ("w", pa.float64())])
    with lake.transaction() as tx:
        tx.drop_table(ORDERS)
        if in_one:
            tx.create_table(ORDERS, other)
    if not in_one:
        with lake.transaction() as tx:
            tx.create_table(ORDERS, other)
    assert lake.snapshot()[ORDERS].schema.names == ["id", "w"]
    assert lake.snapshot()[ORDERS].primary_key == ()
    with lake.transaction() as tx:
        tx.append(ORDERS, pa.table({"id": ["x"], "w": [1.5]}))
    assert rows(lake.snapshot()[ORDERS]) == [{"id": "x", "w": 1.5}]
    assert rows(raw(lake)) == [{"id": "x", "w": 1.5}]
    assert ids(lake.snapshot_of(before)) == [1, 2, 3]


def test_a_table_cannot_be_made_or_renamed_over_another(lake: ab.Repository) -> None:
    with nothing_changes(lake):
        with pytest.raises(TableExistsError, match=ORDERS), lake.transaction() as tx:
            tx.create_table(ORDERS, SCHEMA)
        with pytest.raises(TableExistsError, match=ORDERS), lake.transaction() as tx:
            tx.rename_table(CUSTOMERS, ORDERS)


def test_operations_on_a_table_that_is_not_there_are_refused(lake: ab.Repository) -> None:
    with nothing_changes(lake), lake.transaction() as tx:
        for use in (
            lambda: tx.drop_table("s.none"),
            lambda: tx.rename_table("s.none", "s.other"),
            lambda: tx.append("s.none", table(1)),
            lambda: tx.upsert("s.none", table(1)),
            lambda: tx.update("s.none", {"v": "1"}),
            lambda: tx.delete("s.none", "true"),
            lambda: tx.overwrite("s.none", table(1)),
            lambda: tx.add_columns("s.none", {"w": "1"}),
            lambda: tx.alter_columns("s.none", []),
            lambda: tx.drop_columns("s.none", ["v"]),
        ):
            with pytest.raises(TableNotFoundError, match=r"'s\.none' on branch 'main'; create it"):
                use()


# Columns


def test_columns_are_added_altered_and_dropped(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.add_columns(ORDERS, {"w": "id * 10", "n": "length(v)"})
        tx.add_columns(ORDERS, pa.schema([("empty", pa.date32())]))
        tx.alter_columns(ORDERS, [ab.ColumnChange(path="v", name="letter"), ab.ColumnChange(path="w", type=pa.int16())])
        tx.drop_columns(ORDERS, ["n"])
    found = lake.snapshot()[ORDERS]
    assert found.schema.names == ["id", "letter", "w", "empty"]
    assert found.schema.field("w").type == pa.int16()
    assert rows(found)[0] == {"id": 1, "letter": "a", "w": 10, "empty": None}
    assert rows(raw(lake)) == rows(found)
    assert lake.snapshot_of("main~1")[ORDERS].schema == SCHEMA


def test_overwrite_may_bring_other_columns(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.overwrite(ORDERS, pa.table({"id": [7], "z": [True]}))
    assert rows(lake.snapshot()[ORDERS]) == [{"id": 7, "z": True}]
    assert rows(raw(lake)) == [{"id": 7, "z": True}]
    assert lake.snapshot()[ORDERS].primary_key == ("id",)


def test_overwrite_builds_the_indices_again(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.index(ORDERS, "id")
        tx.index(ORDERS, "v", type="bitmap", name="words")
    lake.overwrite(ORDERS, table(7, 8))
    found = [(each.name, each.columns, str(each.kind), each.covered_rows) for each in lake.table(ORDERS).indices]
    assert found == [("id_idx", ("id",), "btree", 2), ("words", ("v",), "bitmap", 2)]
    lake.overwrite(ORDERS, pa.table({"id": pa.array([9], pa.int64())}))  # the column v is gone, and its index with it
    assert [each.name for each in lake.table(ORDERS).indices] == ["id_idx"]


def test_column_of_another_type_keeps_its_index(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.index(CUSTOMERS, "id")
        tx.index(CUSTOMERS, "v", type="ngram")
    with lake.transaction() as tx:
        changes = [ab.ColumnChange(path="id", name="number", type=pa.int32()), ab.ColumnChange(path="v", name="w")]
        tx.alter_columns(CUSTOMERS, changes)
    found = [(each.name, each.columns, each.covered_rows) for each in lake.table(CUSTOMERS).indices]
    assert sorted(found) == [("id_idx", ("number",), 2), ("v_idx", ("w",), 2)]
    # An index of kind ngram is of text only.
    lake.overwrite(CUSTOMERS, pa.table({"number": pa.array([1], pa.int32()), "w": pa.array([2], pa.int32())}))
    assert [each.name for each in lake.table(CUSTOMERS).indices] == ["id_idx"]
