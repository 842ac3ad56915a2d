"""Read the rows of many files part by part in the requested columns, and find the columns of the files."""

import functools
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pa_parquet

from anabranch.errors import DamagedFileError, SchemaMismatchError
from anabranch.files.csv_reader import CsvReader
from anabranch.files.formats import Compression, CsvOptions, FileFormat
from anabranch.files.json_reader import JsonReader, unify_columns
from anabranch.files.records import Block, Part
from anabranch.files.sources import SourceFile, Span, Watch
from anabranch.files.type_inference import TypeInference
from anabranch.format.home import Home
from anabranch.format.scan import iter_batches
from anabranch.format.staging import VersionRef
from anabranch.format.staging.incoming import fit_rows

# A row group can be larger than memory once it is decoded.
_ROWS_PER_BATCH = 1 << 16


class _ObjectFile(io.RawIOBase):
    """A stored object as a file with random access."""

    def __init__(self, file: SourceFile) -> None:
        super().__init__()
        self._store, self._path, self._size = file.store, file.path, file.size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._at, 0)
        wanted = left if size < 0 else min(size, left)
        data = self._store.get_range(self._path, self._at, wanted) if wanted else b""
        self._at += len(data)
        return data


def _columns_of(file: SourceFile) -> pa.Schema:
    """Return the columns of a file of a typed format. Refuse a file with two columns of one name."""
    if file.format is FileFormat.LANCE:
        found = _version_ref(file).schema
    else:
        with _reading(file):
            is_parquet = file.format is FileFormat.PARQUET
            opened = _ObjectFile(file)
            found = pa_parquet.read_schema(opened) if is_parquet else pa_orc.ORCFile(opened).schema
            found = found.remove_metadata()
    for name in found.names:
        # Columns are matched by name, so equal names are ambiguous.
        if found.names.count(name) > 1:
            problem = f"{file.uri!r} has more than one column {name!r}"
            raise SchemaMismatchError(problem, hint="name each column once")
    return found


def _iter_rows(file: SourceFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of a typed format."""
    if file.format is FileFormat.LANCE:
        yield from iter_batches(_version_ref(file))
        return
    with _reading(file):
        if file.format is FileFormat.PARQUET:
            # With a buffer, Arrow would hold the columns of a whole row group.
            opened = pa_parquet.ParquetFile(_ObjectFile(file), pre_buffer=False)
            yield from opened.iter_batches(batch_size=_ROWS_PER_BATCH)
            return
        stripes = pa_orc.ORCFile(_ObjectFile(file))
        for number in range(stripes.nstripes):
            yield from pa.Table.from_batches([stripes.read_stripe(number)]).to_batches(max_chunksize=_ROWS_PER_BATCH)


def _version_ref(file: SourceFile) -> VersionRef:
    home = Home.at(file.uri, file.storage_options)
    return VersionRef(home=home, version=home.head_version())


@contextmanager
def _reading(file: SourceFile) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as err:
        raise DamagedFileError(
            f"{file.uri!r} is not a {file.format.value} file, or is damaged: {err}",
            hint="check the file, or its format",
        ) from err


# Enough to keep all threads busy, few enough for the memory. The same on all machines, so that results are equal.
_AHEAD = 4
_THREADS = min(4, os.cpu_count() or 1)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The options for reading files of one format. Without a header, columns have these `names`."""

    format: FileFormat
    csv: CsvOptions = field(default_factory=CsvOptions)
    names: tuple[str, ...] | None = None

    def text_reader(self) -> CsvReader | JsonReader:
        if self.format is FileFormat.CSV:
            return CsvReader(self.csv, None if self.csv.header else self.names)
        return JsonReader()


def iter_parts(
    files: Sequence[SourceFile], reading: Reading, schema: pa.Schema, *, watch: Watch | None = None
) -> Iterator[Part]:
    """Yield all rows in the order of the files, in the columns of the schema that each file has."""
    if not reading.format.is_text:
        yield from _iter_columnar(files, schema, watch)
        return
    reader = reading.text_reader()
    yield from _map_ahead(lambda item: reader.parse(*item, schema), _iter_blocks(files, reader, watch))


def _iter_blocks(
    files: Sequence[SourceFile], reader: CsvReader | JsonReader, watch: Watch | None = None
) -> Iterator[tuple[SourceFile, Block]]:
    return ((file, block) for file in files for block in reader.blocks(file, watch=watch))


def check_columns(
    files: Sequence[SourceFile], reading: Reading, expected: Sequence[str], *, may_lack: bool
) -> tuple[str, ...]:
    """Return the expected columns that the files have. Refuse files that lack required columns or have unknown ones.

    JSON objects name their own fields, so JSON files are not checked.
    """
    if reading.format is FileFormat.JSON:
        return tuple(expected)
    given: tuple[str, ...] | None = None
    for file in files:
        found = _known_columns(file, reading, expected, may_lack=may_lack)
        # All files must lack the same columns, so that all rows of a load update the same columns.
        if given is not None and found != given:
            raise SchemaMismatchError(
                f"{file.uri!r} has other columns than {files[0].uri!r}", hint="load files of the same columns together"
            )
        given = found
    return given if given is not None else tuple(expected)


def _known_columns(file: SourceFile, reading: Reading, expected: Sequence[str], *, may_lack: bool) -> tuple[str, ...]:
    """Return the expected columns that a file has. Refuse a file that lacks required columns or has unknown ones."""
    names = _names_of(file, reading)
    if not names and expected:
        raise SchemaMismatchError(
            f"{file.uri!r} is empty", hint=f"write a header with the columns {', '.join(expected)}, or leave it out"
        )
    known = tuple(name for name in expected if name in names)
    if not set(names) <= set(expected) or (len(known) < len(expected) and not may_lack):
        raise _wrong_columns(file, names, expected)
    return known


def _wrong_columns(file: SourceFile, names: Sequence[str], expected: Sequence[str]) -> SchemaMismatchError:
    extra = [name for name in names if name not in expected]
    missing = [name for name in expected if name not in names]
    differences = {"also has": extra, "lacks": missing}
    parts = [f"{what} {', '.join(map(repr, found))}" for what, found in differences.items() if found]
    return SchemaMismatchError(
        f"{file.uri!r} {' and '.join(parts)}: the columns are {', '.join(map(repr, expected))}",
        hint="correct the file, or change the table's columns first",
    )


def find_columns(files: Sequence[SourceFile], reading: Reading, given: pa.Schema) -> pa.Schema:
    """Return the columns of all files, with the given types or, for the others, types inferred from every value."""
    if not reading.format.is_text:
        found = _columns_of(files[0])
        return pa.schema([given.field(f.name) if f.name in given.names else _plain(f) for f in found])
    reader = reading.text_reader()
    blocks = _iter_blocks(files, reader)
    if isinstance(reader, JsonReader):
        guess = reader.guess
        schemas = [schema for found in _map_ahead(lambda item: guess(item[1]), blocks) for schema in found]
        return unify_columns(schemas, given)
    inference = TypeInference(reader, given)
    for file in files:
        # Add all names before the first block: the threads read them, and must not add any.
        inference.expect(reader.names_of(file))
    for found in _map_ahead(inference.look, blocks):
        inference.add(found)
    return inference.schema()


def _names_of(file: SourceFile, reading: Reading) -> tuple[str, ...]:
    reader = reading.text_reader() if reading.format.is_text else None
    return reader.names_of(file) if isinstance(reader, CsvReader) else tuple(_columns_of(file).names)


def _plain(field: pa.Field) -> pa.Field:
    """Return a column without dictionaries, which are only an encoding of files."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind, field.nullable)


def _iter_columnar(files: Sequence[SourceFile], schema: pa.Schema, watch: Watch | None) -> Iterator[Part]:
    for file in files:
        columns = _columns_of(file)
        reader = pa.RecordBatchReader.from_batches(columns, _iter_rows(file))
        try:
            for batch in fit_rows(reader, schema).batches:
                yield Part(file.uri, pa.Table.from_batches([batch]))
        except SchemaMismatchError as err:
            raise SchemaMismatchError(f"{file.uri!r}: {err.problem}", hint=err.hint) from err
        if watch is not None:
            watch(file.size)


def _map_ahead(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Process a few items at a time, and yield the results in order."""
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="anabranch-files") as pool:
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                # Without a bound, blocks would be read faster than they are parsed, and fill the memory.
                if len(waiting) >= _AHEAD:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(functools.partial(work, item)))
            while waiting:
                yield waiting.popleft().result()
        finally:
            # The caller may stop early, or an error was raised.
            for future in waiting:
                future.cancel()


def cut_file(file: SourceFile, reading: Reading, *, span_bytes: int) -> tuple[SourceFile, ...]:
    """Cut a file into spans of about the given size, if possible. The file is read once and not parsed."""
    if file.size <= span_bytes or not _can_be_cut(file, reading):
        return (file,)
    starts: list[tuple[int, int]] = []  # the offset of a span from the first record, and its line
    read = 0
    for block in reading.text_reader().blocks(file):
        # The block has no known position in the file, as in a JSON array.
        if not block.size:
            return (file,)
        if not starts or read - starts[-1][0] >= span_bytes:
            starts.append((read, block.line))
        read += block.size
    # The header, skipped lines and a byte order mark are in front of the first block.
    before = file.size - read
    ends = [start for start, _ in starts[1:]] + [read]
    return tuple(
        replace(file, span=Span(start=before + start, end=before + end, line=line), size=end - start)
        for (start, line), end in zip(starts, ends, strict=True)
    )


def _can_be_cut(file: SourceFile, reading: Reading) -> bool:
    """Return whether a file can be read from any record. It cannot if it is compressed or must be decoded."""
    is_utf8 = reading.format is not FileFormat.CSV or reading.csv.is_utf8
    return reading.format.is_text and file.compression is Compression.NONE and is_utf8
