"""Rows as Lance wants them in memory."""

import pyarrow as pa

__all__ = ["aligned"]

# The alignment of Rust's 128-bit integers, in which Lance reads decimals.
_BYTES = 16


def aligned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, with those columns copied at which Lance would panic: decimals that begin between 16-byte borders.

    Spark and other senders of Arrow's stream format keep borders of 8 bytes only.
    """
    columns = batch.columns
    arrays = [_aligned(column) for column in columns]
    if all(new is old for new, old in zip(arrays, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _aligned(column: pa.Array) -> pa.Array:
    if not _has_decimals(column.type) or all(b is None or b.address % _BYTES == 0 for b in column.buffers()):
        return column
    return pa.concat_arrays([column, column.slice(0, 0)])  # of one array alone it would make no copy


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimals(kind.field(n).type) for n in range(kind.num_fields))
