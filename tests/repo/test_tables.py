"""Tables of a repository by their keys: `repo.table`, `repo[key]`, and other libraries that read them."""

import sys
from collections.abc import Iterator

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import testing
from anabranch.errors import InvalidInputError, InvalidNameError, MissingDependencyError, TableNotFoundError
from anabranch.repo.snapshot import Table
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, another, append, data_files, ids, table


@pytest.mark.s3
def test_a_table_is_read_by_its_key(lake: ab.Repository) -> None:
    orders = lake[ORDERS]
    assert isinstance(orders, Table)
    assert (orders.key, len(orders), orders.columns, orders.schema) == (ORDERS, 3, ("id", "v"), SCHEMA)
    assert orders.to_arrow() == table(1, 2, 3)
    assert lake.table(ORDERS).to_arrow() == table(1, 2, 3)


def test_a_table_is_read_at_any_ref(lake: ab.Repository) -> None:
    lake.branch_create("dev")
    append(lake, 4, branch="dev")
    assert [len(lake.table(ORDERS, ref)) for ref in ("main", "dev", "dev~1")] == [3, 4, 3]
    assert len(lake.table(ORDERS, ref="dev")) == 4
    with pytest.raises(TableNotFoundError):
        lake.table(ORDERS, "main~1")


def test_a_table_without_a_ref_is_that_of_the_bound_branch_as_it_is_now(lake: ab.Repository) -> None:
    before, snapshot = lake[ORDERS], lake.snapshot()
    append(another(lake), 4)
    assert lake.snapshot() is snapshot, "a snapshot stays"
    assert ids(lake[ORDERS]) == [1, 2, 3, 4]
    assert ids(lake.table(ORDERS)) == [1, 2, 3, 4]
    assert ids(before) == [1, 2, 3], "and so does a table"
    lake.branch_create("dev")
    append(lake, 5, branch="dev")
    lake.sync_branch("dev")
    assert ids(lake[ORDERS]) == [1, 2, 3, 4, 5]


def test_tables_lists_the_keys_of_a_ref(lake: ab.Repository) -> None:
    assert lake.tables() == [CUSTOMERS, ORDERS]
    assert lake.tables("main~1") == []
    assert list(lake) == [CUSTOMERS, ORDERS]
    assert ORDERS in lake
    assert "s.none" not in lake
    assert 7 not in lake


def test_wrong_keys_and_refs_are_refused(lake: ab.Repository) -> None:
    with pytest.raises(KeyError):
        lake["s.none"]
    with pytest.raises(InvalidNameError, match="'orders' has no bucket"):
        lake["orders"]
    with pytest.raises(InvalidNameError, match="ref"):
        lake.table(ORDERS, "")


def test_head_reads_the_first_rows(lake: ab.Repository) -> None:
    orders = lake[ORDERS]
    assert orders.head() == table(1, 2, 3)
    assert orders.head(2) == table(1, 2)
    assert orders.head(n=0) == SCHEMA.empty_table()
    with pytest.raises(InvalidInputError, match="limit -1 is negative"):
        orders.head(-1)


@pytest.mark.s3
def test_arrow_polars_and_duckdb_read_a_table_directly(lake: ab.Repository) -> None:
    append(lake, 4, 5)
    orders = lake[ORDERS]
    expected = table(1, 2, 3, 4, 5)
    assert pa.table(orders) == expected
    assert pa.RecordBatchReader.from_stream(orders).read_all() == expected
    assert pl.DataFrame(orders).rows() == pl.DataFrame(expected).rows()
    with duckdb.connect() as connection:
        found = connection.sql("SELECT max(id), count(*), any_value(v) FILTER (WHERE id = 4) FROM orders").fetchall()
    assert found == [(5, 5, "d")]


def test_a_stream_is_cast_to_the_schema_that_its_reader_requests(lake: ab.Repository) -> None:
    wanted = pa.schema([("id", pa.float64()), ("v", pa.large_string())])
    assert pa.table(lake[ORDERS], schema=wanted).schema == wanted


def test_a_table_is_written_to_another_one(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.create_table("s.copy", SCHEMA)
        tx.append("s.copy", lake[ORDERS])
    assert ids(lake, "s.copy") == [1, 2, 3]


@pytest.mark.local
def test_a_stream_reads_files_as_they_are_requested(lake: ab.Repository) -> None:
    """Neither opening a stream nor its first batch reads the files of later rows: they are missing here."""
    before = data_files(lake)
    append(lake, 4, 5)
    (later,) = data_files(lake) - before
    testing.store_of(lake).delete(later)
    reader = pa.RecordBatchReader.from_stream(lake[ORDERS])
    assert reader.schema == SCHEMA
    assert reader.read_next_batch() == table(1, 2, 3).to_batches()[0]
    with pytest.raises((pa.ArrowException, OSError, ab.AnabranchError)):
        reader.read_next_batch()


def test_every_read_of_a_stream_begins_at_the_first_row(lake: ab.Repository) -> None:
    orders = lake[ORDERS]

    def batches() -> Iterator[pa.RecordBatch]:
        return iter(pa.RecordBatchReader.from_stream(orders))

    assert pa.Table.from_batches(batches()) == pa.Table.from_batches(batches()) == table(1, 2, 3)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named_with_the_way_out(
    lake: ab.Repository, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingDependencyError, match=f"{library} is not installed; run 'pip install {library}', or"):
        getattr(lake[ORDERS], f"to_{library}")()


def test_lists_are_lists(lake: ab.Repository) -> None:
    lake.tag_create("v1")
    lake.branch_create_from("main", "live", mode="live")
    found = (
        lake.tables(),
        lake.list_commits(),
        lake.branch_list(),
        lake.tag_list(),
        lake.run_list(),
        lake.reflog(),
        lake.entity_history(ORDERS, 1),
        lake.branch_drift("live"),
        lake.list_external_writes(),
        lake.clone_list(),
    )
    assert all(isinstance(one, list) for one in found)


def test_new_type_of_a_column_without_nulls_whose_deleted_rows_had_nulls(repo: ab.Repository) -> None:
    with repo.transaction() as tx:
        tx.create_table("s.t", pa.schema([("id", pa.int64()), ("a", pa.int64())]), primary_key=["id"])
        tx.append("s.t", [{"id": 1, "a": None}, {"id": 2, "a": 2}])
    repo.update("s.t", {"a": "5"}, where="a IS NULL")
    for change in (ab.ColumnChange(path="a", nullable=False), ab.ColumnChange(path="a", type=pa.float64())):
        with repo.transaction() as tx:
            tx.alter_columns("s.t", [change])
    found = repo.table("s.t")
    assert found.schema.field("a") == pa.field("a", pa.float64(), nullable=False)
    assert {row["id"]: row["a"] for row in found.to_arrow().to_pylist()} == {1: 5.0, 2: 2.0}


def test_columns_are_those_of_the_schema_before_and_after_it_is_read(repo: ab.Repository) -> None:
    point = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
    with repo.transaction() as tx:
        tx.create_table("s.t", pa.schema([("id", pa.int64()), ("point", point), ("größe", pa.float64())]))
    with repo.transaction() as tx:
        tx.add_columns("s.t", pa.schema([("note", pa.string())]))
        tx.alter_columns("s.t", [ab.ColumnChange(path="id", name="key")])
        tx.drop_columns("s.t", ["größe"])
    table = repo["s.t"]
    assert table.columns == ("key", "point", "note")
    assert tuple(table.schema.names) == table.columns
