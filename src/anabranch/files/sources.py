"""The files of a load: find them on local disk and in object stores, and read their text as UTF-8."""

import codecs
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath

import pyarrow as pa

from anabranch.errors import DamagedFileError, InvalidInputError, InvalidPathError, ObjectNotFoundError, StorageError
from anabranch.files.formats import Compression, FileFormat, format_of_name
from anabranch.hints import suggest
from anabranch.storage import ObjectStore, open_files
from anabranch.storage.uris import is_local, join_uri, normalise_uri, split_uri

_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Some whole records of a text file: their start, their end, and the line of the first."""

    start: int
    end: int
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file with rows, or the folder of a Lance dataset. With a span, only the records in it."""

    root: str
    path: str
    size: int
    format: FileFormat
    compression: Compression = Compression.NONE
    span: Span | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def uri(self) -> str:
        return join_uri(self.root, self.path)

    @property
    def store(self) -> ObjectStore:
        return open_files(self.root, self.storage_options)


def find_files(
    sources: Sequence[str | os.PathLike[str]],
    *,
    format: FileFormat | None = None,  # noqa: A002 - the name that users know
    storage_options: Mapping[str, str] | None = None,
) -> tuple[SourceFile, ...]:
    """Return the files of all sources without repetition, ordered by source and then by path.

    In folders and patterns, skip files and folders whose names begin with '.' or '_', and files with the suffix of
    another format.
    """
    options = dict(storage_options or {})
    found: dict[str, SourceFile] = {}
    for source in sources:
        for file in _find(_text_of(source), format, options):
            found.setdefault(file.uri, file)
    formats = {file.format for file in found.values()}
    if len(formats) > 1:
        names = sorted(kind.value for kind in formats)
        raise InvalidInputError(
            f"the source has files of {' and '.join(names)}",
            hint=f"load one format at a time: `format={names[0]!r}` loads only files of this format",
        )
    return tuple(found.values())


def _text_of(source: str | os.PathLike[str]) -> str:
    try:
        text = os.fspath(source)
        if not text.startswith(("http://", "https://")):
            return text
        raise InvalidPathError(f"{text!r} is a web address", hint="download the file first, and load it from there")
    except TypeError:
        raise InvalidInputError(
            f"rows cannot be loaded from {type(source).__name__!r}", hint="give a file, a folder or a pattern"
        ) from None


def _find(source: str, wanted: FileFormat | None, options: Mapping[str, str]) -> list[SourceFile]:
    # Try the plain name first: a file may have a bracket or a star in its name.
    files = list(_find_plain(source, wanted, options))
    wildcard = _WILDCARD.search(source)
    if not files and wildcard is not None:
        start = source.rfind("/", 0, wildcard.start()) + 1
        files = list(_list_below(source[:start] or ".", _as_regex(source[start:]), wanted, options))
    if not files:
        hint = suggest(os.path.basename(source), _names_beside(source), "check the path and the format", by_parts=True)
        raise ObjectNotFoundError(f"there is nothing to load at {source!r}", hint=hint)
    return files


def _names_beside(source: str) -> list[str]:
    """Return the names of the files with a known format in the folder of a local source, to suggest one."""
    folder = os.path.dirname(source) or "."
    if "://" in source or not os.path.isdir(folder):
        return []
    return [name for name in sorted(os.listdir(folder)) if format_of_name(name)[0] is not None]


def _find_plain(source: str, wanted: FileFormat | None, options: Mapping[str, str]) -> Iterator[SourceFile]:
    """Yield the files of a source that names a file or a folder."""
    try:
        uri = normalise_uri(source)
    except InvalidPathError:
        if _WILDCARD.search(source):
            return
        raise
    root, path = _parent(uri)
    # A dataset is a folder. Its files must not be listed as files of rows.
    if FileFormat.LANCE in (wanted, format_of_name(path)[0]):
        yield SourceFile(root=root, path=path, size=0, format=FileFormat.LANCE, storage_options=options)
        return
    if path and (size := _find_size(open_files(root, options), path)) is not None:
        yield _source_file(root, path, size, wanted, options)
        return
    if not source.endswith((".csv", ".json", ".parquet", ".orc")):
        yield from _list_below(uri, None, wanted, options)


def _list_below(
    folder: str, pattern: re.Pattern[str] | None, wanted: FileFormat | None, options: Mapping[str, str]
) -> Iterator[SourceFile]:
    """Yield the files of a pattern. Without one, yield files with the suffix of the format or no suffix."""
    root = normalise_uri(folder)
    for info in sorted(open_files(root, options).list(), key=lambda info: info.path):
        if _is_wanted(info.path, pattern, wanted):
            yield _source_file(root, info.path, info.size, wanted, options)


def _is_wanted(path: str, pattern: re.Pattern[str] | None, wanted: FileFormat | None) -> bool:
    # Spark and others put markers such as `_SUCCESS` and `.crc` files beside the data.
    if any(part.startswith((".", "_")) for part in path.split("/")):
        return False
    if pattern is not None and not pattern.fullmatch(path):
        return False
    kind, _ = format_of_name(path)
    if kind is not None:
        return wanted in (kind, None)
    # A file of unknown format is skipped in a folder. It is an error in a pattern, which names its files.
    return pattern is not None or (wanted is not None and "." not in path.rpartition("/")[2])


def _source_file(root: str, path: str, size: int, wanted: FileFormat | None, options: Mapping[str, str]) -> SourceFile:
    named, compression = format_of_name(path)
    kind = wanted or named
    if kind is None:
        if path.lower().endswith((".xlsx", ".xls", ".ods")):
            raise InvalidInputError(f"{path!r} is a spreadsheet", hint="save the sheet as CSV, and load that file")
        raise InvalidInputError(
            f"the name {path!r} does not have the suffix of a format",
            hint="pass the format of its content with `format=...`: csv, json, parquet, orc or lance",
        )
    return SourceFile(root=root, path=path, size=size, format=kind, compression=compression, storage_options=options)


def _find_size(store: ObjectStore, path: str) -> int | None:
    try:
        info = store.find_info(path)
    except InvalidPathError:
        return None
    except StorageError as err:
        if type(err) is StorageError and is_local(store.uri):
            return None  # a local folder
        raise  # after a failed request it is unknown whether the path exists
    return None if info is None else info.size


def _parent(uri: str) -> tuple[str, str]:
    if is_local(uri):
        location = PurePosixPath(uri)
        return str(location.parent), location.name
    scheme, bucket, path = split_uri(uri)
    folder, _, name = path.rpartition("/")
    return "/".join(part for part in (f"{scheme}://{bucket}", folder) if part), name


def _as_regex(pattern: str) -> re.Pattern[str]:
    """Return a shell pattern as a regular expression: `*` and `?` match in one folder, `**/` in any number."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    text = ""
    # Longest token first: `**/` also matches zero folders, and `**` must not be read as two stars.
    for token in re.findall(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", pattern, re.DOTALL):
        if token in parts:
            text += parts[token]
        elif len(token) > 1 and token.startswith("["):
            text += "[" + re.sub("^!", "^", token[1:-1]).replace("\\", r"\\") + "]"
        else:
            text += re.escape(token)
    return re.compile(text, re.DOTALL)


_CHUNK = 4 << 20

# Called with the number of bytes of the stored file that were read.
Watch = Callable[[int], None]


class ChunkStream(io.RawIOBase):
    """A stream over pieces that arrive one after the other."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._held = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer)  # type: ignore[arg-type]
        # An empty piece is not the end.
        while not self._held:
            if (chunk := next(self._chunks, None)) is None:
                return 0
            self._held = memoryview(chunk)
        count = min(len(target), len(self._held))
        target[:count] = self._held[:count]
        self._held = self._held[count:]
        return count


def _stored(file: SourceFile, watch: Watch | None) -> Iterator[bytes]:
    """Yield the stored bytes of a file."""
    if file.span is None:
        chunks = file.store.stream(file.path)
    else:
        starts = range(file.span.start, file.span.end, _CHUNK)
        lengths = (min(_CHUNK, file.span.end - start) for start in starts)
        chunks = map(partial(file.store.get_range, file.path), starts, lengths)
    for chunk in chunks:
        if watch is not None:
            watch(len(chunk))
        # A store may return the whole object at once. Smaller pieces keep the memory of later steps bounded.
        for start in range(0, len(chunk), _CHUNK):
            yield chunk[start : start + _CHUNK] if len(chunk) > _CHUNK else chunk


def iter_text(file: SourceFile, *, encoding: str | None = None, watch: Watch | None = None) -> Iterator[bytes]:
    """Yield the file in pieces of UTF-8, which is not validated, without a byte order mark.

    `encoding` is the encoding of a file that is not UTF-8.
    """
    decoded = _unpacked(file, watch)
    if encoding is not None:
        decoded = _decoded(decoded, encoding, file)
    # The mark would become part of the first column's name.
    first = next(decoded, b"").removeprefix(codecs.BOM_UTF8)
    # A carriage return alone also ends a line.
    only_returns = b"\r" in first and b"\n" not in first and not first.endswith(b"\r")
    if first:
        yield first.replace(b"\r", b"\n") if only_returns else first
    for piece in decoded:
        yield piece.replace(b"\r", b"\n") if only_returns else piece


def without_lines(pieces: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Skip the first `count` lines."""
    left = count
    for piece in pieces:
        start = 0
        while left and (end := piece.find(b"\n", start)) >= 0:
            start, left = end + 1, left - 1
        if not left and start < len(piece):
            yield piece[start:] if start else piece


def _unpacked(file: SourceFile, watch: Watch | None) -> Iterator[bytes]:
    if file.compression is Compression.NONE:
        yield from _stored(file, watch)
        return
    packed = pa.PythonFile(ChunkStream(_stored(file, watch)), mode="r")
    try:
        with pa.CompressedInputStream(packed, file.compression.value) as stream:
            while piece := stream.read(_CHUNK):
                yield piece
    except (OSError, pa.ArrowInvalid) as err:
        raise DamagedFileError(
            f"{file.uri!r} is not a complete {file.compression.value} file: {err}", hint="copy or pack it again"
        ) from err


def _decoded(pieces: Iterator[bytes], encoding: str, file: SourceFile) -> Iterator[bytes]:
    # A character may be divided between two pieces.
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for piece in pieces:
            yield decoder.decode(piece).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as err:
        raise DamagedFileError(
            f"{file.uri!r} is not {encoding}: {err}",
            hint="pass its encoding, such as `csv=CsvOptions(encoding='latin-1')`",
        ) from err


# An object, or an array of objects. A header such as [id],[name] is neither.
_JSON = re.compile(rb'\s*(?:\{\s*["}]|\[\s*[{\]])')
# The first bytes of files that are not text, their formats, and what to do.
_BINARY = (
    (b"PAR1", "a Parquet file", "pass `format='parquet'`"),
    (b"\x1f\x8b", "packed with gzip", "add .gz to the name of the file"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "add .zst to the name of the file"),
    (b"PK\x03\x04", "a zip archive or an Excel file", "unpack it, or save the sheet as CSV"),
    (b"\xd0\xcf\x11\xe0", "an Excel file", "save the sheet as CSV"),
)
# A line that does not begin as an object or an array, and has a usual delimiter.
_DELIMITED = re.compile(rb"[^{\[]+?[,;|\t]")
_MAX_SHOWN = 30
_MOST_READ = 1 << 16


def check_is_csv(first: bytes, file: str, *, has_header: bool) -> None:
    """Raise InvalidInputError if the first text of a file is not CSV but another format."""
    for start, what, hint in _BINARY:
        if first.startswith(start):
            raise InvalidInputError(f"{file!r} is not CSV: it is {what}", hint=hint)
    # Without a header, a line of JSON may be a value: each line is loaded as one text.
    if has_header and _JSON.match(first):
        raise InvalidInputError(
            f"{file!r} looks like JSON, not CSV: it begins with {_shown(first)}", hint="pass `format='json'`"
        )


def check_is_json(first: bytes, file: str) -> None:
    """Raise InvalidInputError if the first text of a file looks like CSV and not like JSON."""
    lines = [line.strip() for line in first[:_MOST_READ].splitlines() if line.strip()][:2]
    # One line may be a bad record. If the next one is not an object either, the file has another format.
    if len(lines) == 2 and all(_DELIMITED.match(line) for line in lines):
        raise InvalidInputError(
            f"{file!r} looks like CSV, not JSON: it begins with {_shown(lines[0])}", hint="pass `format='csv'`"
        )


def _shown(text: bytes) -> str:
    shown = " ".join(text[:200].decode(errors="replace").split())
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
