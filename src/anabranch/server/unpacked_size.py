"""Limit what a compressed upload unpacks to: a small file may hold a text of gigabytes."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain, product
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.duck.statement import quoted
from anabranch.errors import TooLargeError
from anabranch.files.formats import FileFormat
from anabranch.server.files import Upload
from anabranch.server.jobs import Progress, Report
from anabranch.server.settings import Limits

_CODECS = {".gz": "gzip", ".zst": "zstd"}
_CHUNK_BYTES = 1 << 20
_VALUES_PER_BATCH = 1 << 20
# The functions of DuckDB that return the number of bytes of a value, by the names of types.
_LENGTHS = {"VARCHAR": "strlen", "JSON": "strlen", "BLOB": "octet_length"}


def check_unpacked_size(upload: Upload, kind: FileFormat, limits: Limits, report: Report) -> None:
    """Raise TooLargeError if a compressed upload unpacks to more than the limits allow.

    The file is unpacked piece by piece and the pieces are dropped, so that memory and disk stay small. Damaged files
    pass: the load reports them with their line.
    """
    codec = _CODECS.get(upload.path.suffix)
    if codec is not None:
        parts = [_iter_unpacked(upload.path, codec)]
    elif kind is FileFormat.PARQUET:
        parts = [_iter_chunk_sizes(upload.path), _iter_text_sizes(upload.path)]
    else:
        return
    # Repetitive text compresses well, so the ratio matters only beyond a free size.
    most = min(limits.unpacked_bytes, max(limits.unpacked_free_bytes, limits.unpacked_ratio * upload.size_bytes))
    with suppress(OSError, pa.ArrowException, duckdb.Error):
        for size in chain.from_iterable(map(accumulate, parts)):
            report(Progress())  # stops a job that was cancelled
            if size > most:
                raise TooLargeError(
                    f"'{upload.name}' has {upload.size_bytes} bytes and unpacks to more than {most}",
                    hint="send it in smaller parts, or without compression",
                )


def _iter_unpacked(path: Path, codec: str) -> Iterator[int]:
    with pa.CompressedInputStream(pa.OSFile(str(path)), codec) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield len(chunk)


def _iter_chunk_sizes(path: Path) -> Iterator[int]:
    """Yield the sizes of the column chunks of a Parquet file. A value counts as one byte or more."""
    metadata = pq.read_metadata(path)
    for group, column in product(range(metadata.num_row_groups), range(metadata.num_columns)):
        chunk = metadata.row_group(group).column(column)
        yield max(chunk.total_uncompressed_size, chunk.num_values)


def _iter_text_sizes(path: Path) -> Iterator[int]:
    """Yield the sizes of the texts of a Parquet file. A chunk may name one long text very often.

    DuckDB does not copy such a text, and does not look up texts that occur once. In nested columns it would copy them,
    so Arrow reads these as dictionaries.
    """
    measured: set[str] = set()
    counted = 0
    try:
        with duckdb.connect(config={"threads": "1"}) as database:
            columns = database.execute("DESCRIBE SELECT * FROM read_parquet($1)", [str(path)]).fetchall()
            lengths = {name: f"{_LENGTHS[kind]}({quoted(name)})" for name, kind, *_ in columns if kind in _LENGTHS}
            for size in _iter_sums(database, path, list(lengths.values())):
                counted += size
                yield size
        measured = set(lengths)
    # DuckDB refuses texts that are not UTF-8, which the load reads. Then Arrow measures all texts.
    except (OSError, pa.ArrowException, duckdb.Error):
        yield -counted
    if others := _list_texts(path, without=measured):
        with pq.ParquetFile(path, read_dictionary=others) as file:
            for batch in file.iter_batches(columns=others):
                yield from map(_text_size, batch.columns)


def _iter_sums(database: duckdb.DuckDBPyConnection, path: Path, expressions: Sequence[str]) -> Iterator[int]:
    """Yield the sums of the values of expressions over batches of rows."""
    if expressions:
        database.execute(f"SELECT {', '.join(expressions)} FROM read_parquet($1)", [str(path)])  # noqa: S608
        for batch in database.to_arrow_reader(max(1, _VALUES_PER_BATCH // len(expressions))):
            yield pc.sum(pa.chunked_array(batch.columns)).as_py() or 0


def _list_texts(path: Path, *, without: Collection[str]) -> list[str]:
    """Return the paths of columns of texts, also of nested ones, without the given columns."""
    schema = pq.read_metadata(path).schema
    texts = [leaf for leaf in map(schema.column, range(len(schema.names))) if leaf.physical_type == "BYTE_ARRAY"]
    return [leaf.path for leaf in texts if leaf.path != leaf.name or leaf.name not in without]


def _text_size(values: pa.Array) -> int:
    kind = values.type
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(values.dictionary).take(values.indices)
        return pc.sum(lengths).as_py() or 0
    if pa.types.is_map(kind):
        return _text_size(values.keys) + _text_size(values.items)
    if pa.types.is_struct(kind):
        return sum(map(_text_size, values.flatten()))
    return _text_size(values.flatten()) if pa.types.is_nested(kind) else 0
