"""What differs between two states: tables, columns, and rows with their values before and after.

Equal pointers are equal tables. Otherwise only the rows are read that the two versions may differ in, and matched by
their key, or, without one, by their values and then by the ids that Lance gave them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anabranch.errors import TableNotFoundError
from anabranch.format.difference import (
    ColumnPair,
    Difference,
    Part,
    all_parts,
    compare_versions,
    count_parts,
    iter_parts,
)
from anabranch.ids import TableKey
from anabranch.repo.comparing import RowComparer, RowComparison, RowSide
from anabranch.repo.snapshots import Snapshot, Table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Diff",
    "RowChange",
    "RowChangeKind",
    "SchemaChange",
    "TableChangeKind",
    "TableCounts",
    "TableDiff",
    "diff_snapshots",
]


class TableChangeKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class RowChangeKind(StrEnum):
    INSERTED = "inserted"
    UPDATED = "updated"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A column that was added, removed, renamed, retyped or changed in whether it may be null."""

    change: str
    column: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """One row before and after; `columns` are those whose values differ, of an updated row."""

    table: str
    change: RowChangeKind
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts:
    """How many rows of a table differ."""

    inserted: int
    updated: int
    deleted: int

    @property
    def total(self) -> int:
        return self.inserted + self.updated + self.deleted


class TableDiff:
    """One table that differs. Rows are compared when somebody asks for them, and again for each who does."""

    def __init__(
        self, key: str, *, before: Table | None, after: Table | None, load_comparer: Callable[[], RowComparer]
    ) -> None:
        self.key = key
        self.before = before
        self.after = after
        self._load_comparer = load_comparer

    def __repr__(self) -> str:
        return f"TableDiff({self.key!r}, {self.change.value})"

    @property
    def change(self) -> TableChangeKind:
        if self.before is None:
            return TableChangeKind.ADDED
        return TableChangeKind.REMOVED if self.after is None else TableChangeKind.CHANGED

    @property
    def renamed_from(self) -> str | None:
        """The name it had before, if that was another."""
        return self.before.key if self.before is not None and self.before.key != self.key else None

    @cached_property
    def columns(self) -> tuple[SchemaChange, ...]:
        """How the schema differs; of a table that was added or removed, nothing is said."""
        if self.before is None or self.after is None:
            return ()
        return tuple(_iter_column_changes(self.before, self.after, self._difference.columns))

    @cached_property
    def counts(self) -> TableCounts:
        """How many rows differ; they are read, but none is kept."""
        if self.before is None or self.after is None:
            return TableCounts(
                inserted=0 if self.after is None else self.after.count_rows(),
                updated=0,
                deleted=0 if self.before is None else self.before.count_rows(),
            )
        found = dict.fromkeys(RowChangeKind, 0)
        for batch in self.iter_batches():
            for kind in batch.column("change").to_pylist():
                found[RowChangeKind(kind)] += 1
        return TableCounts(
            inserted=found[RowChangeKind.INSERTED],
            updated=found[RowChangeKind.UPDATED],
            deleted=found[RowChangeKind.DELETED],
        )

    @property
    def rows_to_compare(self) -> int:
        """How many rows are read to find those that differ."""
        return count_parts(self._difference.older) + count_parts(self._difference.newer)

    def iter_batches(self) -> "pa.RecordBatchReader":
        """The rows that differ: `change`, `columns`, and `before` and `after` as structs."""
        difference = self._difference
        keys = () if self.before is None or self.after is None else self._shared_key(difference.columns)
        return self._load_comparer().compare(
            RowComparison(
                older=_side(self.before, difference.older),
                newer=_side(self.after, difference.newer),
                columns=difference.columns,
                keys=keys,
                has_row_ids=self._has_one_dataset,
            )
        )

    def iter_rows(self) -> Iterator[RowChange]:
        for batch in self.iter_batches():
            for row in batch.to_pylist():
                yield RowChange(
                    table=self.key,
                    change=RowChangeKind(row["change"]),
                    before=row["before"],
                    after=row["after"],
                    columns=tuple(row["columns"]),
                )

    def to_arrow(self) -> "pa.Table":
        return self.iter_batches().read_all()

    @cached_property
    def _difference(self) -> Difference:
        if self.before is not None and self.after is not None:
            return compare_versions(self.before.pin, self.after.pin)
        return _all_of(self.before, self.after)

    @property
    def _has_one_dataset(self) -> bool:
        return (
            self.before is not None and self.after is not None and self.before.entry.dataset == self.after.entry.dataset
        )

    def _shared_key(self, columns: Sequence[ColumnPair]) -> tuple[ColumnPair, ...]:
        """The primary key as pairs of columns, if both versions have the same."""
        if self.before is None or self.after is None:
            return ()
        by_newer = {pair.newer: pair for pair in columns}
        pairs = tuple(by_newer[name] for name in self.after.primary_key)
        return pairs if tuple(pair.older for pair in pairs) == self.before.primary_key else ()


class Diff:
    """All that differs between two states, by table."""

    def __init__(self, before: Snapshot, after: Snapshot, tables: tuple[TableDiff, ...]) -> None:
        self.before = before
        self.after = after
        self.tables = tables

    def __repr__(self) -> str:
        return f"Diff({self.before.id!r}, {self.after.id!r}, tables={len(self.tables)})"

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to see: a table that was only rewritten has no differences."""
        return all(_is_same(table) for table in self.tables)

    def summary(self) -> dict[str, TableCounts]:
        """How many rows of each table differ."""
        return {table.key: table.counts for table in self.tables if not _is_same(table)}

    def iter_rows(self) -> Iterator[RowChange]:
        for table in self.tables:
            yield from table.iter_rows()

    def to_arrow(self) -> "dict[str, pa.Table]":
        """The rows that differ, as one Arrow table for each table of the repository."""
        return {table.key: table.to_arrow() for table in self.tables}


def diff_snapshots(
    before: Snapshot, after: Snapshot, *, keys: Sequence[str] | None, load_comparer: Callable[[], RowComparer]
) -> Diff:
    """Compare two snapshots, related or not; no row is read before somebody asks for it."""
    old, new = before.entries, after.entries
    wanted = None if keys is None else {TableKey.parse(key) for key in keys}
    for key in wanted or ():
        if key not in old and key not in new:
            raise TableNotFoundError(f"there is no table '{key}' on either side", hint="list the tables of both")
    renamed = _find_renamed(before, after)
    tables = []
    for key in sorted({*old, *new}):
        was = renamed.get(key, key)
        is_gone = key in old and key not in new and key in renamed.values()
        if is_gone or (wanted is not None and key not in wanted and was not in wanted):
            continue
        left = before[str(was)] if was in old else None
        right = after[str(key)] if key in new else None
        if left is None or right is None or key in renamed or left.entry != right.entry:
            tables.append(TableDiff(str(key), before=left, after=right, load_comparer=load_comparer))
    return Diff(before, after, tuple(tables))


def _find_renamed(before: Snapshot, after: Snapshot) -> dict[TableKey, TableKey]:
    """The tables that have another name by now, {new: old}: the dataset is the same, and its old name is free."""
    gone = {entry.dataset: key for key, entry in before.entries.items() if key not in after.entries}
    come = {key: entry for key, entry in after.entries.items() if key not in before.entries}
    return {key: gone[entry.dataset] for key, entry in come.items() if entry.dataset in gone}


def _is_same(table: TableDiff) -> bool:
    if table.change is not TableChangeKind.CHANGED or table.renamed_from is not None or table.columns:
        return False
    return _key(table.before) == _key(table.after) and not table.counts.total


def _key(table: Table | None) -> tuple[str, ...]:
    return () if table is None else table.primary_key


def _side(table: Table | None, parts: Sequence[Part]) -> RowSide | None:
    if table is None:
        return None
    pin = table.pin
    return RowSide(schema=pin.schema, read=lambda: iter_parts(pin, parts))


def _all_of(before: Table | None, after: Table | None) -> Difference:
    """Every row of a table that is on one side only."""
    table = after if before is None else before
    if table is None:
        return Difference(columns=(), older=(), newer=())
    names = table.schema.names
    parts = all_parts(table.pin)
    if before is None:
        pairs = tuple(ColumnPair(older=None, newer=name) for name in names)
        return Difference(columns=pairs, older=(), newer=parts)
    return Difference(columns=tuple(ColumnPair(older=name, newer=None) for name in names), older=parts, newer=())


def _iter_column_changes(before: Table, after: Table, pairs: Sequence[ColumnPair]) -> Iterator[SchemaChange]:
    old, new = before.schema, after.schema
    for pair in pairs:
        if pair.older is None and pair.newer is not None:
            yield SchemaChange(change="added", column=pair.newer, before=None, after=str(new.field(pair.newer).type))
        elif pair.newer is None and pair.older is not None:
            yield SchemaChange(change="removed", column=pair.older, before=str(old.field(pair.older).type), after=None)
        elif pair.older is not None and pair.newer is not None:
            left, right = old.field(pair.older), new.field(pair.newer)
            if pair.older != pair.newer:
                yield SchemaChange(change="renamed", column=pair.newer, before=pair.older, after=pair.newer)
            if left.type != right.type:
                yield SchemaChange(change="type", column=pair.newer, before=str(left.type), after=str(right.type))
            if left.nullable != right.nullable:
                yield SchemaChange(
                    change="nullable", column=pair.newer, before=str(left.nullable), after=str(right.nullable)
                )
    names = {pair.older: pair.newer for pair in pairs}
    if tuple(names.get(name) for name in before.primary_key) != after.primary_key:
        yield SchemaChange(
            change="primary key",
            column=", ".join(after.primary_key),
            before=", ".join(before.primary_key),
            after=", ".join(after.primary_key),
        )
