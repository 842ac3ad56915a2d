"""Rows of Arrow on their way from worker to worker: pieces of Arrow's own format, which Spark moves as they are."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

__all__ = ["SHARED", "HeldRows", "iter_chunks", "pack", "row_width", "share_out", "unpack"]

SHARED = "bucket int, side int, number bigint, rows binary"

_BYTES_PER_CHUNK = 32 << 20
# What a value of no fixed length takes, by guess.
_BYTES_OF_TEXT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows:
    """Rows of one version in memory; `schema` is without the ids and addresses that may be behind the columns."""

    schema: pa.Schema
    batches: Sequence[pa.RecordBatch] = ()

    @property
    def rows(self) -> int:
        return sum(map(len, self.batches))

    def read(self) -> Iterator[pa.RecordBatch]:
        return iter(self.batches)

    def split(self, *, rows: int) -> "list[HeldRows]":
        return [self] if rows else []


def pack(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(piece: bytes | pa.Buffer) -> list[pa.RecordBatch]:
    """The rows of a piece; they lie where it lies."""
    with pa.ipc.open_stream(piece) as stream:
        return list(stream)


def iter_chunks(batches: Iterable[pa.RecordBatch], *, size: int = _BYTES_PER_CHUNK) -> Iterator[pa.Table]:
    """Combine or split batches so that each chunk has about `size` bytes, and at least one row."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        rows = max(1, len(batch) * size // max(1, batch.nbytes))
        for start in range(0, len(batch), rows):
            part = batch.slice(start, rows)
            held.append(part)
            held_bytes += part.nbytes
            if held_bytes >= size:
                yield pa.Table.from_batches(held)
                held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def share_out(rows: pa.Table, buckets: pa.Array, *, side: int, number: int) -> pa.RecordBatch:
    """Rows as one piece for each bucket that some of them are in; by the number, pieces are put in order again."""
    numbers = buckets.to_numpy(zero_copy_only=False)
    ordered = rows.combine_chunks().take(pa.array(np.argsort(numbers, kind="stable")))
    found, counts = np.unique(numbers, return_counts=True)
    starts = np.cumsum(counts) - counts
    pieces = [pack(ordered.slice(start, count)) for start, count in zip(starts.tolist(), counts.tolist(), strict=True)]
    return pa.record_batch(
        {
            "bucket": pa.array(found, pa.int32()),
            "side": pa.repeat(pa.scalar(side, pa.int32()), len(found)),
            "number": pa.repeat(pa.scalar(number, pa.int64()), len(found)),
            "rows": pa.array(pieces, pa.binary()),
        }
    )


def row_width(schema: pa.Schema) -> int:
    """About how many bytes a row takes."""
    return max(1, sum(map(_width, schema.types)))


def _width(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _width(kind.storage_type)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _width(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(_width(field.type) for field in kind)
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _BYTES_OF_TEXT
