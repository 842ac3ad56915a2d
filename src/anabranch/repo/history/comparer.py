"""The interface of the engines that compare rows, and the choice between them.

A few rows are compared in memory by numpy, more rows by DuckDB in this process, and many rows by Spark.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, assert_never

import pyarrow as pa

from anabranch.errors import MissingDependencyError
from anabranch.format.compare.difference import ColumnPair
from anabranch.format.compare.parts import Part, count_parts, iter_parts, split_parts
from anabranch.format.staging import VersionRef
from anabranch.repo.log.validation import checked_choice

# A Spark session takes ten seconds to start. In that time DuckDB compares this number of rows, in about 2 GB of memory.
MANY_ROWS = 5_000_000


class Rows(Protocol):
    """Rows of one version. If requested, `_rowid` and `_rowaddr` follow their columns.

    They can be read more than once, and pickled to be read in another process.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns, without `_rowid` and `_rowaddr`."""

    @property
    def rows(self) -> int: ...

    def read(self) -> Iterator[pa.RecordBatch]: ...

    def split(self, *, rows: int) -> "Sequence[Rows]":
        """Split the rows into pieces of about `rows` rows each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSide:
    """Rows that are stored in a table of the repository."""

    version_ref: VersionRef
    parts: tuple[Part, ...]
    with_row_ids: bool = False
    with_addresses: bool = False

    @property
    def schema(self) -> pa.Schema:
        return self.version_ref.row_schema

    @property
    def rows(self) -> int:
        return count_parts(self.parts)

    def read(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the rows: all their columns, or some."""
        return iter_parts(
            self.version_ref,
            self.parts,
            columns=columns,
            with_row_ids=self.with_row_ids,
            with_addresses=self.with_addresses,
        )

    def split(self, *, rows: int) -> "list[RowSide]":
        return [replace(self, parts=piece) for piece in split_parts(self.parts, rows=rows)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowComparison:
    """Rows of two versions to match by keys, or, without keys, by their values and then by their row ids.

    A side is None if it does not have the table. A column that a side does not have is null there. Row ids are read
    only if `has_row_ids` is True: row ids of two different datasets do not match. `unchanged` are columns that are
    known to be equal in rows with the same row id, so that an engine may read them on one side only.
    """

    older: Rows | None
    newer: Rows | None
    columns: Sequence[ColumnPair]
    keys: Sequence[ColumnPair]
    has_row_ids: bool
    unchanged: frozenset[str] = frozenset()

    @property
    def sides(self) -> tuple[Rows | None, ...]:
        return self.older, self.newer

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows that differ, as `RowComparer.compare` returns them."""
        fields = [("change", pa.string()), ("columns", pa.list_(pa.string()))]
        return pa.schema([*fields, ("before", row_type(self.older)), ("after", row_type(self.newer))])

    def with_sides(self, sides: Sequence[Rows | None]) -> "RowComparison":
        """Return the same comparison for other rows."""
        older, newer = sides
        return replace(self, older=older, newer=newer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTriple:
    """The names of one column in the common base and on both sides of a merge. None where the column does not exist.

    `is_filled` is True for a column of the source that the target gets with its default in every row. Every row of the
    source is then a change of this column, even if its value is null.
    """

    base: str | None
    source: str | None
    target: str | None
    is_filled: bool = False

    @property
    def sides(self) -> tuple[str | None, str | None, str | None]:
        """The names in the base, the source and the target."""
        return self.base, self.source, self.target

    @property
    def names(self) -> tuple[str | None, ...]:
        """The names on the sides of a `RowMerge`."""
        return self.base, self.source, self.base, self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMerge:
    """The rows of a merge, to match by keys, or, without keys, by their row ids.

    `base_of_source` and `source` hold the rows that may differ between the base and the source, `base_of_target` and
    `target` those that may differ between the base and the target. A row of the base that is not in `base_of_target` is
    unchanged in the target. The same holds for the source.
    """

    base_of_source: Rows | None
    source: Rows | None
    base_of_target: Rows | None
    target: Rows | None
    columns: Sequence[ColumnTriple]
    keys: Sequence[ColumnTriple]

    @property
    def sides(self) -> tuple[Rows | None, ...]:
        return self.base_of_source, self.source, self.base_of_target, self.target

    @property
    def schema(self) -> pa.Schema:
        """The schema of the matched rows, as `RowComparer.merge` returns them."""
        number, numbers = pa.uint64(), pa.list_(pa.int32())
        return pa.schema(
            [
                ("source_change", pa.string()),
                ("target_change", pa.string()),
                ("base_address", number),
                ("target_address", number),
                ("target_row_id", number),
                ("source_columns", numbers),
                ("conflicts", numbers),
                ("base", row_type(self.base_of_source)),
                ("source", row_type(self.source)),
                ("target", row_type(self.target)),
            ]
        )

    def with_sides(self, sides: Sequence[Rows | None]) -> "RowMerge":
        """Return the same comparison for other rows."""
        base_of_source, source, base_of_target, target = sides
        return replace(self, base_of_source=base_of_source, source=source, base_of_target=base_of_target, target=target)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts:
    """The number of rows of a table that differ."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def __add__(self, other: "TableCounts") -> "TableCounts":
        return TableCounts(
            inserted=self.inserted + other.inserted,
            updated=self.updated + other.updated,
            deleted=self.deleted + other.deleted,
        )

    @property
    def total(self) -> int:
        """The number of all rows that differ."""
        return self.inserted + self.updated + self.deleted


class RowComparer(Protocol):
    """An engine that compares the rows of two versions, and the rows of both sides of a merge."""

    def count(self, comparison: RowComparison) -> TableCounts:
        """Count the rows that differ."""

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        """Return a reader of the rows that differ: `change`, `columns`, and `before` and `after` as structs."""

    def merge(self, merge: RowMerge) -> pa.RecordBatchReader:
        """Return a reader of the rows that the source changed, with the change of the target. New rows come last.

        - `source_change`: 'inserted', 'updated' or 'deleted'. `target_change`: the same, or null if the target did not
          change the row.
        - `base`, `source`, `target`: the rows as structs, null if the row does not exist. `target` is also null if the
          row is unchanged in the target, unless it has another address there. `base` may be null then, and if both
          sides updated the row without a conflict: not every engine reads it.
        - `base_address`, `target_address`, `target_row_id`: where the rows are stored. Null if the row does not exist,
          or, in the target, if it is unchanged at the address of the base.
        - `source_columns`: the indices of the columns that the source changed in an updated row, or that only the
          source has in a row that both sides inserted. If the target did not change the row, and all sides have the
          same columns, at least one of them. `conflicts`: the indices of the columns that both sides changed to
          different values.
        """


class BucketingComparer(RowComparer, Protocol):
    """A comparer whose work can be split into buckets: the result for a row depends only on the rows of its bucket."""

    @property
    def hashing(self) -> str:
        """The hash function of the buckets. Bucket numbers of different hash functions cannot be combined."""

    def find_buckets(self, question: RowComparison | RowMerge, *, side: int, buckets: int) -> pa.Array:
        """Return the bucket of each row of a side. Rows with equal keys (without keys: equal rows) share a bucket."""

    def cancel(self, comparison: RowComparison) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows without an equal row on the other side, with `_rowid`, and the number of their side."""


class LargeComparer(RowComparer, Protocol):
    """A comparer for many rows, which may take seconds to start."""

    @property
    def is_ready(self) -> bool:
        """Whether everything that the comparer needs is available."""


def row_type(rows: Rows | None) -> pa.DataType:
    """Return the type of a whole row. Any column may be null in it: in a row that does not exist."""
    return pa.struct([] if rows is None else [(field.name, field.type) for field in rows.schema])


def count_rows(question: RowComparison | RowMerge) -> int:
    """Return the number of rows on all sides."""
    return sum(side.rows for side in question.sides if side is not None)


class Choice(StrEnum):
    """The engine to use: this process, Spark, or a choice by the size of the work."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoComparer:
    """Compares in this process, or with the large comparer if at least `many_rows` rows must be matched.

    If only one side has rows, there is nothing to match, so the number of rows does not count.
    """

    load_local: Callable[[], RowComparer]
    find_large: Callable[[], LargeComparer | None]
    many_rows: int = MANY_ROWS

    def count(self, comparison: RowComparison) -> TableCounts:
        return self._choose(comparison).count(comparison)

    def compare(self, comparison: RowComparison) -> pa.RecordBatchReader:
        return self._choose(comparison).compare(comparison)

    def merge(self, merge: RowMerge) -> pa.RecordBatchReader:
        return self._choose(merge).merge(merge)

    def _choose(self, question: RowComparison | RowMerge) -> RowComparer:
        # A table that only one side has is read, not matched, which takes no memory for all rows.
        sides = [side for side in question.sides if side is not None and side.rows]
        if len(sides) > 1 and count_rows(question) >= self.many_rows:
            large = self.find_large()
            # With a large engine that cannot start, the comparison still works in this process, if more slowly.
            if large is not None and large.is_ready:
                return large
        return self.load_local()


def choose_comparer(
    engine: str, *, load_local: Callable[[], RowComparer], find_large: Callable[[], LargeComparer | None]
) -> RowComparer:
    """Return the comparer of an engine name. The one for 'auto' chooses an engine for each comparison."""
    match checked_choice(Choice, engine, "the engine"):
        case Choice.AUTO:
            return AutoComparer(load_local=load_local, find_large=find_large)
        case Choice.LOCAL:
            return load_local()
        case Choice.SPARK:
            large = find_large()
            if large is None:
                raise MissingDependencyError("PySpark is not installed", hint="pip install 'anabranch[spark]'")
            return large
        case other:
            assert_never(other)
