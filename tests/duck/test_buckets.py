"""Rows that match are shared out to one bucket, whatever their columns are of."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.duck.comparer import DuckComparer, default_comparer, single_comparer
from anabranch.format.compare.difference import ColumnPair
from anabranch.repo.history.comparer import ColumnTriple, RowComparison, RowMerge, TableCounts
from anabranch.spark.comparer import HeldRows
from tests.duck.test_comparer import CASES, NOON, column

BUCKETS = 1000


@pytest.fixture
def comparer() -> DuckComparer:
    return default_comparer()


def held(array: pa.Array, name: str = "x") -> HeldRows:
    table = pa.table({name: array})
    return HeldRows(schema=table.schema, batches=table.to_batches(max_chunksize=3))


def comparison(older: pa.Array, newer: pa.Array, *, is_key: bool) -> RowComparison:
    pairs = [ColumnPair(older="x", newer="y")]
    return RowComparison(
        older=held(older), newer=held(newer, "y"), columns=pairs, keys=pairs if is_key else [], has_row_ids=False
    )


def buckets(comparer: DuckComparer, asked: RowComparison | RowMerge, *, sides: Sequence[int] = (0, 1)) -> list[Any]:
    return [comparer.find_buckets(asked, side=side, buckets=BUCKETS).to_pylist() for side in sides]


@pytest.mark.parametrize(("kind", "value", "other"), CASES, ids=[str(case[0]) for case in CASES])
def test_equal_values_share_a_bucket_wherever_it_is_found(
    comparer: DuckComparer, kind: pa.DataType, value: Any, other: Any
) -> None:
    asked = comparison(column(kind, value, other, None), column(kind, None, value, other), is_key=False)
    older, newer = buckets(comparer, asked)
    assert older == [newer[1], newer[2], newer[0]]
    assert len(set(older)) > 1
    assert buckets(single_comparer(), asked) == [older, newer]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_numbers_that_count_as_equal_share_a_bucket(comparer: DuckComparer, kind: pa.DataType) -> None:
    numbers = [np.array(number, kind.to_pandas_dtype())[()] for number in (0.0, -0.0, math.nan, -math.nan)]
    for shape in (kind, pa.list_(kind), pa.struct([("a", kind)])):
        wrapped = [[number] if pa.types.is_list(shape) else {"a": number} for number in numbers]
        [zero, minus, no, other], _ = buckets(
            comparer,
            comparison(pa.array(numbers if shape == kind else wrapped, shape), pa.array([None], shape), is_key=False),
        )
        assert (zero, no) == (minus, other)


RETYPED = [
    (pa.array([1, -(2**31)], pa.int32()), pa.array([1, -(2**31)], pa.int64())),
    (pa.array([2**63, 7], pa.uint64()), pa.array([-1, 7], pa.int8())),
    (pa.array([2**24 + 1], pa.int64()), pa.array([2**24], pa.float32())),
    (pa.array([2**53 + 1], pa.int64()), pa.array([2.0**53], pa.float64())),
    (pa.array([Decimal("100.50"), 100]), pa.array([Decimal("100.5000"), Decimal(100)], pa.decimal128(20, 4))),
    (pa.array([Decimal("100.00")], pa.decimal128(38, 2)), pa.array([100], pa.int16())),
    (pa.array(["1", "x"]), pa.array([1, 2], pa.int64())),
    (pa.array([NOON], pa.timestamp("s")), pa.array([NOON], pa.timestamp("ns", "UTC"))),
    (pa.array(["a"]), pa.array(["a"], pa.dictionary(pa.int8(), pa.string()))),
    (pa.array(["a"]), pa.array(["a"], pa.large_string())),
    (pa.array([b"\x00a"], pa.binary(2)), pa.array([b"\x00a"], pa.large_binary())),
    (pa.array([[1]], pa.list_(pa.int8())), pa.array(["[1]"])),
    (pa.array([True]), pa.array(["true"])),
]


@pytest.mark.parametrize("matching", ["key", "value"])
@pytest.mark.parametrize(
    ("older", "newer"), RETYPED, ids=lambda found: str(found.type) if isinstance(found, pa.Array) else ""
)
def test_whatever_the_engine_matches_across_types_is_in_one_bucket(
    comparer: DuckComparer, older: pa.Array, newer: pa.Array, matching: str
) -> None:
    is_key = matching == "key"
    asked = comparison(older, newer, is_key=is_key)
    ours, theirs = buckets(comparer, asked)
    matched = 0
    for number in range(len(older)):
        for other in range(len(newer)):
            one = comparison(older.slice(number, 1), newer.slice(other, 1), is_key=is_key)
            if comparer.count(one) == TableCounts(inserted=0, updated=0, deleted=0):
                matched += 1
                assert ours[number] == theirs[other]
    assert matched


def test_rows_are_spread_evenly(comparer: DuckComparer) -> None:
    rows = held(pa.array(range(8_000)))
    key = [ColumnTriple(base="x", source="x", target="x")]
    merge = RowMerge(base_of_source=rows, source=rows, base_of_target=None, target=rows, columns=key, keys=key)
    found = [comparer.find_buckets(merge, side=side, buckets=8) for side in (0, 1, 3)]
    assert found[0] == found[1] == found[2]
    counts = np.bincount(found[0].to_numpy())
    assert len(counts) == 8
    assert counts.min() > 800


def test_columns_that_not_all_sides_have_do_not_part_rows(comparer: DuckComparer) -> None:
    two = pa.table({"x": [1, 2], "z": [5, 6]})
    whole = HeldRows(schema=two.schema, batches=two.to_batches())
    keys = [ColumnTriple(base="x", source="x", target="x"), ColumnTriple(base=None, source="z", target="z")]
    merge = RowMerge(
        base_of_source=held(pa.array([2, 1])),
        source=whole,
        base_of_target=held(pa.array([1, 2])),
        target=whole,
        columns=keys,
        keys=keys,
    )
    older, source, base, target = buckets(comparer, merge, sides=range(4))
    assert source == base == target == older[::-1]


def test_rows_of_one_side_alone_are_spread(comparer: DuckComparer) -> None:
    asked = RowComparison(
        older=None,
        newer=held(pa.array(range(100))),
        columns=[ColumnPair(older=None, newer="x")],
        keys=[],
        has_row_ids=False,
    )
    assert len(set(comparer.find_buckets(asked, side=1, buckets=8).to_pylist())) == 8
