"""Arrow values as Python's."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from anabranch.format.arrow_types import python_values

FAR = 3 * 10**11  # in seconds, after the year 9999


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None]), [1, None]),
        (pa.array([0], pa.timestamp("ns", "UTC")), [datetime(1970, 1, 1, tzinfo=UTC)]),
        (pa.array([1, 0], pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001", "1970-01-01T00:00:00.000000000"]),
        (pa.array([FAR, None], pa.timestamp("s")), ["11476-08-15T05:20:00", None]),
        # Like times of microseconds in JSON: in UTC, and durations in seconds.
        (pa.array([1], pa.timestamp("ns", "UTC")), ["1970-01-01T00:00:00.000000001Z"]),
        (pa.array([1], pa.timestamp("ns", "Europe/Prague")), ["1970-01-01T00:00:00.000000001Z"]),
        (pa.array([1, -1_500_000_001, None], pa.duration("ns")), ["PT0.000000001S", "PT-1.500000001S", None]),
        (
            pa.array([[{"t": 1, "d": 1}]], pa.list_(pa.struct([("t", pa.timestamp("ns")), ("d", pa.duration("ns"))]))),
            [[{"t": "1970-01-01T00:00:00.000000001", "d": "PT0.000000001S"}]],
        ),
        (pa.array([1], pa.time64("ns")), ["00:00:00.000000001"]),
        (pa.array([[FAR]], pa.list_(pa.timestamp("s"))), [["11476-08-15T05:20:00"]]),
        (pa.chunked_array([pa.array([FAR], pa.timestamp("s"))]), ["11476-08-15T05:20:00"]),
        (pa.array([{}, None], pa.struct([])), [{}, None]),
    ],
)
def test_times_that_python_has_not_are_text(values: pa.Array, expected: list[object]) -> None:
    assert python_values(values) == expected


def test_of_a_row_only_the_columns_that_need_it_are_text() -> None:
    kind = pa.struct([("id", pa.int64()), ("near", pa.timestamp("s")), ("far", pa.timestamp("s"))])
    rows = pa.array([None, {"id": 1, "near": 0, "far": FAR}, {"id": 2, "near": None, "far": None}, None], kind)
    near = datetime(1970, 1, 1)
    expected = [{"id": 1, "near": near, "far": "11476-08-15T05:20:00"}, {"id": 2, "near": None, "far": None}, None]
    assert python_values(rows) == [None, *expected]
    assert python_values(rows.slice(1)) == expected
