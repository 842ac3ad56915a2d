"""A pinned version as engines read it: their columns, their filters, their types."""

import datetime as dt
import decimal
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.errors import DamagedFileError
from anabranch.format import staging
from anabranch.format.arrow_types import common_type
from anabranch.format.home import Home
from anabranch.format.scan import ArrowDataset, FilterRefusedError
from anabranch.format.staging import VersionRef

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, None], pa.int64()),
        "f": pa.array([0.0, -0.0, float("nan"), None], pa.float64()),
        "s": pa.array(["a'b", "", None, "é"], pa.string()),
        "t": pa.array([dt.time(1), dt.time(2), None, dt.time(4)], pa.time64("us")),
        "half": pa.array([1.5, 2.5, None, 0.0], pa.float16()),
    }
)
PUSHED_ROWS = pa.table(
    {
        **{name: ROWS[name] for name in ("id", "f", "s", "half")},
        "yes": [True, False, None, True],
        "day": [dt.date(2024, 1, 1), None, dt.date(1960, 1, 1), dt.date(2025, 1, 1)],
        "at": pa.array([dt.datetime(2024, 1, 1), None, dt.datetime(1960, 1, 1), None], pa.timestamp("us", "UTC")),
        "price": pa.array([1, 2, None, 3], pa.decimal128(10, 2)),
        "bytes": [b"a", b"", None, b"\xff"],
        "large": pa.array(["x", "y", None, "z"], pa.large_string()),
        "nested": [{"x": 1}, {"x": 2}, None, {"x": None}],
    }
)
FIELD = pc.field


@pytest.fixture
def version_ref(tmp_path: Path) -> VersionRef:
    return staging.append(staging.create_empty(Home.at(tmp_path / "t.lance"), ROWS.schema), ROWS)


ACCEPTED = [
    FIELD("id") > 1,
    (FIELD("id") > 1) & (FIELD("s") == ""),
    (FIELD("id") == 1) | (FIELD("s") == "é"),
    ~(FIELD("id") > 1),
    FIELD("id") + 1 > 3,
    FIELD("id") == pa.scalar(-(2**63)),
    FIELD("id") == pa.scalar(None, pa.int64()),
    (FIELD("id") == 1).is_null(),
    FIELD("s") == "a'b",
    FIELD("s").is_null(),
    FIELD("s").is_valid(),
    pc.starts_with(FIELD("s"), "a"),
    FIELD("yes"),
    FIELD("day") > dt.date(2000, 1, 1),
    FIELD("at") > pa.scalar(dt.datetime(2000, 1, 1), pa.timestamp("us", "UTC")),
    FIELD("price") > decimal.Decimal("1.5"),
    FIELD("bytes") == b"\xff",
    pc.scalar(value=True),
]
REFUSED = [
    FIELD("id").isin([1, 3]),
    FIELD("id").isin(pa.array([1, None], pa.int64())),
    ~FIELD("id").isin([1]),
    ~FIELD("id").isin(pa.array([1, None], pa.int64())),
    pc.match_substring(FIELD("s"), "A", ignore_case=True),
    pc.utf8_upper(FIELD("s")) == "É",
    FIELD("id") > 1.5,
    FIELD("large") == "x",
    FIELD("nested", "x") == 1,
    pc.field(0) > 1,
    FIELD("f") >= 0.0,
    FIELD("f") < 0.0,
    FIELD("f") != float("nan"),
    ~(FIELD("f") > 0.0),
    pc.is_nan(FIELD("f")),
    (FIELD("id") > 1) & (FIELD("f") >= 0.0),
    FIELD("half") > pa.scalar(2.0, pa.float32()),
]


def assert_same_rows(rows: pa.Table, tmp_path: Path, expression: pc.Expression, *, is_pushed: bool) -> None:
    home = Home.at(tmp_path / "t.lance")
    dataset = ArrowDataset(staging.append(staging.create_empty(home, rows.schema), rows))
    shown = dataset.to_table()
    scan = dataset.scanner(["id", "s"], expression)
    assert (scan.remaining is None) == is_pushed
    assert scan.to_table() == shown.filter(expression).select(["id", "s"])
    assert dataset.count_rows(expression) == shown.filter(expression).num_rows
    assert not dataset.has_refused


@pytest.mark.parametrize("expression", ACCEPTED, ids=str)
def test_filter_that_lance_accepts_returns_the_rows_of_arrow(tmp_path: Path, expression: pc.Expression) -> None:
    assert_same_rows(PUSHED_ROWS, tmp_path, expression, is_pushed=True)


@pytest.mark.parametrize("expression", REFUSED, ids=str)
def test_filter_that_lance_refuses_returns_the_rows_of_arrow(tmp_path: Path, expression: pc.Expression) -> None:
    assert_same_rows(PUSHED_ROWS, tmp_path, expression, is_pushed=False)


@pytest.mark.parametrize(
    "expression", [FIELD("id") > 1, FIELD("t") > pa.scalar(dt.time(1), pa.time64("us")), FIELD("s") == ""], ids=str
)
def test_lance_refuses_every_filter_beside_a_time(tmp_path: Path, expression: pc.Expression) -> None:
    assert_same_rows(ROWS, tmp_path, expression, is_pushed=False)


@pytest.mark.parametrize(
    "expression", [FIELD("f") > 0.0, (FIELD("id") > 1) & (FIELD("f") >= 0.0), pc.scalar(value=True)]
)
def test_engine_that_sorts_nan_applies_filters_on_floats(version_ref: VersionRef, expression: pc.Expression) -> None:
    dataset = ArrowDataset(version_ref, sorts_nan=True)
    with pytest.raises(FilterRefusedError):
        dataset.scanner(["id"], expression)
    assert dataset.has_refused
    assert dataset.to_table(["id"], FIELD("id") > 1)["id"].to_pylist() == [2, 3]


def test_filter_that_arrow_cannot_apply_is_refused(version_ref: VersionRef) -> None:
    dataset = ArrowDataset(version_ref)
    with pytest.raises(pa.ArrowInvalid):
        dataset.scanner(["id"], FIELD("nothing") == 1)
    assert dataset.has_refused


def test_a_refused_filter_reads_only_the_columns_that_it_uses(tmp_path: Path) -> None:
    wide = pa.table({f"c{number}": pa.array([number, None], pa.int64()) for number in range(40)})
    home = Home.at(tmp_path / "t.lance")
    dataset = ArrowDataset(staging.append(staging.create_empty(home, wide.schema), wide))
    scan = dataset.scanner(["c3"], FIELD("c7").isin([7]) & FIELD("c30").isin([30]))
    assert scan.to_table().to_pylist() == [{"c3": 3}]
    assert scan.source.projected_schema.names == ["c3", "c7", "c30"]


def test_only_the_columns_asked_for_are_returned_in_their_order(version_ref: VersionRef) -> None:
    scan = ArrowDataset(version_ref).scanner(["s", "id"], FIELD("t") == pa.scalar(dt.time(2), pa.time64("us")))
    assert scan.to_table().to_pylist() == [{"s": "", "id": 2}]
    assert "expr=[s@1 as s, id@0 as id, t@2 as t]" in scan.explain()


def test_rows_are_counted_and_the_dataset_travels(version_ref: VersionRef) -> None:
    dataset = pickle.loads(pickle.dumps(ArrowDataset(version_ref)))  # noqa: S301 - our own
    assert dataset.count_rows() == 4
    assert dataset.count_rows(FIELD("id") > 1) == 2
    assert dataset.to_table().num_rows == 4


def test_a_failure_is_remembered_for_a_caller_that_sees_only_the_engine(
    version_ref: VersionRef, tmp_path: Path
) -> None:
    dataset = ArrowDataset(version_ref)
    for file in (tmp_path / "t.lance" / "data").iterdir():
        file.unlink()
    with pytest.raises(DamagedFileError):
        dataset.to_table()
    assert isinstance(dataset.failure, DamagedFileError)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (pa.int64(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.list_(pa.float16(), 3), pa.list_(pa.float32(), 3)),
        (pa.list_(pa.struct([("x", pa.float16())])), pa.list_(pa.struct([("x", pa.float32())]))),
        (pa.large_list(pa.date64()), pa.large_list(pa.date32())),
        (pa.map_(pa.string(), pa.float16()), pa.map_(pa.string(), pa.float32())),
        (pa.decimal256(38, 2), pa.decimal128(38, 2)),
        (pa.decimal256(39, 2), pa.decimal256(39, 2)),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.uuid(), pa.uuid()),
    ],
    ids=str,
)
def test_types_are_shown_as_common_ones(stored: pa.DataType, shown: pa.DataType) -> None:
    assert common_type(stored) == shown
