"""Changes to a table other than its rows: its name, columns, key, indices and notes.

`TableChanges` is what a transaction offers. `Transaction` itself changes rows. The functions below it stage one change
each, and return the staged table that follows.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from anabranch.errors import InvalidExpressionError, InvalidInputError, TableExistsError
from anabranch.format import staging
from anabranch.format.arguments import checked_number, require_names
from anabranch.format.staging import DEFAULT, ColumnChange, IndexKind, Notes, VectorOptions, VersionRef
from anabranch.ids import TableKey
from anabranch.repo.write.homes import check_primary_key
from anabranch.repo.write.staged_table import StagedTable, Step, check_unique
from anabranch.repo.write.write_set import WriteSet, atomic


class TableChanges(ABC):
    """Changes to the tables of a write set. `Transaction` adds how they begin and end."""

    _lock: threading.RLock
    _write_set: WriteSet

    @abstractmethod
    def _start(self, key: str) -> TableKey:
        """Begin a change of a table."""

    # Tables

    @atomic
    def create_table(self, table: str, schema: pa.Schema, *, primary_key: Sequence[str] = ()) -> None:
        """Make an empty table.

        >>> with repo.transaction() as tx:
        ...     tx.create_table("shop.items", pa.schema([("id", pa.int64())]), primary_key=["id"])
        >>> repo.tables()
        ['shop.items', 'shop.orders']
        """
        parsed = self._start(table)
        if isinstance(schema, pa.Schema) and any(DEFAULT.encode() in (field.metadata or {}) for field in schema):
            staging.check_defaults(schema)
        self._write_set.put(parsed, self._write_set.new_table(parsed, schema, primary_key))

    @atomic
    def drop_table(self, table: str) -> None:
        """Drop a table from the branch. Older commits keep it.

        >>> with repo.transaction() as tx:
        ...     tx.drop_table("shop.orders")
        >>> repo.tables(), repo.tables("main~1")
        ([], ['shop.orders'])
        """
        parsed = self._start(table)
        self._write_set.entry(parsed)
        self._write_set.put(parsed, None)

    @atomic
    def rename_table(self, table: str, new: str) -> None:
        """Give a table another name; its files stay where they are.

        >>> with repo.transaction() as tx:
        ...     tx.rename_table("shop.orders", "shop.sales")
        >>> repo.tables()
        ['shop.sales']
        """
        parsed, target = self._start(table), self._start(new)
        if self._write_set.has(target):
            raise TableExistsError(f"there is a table '{new}' already", hint="choose another name")
        # This stages rows that are recorded under the old name. They would be dropped with that name.
        staged_table = self._write_set.get(parsed)
        self._write_set.put(parsed, None)
        self._write_set.put(target, replace(staged_table, key=target).then(Step("rename", staged_table.version_ref)))

    # Columns, keys, indices

    @atomic
    def add_columns(self, table: str, columns: Mapping[str, str] | pa.Schema) -> None:
        """Add columns computed by SQL expressions, or, given a schema, empty ones.

        >>> with repo.transaction() as tx:
        ...     tx.add_columns("shop.orders", {"with_tax": "amount * 1.2"})
        >>> repo.entity_at("shop.orders", 2)["with_tax"]
        9.6
        """
        self._change(table, lambda staged_table: add_columns(staged_table, columns))

    @atomic
    def alter_columns(self, table: str, changes: Sequence[ColumnChange]) -> None:
        """Rename columns, change their type, or whether they may be null. Their indices are kept.

        >>> with repo.transaction() as tx:
        ...     tx.alter_columns("shop.orders", [ab.ColumnChange(path="item", name="product")])
        >>> repo["shop.orders"].columns
        ('id', 'product', 'amount')
        """

        def change(staged_table: StagedTable) -> StagedTable:
            changed = alter_columns(staged_table, changes)
            return with_fitting_defaults(changed, [one.name or one.path for one in changes])

        self._change(table, change)

    @atomic
    def drop_columns(self, table: str, columns: Sequence[str]) -> None:
        """Take columns away; older commits keep them.

        >>> with repo.transaction() as tx:
        ...     tx.drop_columns("shop.orders", ["item"])
        >>> repo["shop.orders"].columns
        ('id', 'amount')
        """
        self._change(table, lambda staged_table: drop_columns(staged_table, columns))

    @atomic
    def set_primary_key(self, table: str, columns: Sequence[str]) -> None:
        """Make these columns the primary key; no columns remove it. Refused if rows have nulls in them or repeat a key.

        >>> with repo.transaction() as tx:
        ...     tx.set_primary_key("shop.orders", ["id", "item"])
        >>> repo["shop.orders"].primary_key
        ('id', 'item')
        """
        self._change(table, lambda staged_table: set_primary_key(staged_table, columns))

    @atomic
    def index(
        self,
        table: str,
        column: str,
        *,
        type: str = IndexKind.BTREE,  # noqa: A002 - Lance's name
        name: str | None = None,
        vector: VectorOptions | None = None,
    ) -> None:
        """Build an index over all rows, instead of one of the same name; it is called `{column}_idx` by default.

        >>> with repo.transaction() as tx:
        ...     tx.index("shop.orders", "item", type="bitmap")
        >>> [index.name for index in repo["shop.orders"].indices]
        ['item_idx']
        """
        self._change(table, partial(index_column, column=column, kind=type, name=name, vector=vector))

    @atomic
    def drop_index(self, table: str, name: str) -> None:
        """Drop an index.

        >>> commit = repo.index("shop.orders", "item")
        >>> with repo.transaction() as tx:
        ...     tx.drop_index("shop.orders", "item_idx")
        >>> repo["shop.orders"].indices
        ()
        """
        self._change(table, lambda staged_table: drop_index(staged_table, name))

    @atomic
    def compact(self, table: str, *, target_rows_per_fragment: int = staging.TARGET_ROWS) -> None:
        """Rewrite small and half-deleted fragments as larger ones, and build the indices again; the rows stay.

        >>> with repo.transaction() as tx:
        ...     tx.compact("shop.orders")
        """
        self._change(table, partial(compact, target_rows_per_fragment=target_rows_per_fragment))

    @atomic
    def annotate(self, table: str, notes: Notes, *, columns: Mapping[str, Notes] | None = None) -> None:
        """Note texts by name beside a table and its columns, in the metadata of the Arrow schema; None removes one.

        >>> with repo.transaction() as tx:
        ...     tx.annotate("shop.orders", {"owner": "ada"})
        >>> repo["shop.orders"].schema.metadata[b"owner"]
        b'ada'
        """

        def change(staged_table: StagedTable) -> StagedTable:
            noted = annotate(staged_table, notes, columns=columns or {})
            changed = [name for name, given in (columns or {}).items() if given.get(DEFAULT) is not None]
            return with_fitting_defaults(noted, changed)

        self._change(table, change)

    # Staging

    def _change(self, key: str, change: Callable[[StagedTable], StagedTable]) -> None:
        before = self._write_set.get(self._start(key))
        after = change(before)
        if after != before:
            self._write_set.put(after.key, after)


class Rewriter(Protocol):
    """Rewrite the files of a table on many machines."""

    def rewrite(self, version_ref: VersionRef, tasks: Sequence[bytes]) -> list[bytes]:
        """Run the tasks of a compaction of one version."""
        ...


def add_columns(staged_table: StagedTable, columns: Mapping[str, str] | pa.Schema) -> StagedTable:
    if not isinstance(columns, pa.Schema):
        require_expressions(columns)
    return _after(staged_table, "add columns", staging.add_columns(staged_table.version_ref, columns))


def alter_columns(staged_table: StagedTable, changes: Sequence[ColumnChange]) -> StagedTable:
    """Change columns. The primary key and the indices follow columns that are renamed or get another type."""
    _require_changes(changes)
    names = {change.path: change.name for change in changes if change.name is not None}
    primary_key = tuple(names.get(name, name) for name in staged_table.primary_key)
    staged = staging.alter_columns(staged_table.version_ref, changes)
    check_primary_key(staged_table.key, staged.schema, primary_key)
    # A column with another type is written again, without the indices that it had.
    if any(change.type is not None for change in changes):
        staged = staging.keep_indices(staged, of=staged_table.version_ref, names=names)
    return _after(replace(staged_table, primary_key=primary_key), "alter columns", staged)


def drop_columns(staged_table: StagedTable, columns: Sequence[str]) -> StagedTable:
    require_names(columns)
    for name in columns:
        if name in staged_table.primary_key:
            hint = "set another key first"
            raise InvalidInputError(f"column {name!r} is part of the primary key of '{staged_table.key}'", hint=hint)
    return _after(staged_table, "drop columns", staging.drop_columns(staged_table.version_ref, columns))


def set_primary_key(staged_table: StagedTable, columns: Sequence[str]) -> StagedTable:
    """Set the primary key. No data is written: the rows must have unique keys already."""
    check_primary_key(staged_table.key, staged_table.version_ref.schema, columns)
    # If the table has this key already, its rows need not be read.
    if tuple(columns) == staged_table.primary_key:
        return staged_table
    check_unique(staged_table.version_ref, columns)
    return replace(staged_table, primary_key=tuple(columns)).then(Step("set the primary key", staged_table.version_ref))


def index_column(
    staged_table: StagedTable, column: str, *, kind: str, name: str | None = None, vector: VectorOptions | None = None
) -> StagedTable:
    require_names([column])
    staged = staging.index(staged_table.version_ref, column, IndexKind.parse(kind), name=name, vector=vector)
    return _after(staged_table, "index", staged)


def drop_index(staged_table: StagedTable, name: str) -> StagedTable:
    return _after(staged_table, "drop the index", staging.drop_index(staged_table.version_ref, name))


def compact(
    staged_table: StagedTable, *, target_rows_per_fragment: int, rewriter: Rewriter | None = None
) -> StagedTable:
    """Rewrite small fragments as larger ones. Rows do not change, so the step can be repeated on any version."""
    checked_number(target_rows_per_fragment, "target_rows_per_fragment", hint="pass a number of rows")

    def compacted(version_ref: VersionRef) -> VersionRef:
        if rewriter is None:
            return staging.compact(version_ref, target_rows_per_fragment=target_rows_per_fragment)
        tasks = staging.plan_compaction(version_ref, target_rows_per_fragment=target_rows_per_fragment)
        return staging.stage_rewritten(version_ref, rewriter.rewrite(version_ref, tasks) if tasks else [])

    staged = compacted(staged_table.version_ref)
    return staged_table if staged == staged_table.version_ref else staged_table.then(Step("compact", staged, compacted))


def annotate(staged_table: StagedTable, notes: Notes, *, columns: Mapping[str, Notes]) -> StagedTable:
    _require_mapping(columns)
    for given in (notes, *columns.values()):
        _require_notes(given)
    return _after(staged_table, "annotate", staging.annotate(staged_table.version_ref, notes, columns=columns))


def with_fitting_defaults(staged_table: StagedTable, columns: Iterable[str]) -> StagedTable:
    """Return a changed table. Raise SchemaMismatchError if a default of these columns does not fit its column."""
    schema = staged_table.version_ref.schema
    names = [name for name in columns if name in schema.names]
    if names:
        staging.check_defaults(schema, names)
    return staged_table


def require_where(where: str | None, what: str) -> str:
    """Refuse a change of rows without a predicate, because it is usually a mistake."""
    if where is None:
        hint = f"pass `where=...`, or `where='true'` to {what} all rows"
        raise InvalidExpressionError(f"the {what} has no predicate", hint=hint)
    return where


def require_expressions(given: object) -> None:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        hint = "give a dict such as {'price': 'price * 2'}"
        raise InvalidInputError(f"{given!r} does not map columns to expressions", hint=hint)


def _require_changes(given: object) -> None:
    if not isinstance(given, Sequence) or not all(isinstance(change, ColumnChange) for change in given):
        raise InvalidInputError(f"{given!r} is not a list of column changes", hint="give a list of ColumnChange")


def _require_mapping(given: object) -> None:
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"{given!r} is not a mapping of notes", hint="pass a dict such as {'owner': 'ada'}")


def _require_notes(given: Any) -> None:
    _require_mapping(given)
    for name, text in given.items():
        if not isinstance(name, str) or not (text is None or isinstance(text, str)):
            raise InvalidInputError(f"the note {name!r}: {text!r} is not text", hint="use text, or None to remove it")


def _after(staged_table: StagedTable, name: str, staged: VersionRef) -> StagedTable:
    return staged_table if staged == staged_table.version_ref else staged_table.then(Step(name, staged))
