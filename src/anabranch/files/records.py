"""Cut text into records with their line numbers, and read records as rows of a schema.

Most text is cut fast, by counting quotes. If the count is not reliable, or a line must be named, records are matched
one by one. Both methods find the same records.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from anabranch.errors import BadRecordError
from anabranch.files.formats import CsvOptions

# The part of a file that one thread parses at a time.
BLOCK_BYTES = 4 << 20
# A quoted value that is longer counts as unclosed.
LONGEST_RECORD = 16 << 20
# A small compressed file may unpack to one line that is larger than memory.
LONGEST_LINE = 64 << 20
_NEWLINE, _RETURN = 0x0A, 0x0D
UNCLOSED = "a quote is not closed, or text follows a closing one"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A record that cannot be loaded: its position, the reason, and its text."""

    file: str
    line: int
    reason: str
    text: str


def in_order(*bad: BadRecord) -> tuple[BadRecord, ...]:
    return tuple(sorted(bad, key=lambda record: record.line))


@dataclass(frozen=True, slots=True)
class Record:
    text: bytes
    line: int


@dataclass(frozen=True)
class Dialect:
    """The characters that delimit records and values."""

    quote: bytes | None
    delimiter: bytes = b","
    escape: bytes | None = None

    @classmethod
    def of(cls, options: CsvOptions) -> "Dialect":
        return cls(
            quote=options.quote.encode() if options.quote else None,
            delimiter=options.separator.encode(),
            escape=options.escape.encode() if options.escape else None,
        )

    @classmethod
    def of_lines(cls) -> "Dialect":
        """Return the dialect in which every line is a record."""
        return cls(quote=None)

    @cached_property
    def record(self) -> re.Pattern[bytes]:
        """The pattern of one record and the end of its last line."""
        # Possessive and atomic: on a file with a wrong quote, backtracking would try every way to cut the fields.
        return re.compile(rb"(?>%b(?:%b%b)*+)(?:\r?\n|\r|\Z)" % (self._field, re.escape(self.delimiter), self._field))

    @cached_property
    def unfinished(self) -> re.Pattern[bytes]:
        """The pattern of a record whose end may be in the next piece."""
        quote, delimiter = self._quote_byte, re.escape(self.delimiter)
        return re.compile(
            rb"(?>(?:%b%b)*+)%b%b(?:%b?|%b)\Z" % (self._field, delimiter, quote, self._inner, quote, rb"\\")
        )

    @property
    def _quote_byte(self) -> bytes:
        return re.escape(self.quote) if self.quote else rb"(?!)"

    @property
    def _inner(self) -> bytes:
        quote = self._quote_byte
        if self.escape is None:
            return rb"[^%b]*+(?:%b%b[^%b]*+)*+" % (quote, quote, quote, quote)
        escape = re.escape(self.escape)
        return rb"(?:[^%b%b]|%b%b|%b[\s\S])*+" % (quote, escape, quote, quote, escape)

    @property
    def _field(self) -> bytes:
        delimiter, quote = re.escape(self.delimiter), self._quote_byte
        plain = rb"[^%b\r\n]" % delimiter
        if self.escape is not None:
            escape = re.escape(self.escape)
            plain = rb"(?:[^%b\r\n%b]|%b[^\r\n])" % (delimiter, escape, escape)
        if self.quote is None:
            return rb"%b*+" % plain
        ends = rb"(?=%b|[\r\n]|\Z)" % delimiter
        return rb"(?:%b%b%b%b|(?!%b)%b*+)" % (quote, self._inner, quote, ends, quote, plain)


@dataclass(frozen=True)
class Block:
    """Whole records of one file. Blank lines may be among them; bad ones were taken out.

    `size` is the length of its text in the file, 0 if unknown.
    """

    file: str
    data: bytes
    line: int
    dialect: Dialect
    size: int = 0
    bad: tuple[BadRecord, ...] = ()
    known: tuple[Record, ...] | None = field(default=None, repr=False)

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """Return every record except blank lines, with the number of its first line."""
        if self.known is not None:
            return self.known
        return _split(self.data, self.line, self.dialect, self.file, is_last=True).records


@dataclass(frozen=True, slots=True)
class _Split:
    records: tuple[Record, ...]
    bad: tuple[BadRecord, ...]
    end: int


def iter_blocks(
    pieces: Iterator[bytes], dialect: Dialect, *, file: str, line: int = 1, block_bytes: int = BLOCK_BYTES
) -> Iterator[Block]:
    """Cut text at the ends of records. The text begins at the start of a line."""
    held = b""
    wanted = block_bytes
    for piece in pieces:
        held = held + piece if held else piece
        while len(held) >= wanted:
            block, end = _cut(held, line, dialect, file, is_last=False)
            if not end:
                if len(held) > LONGEST_LINE:
                    raise BadRecordError(
                        f"{file}, line {line}: has more than {LONGEST_LINE >> 20} MiB and no end", hint="check the file"
                    )
                # No record ends yet. Try again after a whole block more: after each piece, the cost would grow with
                # the square of the record.
                wanted = len(held) + block_bytes
                break
            yield block
            line += held.count(b"\n", 0, end)
            held, wanted = held[end:], block_bytes
    while held:
        block, end = _cut(held, line, dialect, file, is_last=True)
        yield block
        line += held.count(b"\n", 0, end)
        held = held[end:]


def _cut(held: bytes, line: int, dialect: Dialect, file: str, *, is_last: bool) -> tuple[Block, int]:
    """Return the complete records of some bytes, and the end of the last one."""
    end = _plain_end(held, dialect, is_last=is_last)
    if end is None:
        found = _split(held, line, dialect, file, is_last=is_last)
        data = b"".join(_ended(record.text) for record in found.records)
        return Block(file, data, line, dialect, found.end, found.bad, found.records), found.end
    return Block(file, held if end == len(held) else held[:end], line, dialect, end), end


def _plain_end(held: bytes, dialect: Dialect, *, is_last: bool) -> int | None:
    """Return the end of the last whole record, or None if counting quotes does not decide it."""
    # An escaped quote does not open or close a field, so counting quotes would be wrong.
    if dialect.escape is not None and dialect.escape in held:
        return None
    if dialect.quote is None or dialect.quote not in held:
        return len(held) if is_last else held.rfind(b"\n") + 1
    return _quoted_end(held, dialect, dialect.quote, is_last=is_last)


def _quoted_end(held: bytes, dialect: Dialect, quote: bytes, *, is_last: bool) -> int | None:
    """Count quotes to find the end of the last whole record. Return None if a quote is missing or out of position."""
    characters = np.frombuffer(held, dtype=np.uint8)
    quotes = np.flatnonzero(characters == quote[0])
    if is_last:
        # An odd number of quotes: one is not closed. Match record by record to find its line.
        return None if len(quotes) % 2 or _is_suspicious(characters, quotes, dialect) else len(held)
    end = _last_end(held, quotes)
    # Every line end is inside quotes. Wait for the closing one, unless the record is too long.
    if not end and len(held) >= LONGEST_RECORD:
        return None
    checked = end or len(held)
    return None if _is_suspicious(characters[:checked], quotes[: np.searchsorted(quotes, checked)], dialect) else end


def _is_suspicious(
    characters: "np.ndarray[tuple[int], np.dtype[np.uint8]]",
    quotes: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    dialect: Dialect,
) -> bool:
    """Return whether a quote neither begins nor ends a value, nor is doubled inside one."""
    quote = dialect.quote[0] if dialect.quote else 0
    opening, closing = quotes[0::2], quotes[1::2]
    # A quote inside of plain text, such as 5", shifts the count, and every line end after it looks quoted.
    before = characters[opening[opening > 0] - 1]
    after = characters[closing[closing < len(characters) - 1] + 1]
    is_bound = np.zeros(256, dtype=bool)
    is_bound[[dialect.delimiter[0], _NEWLINE, _RETURN, quote]] = True
    return not (is_bound[before].all() and is_bound[after].all())


def _last_end(held: bytes, quotes: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> int:
    """Return the end of the last line that ends outside quotes, 0 if there is none."""
    end = held.rfind(b"\n")
    while end >= 0 and np.searchsorted(quotes, end) % 2:
        end = held.rfind(b"\n", 0, end)
    return end + 1


def _split(held: bytes, line: int, dialect: Dialect, file: str, *, is_last: bool) -> _Split:
    """Match records one by one."""
    records: list[Record] = []
    bad: list[BadRecord] = []
    at, end = 0, len(held)
    while at < end:
        found = dialect.record.match(held, at)
        if found is not None:
            after = found.end()
            # The record may continue in the next piece: its last field may be incomplete.
            if after == end and not is_last and not held.endswith(b"\n", at):
                break
            text = held[at:after]
            if text.strip(b"\r\n"):
                records.append(Record(text, line))
        else:
            after = _bad_end(held, at, dialect, is_last=is_last)
            if not after:
                break
            bad.append(bad_record(file, Record(held[at:after], line), UNCLOSED))
        line += held.count(b"\n", at, after)
        at = after
    return _Split(tuple(records), tuple(bad), at)


def _bad_end(held: bytes, at: int, dialect: Dialect, *, is_last: bool) -> int:
    """Return the end of the first line of a bad record, so that the next one is found. 0 if it may not be complete."""
    after = held.find(b"\n", at) + 1
    # The closing quote may be in the next piece. Beyond the limit it counts as missing.
    may_continue = not is_last and len(held) - at < LONGEST_RECORD
    if may_continue and (not after or dialect.unfinished.match(held, at) is not None):
        return 0
    return after or len(held)


def _ended(text: bytes) -> bytes:
    return text if text.endswith((b"\n", b"\r")) else text + b"\n"


def bad_record(file: str, record: Record, reason: str) -> BadRecord:
    text = record.text.rstrip(b"\r\n").decode(errors="backslashreplace")
    return BadRecord(file=file, line=record.line, reason=reason, text=text)


@dataclass(frozen=True)
class Part:
    """Good rows of one file, and the bad records beside them.

    For rows from text, `block` is their source, and `kept` are its good records if some are bad.
    """

    file: str
    table: pa.Table
    bad: tuple[BadRecord, ...] = ()
    block: Block | None = None
    kept: tuple[Record, ...] | None = None

    @property
    def rows_read(self) -> int:
        return len(self.table) + len(self.bad)

    @property
    def records(self) -> tuple[Record, ...] | None:
        """Return the record of each row, None for rows that are not from text."""
        return self.kept if self.kept is not None or self.block is None else self.block.records


def parsed_type(kind: pa.DataType) -> pa.DataType:
    """Return the type to parse text as, from which Arrow casts to the type of a column."""
    if pa.types.is_dictionary(kind):
        return parsed_type(kind.value_type)
    return pa.float32() if pa.types.is_float16(kind) else kind


class Refusal(Exception):  # noqa: N818 - it never leaves this package
    """A part has a bad record. If the part is one record, this is the reason."""


def parse_by_parts(block: Block, parse: Callable[[bytes], pa.Table]) -> Part:
    """Parse a part. If that fails, halve it until each bad record is alone, and parse the others as usual."""
    tables: list[pa.Table] = []
    kept: list[Record] = []
    bad: list[BadRecord] = []

    def try_part(part: Sequence[Record]) -> None:
        try:
            tables.append(parse(b"".join(record.text for record in part)))
            kept.extend(part)
        except Refusal as err:
            # A part of one record that cannot be parsed is a bad record. Each costs log2(n) attempts.
            if len(part) == 1:
                bad.append(bad_record(block.file, part[0], str(err)))
                return
            middle = len(part) // 2
            try_part(part[:middle])
            try_part(part[middle:])

    # The last line of a file may have no line end. It must not be joined with the next record.
    if whole := [Record(_ended(record.text), record.line) for record in block.records]:
        try_part(whole)
    # All records are bad. The table still needs its columns.
    table = pa.concat_tables(tables) if tables else parse(b"")
    return Part(block.file, table, in_order(*block.bad, *bad), block, tuple(kept))


def refuse_nulls(part: Part, schema: pa.Schema) -> Part:
    """Remove rows with a null in a column that does not allow it."""
    for column in schema:
        if column.nullable or not part.table.column(column.name).null_count:
            continue
        is_good = part.table.column(column.name).is_valid()
        # Rows and records are in the same order, so a bad row has the line of its record.
        pairs = list(zip(part.records or (), is_good.to_pylist(), strict=True))
        reason = f"column {column.name!r} needs a value and has none"
        part = replace(
            part,
            table=part.table.filter(is_good),
            bad=in_order(*part.bad, *(bad_record(part.file, record, reason) for record, good in pairs if not good)),
            kept=tuple(record for record, good in pairs if good),
        )
    return part
