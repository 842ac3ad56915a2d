"""A pinned version as engines read it: their columns, their filters, their types."""

import datetime as dt
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.errors import DamagedFileError
from anabranch.format import staging
from anabranch.format.arrow_dataset import ArrowDataset
from anabranch.format.arrow_filters import Call, Column, Value, conjuncts, parse_filter, to_lance
from anabranch.format.arrow_types import common_type
from anabranch.format.home import Home
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
FIELD = pc.field


@pytest.fixture
def version_ref(tmp_path: Path) -> VersionRef:
    return staging.append(staging.create_empty(Home.at(tmp_path / "t.lance"), ROWS.schema), ROWS)


@pytest.mark.parametrize(
    ("expression", "below", "ids"),
    [
        (FIELD("id") > 1, "`id` > 1", [2, 3]),
        ((FIELD("id") > 1) & (FIELD("s") == ""), "`id` > 1 AND `s` = ''", [2]),
        ((FIELD("id") == 1) | (FIELD("s") == "é"), "(`id` = 1 OR `s` = 'é')", [1, None]),
        (FIELD("s") == "a'b", "`s` = 'a''b'", [1]),
        (FIELD("id").isin([1, 3]), "`id` IN (1, 3)", [1, 3]),
        (FIELD("s").is_null(), "`s` IS NULL", [3]),
        (FIELD("s").is_valid(), "`s` IS NOT NULL", [1, 2, None]),
        (pc.is_nan(FIELD("f")), "isnan(`f`)", [3]),
        (FIELD("f") == 0.0, "`f` = 0.0", [1, 2]),
        (FIELD("f") >= 0.0, "(`f` >= 0.0 OR isnan(`f`))", [1, 2, 3]),
        (FIELD("f") > 0.0, "(`f` > 0.0 OR isnan(`f`))", [3]),
        (FIELD("f") <= 0.0, "(`f` <= 0.0 AND NOT isnan(`f`))", [1, 2]),
        (FIELD("f") < float("inf"), None, [1, 2]),
        (FIELD("f").isin([float("nan"), 1.0]), None, [3]),
        (FIELD("id") == pa.scalar(-(2**63)), None, []),
        (FIELD("t") > pa.scalar(dt.time(1), pa.time64("us")), None, [2, None]),
        (FIELD("half") > pa.scalar(2.0, pa.float32()), None, [2]),
        ((FIELD("half") > pa.scalar(1.0, pa.float32())) & (FIELD("id") < 2), "`id` < 2", [1]),
        (~(FIELD("id") > 1), None, [1]),
        (FIELD("id") + 1 > 3, None, [3]),
    ],
    ids=str,
)
def test_a_filter_is_split_into_what_lance_decides_and_the_rest(
    version_ref: VersionRef, expression: pc.Expression, below: str | None, ids: list[int | None]
) -> None:
    parsed = parse_filter(expression)
    assert parsed is not None
    shown = pa.schema([field for field in ROWS.schema if field.name != "half"])
    said = [text for part in conjuncts(parsed) if (text := to_lance(part, shown))]
    assert (" AND ".join(said) or None) == below
    dataset = ArrowDataset(version_ref)
    if isinstance(parsed, Call) and parsed.function == "greater" and isinstance(parsed.arguments[0], Call):
        with pytest.raises(Exception, match="not known"):
            dataset.to_table(["id"], expression)
        assert dataset.has_refused
    else:
        assert dataset.to_table(["id"], expression).column("id").to_pylist() == ids
        assert not dataset.has_refused


def test_arrow_expressions_are_taken_apart_as_they_were_put_together() -> None:
    """Arrow promises nothing about the form that is read here; the scan falls back to Arrow where it is not known."""
    nested = FIELD("st", "x") == 3
    assert parse_filter(nested) == Call("equal", (Column(("st", "x")), Value(pa.scalar(3))))
    deep = ((FIELD("a") > 1) & (FIELD("a") > 2)) & ((FIELD("a") > 3) | (FIELD("b") == "x"))
    parsed = parse_filter(deep)
    assert parsed is not None
    assert len(conjuncts(parsed)) == 3


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
