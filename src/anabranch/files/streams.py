"""The bytes of a text file as UTF-8, whatever it is packed and encoded in."""

import codecs
import io
from collections.abc import Callable, Iterator

import pyarrow as pa

from anabranch.errors import DamagedFileError
from anabranch.files.formats import Compression
from anabranch.files.search import SourceFile

__all__ = ["Watch", "iter_text", "open_stream", "without_lines"]

_CHUNK = 4 << 20

# Called with the number of bytes of the stored file that were read.
Watch = Callable[[int], None]


class _ChunkStream(io.RawIOBase):
    """A stream over pieces that arrive one after the other."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._held = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer)  # type: ignore[arg-type]
        if not self._held:
            self._held = memoryview(next(self._chunks, b""))
        count = min(len(target), len(self._held))
        target[:count] = self._held[:count]
        self._held = self._held[count:]
        return count


def open_stream(file: SourceFile, *, watch: Watch | None = None) -> io.RawIOBase:
    """The file as it is stored."""
    return _ChunkStream(_watched(file, watch))


def _watched(file: SourceFile, watch: Watch | None) -> Iterator[bytes]:
    for chunk in _stored(file):
        if watch is not None:
            watch(len(chunk))
        # A store may return the whole object at once. Smaller pieces keep the memory of later steps bounded.
        for start in range(0, len(chunk), _CHUNK):
            yield chunk[start : start + _CHUNK] if len(chunk) > _CHUNK else chunk


def _stored(file: SourceFile) -> Iterator[bytes]:
    if file.span is None:
        yield from file.store.stream(file.path)
        return
    store, end = file.store, file.span.end
    for start in range(file.span.start, end, _CHUNK):
        yield store.get_range(file.path, start, min(_CHUNK, end - start))


def iter_text(file: SourceFile, *, encoding: str = "utf-8", watch: Watch | None = None) -> Iterator[bytes]:
    """The file in pieces of UTF-8, without a byte order mark. That UTF-8 is valid is not checked."""
    pieces = _unpacked(file, watch)
    is_utf8 = codecs.lookup(encoding).name in {"utf-8", "utf-8-sig", "ascii"}
    decoded = pieces if is_utf8 else _decoded(pieces, encoding, file)
    first = next(decoded, b"")
    # The mark would become part of the first column's name.
    first = first.removeprefix(codecs.BOM_UTF8)
    # Lines that end in a carriage return alone are as good as any.
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
        yield from _watched(file, watch)
        return
    packed = pa.PythonFile(open_stream(file, watch=watch), mode="r")
    try:
        with pa.CompressedInputStream(packed, file.compression.value) as stream:
            while piece := stream.read(_CHUNK):
                yield piece
    except (OSError, pa.ArrowInvalid) as err:
        raise DamagedFileError(
            f"{file.uri!r} is not a complete {file.compression.value} file: {err}", hint="copy or pack it again"
        ) from err


def _decoded(pieces: Iterator[bytes], encoding: str, file: SourceFile) -> Iterator[bytes]:
    # A character may be cut by the border of two pieces.
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
