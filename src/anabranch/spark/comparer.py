"""Match and compare rows on Spark's workers, without converting them to rows of Spark.

Workers read the rows of all sides and divide them, so that rows that may match are in one bucket. The engine for one
process then compares each bucket. Rows are sent in Arrow's format, so no value is converted.
"""

import itertools
import operator
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import MissingDependencyError
from anabranch.format.compare.parts import ROW_ID
from anabranch.repo.history.comparer import BucketingComparer, RowComparison, RowMerge, TableCounts, count_rows
from anabranch.spark.session import can_start, get_session
from anabranch.spark.tasks import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SHARED = "bucket int, side int, number bigint, rows binary"

_BYTES_PER_CHUNK = 32 << 20
# The estimated bytes of a value without a fixed length.
_BYTES_OF_TEXT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows:
    """Rows of one version in memory. `schema` excludes ids and addresses, which may follow the columns."""

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
    """Return the rows of a piece, without copying them."""
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
    """Return rows as one piece for each bucket. `number` is the position of the pieces in the order."""
    numbers = buckets.to_numpy(zero_copy_only=False)
    # Stable: rows of a bucket keep their order, so that results can be repeated.
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
    """Return the approximate number of bytes of a row."""
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
    # Arrow has no bit width for types whose values differ in length.
    except ValueError:
        return _BYTES_OF_TEXT


_Question = TypeVar("_Question", RowComparison, RowMerge)
_Batches = Iterator[pa.RecordBatch]
_LoadLocal = Callable[[], BucketingComparer]
_ANSWERS = "part int, rows binary"
_CHUNK_BITS = 32
_COUNTS = ("inserted", "updated", "deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amounts of data that a worker reads in one task, and that it compares in one bucket."""

    rows_per_task: int = 500_000
    rows_per_bucket: int = 250_000
    bytes_per_bucket: int = 64 << 20
    fewest_buckets: int = 4

    def count_buckets(self, question: RowComparison | RowMerge) -> int:
        width = max((row_width(side.schema) for side in question.sides if side is not None), default=1)
        rows = max(1, min(self.rows_per_bucket, self.bytes_per_bucket // width))
        return max(self.fewest_buckets, -(-count_rows(question) // rows))


class SparkComparer:
    """Compares with the running session, or with one that it starts.

    `load_local` returns the engine for one process. Workers call it, too.
    """

    def __init__(self, load_local: _LoadLocal, *, sizes: Sizes | None = None) -> None:
        self._load_local = load_local
        self._sizes = Sizes() if sizes is None else sizes

    @property
    def is_ready(self) -> bool:
        return can_start()

    def count(self, comparison: RowComparison) -> TableCounts:
        local = self._load_local

        def answer(asked: RowComparison, _bucket: int) -> _Batches:
            found = local().count(asked)
            yield pa.record_batch({name: [getattr(found, name)] for name in _COUNTS})

        with spark_errors():
            rows = self._ask(comparison, answer, ", ".join(f"{name} bigint" for name in _COUNTS)).collect()
        return TableCounts(**{name: sum(row[name] for row in rows) for name in _COUNTS})

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        local = self._load_local

        def answer(asked: RowComparison, bucket: int) -> _Batches:
            for chunk in iter_chunks(local().compare(asked)):
                yield _numbered(bucket, chunk)

        return pa.RecordBatchReader.from_batches(
            local().compare(comparison).schema,
            _collect(lambda: self._ask(comparison, answer, _ANSWERS), parts=self._sizes.count_buckets(comparison)),
        )

    def merge(self, merge: RowMerge) -> pa.RecordBatchReader:
        local, buckets = self._load_local, self._sizes.count_buckets(merge)

        def answer(asked: RowMerge, bucket: int) -> _Batches:
            for chunk in iter_chunks(local().merge(asked)):
                # New rows are last in each bucket. They are kept in parts after all buckets.
                there = len(chunk) - _count_new(chunk)
                yield _numbered(bucket, chunk.slice(0, there))
                yield _numbered(buckets + bucket, chunk.slice(there))

        return pa.RecordBatchReader.from_batches(
            local().merge(merge).schema, _collect(lambda: self._ask(merge, answer, _ANSWERS), parts=2 * buckets)
        )

    def _ask(self, question: _Question, answer: Callable[[_Question, int], _Batches], columns: str) -> "DataFrame":
        """Compute each bucket by a function of the question and the number of the bucket."""
        buckets = self._sizes.count_buckets(question)
        # The question is sent to the workers with the function, so it must not have the rows.
        asked = _with_rows(question, {})
        shared = self._share(question, asked, buckets).repartitionById(buckets, "bucket")
        if _is_matched_twice(question):
            # Equal rows are removed in their bucket. The remaining rows are matched again by row ids.
            cancelled = shared.mapInArrow(_matching(asked, _cancelling(self._load_local, buckets)), SHARED)
            shared = cancelled.repartitionById(buckets, "bucket")
        return shared.mapInArrow(_matching(asked, answer), columns)

    def _share(self, question: _Question, asked: _Question, buckets: int) -> "DataFrame":
        """Read the rows of all sides, with the bucket of each.

        Tasks are sent with the function, not as rows: plans show rows, and tasks may have credentials.
        """
        tasks = [
            pickle.dumps((number, piece))
            for number, side in enumerate(question.sides)
            if side is not None
            for piece in side.split(rows=self._sizes.rows_per_task)
        ]
        load_local, hashing = self._load_local, self._load_local().hashing
        by_row_id = _is_matched_by_ids(question)

        def run(batches: _Batches) -> _Batches:
            local = load_local()
            # With two hash functions, equal keys would be sent to different buckets and never be matched.
            if local.hashing != hashing:
                raise MissingDependencyError(
                    f"a worker has {local.hashing}, and the driver has {hashing}", hint="install one version everywhere"
                )
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    side, rows = pickle.loads(tasks[task])  # noqa: S301 - our own
                    # The numbers put the pieces in order again: by task, then by chunk.
                    for number, chunk in enumerate(iter_chunks(rows.read()), task << _CHUNK_BITS):
                        if by_row_id:
                            found = _buckets_of_ids(chunk, buckets)
                        else:
                            part = _with_rows(asked, {side: chunk.to_batches()})
                            found = local.find_buckets(part, side=side, buckets=buckets)
                        yield share_out(chunk, found, side=side, number=number)

        return get_session().range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(run, SHARED)


def _is_matched_by_ids(question: RowComparison | RowMerge) -> bool:
    return isinstance(question, RowMerge) and not question.keys


def _is_matched_twice(question: RowComparison | RowMerge) -> bool:
    """Return whether rows are matched by their values and then by their row ids."""
    if isinstance(question, RowMerge) or question.keys:
        return False
    return question.has_row_ids and question.older is not None and question.newer is not None


def _matching(asked: _Question, answer: Callable[[_Question, int], _Batches]) -> Callable[[_Batches], _Batches]:
    """Return a function that computes the result of one partition, which has the rows of one bucket."""

    def run(batches: _Batches) -> _Batches:
        pieces = [piece for batch in batches for piece in zip(*batch.columns, strict=True)]
        # Spark delivers rows in any order. Sort them, so that results can be repeated.
        pieces.sort(key=lambda piece: piece[2].as_py())
        held: dict[int, list[pa.RecordBatch]] = {}
        for _, side, _, rows in pieces:
            held.setdefault(side.as_py(), []).extend(unpack(rows.as_buffer()))
        if pieces:
            yield from answer(_with_rows(asked, held), pieces[0][0].as_py())

    return run


def _cancelling(load_local: _LoadLocal, buckets: int) -> Callable[[Any, int], _Batches]:
    def cancel(asked: RowComparison, bucket: int) -> _Batches:
        left = itertools.groupby(load_local().cancel(asked), key=operator.itemgetter(0))
        for side, found in left:
            chunks = iter_chunks(batch for _, batch in found)
            for number, chunk in enumerate(chunks, bucket << _CHUNK_BITS):
                yield share_out(chunk, _buckets_of_ids(chunk, buckets), side=side, number=number)

    return cancel


def _collect(begin: Callable[[], "DataFrame"], *, parts: int) -> _Batches:
    """Collect the results part by part: all are computed concurrently, and few are in memory."""
    with spark_errors():
        for row in begin().repartitionById(parts, "part").toLocalIterator():
            yield from unpack(row.rows)


def _numbered(number: int, rows: pa.Table) -> pa.RecordBatch:
    return pa.record_batch({"part": pa.array([number], pa.int32()), "rows": pa.array([pack(rows)], pa.binary())})


def _count_new(rows: pa.Table) -> int:
    """Return the number of rows in the result of a merge that are new in the target."""
    is_inserted = pc.equal(rows.column("source_change"), "inserted")
    return int(pc.sum(pc.and_(is_inserted, rows.column("target_address").is_null())).as_py() or 0)


def _buckets_of_ids(rows: pa.Table, buckets: int) -> pa.Array:
    return pa.array(rows.column(ROW_ID).to_numpy() % buckets)


def _with_rows(question: _Question, rows: dict[int, list[pa.RecordBatch]]) -> _Question:
    """Return the same question with other rows on each side."""
    return question.with_sides(
        [
            None if side is None else HeldRows(schema=side.schema, batches=rows.get(number, []))
            for number, side in enumerate(question.sides)
        ]
    )
