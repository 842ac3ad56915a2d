"""Parquet, ORC and Lance: files that bring their own types."""

import io
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.orc as pa_orc
import pyarrow.parquet as pa_parquet

from anabranch.errors import DamagedFileError, SchemaMismatchError
from anabranch.files.formats import FileFormat
from anabranch.files.search import SourceFile
from anabranch.format.home import Home
from anabranch.format.scan import iter_batches
from anabranch.format.staging import VersionRef

__all__ = ["columns_of", "iter_rows"]

# A row group can be larger than memory once it is decoded.
_ROWS_PER_BATCH = 1 << 16


class _ObjectFile(io.RawIOBase):
    """A stored object as a file that can be read anywhere."""

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


def columns_of(file: SourceFile) -> pa.Schema:
    """The columns that a file has; refuse a file with two of one name."""
    found = _read_columns(file)
    for name in found.names:
        # Columns are matched by name, so two of one name are ambiguous.
        if found.names.count(name) > 1:
            problem = f"{file.uri!r} has more than one column {name!r}"
            raise SchemaMismatchError(problem, hint="name each column once")
    return found


def _read_columns(file: SourceFile) -> pa.Schema:
    if file.format is FileFormat.LANCE:
        return _version_ref(file).schema
    with _reading(file):
        if file.format is FileFormat.PARQUET:
            return pa_parquet.ParquetFile(_ObjectFile(file)).schema_arrow.remove_metadata()
        return pa_orc.ORCFile(_ObjectFile(file)).schema.remove_metadata()


def iter_rows(file: SourceFile) -> Iterator[pa.RecordBatch]:
    """The rows, batch by batch."""
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
