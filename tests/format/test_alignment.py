"""Rows that other programs laid out in memory."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from anabranch.format import staging
from anabranch.format.home import Home
from anabranch.format.staging.incoming import aligned

COUNT = 5


def between_borders() -> pa.Array:
    """Decimals that begin 8 bytes after a 16-byte border, as in what Spark sends; Lance panics at them."""
    buffer = pa.allocate_buffer(16 * (COUNT + 1))
    view = np.frombuffer(buffer, dtype=np.int64)
    view[:] = 0
    view[1 : 1 + 2 * COUNT : 2] = np.arange(COUNT)
    shift = 8 if buffer.address % 16 == 0 else 0
    values = pa.Array.from_buffers(pa.decimal128(20, 0), COUNT, [None, buffer.slice(shift, 16 * COUNT)])
    assert values.buffers()[1].address % 16 == 8
    return values


@pytest.mark.parametrize(
    "wrap",
    [
        lambda values: values,
        lambda values: pa.StructArray.from_arrays([values], ["d"]),
        lambda values: pa.ListArray.from_arrays(pa.array(range(COUNT + 1), pa.int32()), values),
    ],
    ids=["plain", "struct", "list"],
)
def test_decimals_between_borders_are_copied_and_stored(tmp_path: Path, wrap: Callable[[pa.Array], pa.Array]) -> None:
    rows = pa.table({"id": pa.array(range(COUNT)), "d": wrap(between_borders())})
    version_ref = staging.append(staging.create_empty(Home.at(tmp_path / "t.lance"), rows.schema), rows)
    assert version_ref.open().to_table().equals(rows)


def test_aligned_rows_are_not_copied() -> None:
    batch = pa.record_batch({"id": pa.array([1, 2]), "d": pa.array([1, 2], pa.decimal128(20, 0))})
    assert aligned(batch) is batch
