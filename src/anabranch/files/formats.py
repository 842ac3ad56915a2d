"""The file formats and compressions with their suffixes, the options of CSV files, and rows as CSV and JSON."""

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import checked_number
from anabranch.json_values import json_value

if TYPE_CHECKING:
    import pyarrow as pa

# Not empty: empty text is quoted, because an empty field is null.
_PLAIN_FIELD = re.compile(r'[^",\r\n]+')


class FileFormat(StrEnum):
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ORC = "orc"
    LANCE = "lance"

    @property
    def is_text(self) -> bool:
        """Whether rows are text with line numbers, so that a single one can be bad."""
        return self in (FileFormat.CSV, FileFormat.JSON)


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


_FORMATS = {
    "csv": FileFormat.CSV,
    "tsv": FileFormat.CSV,
    "json": FileFormat.JSON,
    "jsonl": FileFormat.JSON,
    "ndjson": FileFormat.JSON,
    "parquet": FileFormat.PARQUET,
    "pq": FileFormat.PARQUET,
    "orc": FileFormat.ORC,
    "lance": FileFormat.LANCE,
}
_COMPRESSIONS = {"gz": Compression.GZIP, "gzip": Compression.GZIP, "zst": Compression.ZSTD, "zstd": Compression.ZSTD}


def format_of_name(name: str) -> tuple[FileFormat | None, Compression]:
    """Return the format and compression by the suffix of a file. The format is None if the suffix is unknown."""
    suffix, compression = _suffixes(name)
    return _FORMATS.get(suffix), compression


def _suffixes(name: str) -> tuple[str, Compression]:
    """Return the suffix of the format in lower case, empty if there is none, and the compression."""
    stem, _, last = name.lower().rpartition(".")
    compression = _COMPRESSIONS.get(last, Compression.NONE) if stem else Compression.NONE
    # `a.csv.gz` has its format before the last suffix.
    if compression is not Compression.NONE:
        return stem.rpartition(".")[2] if "." in stem else "", compression
    return last if stem else "", compression


def checked_format(text: str) -> FileFormat:
    try:
        return FileFormat(text)
    except ValueError:
        known = ", ".join(kind.value for kind in FileFormat)
        raise InvalidInputError(f"the format {text!r} is not known", hint=f"use one of {known}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """The options of a CSV file, for `Repository.load` and `Repository.export`.

    The delimiter is one character or 'tab'; by default a tab for `.tsv` files, else a comma. Without a quote character,
    quotes are text. Without an escape character, a quote is escaped by doubling. `columns` names the columns of a file
    without a header; by default they are those of the table. `null` has the text or texts that mean null if they
    are not quoted. `skip` lines before the header are ignored.

    An export takes `delimiter`, `header`, `encoding` and `quote=None`, and refuses other values of the other options.
    """

    delimiter: str | None = None
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    columns: Sequence[str] | None = None
    null: str | Sequence[str] = ""
    encoding: str = "utf-8"
    skip: int = 0

    def __post_init__(self) -> None:
        self._normalise()
        self._check_characters()
        _check_columns(self.columns, header=self.header)
        for text in self.null:
            if not isinstance(text, str):
                raise InvalidInputError(f"null is given as {text!r}", hint="give text, or a list of texts")
        if checked_number(self.skip, "number of lines to skip", hint="give a whole number") < 0:
            raise InvalidInputError(f"the number of lines to skip is {self.skip}", hint="give 0 or more")
        _check_encoding(self.encoding)

    @property
    def is_utf8(self) -> bool:
        """Whether the text need not be decoded and encoded again."""
        return codecs.lookup(self.encoding).name in {"utf-8", "utf-8-sig", "ascii"}

    @property
    def separator(self) -> str:
        """Return the delimiter, a comma by default. `for_file` replaces the default."""
        return self.delimiter or ","

    @property
    def nulls(self) -> tuple[str, ...]:
        """Return the texts that mean null."""
        return tuple(self.null)

    def for_file(self, path: str) -> "CsvOptions":
        """Return the options with the default delimiter of a file name."""
        if self.delimiter is not None:
            return self
        return replace(self, delimiter="\t" if _suffixes(path)[0] == "tsv" else ",")

    def _normalise(self) -> None:
        """Give each meaning one form, so that equal options are equal."""
        if self.delimiter == "tab":
            object.__setattr__(self, "delimiter", "\t")
        if self.quote == "":
            object.__setattr__(self, "quote", None)
        if self.quote == self.escape:
            object.__setattr__(self, "escape", None)  # a doubled quote is the default
        if isinstance(self.null, str):
            object.__setattr__(self, "null", (self.null,))
        for name in ("null", "columns"):
            value = getattr(self, name)
            if isinstance(value, Sequence) and not isinstance(value, str):
                object.__setattr__(self, name, tuple(value))

    def _check_characters(self) -> None:
        given = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        for name, text in given.items():
            if text is not None and not _is_character(text):
                raise InvalidInputError(f"the {name} is {text!r}", hint="give one ASCII character")
        used = [self.separator, *(character for character in (self.quote, self.escape) if character is not None)]
        if len(set(used)) < len(used):
            raise InvalidInputError(f"one character has two meanings among {used}", hint="choose different characters")


def checked_csv(given: object) -> CsvOptions:
    """Return the given options, or the defaults for None."""
    if given is None:
        return CsvOptions()
    if not isinstance(given, CsvOptions):
        raise InvalidInputError(
            f"csv must be a CsvOptions, got {given!r}", hint="pass for example `csv=CsvOptions(delimiter=';')`"
        )
    return given


def _is_character(text: object) -> bool:
    # Arrow takes one byte. A line break would make every line end ambiguous.
    return isinstance(text, str) and len(text) == 1 and text.isascii() and text not in "\r\n\0"


def _check_columns(columns: Sequence[str] | None, *, header: bool) -> None:
    if columns is None:
        return
    if header:
        raise InvalidInputError(
            f"column names are given for files that have a header: {list(columns)!r}",
            hint="pass `header=False`, or leave the names out",
        )
    if isinstance(columns, str) or len(set(columns)) < len(columns):
        raise InvalidInputError(
            f"columns must be a list of different names, got {columns!r}", hint="pass each column name once, in a list"
        )


def _check_encoding(encoding: str) -> None:
    try:
        is_known = codecs.lookup(encoding)._is_text_encoding  # not hex, for example
    except (LookupError, TypeError, ValueError):
        is_known = False
    if not is_known:
        raise InvalidInputError(
            f"the encoding {encoding!r} is not known", hint="name one such as utf-8, utf-16 or latin-1"
        )


def plain_rows(table: "pa.Table | pa.RecordBatch") -> list[tuple[Any, ...]]:
    """Return the rows as Python values."""
    from anabranch.format.arrow_types import python_values

    return list(zip(*(python_values(column) for column in table.columns), strict=True))


def json_rows(table: "pa.Table | pa.RecordBatch") -> list[dict[str, Any]]:
    """Return the rows as JSON objects, with values by column name."""
    from anabranch.format.arrow_types import python_values

    columns = [
        # Most columns need no conversion of each value.
        python_values(column) if _is_json(field.type) else [json_value(value) for value in python_values(column)]
        for field, column in zip(table.schema, table.columns, strict=True)
    ]
    names = table.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _is_json(kind: "pa.DataType") -> bool:
    """Return whether all values of a type are valid in JSON without conversion."""
    from pyarrow import types

    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_boolean(kind)
        or (types.is_integer(kind) and not types.is_uint64(kind))
    )


def csv_lines(header: Sequence[str], batches: "Iterable[pa.RecordBatch]") -> Iterator[str]:
    """Yield the rows as CSV by batches. A null is an empty field, empty text a quoted one, a list or struct is JSON."""
    rest = iter(batches)
    first = next(rest, None)  # read first, so that an error comes before any output
    yield _csv([header])
    for batch in () if first is None else chain([first], rest):
        yield _csv(map(_csv_value, row) for row in plain_rows(batch))


def _csv(rows: Iterable[Iterable[str | None]]) -> str:
    return "".join(",".join(map(_csv_field, row)) + "\n" for row in rows)


def _csv_field(text: str | None) -> str:
    # Python's own writer does not distinguish null from empty text.
    if text is None:
        return ""
    return text if _PLAIN_FIELD.fullmatch(text) else '"' + text.replace('"', '""') + '"'


def _csv_value(value: Any) -> str | None:
    match value:
        case None:
            return None
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case Mapping() | list() | tuple():
            return json.dumps(json_value(value))
        case _:
            return str(json_value(value))
