"""What a repository asks of the engine that compares rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from anabranch.format.difference import ColumnPair

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowComparer", "RowComparison", "RowSide"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSide:
    """Rows of one version, with `_rowid` behind their columns; they can be read more than once."""

    schema: "pa.Schema"
    read: "Callable[[], Iterator[pa.RecordBatch]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowComparison:
    """Rows of two versions to be matched: by keys, or, without any, by their values and then by their row ids.

    A side is None if there is no such table; a column that one side does not have counts as nulls there.
    """

    older: RowSide | None
    newer: RowSide | None
    columns: Sequence[ColumnPair]
    keys: Sequence[ColumnPair]
    has_row_ids: bool


class RowComparer(Protocol):
    def compare(self, comparison: RowComparison) -> "pa.RecordBatchReader":
        """Begin to find the rows that differ: `change`, `columns`, and `before` and `after` as structs."""
        ...
