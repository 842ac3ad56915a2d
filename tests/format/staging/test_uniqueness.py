"""Distinct rows, found by sorting instead of hashing."""

import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.format.staging import are_surely_unique


@given(st.lists(st.lists(st.integers(-5, 5))))
def test_numbers_are_unique_or_not_however_they_are_chunked(chunks: list[list[int]]) -> None:
    column = pa.chunked_array([pa.array(chunk, pa.int32()) for chunk in chunks], pa.int32())
    values = [value for chunk in chunks for value in chunk]
    assert are_surely_unique(pa.table({"id": column})) == (len(set(values)) == len(values))


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([0, 2**64 - 1, 1], pa.uint64(), True),
        ([2**64 - 1, 2**64 - 1], pa.uint64(), False),
        ([datetime.date(2026, 1, 2), datetime.date(2026, 1, 1)], pa.date32(), True),
        ([datetime.datetime(2026, 1, 2), datetime.datetime(2026, 1, 2)], pa.timestamp("us", "UTC"), False),
        ([1, None], pa.int64(), False),
        (["a", "b"], pa.string(), False),
        ([True, False], pa.bool_(), False),
    ],
)
def test_only_what_can_be_decided_cheaply_is_sure(values: list[object], kind: pa.DataType, expected: bool) -> None:  # noqa: FBT001
    assert are_surely_unique(pa.table({"id": pa.array(values, kind)})) is expected


def test_several_columns_take_a_closer_look() -> None:
    assert not are_surely_unique(pa.table({"a": [1, 2], "b": [1, 2]}))
