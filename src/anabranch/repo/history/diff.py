"""The differences between two states: tables, columns, and rows with their values before and after.

Tables with the same version are equal. Otherwise only the rows that may differ are read. They are matched by their key,
or, without a key, by their values and then by their Lance row ids.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anabranch.display import MAX_ROWS, text_table
from anabranch.format.arguments import unknown_table
from anabranch.ids import TableKey
from anabranch.repo.history.table_history import SchemaChange, pair_tables
from anabranch.repo.log.entries import TableMap
from anabranch.repo.snapshot import Snapshot, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.format.compare.difference import ColumnPair, Difference
    from anabranch.format.compare.parts import Part
    from anabranch.repo.history.comparer import RowComparer, RowComparison, RowSide, TableCounts


# The number of changed rows from which it is worth to find out which columns were not changed.
_MANY_ROWS = 100


class TableChangeKind(StrEnum):
    """The kind of a table change."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class RowChangeKind(StrEnum):
    """The kind of a row change."""

    INSERTED = "inserted"
    UPDATED = "updated"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """One row before and after. `columns` are the changed columns of an updated row."""

    table: str
    change: RowChangeKind
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    columns: tuple[str, ...]


class TableDiff:
    """One table that differs. Rows are compared when they are read, and again each time. Counts are kept."""

    def __init__(
        self, key: str, *, before: Table | None, after: Table | None, load_comparer: "Callable[[], RowComparer]"
    ) -> None:
        self.key = key
        self.before = before
        self.after = after
        self._load_comparer = load_comparer

    def __repr__(self) -> str:
        return f"TableDiff({self.key!r}, {self.change.value})"

    def _repr_html_(self) -> str:
        from anabranch.repo.history.diff_drawing import draw_table_diff

        return draw_table_diff(self)

    @property
    def change(self) -> TableChangeKind:
        """Whether the table was added, removed or changed."""
        if self.before is None:
            return TableChangeKind.ADDED
        return TableChangeKind.REMOVED if self.after is None else TableChangeKind.CHANGED

    @property
    def renamed_from(self) -> str | None:
        """The old name if the table was renamed, else None."""
        return self.before.key if self.before is not None and self.before.key != self.key else None

    @property
    def rows_before(self) -> int | None:
        """The number of rows before, or None if the table was added. No table is opened."""
        return None if self.before is None else len(self.before)

    @property
    def rows_after(self) -> int | None:
        """The number of rows after, or None if the table was removed. No table is opened."""
        return None if self.after is None else len(self.after)

    @cached_property
    def columns(self) -> tuple[SchemaChange, ...]:
        """The differences of the schemas. Empty for a table that was added or removed."""
        if self.before is None or self.after is None:
            return ()
        return tuple(_iter_column_changes(self.before, self.after, self._difference.columns))

    @cached_property
    def counts(self) -> "TableCounts":
        """The number of rows that differ."""
        from anabranch.repo.history.comparer import TableCounts

        if self.before is None or self.after is None:
            inserted, deleted = (0 if side is None else side.count_rows() for side in (self.after, self.before))
            return TableCounts(inserted=inserted, deleted=deleted)
        if not self.rows_to_compare:
            return TableCounts()
        if not self._keys:
            return self._load_comparer().count(self._comparison(with_filled=True))
        found = self._load_comparer().count(self._comparison(with_filled=False))
        # Each key is in one row, so every row that got or lost a value in an added or removed column is an update.
        return replace(found, updated=found.updated + sum(older.rows for older, _ in self._filled))

    @property
    def is_empty(self) -> bool:
        """Whether there are no differences, for example because the files were only rewritten."""
        if self.change is not TableChangeKind.CHANGED or self.renamed_from is not None or self.columns:
            return False
        # All other rows are in both versions, so if these numbers differ, rows were inserted or deleted.
        older, newer = self._numbers
        return older == newer and not self.counts.total

    @property
    def rows_to_compare(self) -> int:
        """The number of rows that must be read to find those that differ."""
        return sum(self._numbers) + sum(older.rows + newer.rows for older, newer in self._filled)

    def iter_batches(self) -> "pa.RecordBatchReader":
        """Return a reader of the rows that differ: `change`, `columns`, and `before` and `after` as structs."""
        return self._load_comparer().compare(self._comparison(with_filled=True))

    def iter_rows(self) -> Iterator[RowChange]:
        """Read the rows that differ, in no particular order."""
        from anabranch.format.arrow_types import python_values

        for batch in self.iter_batches():
            for row in python_values(batch.to_struct_array()):
                yield RowChange(
                    table=self.key,
                    change=RowChangeKind(row["change"]),
                    before=row["before"],
                    after=row["after"],
                    columns=tuple(row["columns"]),
                )

    def to_arrow(self) -> "pa.Table":
        """Return the rows that differ as one table. The column `change` has the kind of each change."""
        return self.iter_batches().read_all()

    @cached_property
    def _difference(self) -> "Difference":
        from anabranch.format.compare.difference import compare_versions

        if self.before is not None and self.after is not None:
            return compare_versions(self.before.version_ref, self.after.version_ref)
        return _all_of(self.before, self.after)

    @cached_property
    def _numbers(self) -> tuple[int, int]:
        """The number of rows of each side that may differ."""
        from anabranch.format.compare.parts import count_parts

        return count_parts(self._difference.older), count_parts(self._difference.newer)

    @cached_property
    def _filled(self) -> "tuple[tuple[Part, Part], ...]":
        from anabranch.format.compare.difference import find_filled

        if self.before is None or self.after is None or not self._difference.reshaped:
            return ()
        return find_filled(self.before.version_ref, self.after.version_ref, self._difference)

    @cached_property
    def _keys(self) -> "tuple[ColumnPair, ...]":
        """The primary key as pairs of columns. Empty if the two versions have different keys."""
        if self.before is None or self.after is None:
            return ()
        by_newer = {pair.newer: pair for pair in self._difference.columns}
        # By column identity, so that a renamed key column still matches.
        pairs = tuple(by_newer[name] for name in self.after.primary_key)
        return pairs if tuple(pair.older for pair in pairs) == self.before.primary_key else ()

    def _comparison(self, *, with_filled: bool) -> "RowComparison":
        from anabranch.repo.history.comparer import RowComparison

        difference, filled = self._difference, self._filled if with_filled else ()
        # Row ids of two datasets are counted independently, so that equal ones mean nothing.
        datasets = [None if table is None else table.entry.dataset for table in (self.before, self.after)]
        has_row_ids = not self._keys and None not in datasets and datasets[0] == datasets[1]
        return RowComparison(
            older=_side(self.before, (*difference.older, *(older for older, _ in filled)), with_row_ids=has_row_ids),
            newer=_side(self.after, (*difference.newer, *(newer for _, newer in filled)), with_row_ids=has_row_ids),
            columns=difference.columns,
            keys=self._keys,
            has_row_ids=has_row_ids,
            unchanged=self._unchanged,
        )

    @cached_property
    def _unchanged(self) -> frozenset[str]:
        """The columns that no update changed, if the two versions differ by updates only."""
        from anabranch.format.compare.difference import find_updated_columns

        before, after = self.before, self.after
        # Few rows are read faster than the steps between the versions. Without a key, rows are matched by all values.
        if before is None or after is None or not self._keys or self._numbers[0] < _MANY_ROWS:
            return frozenset()
        updated = find_updated_columns(before.version_ref, after.version_ref)
        return frozenset() if updated is None else frozenset(after.schema.names) - updated


class Diff:
    """The differences between two states, by table."""

    def __init__(self, before: Snapshot, after: Snapshot, tables: tuple[TableDiff, ...]) -> None:
        self.before = before
        self.after = after
        self.tables = tables

    def __repr__(self) -> str:
        # What is known without comparing rows, which may take long.
        rows: list[tuple[object, ...]] = []
        for table in self.tables[:MAX_ROWS]:
            change = table.change if table.renamed_from is None else f"renamed from {table.renamed_from}"
            rows.append((table.key, change, table.rows_before, table.rows_after))
        names = ("table", "change", "rows before", "rows after")
        return text_table(names, rows, title=self._title(), more=len(self.tables) - MAX_ROWS)

    def _repr_html_(self) -> str:
        from anabranch.repo.history.diff_drawing import draw_diff

        return draw_diff(self._title(), self.tables)

    def _title(self) -> str:
        number = "1 table" if len(self.tables) == 1 else f"{len(self.tables)} tables"
        return f"Diff of {number}, from {self.before.id} to {self.after.id}"

    @property
    def is_empty(self) -> bool:
        """Whether no table differs. A table whose files were only rewritten has no differences."""
        return all(table.is_empty for table in self.tables)

    def summary(self) -> "dict[str, TableCounts]":
        """Return the number of rows that differ, by table.

        If another table has the name of a removed one now, the removed one is called 'NAME (removed)'.
        """
        return {name: table.counts for name, table in self._named() if not table.is_empty}

    def iter_rows(self) -> Iterator[RowChange]:
        """Read the rows that differ, table by table, in no particular order."""
        for table in self.tables:
            yield from table.iter_rows()

    def to_arrow(self) -> "dict[str, pa.Table]":
        """Return the rows that differ as one Arrow table for each changed table, named as in `summary`."""
        return {name: table.to_arrow() for name, table in self._named()}

    def _named(self) -> Iterator[tuple[str, TableDiff]]:
        """Yield the tables with unique names."""
        for table in self.tables:
            is_used_again = table.after is None and table.key in self.after
            yield (f"{table.key} (removed)" if is_used_again else table.key), table


def diff_snapshots(
    before: Snapshot, after: Snapshot, *, keys: Sequence[str] | None, load_comparer: "Callable[[], RowComparer]"
) -> Diff:
    """Compare two snapshots, also without a common history. Rows are read only when the result is used.

    Raise TableNotFoundError if one of `keys` is in neither snapshot.
    """
    selected = _checked_keys(keys, before.entries, after.entries)
    tables = []
    for old_key, key in pair_tables(before, after):
        if selected is not None and not selected & {old_key, key}:
            continue
        left = None if old_key is None else before[str(old_key)]
        right = None if key is None else after[str(key)]
        if not _have_same_state(left, right):
            # A table is shown under its new name.
            shown = str(old_key if key is None else key)
            tables.append(TableDiff(shown, before=left, after=right, load_comparer=load_comparer))
    return Diff(before, after, tuple(tables))


def _checked_keys(keys: Sequence[str] | None, old: TableMap, new: TableMap) -> set[TableKey] | None:
    if keys is None:
        return None
    selected = {TableKey.parse(key) for key in keys}
    for name in selected:
        if name not in old and name not in new:
            raise unknown_table(name, "on either side", [*old, *new])
    return selected


def _have_same_state(before: Table | None, after: Table | None) -> bool:
    if before is None or after is None:
        return False
    # A rename is a difference even if no row is.
    return before.key == after.key and before.entry.state == after.entry.state


def find_appended_rows(diff: TableDiff) -> "RowSide | None":
    """Return the new rows if rows were only appended, so that nothing needs to be compared. Else None."""
    if diff.before is None or diff._difference.older or diff._filled:
        return None
    return _side(diff.after, diff._difference.newer, with_row_ids=False)


def pair_columns(diff: TableDiff) -> "tuple[ColumnPair, ...]":
    """Return the columns of both states as pairs."""
    return diff._difference.columns


def _side(table: Table | None, parts: "Sequence[Part]", *, with_row_ids: bool) -> "RowSide | None":
    from anabranch.repo.history.comparer import RowSide

    if table is None:
        return None
    return RowSide(version_ref=table.version_ref, parts=tuple(parts), with_row_ids=with_row_ids)


def _all_of(before: Table | None, after: Table | None) -> "Difference":
    """Return all rows of a table that only one side has as the difference."""
    from anabranch.format.compare.difference import ColumnPair, Difference
    from anabranch.format.compare.parts import all_parts

    older, newer = (() if table is None else all_parts(table.version_ref) for table in (before, after))
    removed, added = ([] if table is None else table.schema.names for table in (before, after))
    columns = [ColumnPair(older=name, newer=None) for name in removed]
    columns += [ColumnPair(older=None, newer=name) for name in added]
    return Difference(columns=tuple(columns), older=older, newer=newer)


def _iter_column_changes(before: Table, after: Table, pairs: "Sequence[ColumnPair]") -> Iterator[SchemaChange]:
    from anabranch.column_types import show_type  # loads Arrow

    old, new = before.schema, after.schema
    for pair in pairs:
        if pair.older is not None and pair.newer is not None:
            yield from _iter_field_changes(old.field(pair.older), new.field(pair.newer))
        elif pair.newer is not None:
            added = show_type(new.field(pair.newer).type)
            yield SchemaChange(change="added", column=pair.newer, before=None, after=added)
        elif pair.older is not None:
            removed = show_type(old.field(pair.older).type)
            yield SchemaChange(change="removed", column=pair.older, before=removed, after=None)
    # The rename of a key column is not a change of the key.
    names = {pair.older: pair.newer for pair in pairs}
    if tuple(names.get(name) for name in before.primary_key) != after.primary_key:
        was, became = ", ".join(before.primary_key), ", ".join(after.primary_key)
        yield SchemaChange(change="primary key", column=became, before=was, after=became)


def _iter_field_changes(old: "pa.Field", new: "pa.Field") -> Iterator[SchemaChange]:
    from anabranch.column_types import show_type  # loads Arrow

    for change, was, became in (
        ("renamed", old.name, new.name),
        ("type", old.type, new.type),
        ("nullable", old.nullable, new.nullable),
    ):
        if was != became:
            text = show_type if change == "type" else str
            yield SchemaChange(change=change, column=new.name, before=text(was), after=text(became))
