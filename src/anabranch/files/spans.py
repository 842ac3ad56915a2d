"""Large text files cut into spans that can be loaded at the same time."""

from dataclasses import replace

from anabranch.files.finding import SourceFile, Span
from anabranch.files.formats import Compression, FileFormat
from anabranch.files.rows import Reading

__all__ = ["cut_file"]


def cut_file(file: SourceFile, reading: Reading, *, span_bytes: int) -> tuple[SourceFile, ...]:
    """The same file in spans of about that size, if it can be cut; it is read once for that, and not parsed.

    What is packed, or must be decoded, has to be read from its beginning.
    """
    can_be_cut = reading.format.is_text and file.compression is Compression.NONE
    if not can_be_cut or file.size <= span_bytes or (reading.format is FileFormat.CSV and not reading.csv.is_utf8):
        return (file,)
    starts: list[tuple[int, int]] = []  # how far behind the first record a span begins, and at which line
    read = 0
    for block in reading.text_reader().blocks(file):
        if not block.size:
            return (file,)
        if not starts or read - starts[-1][0] >= span_bytes:
            starts.append((read, block.line))
        read += block.size
    before = file.size - read
    ends = [start for start, _ in starts[1:]] + [read]
    return tuple(
        replace(file, span=Span(start=before + start, end=before + end, line=line), size=end - start)
        for (start, line), end in zip(starts, ends, strict=True)
    )
