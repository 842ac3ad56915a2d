"""The types of columns that can be part of a key of rows that are matched in memory."""

import pyarrow as pa
import pytest

from anabranch.format.compare.matching import can_match

KINDS = (pa.bool_(), pa.uint8(), pa.float16(), pa.date32(), pa.time64("us"), pa.timestamp("s", "UTC"), pa.duration("s"))


@pytest.mark.parametrize("kind", [*KINDS, pa.decimal128(5, 2), pa.binary(3), pa.dictionary(pa.int8(), pa.string())])
def test_values_of_plain_types_can_be_keys(kind: pa.DataType) -> None:
    assert can_match(kind)


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.null(), pa.list_(pa.int8()), pa.struct([])])
def test_values_that_arrow_cannot_sort_are_not_keys(kind: pa.DataType) -> None:
    assert not can_match(kind)
