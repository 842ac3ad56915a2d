"""What a repository asks of the engine that compares rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from anabranch.format.difference import ColumnPair
from anabranch.format.parts import Part, count_parts, iter_parts, split_parts
from anabranch.format.staging import Pin

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BucketingComparer",
    "ColumnTriple",
    "LargeComparer",
    "RowComparer",
    "RowComparison",
    "RowMerge",
    "RowSide",
    "Rows",
    "TableCounts",
]


class Rows(Protocol):
    """Rows of one version, with `_rowid` and `_rowaddr` behind their columns if they are asked for.

    They can be read more than once, and pickled, so that others read them.
    """

    @property
    def schema(self) -> "pa.Schema":
        """The columns, without what is behind them."""
        ...

    @property
    def rows(self) -> int: ...

    def read(self) -> "Iterator[pa.RecordBatch]": ...

    def split(self, *, rows: int) -> "Sequence[Rows]":
        """The same in pieces of about so many rows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSide:
    """Rows that lie in a repository."""

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

    def split(self, *, rows: int) -> "list[RowSide]":
        return [replace(self, parts=piece) for piece in split_parts(self.parts, rows=rows)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowComparison:
    """Rows of two versions to be matched: by keys, or, without any, by their values and then by their row ids.

    A side is None if there is no such table; a column that one side does not have counts as nulls there. Row ids are
    read only where `has_row_ids` says that they can match anything.
    """

    older: Rows | None
    newer: Rows | None
    columns: Sequence[ColumnPair]
    keys: Sequence[ColumnPair]
    has_row_ids: bool

    @property
    def sides(self) -> "tuple[Rows | None, ...]":
        return self.older, self.newer

    @property
    def rows(self) -> int:
        return _count_rows(self.sides)

    def having(self, sides: "Sequence[Rows | None]") -> "RowComparison":
        """The same asked of other rows."""
        older, newer = sides
        return replace(self, older=older, newer=newer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTriple:
    """A column as it is called in the common base and on both sides of a merge; None where it is not."""

    base: str | None
    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMerge:
    """The rows that a merge is about, to be matched by keys or, without any, by their row ids.

    `base_of_source` and `source` are what may differ between the base and the source, `base_of_target` and `target`
    what may differ between the base and the target. A row of the base that is not among the latter is in the target as
    it was; the same goes for the source.
    """

    base_of_source: Rows | None
    source: Rows | None
    base_of_target: Rows | None
    target: Rows | None
    columns: Sequence[ColumnTriple]
    keys: Sequence[ColumnTriple]

    @property
    def sides(self) -> "tuple[Rows | None, ...]":
        return self.base_of_source, self.source, self.base_of_target, self.target

    @property
    def rows(self) -> int:
        return _count_rows(self.sides)

    def having(self, sides: "Sequence[Rows | None]") -> "RowMerge":
        """The same asked of other rows."""
        base_of_source, source, base_of_target, target = sides
        return replace(self, base_of_source=base_of_source, source=source, base_of_target=base_of_target, target=target)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts:
    """How many rows of a table differ."""

    inserted: int
    updated: int
    deleted: int

    @property
    def total(self) -> int:
        """All of them together."""
        return self.inserted + self.updated + self.deleted


class RowComparer(Protocol):
    def count(self, comparison: RowComparison) -> TableCounts:
        """Count the rows that differ."""
        ...

    def compare(self, comparison: RowComparison) -> "pa.RecordBatchReader":
        """Begin to find the rows that differ: `change`, `columns`, and `before` and `after` as structs."""
        ...

    def merge(self, merge: RowMerge) -> "pa.RecordBatchReader":
        """Begin to find the rows that the source changed, with what the target did to them; new rows come last.

        - `source_change`: 'inserted', 'updated' or 'deleted'; `target_change`: the same, or null where it did nothing.
        - `base`, `source`, `target`: the rows as structs, null where there is none. A row that the target has as it was
          in the base is null too, unless it lies elsewhere now.
        - `base_address`, `target_address`, `target_row_id`: where the rows lie; null like the rows themselves.
        - `source_columns`: the numbers of the columns that the source changed of an updated row, or that it alone has
          of a row that both inserted; `conflicts`: of those that both changed, to different values.
        """
        ...


class BucketingComparer(RowComparer, Protocol):
    """A comparer whose questions can be shared out: what it says of a row depends on the rows of its bucket alone."""

    @property
    def hashing(self) -> str:
        """What the numbers of buckets are found by; those found by something else are of no use together."""
        ...

    def find_buckets(self, question: RowComparison | RowMerge, *, side: int, buckets: int) -> "pa.Array":
        """The bucket of each row of a side: rows that match by keys, or are equal if there are none, share one."""
        ...

    def cancel(self, comparison: RowComparison) -> "Iterator[tuple[int, pa.RecordBatch]]":
        """The rows without an equal on the other side, each with `_rowid` and the number of its side."""
        ...


class LargeComparer(RowComparer, Protocol):
    """A comparer for many rows, which may take a while to begin."""

    @property
    def is_ready(self) -> bool:
        """Whether there is all that it needs."""
        ...


def _count_rows(sides: Sequence[Rows | None]) -> int:
    return sum(side.rows for side in sides if side is not None)
