"""Whether rows differ from each other, found cheaply for the most common keys."""

import itertools

import numpy as np
import pyarrow as pa

__all__ = ["are_surely_unique"]


def are_surely_unique(rows: pa.Table) -> bool:
    """Whether all rows differ; False may mean that a closer check is needed.

    A hash table of ten million numbers takes most of a gigabyte; numbers that are sorted already take nothing.
    """
    # Keys of several columns have no order that is cheap to check.
    if rows.num_columns != 1 or rows.column(0).null_count:
        return False
    kind = rows.column(0).type
    if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        return False
    chunks = [_numbers(chunk) for chunk in rows.column(0).chunks if len(chunk)]
    if _increase(chunks):
        return True
    values = np.sort(np.concatenate(chunks)) if chunks else np.array([], dtype=np.int64)
    return bool((values[1:] != values[:-1]).all())


def _numbers(chunk: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    wide = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[chunk.type.bit_width]
    # Which number means a value does not matter here, as long as it is always the same.
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = chunk.view(wide).to_numpy()
    return found


def _increase(chunks: "list[np.ndarray[tuple[int], np.dtype[np.int64]]]") -> bool:
    inside = all((chunk[1:] > chunk[:-1]).all() for chunk in chunks)
    return inside and all(one[-1] < other[0] for one, other in itertools.pairwise(chunks))
