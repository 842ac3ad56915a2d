"""Write rows as files for other programs. Each file gets its name when it is complete."""

import codecs
import io
import json
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.orc as pa_orc
import pyarrow.parquet as pa_parquet

from anabranch.errors import InvalidInputError
from anabranch.files.formats import Compression, CsvOptions, FileFormat, format_of_name, json_rows
from anabranch.storage import ObjectStore, open_files
from anabranch.storage.uris import join_uri, normalise_uri

# Five digits or more, as `name_of` writes them.
_PART_NAME = re.compile(r"part-\d{5,}\.(?:csv|json|orc|parquet)(?:\.gz|\.zst)?")
# CSV options for reading only, with their defaults. Arrow writes one kind of quotes, and does not escape.
# Not all supported releases of Arrow write another text for null.
_READ_ONLY: Mapping[str, tuple[tuple[object, ...], str]] = {
    "quote": (('"', None), "leave quote out, or give None if no value needs quotes"),
    "escape": ((None,), "leave escape out: a quote inside a value is written twice"),
    "columns": ((None,), "leave columns out of the CSV options: the columns are chosen by the export"),
    "null": ((("",),), "leave null out: a null is written as an empty field"),
    "skip": ((0,), "leave skip out: the header is the first line"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of written rows: one file, or a folder of files."""

    uri: str
    format: FileFormat
    compression: Compression
    is_folder: bool
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(
        cls,
        target: str | os.PathLike[str],
        *,
        format: FileFormat | None,  # noqa: A002 - the name that users know
        single_file: bool,
        storage_options: Mapping[str, str],
    ) -> "Target":
        uri = normalise_uri(target)
        named, compression = format_of_name(uri.rpartition("/")[2])
        kind = format or named
        if kind is None:
            raise InvalidInputError(
                f"the name {uri!r} does not have the suffix of a format",
                hint="end the name with a suffix such as .csv, or pass `format=...`: csv, json, parquet, orc or lance",
            )
        if compression is not Compression.NONE and not kind.is_text:
            raise InvalidInputError(f"{kind.value} files compress by themselves", hint="leave the last ending out")
        is_folder = not single_file and named is None and kind is not FileFormat.LANCE
        return cls(
            uri=uri, format=kind, compression=compression, is_folder=is_folder, storage_options=dict(storage_options)
        )

    def location(self) -> tuple[ObjectStore, str]:
        """The store, and the path of a single file in it."""
        if self.is_folder:
            return open_files(self.uri, self.storage_options), ""
        root, _, name = self.uri.rpartition("/")
        return open_files(root or "/", self.storage_options), name

    def name_of(self, number: int) -> str:
        ending = {Compression.NONE: "", Compression.GZIP: ".gz", Compression.ZSTD: ".zst"}[self.compression]
        return f"part-{number:05d}.{self.format.value}{ending}"

    def uri_of(self, path: str) -> str:
        return join_uri(self.uri, path) if self.is_folder else self.uri


def is_part_name(path: str) -> bool:
    """Return whether a path in a folder has the form of a file of an export."""
    return _PART_NAME.fullmatch(path) is not None


def write_file(store: ObjectStore, path: str, target: Target, rows: pa.RecordBatchReader, csv: CsvOptions) -> None:
    """Write rows as one file, in pieces. If that fails, no file is left."""

    def write(sink: "_Sink") -> None:
        try:
            _write(sink, target, rows, csv)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as err:
            raise InvalidInputError(
                f"these rows have no form in {target.format.value}: {err}", hint="leave columns out, or choose another"
            ) from None

    store.put_stream(path, _pieces(write))


def _write(sink: "_Sink", target: Target, rows: pa.RecordBatchReader, csv: CsvOptions) -> None:
    packed: pa.NativeFile = pa.PythonFile(sink, mode="w")
    if target.compression is not Compression.NONE:
        packed = pa.CompressedOutputStream(packed, target.compression.value)
    with packed:
        match target.format:
            case FileFormat.CSV:
                _write_csv(packed, rows, csv)
            case FileFormat.JSON:
                _write_json(packed, rows)
            case FileFormat.PARQUET:
                with pa_parquet.ParquetWriter(packed, rows.schema) as parquet:
                    for batch in rows:
                        parquet.write_batch(batch)
            case FileFormat.ORC:
                with pa_orc.ORCWriter(packed) as orc:
                    for batch in rows:
                        orc.write(pa.Table.from_batches([batch]))
            case FileFormat.LANCE:
                raise AssertionError("a Lance dataset is not a file")


def _write_json(sink: pa.NativeFile, rows: pa.RecordBatchReader) -> None:
    for column in rows.schema:
        if _has_bytes(column.type):
            # A load would read base 64 as the bytes themselves.
            raise pa.ArrowInvalid(f"column {column.name!r} has bytes, which JSON does not have")
    for batch in rows:
        for row in json_rows(batch):
            sink.write(json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def _has_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_bytes(kind.field(number).type) for number in range(kind.num_fields))
    if isinstance(kind, pa.DictionaryType):
        return _has_bytes(kind.value_type)
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def check_csv(csv: CsvOptions) -> None:
    """Raise InvalidInputError for an option that exports to CSV do not support."""
    for name, (written, hint) in _READ_ONLY.items():
        value = getattr(csv, name)
        if value not in written:
            raise InvalidInputError(f"CSV is not written with the option {name}={value!r}", hint=hint)


def _write_csv(sink: pa.NativeFile, rows: pa.RecordBatchReader, csv: CsvOptions) -> None:
    options = pa_csv.WriteOptions(
        include_header=False, delimiter=csv.separator, quoting_style="needed" if csv.quote else "none"
    )
    # Arrow writes whole rows at once, so no character is divided between two writes.
    is_utf8 = codecs.lookup(csv.encoding).name == "utf-8"
    text = sink if is_utf8 else codecs.EncodedFile(sink, "utf-8", csv.encoding)
    try:
        if csv.header:
            # Write the header as a row of text: Arrow's own header always has quotes.
            names = rows.schema.names
            pa_csv.write_csv(pa.table([[name] for name in names], names=names), text, options)
        with pa_csv.CSVWriter(text, rows.schema, write_options=options) as writer:
            for batch in rows:
                writer.write_batch(batch)
    except UnicodeEncodeError as err:
        raise InvalidInputError(
            f"the encoding {csv.encoding} does not have the character {err.object[err.start]!r}",
            hint="pass `csv=CsvOptions(encoding='utf-8')`",
        ) from None


class _Sink(io.RawIOBase):
    """A file whose written bytes are read, piece by piece, in another thread."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self._put = put
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self._at += len(piece)
        if piece:
            self._put(piece)
        return len(piece)


def _pieces(write: Callable[[_Sink], None]) -> Iterator[bytes]:
    """Yield what a function writes, while it writes. Raise its error instead of ending the stream."""
    # Bounded: if the store is slower than the table, the rows wait instead of filling the memory.
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=8)
    is_left = threading.Event()

    def put(piece: bytes | BaseException | None) -> None:
        while not is_left.is_set():
            try:
                # With a timeout, because the reader may have stopped while the queue is full.
                waiting.put(piece, timeout=0.1)
            except queue.Full:
                continue
            return
        raise BrokenPipeError("the reader of the pieces has stopped")

    def work() -> None:
        try:
            write(_Sink(put))
            put(None)
        except BaseException as err:  # noqa: BLE001 - raised again where it is waited for
            if not is_left.is_set():
                put(err)

    thread = threading.Thread(target=work, name="anabranch-export", daemon=True)
    thread.start()
    try:
        while (piece := waiting.get()) is not None:
            # Raised before the end of the stream, so that the store does not complete the object.
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        # Also if the upload failed: the thread would wait for a reader forever.
        is_left.set()
        thread.join()
