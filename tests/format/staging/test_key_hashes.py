"""Keys compared by their hashes: they find just what a comparison by value finds."""

from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import KeyConflictError
from anabranch.format.staging.key_hashes import KeyRows, find_repeated, find_shared, hash_rows

# Few different values of each type, among them some that differ in their last byte or in their length alone.
TEXTS = ["", "a", "a\0", "1234567", "12345678", "123456789", "ä" * 200, "ä" * 199 + "ö", "x" * 1000]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-1, 0, 1, 2],
    pa.uint64(): [0, 1, (1 << 64) - 1],
    pa.bool_(): [True, False],
    pa.date32(): [date(1970, 1, 1), date(1970, 1, 2)],
    pa.timestamp("us"): [datetime(1970, 1, 1), datetime(1970, 1, 1) + timedelta(microseconds=1)],
    pa.decimal128(38, 2): [Decimal("0.01"), Decimal("-0.01"), Decimal(10) ** 30],
    pa.binary(2): [b"ab", b"ba", b"\0\0"],
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): [text.encode() for text in TEXTS],
}


def keys(kinds: list[pa.DataType], rows: list[tuple[Any, ...]], *, rows_per_batch: int) -> KeyRows:
    columns = [[row[n] for row in rows] for n in range(len(kinds))]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    whole = pa.RecordBatch.from_arrays(arrays, names=[f"c{n}" for n in range(len(kinds))])

    def read() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), rows_per_batch):
            yield whole.slice(start, rows_per_batch)

    return KeyRows(read=read, count=len(rows))


@st.composite
def two_sides(draw: st.DrawFn) -> tuple[list[pa.DataType], list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    rows = st.lists(st.tuples(*(st.sampled_from(VALUES[kind]) for kind in kinds)), max_size=12)
    return kinds, draw(rows), draw(rows)


@given(sides=two_sides(), rows_per_batch=st.integers(1, 12), hashes_per_pass=st.sampled_from([1, 3, 100]))
def test_hashes_find_what_a_comparison_by_value_finds(
    sides: tuple[list[pa.DataType], list[tuple[Any, ...]], list[tuple[Any, ...]]],
    rows_per_batch: int,
    hashes_per_pass: int,
) -> None:
    kinds, some, others = sides
    rows = keys(kinds, some, rows_per_batch=rows_per_batch)
    repeated = {key for key, count in Counter(some).items() if count > 1}
    shared = set(some) & set(others)
    for found, expected in (
        (find_repeated(rows, hashes_per_pass=hashes_per_pass), repeated),
        (find_shared(rows, keys(kinds, others, rows_per_batch=5), hashes_per_pass=hashes_per_pass), shared),
    ):
        assert (0 if found is None else found.count) == len(expected)
        assert found is None or tuple(found.example.values()) in expected


def test_different_keys_with_equal_hashes_are_different() -> None:
    first, second = 1, 2
    hashes = hash_rows(pa.RecordBatch.from_arrays([pa.array([first, second])], names=["a"]))
    # A hash is multiplied by this odd number before the next column is added to it.
    step = np.uint64(0x9E3779B97F4A7C15)
    other = int((np.diff(hashes[::-1]) * step).view(np.int64)[0])
    rows = pa.table({"a": [first, second], "b": [0, other]})
    alike = hash_rows(rows.to_batches()[0])
    assert alike[0] == alike[1]
    assert find_repeated(KeyRows.of_table(rows, ["a", "b"])) is None
    one, two = (KeyRows.of_table(rows.slice(n, 1), ["a", "b"]) for n in range(2))
    assert find_shared(one, two) is None
    assert find_shared(one, one) is not None


def test_a_key_with_a_null_is_refused() -> None:
    rows = pa.table({"a": [1, 2], "b": ["x", None]})
    with pytest.raises(KeyConflictError, match="key column 'b' has nulls"):
        find_repeated(KeyRows.of_table(rows, ["a", "b"]))


def test_many_different_keys_are_not_found() -> None:
    count = 300_000
    rows = pa.table({"a": np.arange(count) // 4, "b": [f"line {n % 4}" for n in range(count)]})
    assert find_repeated(KeyRows.of_table(rows, ["a", "b"]), hashes_per_pass=100_000) is None
    others = pa.table({"a": np.arange(count), "b": ["line 4"] * count})
    assert find_shared(KeyRows.of_table(rows, ["a", "b"]), KeyRows.of_table(others, ["a", "b"])) is None
