"""What Lance makes of filters, which is why they are put into its words here rather than passed on."""

import datetime as dt
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest


def _ids(dataset: lance.LanceDataset, condition: str) -> list[int]:
    found: list[int] = dataset.to_table(columns=["id"], filter=condition).column("id").to_pylist()
    return found


def test_an_arrow_filter_on_any_column_is_refused_next_to_a_time(tmp_path: Path) -> None:
    data = pa.table({"id": [1], "t": pa.array([dt.time(1)], pa.time64("us"))})
    dataset = lance.write_dataset(data, tmp_path / "t.lance")
    with pytest.raises(ValueError, match="Unsupported Substrait type"):
        dataset.to_table(filter=pc.field("id") == 1)
    assert _ids(dataset, "id = 1") == [1]


def test_both_zeros_are_one_but_a_nan_is_sorted_by_its_sign_bit(tmp_path: Path) -> None:
    nan = float("nan")
    values = pa.array([-0.0, 0.0, nan, -nan], pa.float64())
    dataset = lance.write_dataset(pa.table({"id": [1, 2, 3, 4], "f": values}), tmp_path / "t.lance")
    assert _ids(dataset, "f = 0.0") == [1, 2]
    assert _ids(dataset, "f >= 0.0") == [1, 2, 3]
    assert _ids(dataset, "f > -0.0") == [3]
    assert _ids(dataset, "f < 0.0") == [4]
    assert _ids(dataset, "isnan(f)") == [3, 4]


def test_the_least_integer_cannot_be_written(tmp_path: Path) -> None:
    least = -(2**63)
    dataset = lance.write_dataset(pa.table({"id": [least]}), tmp_path / "t.lance")
    with pytest.raises(ValueError, match="Float64"):
        _ids(dataset, f"id = {least}")


def test_a_time_without_zone_is_taken_for_one_in_the_zone_of_the_column(tmp_path: Path) -> None:
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    moments = pa.array([noon], pa.timestamp("us", "Europe/Prague"))
    dataset = lance.write_dataset(pa.table({"id": [1], "at": moments}), tmp_path / "t.lance")
    assert _ids(dataset, "at = timestamp '2024-01-01 13:00:00'") == [1]
    number = int(noon.timestamp() * 1e6)
    assert _ids(dataset, f"at = arrow_cast({number}, 'Timestamp(Microsecond, Some(\"Europe/Prague\"))')") == [1]


def test_a_name_in_double_quotes_is_text(tmp_path: Path) -> None:
    """If this fails, Lance reads it as a column, and that part of the translation can go."""
    dataset = lance.write_dataset(pa.table({"id": [1, 2], "v": ["abc", "x"]}), tmp_path / "t.lance")
    assert _ids(dataset, "\"v\" <> 'abc'") == [1, 2]
    assert _ids(dataset, '"nope" IS NOT NULL') == [1, 2]
    assert _ids(dataset, "`v` <> 'abc'") == [2]


def test_calls_with_a_syntax_of_their_own_work_only_under_quoted_names(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"id": [1, 2], "v": ["abc", " x"]}), tmp_path / "t.lance")
    for call, quoted, found in (
        ("substr(v, 2, 1) = 'b'", "`substr`(v, 2, 1) = 'b'", [1]),
        ("trim(v) = 'x'", "`trim`(v) = 'x'", [2]),
        ("ceil(id / 2.0) = 1", "`ceil`(id / 2.0) = 1", [1, 2]),
    ):
        with pytest.raises(ValueError, match="is not supported SQL in lance"):
            _ids(dataset, call)
        assert _ids(dataset, quoted) == found


def test_a_backtick_in_one_column_name_breaks_the_filters_of_all(tmp_path: Path) -> None:
    """Which is why such names are refused when a column is created."""
    dataset = lance.write_dataset(pa.table({"id": [1], "a`b": [1]}), tmp_path / "t.lance")
    with pytest.raises(ValueError, match="No field named"):
        dataset.to_table(filter="id = 1")
