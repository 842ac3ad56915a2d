"""Type inference: find the type of a CSV column from all of its values."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.files.csv_reader import CsvReader
from anabranch.files.records import Block
from anabranch.files.sources import SourceFile


class _Kind(StrEnum):
    WHOLE = "whole"
    FLOAT = "float"
    BOOL = "bool"
    DATE = "date"
    TIME = "time"
    MOMENT = "moment"
    FINE_MOMENT = "fine moment"
    ZONED = "zoned"
    FINE_ZONED = "fine zoned"
    TEXT = "text"


_FAMILIES: tuple[tuple[tuple[_Kind, pa.DataType], ...], ...] = (
    # From the narrowest to the widest: a column has the widest type that one of its values needs.
    ((_Kind.WHOLE, pa.int64()), (_Kind.FLOAT, pa.float64())),
    ((_Kind.BOOL, pa.bool_()),),
    ((_Kind.DATE, pa.date32()), (_Kind.MOMENT, pa.timestamp("us")), (_Kind.FINE_MOMENT, pa.timestamp("ns"))),
    ((_Kind.ZONED, pa.timestamp("us", "UTC")), (_Kind.FINE_ZONED, pa.timestamp("ns", "UTC"))),
    ((_Kind.TIME, pa.time32("s")),),
)
# For blocks of mixed values, which Arrow reads as text. At most 18 digits, so that each value fits 64 bits.
_SHAPES: tuple[tuple[_Kind, str], ...] = (
    (_Kind.WHOLE, r"^\s*-?(0|[1-9][0-9]{0,17})\s*$"),
    (_Kind.FLOAT, r"^\s*-?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?\s*$"),
    (_Kind.DATE, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    (_Kind.MOMENT, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?$"),
    (_Kind.ZONED, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]+(Z|[-+][0-9]{2}:?[0-9]{2})$"),
    (_Kind.BOOL, r"^([Tt]rue|TRUE|[Ff]alse|FALSE)$"),
)
# Identifiers written in digits: with a leading zero, or more digits than a number keeps.
_CODE = r"^\s*-?(0[0-9xX]|[0-9]{16,}\s*$)"
_LEADING_ZERO = r"^\s*-?0[0-9xX]"
# Above this a float has no exact value for each integer.
_MOST_EXACT = float(1 << 53)
# Up to this share, other values count as errors in the file.
_FEW = 0.01
_ENOUGH = 10_000


@dataclass
class _Column:
    seen: Counter[_Kind] = field(default_factory=Counter)
    is_code: bool = False
    # Whether some whole number is not exact as a float.
    is_wide: bool = False

    @property
    def is_surely_text(self) -> bool:
        return self.is_code or (self.seen.total() > _ENOUGH and self.seen[_Kind.TEXT] * 2 > self.seen.total())

    def expected_type(self) -> pa.DataType | None:
        """Return the type of the values so far, or None if all values fit it."""
        kind = self.type()
        return None if pa.types.is_string(kind) else kind

    def type(self) -> pa.DataType:
        if self.is_code:
            return pa.string()
        for family in _FAMILIES:
            fitting = sum(self.seen[kind] for kind, _ in family)
            # A few other values among many numbers are bad records, which are reported. Many mean text.
            if fitting >= self.seen.total() * (1 - _FEW):
                # A column without values fits any family, and is text.
                kind = next((kind for shape, kind in reversed(family) if self.seen[shape]), pa.string())
                # Integers of more than 53 bits among fractions: as floats, different ids could become equal.
                return pa.string() if self.is_wide and pa.types.is_floating(kind) else kind
        return pa.string()


class TypeInference:
    """Inspects the blocks of all files, and then decides the types of the columns."""

    def __init__(self, reader: CsvReader, given: pa.Schema) -> None:
        self._reader = reader
        self._given = given
        self._columns: dict[str, _Column] = {}

    def expect(self, names: Sequence[str]) -> None:
        """Add columns, which may have no rows."""
        for name in names:
            self._columns.setdefault(name, _Column())

    def look(self, item: tuple[SourceFile, Block]) -> dict[str, _Column]:
        """Return what the values of one block require of the type of each column."""
        file, block = item
        names = self._reader.names_of(file)
        # Columns that can only be text are not parsed again: their type cannot change.
        settled = {name for name in names if name in self._given.names or self._columns[name].is_surely_text}
        table = self._read(file, block, settled)
        found: dict[str, _Column] = {}
        texts: pa.Table | None = None
        has_zeros = _has_leading_zeros(block)
        for name in names:
            if name in settled:
                continue
            values, found[name] = table.column(name), _Column()
            if _needs_text(values, has_zeros=has_zeros):
                texts = texts if texts is not None else self._reader.texts(file, block)
                _look_closely(found[name], values, texts.column(name))
            else:
                found[name].seen[_kind_of(values)] += len(values) - values.null_count
            found[name].is_wide = pa.types.is_integer(values.type) and _largest(values) >= _MOST_EXACT
        return found

    def _read(self, file: SourceFile, block: Block, settled: set[str]) -> pa.Table:
        """Return a block in the types of its values.

        Try the types of earlier blocks first: to confirm a type takes half the time of inferring it.
        """
        texts = dict.fromkeys(settled, pa.binary())
        expected = {
            name: kind
            for name, column in self._columns.items()
            if name not in settled and (kind := column.expected_type()) is not None
        }
        if expected:
            try:
                return self._reader.guess(file, block, expected | texts)
            except pa.ArrowInvalid:
                pass  # some value needs another type
        return self._reader.guess(file, block, texts)

    def add(self, found: Mapping[str, _Column]) -> None:
        for name, column in found.items():
            self._columns[name].seen.update(column.seen)
            self._columns[name].is_code |= column.is_code
            self._columns[name].is_wide |= column.is_wide

    def schema(self) -> pa.Schema:
        """Return the columns in the order of the files, with given or inferred types."""
        return pa.schema(
            [
                self._given.field(name) if name in self._given.names else pa.field(name, column.type())
                for name, column in self._columns.items()
            ]
        )


_PLAIN_KINDS = (
    (pa.types.is_integer, _Kind.WHOLE),
    (pa.types.is_floating, _Kind.FLOAT),
    (pa.types.is_boolean, _Kind.BOOL),
    (pa.types.is_date, _Kind.DATE),
    (pa.types.is_time, _Kind.TIME),
)


def _kind_of(values: pa.ChunkedArray) -> _Kind:
    kind = values.type
    if not pa.types.is_timestamp(kind):
        return next((found for is_kind, found in _PLAIN_KINDS if is_kind(kind)), _Kind.TEXT)
    # Arrow uses nanoseconds for any fraction of a second. Their range is small, so they are kept only if a value
    # needs them.
    is_fine = kind.unit == "ns" and not _fits(values, pa.timestamp("us", kind.tz))
    if kind.tz is not None:
        return _Kind.FINE_ZONED if is_fine else _Kind.ZONED
    return _Kind.FINE_MOMENT if is_fine else _Kind.MOMENT


def _fits(values: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        values.cast(kind, safe=True)
    except pa.ArrowInvalid:
        return False
    return True


def _has_leading_zeros(block: Block) -> bool:
    """Return whether a value may begin with a zero and another digit, perhaps after spaces or a minus sign."""
    borders = b"\n" + block.dialect.delimiter + (block.dialect.quote or b"")
    pattern = "".join(rf"\x{byte:02x}" for byte in borders)
    # Arrow lets other threads work while it searches; Python's own regular expressions do not.
    text = pa.array([b"\n" + block.data], pa.large_binary())
    return bool(pc.match_substring_regex(text, rf"[{pattern}][ \t]*-?0[0-9xX]")[0].as_py())


def _largest(values: pa.ChunkedArray) -> float:
    """Return the largest absolute value, 0 if there are none."""
    bounds = pc.min_max(values).as_py()
    return max((abs(value) for value in bounds.values() if value is not None), default=0)


def _needs_text(values: pa.ChunkedArray, *, has_zeros: bool) -> bool:
    """Return whether the values must also be read as text, because their type in Arrow may be wrong."""
    kind = values.type
    if pa.types.is_integer(kind):
        return has_zeros
    if pa.types.is_floating(kind):
        return has_zeros or not _largest(values) < _MOST_EXACT  # also if it is NaN
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _look_closely(column: _Column, values: pa.ChunkedArray, texts: pa.ChunkedArray) -> None:
    present = texts.drop_null()
    if not pa.types.is_string(values.type) and not pa.types.is_binary(values.type):
        # Post codes and account numbers look like numbers. As a number they would lose zeros or digits.
        shape = _LEADING_ZERO if pa.types.is_integer(values.type) else _CODE
        if pc.any(pc.match_substring_regex(present, shape)).as_py():
            column.is_code = True
        column.seen[_kind_of(values)] += len(present)
        return
    left = present
    for kind, shape in _SHAPES:
        is_such = pc.match_substring_regex(left, shape)
        column.seen[kind] += pc.sum(is_such).as_py() or 0
        # Each value counts once, for the first shape that it has.
        left = left.filter(pc.invert(is_such))
    column.seen[_Kind.TEXT] += len(left)
