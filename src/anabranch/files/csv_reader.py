"""CSV: the header of each file, and blocks as rows."""

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.csv as pa_csv

from anabranch.column_types import show_type
from anabranch.errors import DamagedFileError, SchemaMismatchError
from anabranch.files.formats import CsvOptions
from anabranch.files.records import (
    Block,
    Dialect,
    Part,
    Refusal,
    bad_record,
    in_order,
    iter_blocks,
    parse_by_parts,
    parsed_type,
    refuse_nulls,
)
from anabranch.files.sources import SourceFile, Watch, check_is_csv, iter_text, without_lines

_TRUE, _FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]
# A wrong quote character makes the rest of the file one header. Stop before it fills the memory.
_LONGEST_HEADER = 16 << 20
# The usual delimiters, as values of the option `delimiter`.
USUAL_DELIMITERS = {",": ",", "\t": "tab", ";": ";", "|": "|"}
# Arrow has no error type with the column and the value, so they are read from its message.
_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #\d+: )?(?:CSV conversion error to [^:]*: )?(.*)", re.DOTALL)
_INVALID = re.compile(r"invalid value '(.*)'", re.DOTALL)


@dataclass(frozen=True)
class _Body:
    """A file after its header: the number and the names of its columns, and the line where rows begin."""

    names: tuple[str, ...]
    pieces: Iterator[bytes]
    line: int


class CsvReader:
    """Reads CSV files with the same options. Without headers, columns have the given names, else column_1 and so on."""

    def __init__(self, options: CsvOptions, names: tuple[str, ...] | None = None) -> None:
        self._options = options
        self._given_names = names
        self._dialect = Dialect.of(options)
        self._names: dict[str, tuple[str, ...]] = {}

    def names_of(self, file: SourceFile) -> tuple[str, ...]:
        if file.uri not in self._names:
            self._names[file.uri] = self._open(replace(file, span=None), None).names
        return self._names[file.uri]

    def blocks(self, file: SourceFile, *, watch: Watch | None = None) -> Iterator[Block]:
        if file.span is not None:
            text = iter_text(file, watch=watch)
            return iter_blocks(text, self._dialect, file=file.uri, line=file.span.line)
        body = self._open(file, watch)
        self._names[file.uri] = body.names
        if not body.names:
            return iter(())
        return iter_blocks(body.pieces, self._dialect, file=file.uri, line=body.line)

    def parse(self, file: SourceFile, block: Block, schema: pa.Schema) -> Part:
        names = self.names_of(file)
        wrong: list[tuple[int, int]] = []
        try:
            table = self._convert(block.data, names, schema, wrong)
        # Arrow reports only the first value that it cannot convert. Parse smaller parts to find all bad records with
        # their lines.
        except Refusal:
            part = parse_by_parts(block, lambda data: self._convert_all(data, names, schema))
            return refuse_nulls(part, schema)
        part = Part(block.file, table, block.bad, block)
        if wrong:
            # Arrow counts rows from 1 and skips blank lines, as `records` does.
            records, reasons = block.records, {number: _width_reason(width, names) for number, width in wrong}
            bad = [bad_record(block.file, records[number - 1], reason) for number, reason in reasons.items()]
            kept = tuple(record for number, record in enumerate(records, start=1) if number not in reasons)
            part = replace(part, bad=in_order(*block.bad, *bad), kept=kept)
        return refuse_nulls(part, schema)

    def _convert_all(self, data: bytes, names: tuple[str, ...], schema: pa.Schema) -> pa.Table:
        """Convert records, none of which may have too few or too many values."""
        wrong: list[tuple[int, int]] = []
        table = self._convert(data, names, schema, wrong)
        if wrong:
            raise Refusal(_width_reason(wrong[0][1], names))
        return table

    def texts(self, file: SourceFile, block: Block) -> pa.Table:
        """Return all values as text, of the records with the right number of values."""
        names = self.names_of(file)
        return self._convert(block.data, names, pa.schema([(name, pa.binary()) for name in names]), [])

    def guess(self, file: SourceFile, block: Block, types: dict[str, pa.DataType]) -> pa.Table:
        """Return a block with the types that Arrow infers, for columns without a given type."""
        names = self.names_of(file)
        # Without 1 and 0, which are whole numbers unless the type is given.
        words = pa_csv.ConvertOptions(true_values=_TRUE, false_values=_FALSE)
        return self._read(block.data, names, list(names), types, [], words)

    def _convert(
        self, data: bytes, names: tuple[str, ...], schema: pa.Schema, wrong: list[tuple[int, int]]
    ) -> pa.Table:
        types = {field.name: parsed_type(field.type) for field in schema}
        # Nulls in a column that does not allow them are found afterwards, row by row, to name their lines.
        wanted = pa.schema([field.with_nullable(nullable=True) for field in schema])
        try:
            return self._read(data, names, schema.names, types, wrong).cast(wanted)
        except pa.ArrowInvalid as err:
            raise Refusal(_reason(str(err), names, schema)) from None
        except pa.ArrowNotImplementedError as err:
            raise SchemaMismatchError(
                f"a column has a type that CSV has no text for: {err}", hint="load it from JSON or Parquet"
            ) from None

    def _read(
        self,
        data: bytes,
        names: tuple[str, ...],
        wanted: list[str],
        types: dict[str, pa.DataType],
        wrong: list[tuple[int, int]],
        convert: pa_csv.ConvertOptions | None = None,
    ) -> pa.Table:
        def note(row: pa_csv.InvalidRow) -> str:
            wrong.append((row.number, row.actual_columns))
            return "skip"

        options = self._options
        convert = convert or pa_csv.ConvertOptions()
        convert.column_types = types
        convert.include_columns = wanted
        convert.null_values = list(options.nulls)
        convert.strings_can_be_null = True
        # A quoted empty text is text. Only an unquoted one is null.
        convert.quoted_strings_can_be_null = False
        return pa_csv.read_csv(
            # Arrow refuses an empty file, even if the names of its columns are given.
            pa.BufferReader(data or b"\n"),
            # One block for all of the data: Arrow numbers bad rows only without threads, and infers types by block.
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 2, column_names=list(names)),
            parse_options=pa_csv.ParseOptions(
                delimiter=options.separator,
                quote_char=options.quote or False,
                escape_char=options.escape or False,
                newlines_in_values=True,
                invalid_row_handler=note,
            ),
            convert_options=convert,
        )

    def _open(self, file: SourceFile, watch: Watch | None) -> _Body:
        skip = self._options.skip
        pieces = without_lines(
            iter_text(file, encoding=None if self._options.is_utf8 else self._options.encoding, watch=watch), skip
        )
        held = self._read_header(pieces, file.uri)
        start = _after_blank_lines(held)
        line = skip + 1 + held.count(b"\n", 0, start)
        if start == len(held):
            return _Body(self._given_names or (), iter(()), line)
        found, where = self._dialect.record.match(held, start), _header_of(file.uri, line)
        if found is None:
            raise self._no_header(held[start:], where, "has a quote that is not closed")
        first = self._values(found[0])
        if not self._options.header:
            names = self._given_names or tuple(f"column_{number}" for number in range(1, len(first) + 1))
            return _Body(names, itertools.chain([held[start:]], pieces), line)
        _require_text(found[0], where)
        self._check_delimiter(found[0], first, where)
        _check_names(first, where)
        rest = held[found.end() :]
        return _Body(first, itertools.chain([rest] if rest else [], pieces), line + found[0].count(b"\n"))

    def _read_header(self, pieces: Iterator[bytes], file: str) -> bytes:
        """Read until the first record is complete, or to the end of the file."""
        held, is_checked = b"", False
        for piece in pieces:
            held += piece
            start = _after_blank_lines(held)
            if not is_checked and start < len(held):
                check_is_csv(held[start:], file, has_header=self._options.header)
                is_checked = True
            found = self._dialect.record.match(held, start)
            # The header is complete only if text follows it: a quoted name may continue in the next piece.
            if found is not None and (found.end() < len(held) or held.endswith(b"\n")):
                break
            if len(held) > _LONGEST_HEADER:
                line = self._options.skip + 1 + held.count(b"\n", 0, start)
                raise self._no_header(held[start:], _header_of(file, line), "does not end")
        return held

    def _no_header(self, text: bytes, where: str, problem: str) -> Exception:
        """Return the error for text whose first record does not end: the quote or the delimiter is wrong."""
        for delimiter, option in USUAL_DELIMITERS.items():
            other = replace(self._dialect, delimiter=delimiter.encode())
            found = other.record.match(text)
            # "id";"name" is one quoted value with text behind it, unless the delimiter is a semicolon.
            if found is not None and len(self._values(found[0], delimiter)) > 1:
                return SchemaMismatchError(
                    f"{where}, cannot be read with the delimiter {self._shown_delimiter}",
                    hint=f"pass `csv=CsvOptions(delimiter={option!r})`",
                )
        hint = "close the quote in the file, or pass `csv=CsvOptions(quote='')` if quotes are plain text"
        return DamagedFileError(f"{where}, {problem}", hint=hint)

    @property
    def _shown_delimiter(self) -> str:
        separator = self._options.separator
        return repr(USUAL_DELIMITERS.get(separator, separator))

    def _check_delimiter(self, record: bytes, names: tuple[str, ...], where: str) -> None:
        """Refuse a header of one column that has another usual delimiter in its name.

        The file has that delimiter. Without this check, every line would load as one text.
        """
        # A name in quotes is one name, even if it contains a delimiter.
        is_quoted = self._dialect.quote is not None and record.startswith(self._dialect.quote)
        if len(names) > 1 or is_quoted:
            return
        others = [each for each in USUAL_DELIMITERS if each in names[0] and each != self._options.separator]
        if not others:
            return
        option = USUAL_DELIMITERS[max(others, key=names[0].count)]
        raise SchemaMismatchError(
            f"{where}, is one column {names[0]!r} with the delimiter {self._shown_delimiter}",
            hint=f"pass `csv=CsvOptions(delimiter={option!r})`, or quote the name in the file if it is one column",
        )

    def _values(self, record: bytes, delimiter: str | None = None) -> tuple[str, ...]:
        options = self._options
        rows = csv.reader(
            io.StringIO(record.decode(errors="backslashreplace").rstrip("\r\n"), newline=""),
            delimiter=delimiter or options.separator,
            quotechar=options.quote,
            quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
            escapechar=options.escape,
        )
        return tuple(value.strip() for value in next(rows))


def _after_blank_lines(text: bytes) -> int:
    return len(text) - len(text.lstrip(b"\r\n"))


def _header_of(file: str, line: int) -> str:
    """Return the description of a file's header for errors."""
    return f"the header of {file!r}, line {line}"


def _require_text(header: bytes, where: str) -> None:
    try:
        header.decode()
    except UnicodeDecodeError as err:
        problem = f"{where}, is not UTF-8: {err.reason} at byte {err.start + 1}"
        # Excel writes "Unicode text" with this mark.
        encoding = "utf-16" if header.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "latin-1"
        raise DamagedFileError(
            problem, hint=f"pass its encoding, such as `csv=CsvOptions(encoding={encoding!r})`"
        ) from None


def _check_names(names: tuple[str, ...], where: str) -> None:
    for number, name in enumerate(names, start=1):
        if not name:
            hint = "name it in the file, or pass `csv=CsvOptions(delimiter=...)`"
            # A delimiter at the end of every line begins one more column.
            if number == len(names):
                hint = "name it in the file, or remove the delimiter at the end of its lines"
            raise SchemaMismatchError(f"column {number} in {where}, has no name", hint=hint)
        if names.count(name) > 1:
            raise SchemaMismatchError(f"{where}, names {name!r} twice", hint="name each column once")


def _width_reason(width: int, names: tuple[str, ...]) -> str:
    return f"it has {width} values for {len(names)} columns"


def _reason(message: str, names: tuple[str, ...], schema: pa.Schema) -> str:
    """Return Arrow's message about a value, in terms of the columns."""
    found = _CONVERSION.search(message)
    if found is None:
        return message
    name = names[int(found[1])]
    invalid = _INVALID.search(found[2])
    if invalid is not None:
        return f"cannot convert {invalid[1]!r} to {show_type(schema.field(name).type)} (column {name!r})"
    return f"column {name!r}: {found[2]}"
