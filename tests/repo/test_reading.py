"""Tables of a snapshot, read in every way there is."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidExpressionError, InvalidInputError, InvalidNameError, SchemaMismatchError
from anabranch.repo.snapshot import Table
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, another, append, ids, table


@pytest.fixture
def orders(lake: ab.Repository) -> Table:
    """Orders 1 to 6, in several fragments and with a deleted row between."""
    append(lake, 4, 5)
    append(lake, 6, 7)
    with lake.transaction() as tx:
        tx.delete(ORDERS, "id = 7")
    return lake.snapshot()[ORDERS]


@pytest.mark.s3
def test_rows_are_read_whole(orders: Table) -> None:
    assert orders.to_arrow().schema == SCHEMA
    assert orders.to_arrow().sort_by("id") == table(1, 2, 3, 4, 5, 6)
    assert orders.count_rows() == 6


def test_columns_filter_and_limit_are_pushed_down_in_every_form(orders: Table) -> None:
    arrow = orders.to_arrow(columns=["v"], where="id > 2 AND id < 6", limit=2)
    assert arrow.column_names == ["v"]
    assert len(arrow) == 2
    frame = orders.to_pandas(columns=["id"], where="v = 'c'")
    assert isinstance(frame, pd.DataFrame)
    assert frame.to_dict("list") == {"id": [3]}
    polars = orders.to_polars(columns=["v", "id"], where="id IN (1, 6)")
    assert isinstance(polars, pl.DataFrame)
    assert polars.sort("id").rows() == [("a", 1), ("f", 6)]
    batches = list(orders.scan(columns=["id"], where="id >= 5", limit=1))
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert sum(batch.num_rows for batch in batches) == 1


def test_rows_are_counted_with_and_without_a_filter(orders: Table) -> None:
    assert orders.count_rows() == 6
    assert orders.count_rows("id % 2 = 0") == 3
    assert orders.count_rows("id > 100") == 0


def test_columns_come_in_the_order_asked_for(orders: Table) -> None:
    assert orders.to_arrow(columns=["v", "id"]).column_names == ["v", "id"]


def test_no_rows_at_a_limit_of_none_and_of_zero(orders: Table) -> None:
    assert len(orders.to_arrow(limit=0)) == 0
    ids = orders.to_arrow(columns=["id"])["id"].to_pylist()
    assert orders.to_arrow(columns=["id"], offset=2, limit=2)["id"].to_pylist() == ids[2:4]
    assert orders.to_arrow(columns=["id"], where="id > 0", offset=1)["id"].to_pylist() == ids[1:]
    assert len(orders.to_arrow(offset=len(ids))) == 0
    assert len(orders.to_arrow(limit=None)) == 6


def test_a_table_without_rows_is_read_with_its_columns(repo: ab.Repository) -> None:
    with repo.transaction() as tx:
        tx.create_table("s.empty", SCHEMA)
    empty = repo.snapshot()["s.empty"]
    assert empty.to_arrow() == SCHEMA.empty_table()
    assert empty.to_polars().is_empty()
    assert list(empty.to_pandas().columns) == ["id", "v"]
    assert sum(batch.num_rows for batch in empty.scan()) == 0
    assert empty.count_rows() == 0
    assert empty.count_rows("id > 1") == 0


@pytest.mark.parametrize("use", ["to_arrow", "to_pandas", "to_polars", "scan"])
def test_wrong_columns_and_filters_are_refused_by_name(orders: Table, use: str) -> None:
    def read(**options: object) -> object:
        found = getattr(orders, use)(**options)
        return list(found) if use == "scan" else found

    with pytest.raises(SchemaMismatchError, match="no column 'nope'; the columns are id, v"):
        read(columns=["nope"])
    for wrong in ("nope > 1", "id >", "id = 'x' AND", "id > 5 LIMIT 1", "id + 1"):
        with pytest.raises(InvalidExpressionError, match=r"filter|expression") as caught:
            read(where=wrong)
        assert wrong in str(caught.value)
    with pytest.raises(InvalidInputError, match="limit"):
        read(limit=-1)


def test_wrong_filters_of_a_count_are_refused(orders: Table) -> None:
    with pytest.raises(InvalidExpressionError, match="nope > 1"):
        orders.count_rows("nope > 1")


def test_a_snapshot_is_a_mapping_of_tables(lake: ab.Repository) -> None:
    snapshot = lake.snapshot()
    assert snapshot.get("s.none") is None
    assert "not a key" not in snapshot
    assert not snapshot.__contains__(7)
    assert {key: found.count_rows() for key, found in snapshot.items()} == {CUSTOMERS: 2, ORDERS: 3}
    with pytest.raises(KeyError):
        snapshot["s.none"]
    with pytest.raises(InvalidNameError, match="'orders' has no bucket"):
        snapshot["orders"]


def test_nested_columns_are_read_by_path(repo: ab.Repository) -> None:
    data = pa.table({"id": [1, 2], "at": [{"city": "Brno", "zip": 1}, {"city": "Praha", "zip": 2}]})
    with repo.transaction() as tx:
        tx.create_table("s.people", data.schema)
        tx.append("s.people", data)
    people = repo.snapshot()["s.people"]
    assert ids(people) == [1, 2]
    assert people.to_arrow(columns=["id"], where="at.city = 'Brno'").to_pylist() == [{"id": 1}]
    assert people.to_arrow(columns=["at.city"]).num_rows == 2


def test_commits_are_values_that_sets_hold(lake: ab.Repository) -> None:
    append(lake, 4)
    first, second = lake.list_commits(), another(lake).list_commits()
    assert first == second
    assert len({*first, *second}) == len(first)
