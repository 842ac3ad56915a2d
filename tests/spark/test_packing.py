"""Rows in pieces, as they go from worker to worker."""

import pyarrow as pa
import pytest

from anabranch.spark.comparer import iter_chunks, pack, row_width, share_out, unpack
from tests.duck.test_comparer import CASES, column


def batches(*sizes: int) -> list[pa.RecordBatch]:
    whole = pa.record_batch({"id": pa.array(range(sum(sizes)), pa.int64())})
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return [whole.slice(start, size) for start, size in zip(starts, sizes, strict=True)]


@pytest.mark.parametrize(
    ("sizes", "chunks"),
    [
        ((), []),
        ((3,), [3]),
        ((4, 4, 4, 1), [12, 1]),
        ((30,), [10, 10, 10]),
        ((9, 2, 25), [11, 10, 10, 5]),
    ],
)
def test_chunks_have_about_the_size_that_is_wanted(sizes: tuple[int, ...], chunks: list[int]) -> None:
    found = list(iter_chunks(batches(*sizes), size=80))
    assert [len(chunk) for chunk in found] == chunks
    ids = [number for chunk in found for number in chunk.column("id").to_pylist()]
    assert ids == list(range(sum(sizes)))


def test_a_row_larger_than_a_chunk_is_one_of_its_own() -> None:
    rows = pa.record_batch({"blob": [b"x" * 1000] * 3})
    assert [len(chunk) for chunk in iter_chunks([rows], size=80)] == [1, 1, 1]


@pytest.mark.parametrize(("kind", "value", "other"), CASES, ids=[str(case[0]) for case in CASES])
def test_rows_of_every_type_reach_their_buckets_unchanged(kind: pa.DataType, value: object, other: object) -> None:
    values = pa.chunked_array([column(kind, value, None), column(kind, other, value)])
    rows = pa.table({"id": pa.chunked_array([[0, 1], [2, 3]]), "x": values})
    shared = share_out(rows, pa.array([2, 7, 2, 2], pa.int32()), side=1, number=5)
    found = shared.to_pylist()
    assert [(piece["bucket"], piece["side"], piece["number"]) for piece in found] == [(2, 1, 5), (7, 1, 5)]
    pieces = [pa.Table.from_batches(unpack(piece["rows"])) for piece in found]
    assert [piece.schema for piece in pieces] == [rows.schema] * 2
    assert pieces[0].to_pylist() == rows.take([0, 2, 3]).to_pylist()
    assert pieces[1].to_pylist() == rows.slice(1, 1).to_pylist()


def test_no_rows_are_a_piece_too() -> None:
    nothing = pa.schema([("id", pa.int64())]).empty_table()
    assert sum(map(len, unpack(pack(nothing)))) == 0


def test_rows_are_as_wide_as_their_types() -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.float32(), 256)), ("u", pa.uuid())])
    assert row_width(schema) == 8 + 1024 + 16
    assert row_width(pa.schema([("s", pa.struct([("a", pa.bool_()), ("b", pa.string())]))])) == 33
    assert row_width(pa.schema([])) == 1
