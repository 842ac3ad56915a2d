"""What a repository asks of the engine that compares rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from anabranch.format.difference import ColumnPair
from anabranch.format.parts import Part, count_parts, iter_parts
from anabranch.format.staging import Pin

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowComparer", "RowComparison", "RowSide", "TableCounts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSide:
    """Rows of one version, with `_rowid` and `_rowaddr` behind their columns if they are asked for.

    They can be read more than once, and pickled, so that others read them.
    """

    pin: Pin
    parts: tuple[Part, ...]
    with_row_ids: bool = False
    with_addresses: bool = False

    @property
    def schema(self) -> "pa.Schema":
        return self.pin.schema

    @property
    def rows(self) -> int:
        return count_parts(self.parts)

    def read(self) -> "Iterator[pa.RecordBatch]":
        return iter_parts(self.pin, self.parts, with_row_ids=self.with_row_ids, with_addresses=self.with_addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowComparison:
    """Rows of two versions to be matched: by keys, or, without any, by their values and then by their row ids.

    A side is None if there is no such table; a column that one side does not have counts as nulls there. Row ids are
    read only where `has_row_ids` says that they can match anything.
    """

    older: RowSide | None
    newer: RowSide | None
    columns: Sequence[ColumnPair]
    keys: Sequence[ColumnPair]
    has_row_ids: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts:
    """How many rows of a table differ."""

    inserted: int
    updated: int
    deleted: int

    @property
    def total(self) -> int:
        return self.inserted + self.updated + self.deleted


class RowComparer(Protocol):
    def count(self, comparison: RowComparison) -> TableCounts:
        """Count the rows that differ."""
        ...

    def compare(self, comparison: RowComparison) -> "pa.RecordBatchReader":
        """Begin to find the rows that differ: `change`, `columns`, and `before` and `after` as structs."""
        ...
