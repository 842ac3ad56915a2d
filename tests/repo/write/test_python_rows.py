"""Rows given as Python values or pandas frames: lists of dicts, dicts of lists, and the index of a frame."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidInputError, SchemaMismatchError
from tests.repo.conftest import ORDERS, ids, nothing_changes, rows

KEY = "s.typed"
TYPED = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("small", pa.float32()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("vector", pa.list_(pa.float32(), 2)),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("labels", pa.map_(pa.string(), pa.int64())),
    ]
)
ROW = {
    "id": 1,
    "small": 0.5,
    "price": Decimal("1.5"),
    "day": date(2026, 1, 2),
    "at": datetime(2026, 1, 2, 3),
    "vector": [1.5, 2],
    "place": {"zip": 10115, "city": "Berlin"},
    "labels": {"a": 1},
}
STORED = {**ROW, "place": {"city": "Berlin", "zip": 10115}, "labels": [("a", 1)]}
NULLS: dict[str, Any] = {**dict.fromkeys(TYPED.names), "id": 2}


@pytest.fixture
def typed(repo: ab.Repository) -> ab.Repository:
    """A repository with an empty table of many types."""
    with repo.transaction() as tx:
        tx.create_table(KEY, TYPED, primary_key=["id"])
    return repo


def as_columns(*given: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in given] for name in given[0]}


def stored(repo: ab.Repository, key: str = KEY) -> list[dict[str, Any]]:
    return rows(repo.snapshot()[key])


@pytest.mark.parametrize("how", ["append", "upsert", "overwrite"])
@pytest.mark.parametrize("data", [[ROW, NULLS], as_columns(ROW, NULLS), (ROW, NULLS)], ids=["dicts", "lists", "tuple"])
def test_python_values_take_the_types_of_the_table(typed: ab.Repository, how: str, data: Any) -> None:
    with typed.transaction() as tx:
        getattr(tx, how)(KEY, data)
    assert stored(typed) == [STORED, NULLS]
    assert typed.snapshot()[KEY].schema == TYPED


def test_whole_numbers_above_int64_fit_uint64(repo: ab.Repository) -> None:
    with repo.transaction() as tx:
        tx.create_table("s.large", pa.schema([("id", pa.int64()), ("u", pa.uint64())]), primary_key=["id"])
    repo.append("s.large", [{"id": 1, "u": 2**64 - 1}, {"id": 2, "u": 5}, {"id": 3, "u": None}])
    repo.upsert("s.large", [{"id": 2, "u": 2**63}])
    assert [row["u"] for row in stored(repo, "s.large")] == [2**64 - 1, 2**63, None]
    for value in (2**64, -1, "x"):
        with pytest.raises(SchemaMismatchError, match="to uint64"):
            repo.append("s.large", [{"id": 4, "u": 2**64 - 1}, {"id": 5, "u": value}])


@pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
def test_load_takes_a_list_of_dicts(typed: ab.Repository, mode: str) -> None:
    report = typed.load(KEY, [ROW, NULLS], mode=mode)
    assert (report.rows_loaded, stored(typed), typed.snapshot()[KEY].schema) == (2, [STORED, NULLS], TYPED)


def test_load_infers_the_types_of_a_new_table(repo: ab.Repository) -> None:
    repo.load("s.new", [{"id": 1, "name": "tea"}, {"id": 2, "name": None}], primary_key=["id"])
    assert repo.snapshot()["s.new"].schema == pa.schema([("id", pa.int64()), ("name", pa.string())])
    assert stored(repo, "s.new") == [{"id": 1, "name": "tea"}, {"id": 2, "name": None}]


def test_columns_that_no_row_has_are_null_or_keep_their_values(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, [{"id": 4}])
        tx.upsert(ORDERS, [{"id": 1}])
    assert [row["v"] for row in stored(lake, ORDERS)] == ["a", "b", "c", None]


def test_an_overwrite_with_python_values_keeps_the_columns(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.overwrite(ORDERS, {"id": [7]})
    assert stored(lake, ORDERS) == [{"id": 7, "v": None}]


@pytest.mark.parametrize("data", [[], {}, {"id": []}])
def test_no_rows_change_nothing(lake: ab.Repository, data: Any) -> None:
    with nothing_changes(lake), lake.transaction() as tx:
        tx.append(ORDERS, data)
        tx.upsert(ORDERS, data)
    with lake.transaction() as tx:
        tx.overwrite(ORDERS, data)
    assert (ids(lake), lake.snapshot()[ORDERS].schema.names) == ([], ["id", "v"])


def test_columns_may_be_arrays(lake: ab.Repository) -> None:
    with lake.transaction() as tx:
        tx.append(ORDERS, {"id": np.array([4, 5]), "v": pa.array(["x", None])})
        tx.append(ORDERS, {"id": pd.Series([6, 7]), "v": pd.Series(["y", None])})
        tx.append(ORDERS, {"id": range(8, 10), "v": ("z", None)})
    assert [row["v"] for row in stored(lake, ORDERS)[3:]] == ["x", None, "y", None, "z", None]


WRONG = {
    "unknown key": ([{"id": 4, "nope": 1}], SchemaMismatchError, ["'nope'", "id, v"]),
    "unknown column": ({"id": [4], "nope": [1]}, SchemaMismatchError, ["'nope'", "id, v"]),
    "key of one row missing": ([{"id": 4, "v": "x"}, {"id": 5}], SchemaMismatchError, ["row 1", "'v'", "None"]),
    "key of one row only": ([{"id": 4}, {"id": 5, "v": "x"}], SchemaMismatchError, ["row 0", "'v'", "row 1"]),
    "text for a number": ([{"id": 4}, {"id": "x"}], SchemaMismatchError, ["'x'", "int64", "'id'", "row 1"]),
    "fraction": ([{"id": 4.5}], SchemaMismatchError, ["4.5", "int64", "'id'", "row 0"]),
    "flag": ({"id": [True]}, SchemaMismatchError, ["True", "int64", "'id'"]),
    "number for text": ([{"id": 4, "v": 7}], SchemaMismatchError, ["7", "string", "'v'"]),
    "too large": ([{"id": 2**70}], SchemaMismatchError, [str(2**70), "int64", "'id'"]),
    "object": ([{"id": 4, "v": object}], SchemaMismatchError, ["<class 'object'>", "string"]),
    "surrogates": ([{"id": 4, "v": "\ud800"}], SchemaMismatchError, ["'v'", "string"]),
    "lengths": ({"id": [4, 5], "v": ["x"]}, SchemaMismatchError, ["'v' has 1", "'id' has 2"]),
    "one dict": ({"id": 4, "v": "x"}, InvalidInputError, ["'id'", "4", "[{'id': 1}]"]),
    "text as a list": ({"v": "abc"}, InvalidInputError, ["'v'", "'abc'"]),
    "rows without names": ([(4, "x")], InvalidInputError, ["row 0", "(4, 'x')"]),
    "number as a key": ([{4: "x"}], InvalidInputError, ["4"]),
}


@pytest.mark.parametrize("how", ["append", "upsert", "overwrite"])
@pytest.mark.parametrize("name", WRONG)
def test_python_values_that_do_not_fit_are_refused(lake: ab.Repository, how: str, name: str) -> None:
    data, error, message = WRONG[name]
    with nothing_changes(lake), pytest.raises(error) as caught, lake.transaction() as tx:
        getattr(tx, how)(ORDERS, data)
    assert all(text in str(caught.value) for text in message), str(caught.value)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", 2**40),
        ("small", 1e300),
        ("price", Decimal("1.555")),
        ("price", 1.5),
        ("day", datetime(2026, 1, 2, 3, tzinfo=UTC)),
        ("day", 7),
        ("vector", [1.0, 2.0, 3.0]),
        ("place", {"city": "Berlin", "nope": 1}),
        ("place", {"zip": 1.5}),
    ],
)
def test_no_value_is_changed_to_fit(typed: ab.Repository, column: str, value: Any) -> None:
    with nothing_changes(typed), pytest.raises(SchemaMismatchError, match=f"'{column}'"), typed.transaction() as tx:
        tx.append(KEY, [{**ROW, column: value}])


# pandas


FRAME = pd.DataFrame({"id": [4, 5, 6], "v": ["x", "y", "z"]})


@pytest.mark.parametrize(
    "frame",
    [
        FRAME,
        FRAME[FRAME["id"] > 4],
        FRAME.sort_values("id", ascending=False),
        FRAME.set_index("id"),
        FRAME.set_index("id").loc[[5]],
        FRAME.set_index(pd.MultiIndex.from_arrays([FRAME["id"], [7, 8, 9]], names=["id", None]))[["v"]],
    ],
    ids=["plain", "filtered", "sorted", "named index", "filtered named index", "several levels"],
)
def test_an_unnamed_index_is_dropped_and_a_named_one_is_a_column(lake: ab.Repository, frame: pd.DataFrame) -> None:
    wanted = sorted({"id", *frame.columns} & {"id", "v"})
    with lake.transaction() as tx:
        tx.append(ORDERS, frame)
    assert len(ids(lake)) == 3 + len(frame)
    lake.load("s.new", frame)
    assert sorted(lake.snapshot()["s.new"].schema.names) == wanted
    lake.load(ORDERS, frame, mode="overwrite")
    found = lake.snapshot()[ORDERS]
    assert (sorted(found.schema.names), ids(found)) == (wanted, sorted(frame.reset_index()["id"]))
    assert found.schema.metadata in (None, {})


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (FRAME.set_index("id", drop=False), "id"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), "id"),
        (pd.DataFrame({"id": [1], "v": [object()]}), "v"),
        (FRAME.rename_axis("day"), "'day'"),
    ],
    ids=["index like a column", "a column twice", "objects", "index that is no column"],
)
def test_a_frame_that_cannot_be_read_is_refused(lake: ab.Repository, frame: pd.DataFrame, message: str) -> None:
    with nothing_changes(lake), pytest.raises(SchemaMismatchError, match=message), lake.transaction() as tx:
        tx.append(ORDERS, frame)


def test_categories_load_and_new_ones_are_added(repo: ab.Repository, tmp_path: Path) -> None:
    few = pd.DataFrame({"id": [0, 1], "c": pd.Categorical(["a", None])})
    many = pd.DataFrame({"id": range(300), "c": pd.Categorical([f"p{number}" for number in range(300)])})
    lazily = pl.DataFrame({"id": [1], "c": pl.Series(["polars"], dtype=pl.Categorical)})
    repo.load("s.t", few)
    repo.append("s.t", many)
    repo.append("s.t", lazily)
    repo.append("s.t", pa.table({"id": [2], "c": ["arrow"]}))
    (tmp_path / "a.csv").write_text("id,c\n3,csv\n")
    (tmp_path / "a.json").write_text('{"id": 4, "c": "json"}\n')
    for name in ("a.csv", "a.json"):
        repo.load("s.t", tmp_path / name)
    found = repo["s.t"].to_pandas()
    assert found["c"].dtype == "category"
    assert found["c"].dropna().tolist() == ["a", *many["c"], "polars", "arrow", "csv", "json"]
    repo.load("s.p", lazily)
    assert repo["s.p"].to_arrow().to_pylist() == [{"id": 1, "c": "polars"}]
    with pytest.raises(SchemaMismatchError, match="column 'c' was expected to be dictionary"):
        repo.append("s.t", pa.table({"id": [2], "c": [5]}))


@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal32(5, 2),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.sparse_union([pa.field("a", pa.int64())]),
        pa.list_(pa.decimal64(9, 1)),
    ],
    ids=str,
)
def test_types_that_no_table_holds_are_refused_by_column(lake: ab.Repository, kind: pa.DataType) -> None:
    schema = pa.schema([("id", pa.int64()), ("odd", kind)])
    empty = pa.RecordBatchReader.from_batches(schema, [])
    refused = pytest.raises(InvalidInputError, match="column 'odd' has type")
    with nothing_changes(lake), lake.transaction() as tx:
        with refused:
            tx.create_table("s.odd", schema)
        with refused:
            tx.overwrite(ORDERS, empty)


def test_a_dataset_appends_python_values(lake: ab.Repository) -> None:
    lake.export(ORDERS, lake.uri + "-copy.lance")
    copy = ab.dataset(lake.uri + "-copy.lance", lake.storage_options)
    copy.append([{"id": 4, "v": None}])
    assert copy.count_rows() == 4
