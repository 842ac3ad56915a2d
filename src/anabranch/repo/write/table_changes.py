"""The changes that a transaction offers: to tables, columns, keys and indices. `Transaction` itself changes rows.

Also how engines write to the tables of a transaction: data files of other processes, and many tables at once.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from anabranch.errors import InvalidInputError, TableExistsError
from anabranch.format import staging
from anabranch.format.arguments import require_names
from anabranch.format.staging import DEFAULT, ColumnChange, IndexKind, Notes, VectorOptions, WrittenFragment
from anabranch.ids import TableKey
from anabranch.repo.write import columns as shape
from anabranch.repo.write.columns import Rewriter, compact
from anabranch.repo.write.homes import check_primary_key
from anabranch.repo.write.staged_table import (
    StagedTable,
    Step,
    WrittenChange,
    append_fragments_step,
    one_time_step,
    overwrite_fragments_step,
    replace_fragments_step,
    upsert_fragments_step,
)
from anabranch.repo.write.write_set import Change, WriteSet, atomic
from anabranch.storage import in_parallel


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
        """Take a table away from the branch; older commits keep it.

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
        # Rows that are recorded under the old name are staged by this. They would be dropped with that name.
        staged_table = self._write_set.get(parsed)
        self._write_set.put(parsed, None)
        self._write_set.put(
            target, replace(staged_table, key=target).then(one_time_step("rename", staged_table.version_ref))
        )

    # Columns, keys, indices

    @atomic
    def add_columns(self, table: str, columns: Mapping[str, str] | pa.Schema) -> None:
        """Add columns computed by SQL expressions, or, given a schema, empty ones.

        >>> with repo.transaction() as tx:
        ...     tx.add_columns("shop.orders", {"with_tax": "amount * 1.2"})
        >>> repo.entity_at("shop.orders", 2)["with_tax"]
        9.6
        """
        self._change(table, lambda staged_table: shape.add_columns(staged_table, columns))

    @atomic
    def alter_columns(self, table: str, changes: Sequence[ColumnChange]) -> None:
        """Rename columns, change their type, or whether they may be null. Their indices are kept.

        >>> with repo.transaction() as tx:
        ...     tx.alter_columns("shop.orders", [ab.ColumnChange(path="item", name="product")])
        >>> repo["shop.orders"].columns
        ('id', 'product', 'amount')
        """

        def change(staged_table: StagedTable) -> StagedTable:
            changed = shape.alter_columns(staged_table, changes)
            return shape.with_fitting_defaults(changed, [one.name or one.path for one in changes])

        self._change(table, change)

    @atomic
    def drop_columns(self, table: str, columns: Sequence[str]) -> None:
        """Take columns away; older commits keep them.

        >>> with repo.transaction() as tx:
        ...     tx.drop_columns("shop.orders", ["item"])
        >>> repo["shop.orders"].columns
        ('id', 'amount')
        """
        self._change(table, lambda staged_table: shape.drop_columns(staged_table, columns))

    @atomic
    def set_primary_key(self, table: str, columns: Sequence[str]) -> None:
        """Make these columns the key, none of them for no key; refused where rows have nulls or repeat one.

        >>> with repo.transaction() as tx:
        ...     tx.set_primary_key("shop.orders", ["id", "item"])
        >>> repo["shop.orders"].primary_key
        ('id', 'item')
        """
        self._change(table, lambda staged_table: shape.set_primary_key(staged_table, columns))

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
        self._change(
            table, lambda staged_table: shape.index_column(staged_table, column, kind=type, name=name, vector=vector)
        )

    @atomic
    def drop_index(self, table: str, name: str) -> None:
        """Drop an index.

        >>> commit = repo.index("shop.orders", "item")
        >>> with repo.transaction() as tx:
        ...     tx.drop_index("shop.orders", "item_idx")
        >>> repo["shop.orders"].indices
        ()
        """
        self._change(table, lambda staged_table: shape.drop_index(staged_table, name))

    @atomic
    def compact(self, table: str, *, target_rows_per_fragment: int = staging.TARGET_ROWS) -> None:
        """Rewrite small and half-deleted fragments as larger ones, and build the indices again; the rows stay.

        >>> with repo.transaction() as tx:
        ...     tx.compact("shop.orders")
        """
        self._change(
            table,
            lambda staged_table: shape.compact(staged_table, target_rows_per_fragment=target_rows_per_fragment),
        )

    @atomic
    def annotate(self, table: str, notes: Notes, *, columns: Mapping[str, Notes] | None = None) -> None:
        """Note texts by name beside a table and its columns, in the metadata of the Arrow schema; None removes one.

        >>> with repo.transaction() as tx:
        ...     tx.annotate("shop.orders", {"owner": "ada"})
        >>> repo["shop.orders"].schema.metadata[b"owner"]
        b'ada'
        """

        def change(staged_table: StagedTable) -> StagedTable:
            noted = shape.annotate(staged_table, notes, columns=columns or {})
            changed = [name for name, given in (columns or {}).items() if given.get(DEFAULT) is not None]
            return shape.with_fitting_defaults(noted, changed)

        self._change(table, change)

    # Staging

    def _change(self, key: str, change: Callable[[StagedTable], StagedTable]) -> None:
        before = self._write_set.get(self._start(key))
        after = change(before)
        if after != before:
            self._write_set.put(after.key, after)


class TableWrites:
    """Writes to the tables of one transaction. `start` begins a change of a table, `lock` is that of the transaction.

    A table is prepared, which changes nothing, and other processes write data files for it. A prepared table can be
    pickled. The same or a later transaction takes the files in.
    """

    def __init__(self, write_set: WriteSet, start: Callable[[str], TableKey], lock: threading.RLock) -> None:
        self._write_set = write_set
        self._start = start
        self._lock = lock

    @atomic
    def prepare(self, key: str) -> StagedTable:
        """Make a table ready for data files."""
        return self._write_set.get(self._start(key))

    @atomic
    def prepare_new(self, key: str, schema: pa.Schema, *, primary_key: Sequence[str] = ()) -> StagedTable:
        """Make a table that does not exist yet ready for data files."""
        return self._write_set.new_table(self._start(key), schema, primary_key)

    @atomic
    def append_fragments(
        self, prepared: StagedTable, fragments: Sequence[WrittenFragment], *, check_keys: bool = True
    ) -> None:
        """Append rows that were written for a prepared table."""
        self._take_in(
            prepared,
            append_fragments_step(
                prepared.version_ref, fragments, primary_key=prepared.primary_key, may_exist=not check_keys
            ),
        )

    @atomic
    def upsert_fragments(
        self, prepared: StagedTable, fragments: Sequence[WrittenFragment], *, columns: Sequence[str]
    ) -> None:
        """Upsert rows that were written for a prepared table and have values in these columns."""
        if not prepared.primary_key:
            raise InvalidInputError(f"table '{prepared.key}' has no primary key", hint="append the rows")
        require_names(columns)
        self._take_in(
            prepared,
            upsert_fragments_step(prepared.version_ref, fragments, columns=columns, primary_key=prepared.primary_key),
        )

    @atomic
    def overwrite_fragments(
        self, prepared: StagedTable, fragments: Sequence[WrittenFragment], *, schema: pa.Schema
    ) -> None:
        """Replace all rows by those that were written for a prepared table, each in this schema."""
        check_primary_key(prepared.key, schema, prepared.primary_key)
        self._take_in(
            prepared,
            overwrite_fragments_step(prepared.version_ref, fragments, schema=schema, unique_by=prepared.primary_key),
        )

    @atomic
    def replace_fragments(self, prepared: StagedTable, change: WrittenChange) -> None:
        """Remove rows of a prepared table by their addresses, and add rows that were written for it."""
        self._take_in(prepared, replace_fragments_step(prepared.version_ref, change, primary_key=prepared.primary_key))

    @atomic
    def compact(self, key: str, *, target_rows_per_fragment: int, rewriter: Rewriter | None = None) -> None:
        """Rewrite small fragments of a table as larger ones, by a rewriter, or else in this process."""
        before = self.prepare(key)
        after = compact(before, target_rows_per_fragment=target_rows_per_fragment, rewriter=rewriter)
        if after != before:
            self._write_set.put(after.key, after)

    @atomic
    def change_tables(self, changes: Mapping[TableKey, Change]) -> None:
        """Change tables at the same time, each by its function."""
        # In the order of the keys: the queue of writers relies on it, so that no two threads wait for each other.
        for key in sorted(changes):
            self._start(str(key))
        self._write_set.change_all(changes)

    @atomic
    def create_tables(self, tables: Mapping[TableKey, tuple[pa.Schema, Sequence[str]]]) -> None:
        """Create empty tables at the same time, each with a schema and a primary key."""
        # In the order of the keys, as above.
        for key in sorted(tables):
            self._start(str(key))
        for staged_table in in_parallel(lambda key: self._write_set.new_table(key, *tables[key]), tables):
            self._write_set.put(staged_table.key, staged_table)

    def _take_in(self, prepared: StagedTable, step: Step) -> None:
        self._start(str(prepared.key))
        self._write_set.take_in(prepared, step)
