"""The changes that a transaction offers: to tables, rows, columns, keys and indices."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidInputError, TableExistsError
from anabranch.format import staging
from anabranch.format.staging import DEFAULT, ColumnChange, IndexKind, Notes, VectorOptions
from anabranch.format.staging.incoming import as_reader, fit_rows
from anabranch.ids import TableKey
from anabranch.repo.log.arguments import require_names
from anabranch.repo.write import columns as shape
from anabranch.repo.write.homes import check_primary_key
from anabranch.repo.write.queue import atomic
from anabranch.repo.write.staged_table import (
    StagedTable,
    Step,
    append_copied_step,
    append_step,
    check_appended,
    one_time_step,
    overwrite_step,
    upsert_step,
)
from anabranch.repo.write.write_set import SMALL_BYTES, WriteSet

__all__ = ["TableChanges"]


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

    # Rows

    @atomic
    def append(self, table: str, data: Any, *, check_keys: bool = True) -> None:
        """Add rows. With a primary key they must be new; `check_keys=False` trusts the caller that they are.

        Everything is checked now. A few rows are written when the transaction commits, all tables at once.

        >>> with repo.transaction() as tx:
        ...     tx.append("shop.orders", [{"id": 4, "item": "tea", "amount": 12.5}])
        >>> len(repo["shop.orders"])
        4
        """
        parsed = self._start(table)
        rows = self._write_set.read(parsed, data)
        if not isinstance(rows, pa.Table) or rows.nbytes > SMALL_BYTES:
            self._stage(
                parsed,
                lambda staged_table: append_step(
                    staged_table.version_ref, rows, primary_key=staged_table.primary_key, may_exist=not check_keys
                ),
            )
            return
        version_ref, primary_key = self._write_set.base_of(parsed)
        if primary_key:
            self._stage_recorded(parsed)  # the keys of rows that are recorded already count too
            version_ref, _ = self._write_set.base_of(parsed)
            check_appended(version_ref, rows, primary_key=primary_key, may_exist=not check_keys)
        own = staging.copy_appended(version_ref, rows)
        self._write_set.record(parsed, own, partial(append_copied_step, rows=own, may_exist=not check_keys))

    @atomic
    def upsert(self, table: str, data: Any, *, keys: Sequence[str] | None = None) -> None:
        """Replace the rows of the same key and add the others; by the primary key unless other columns are named.

        >>> with repo.transaction() as tx:
        ...     tx.upsert("shop.orders", [{"id": 2, "amount": 9.0}])
        >>> repo.entity_at("shop.orders", 2)["amount"]
        9.0
        """
        parsed = self._start(table)
        version_ref, primary_key = self._write_set.base_of(parsed)
        if keys is not None:
            require_names(keys)
        by = tuple(keys) if keys is not None else primary_key
        if not by:
            raise InvalidInputError(f"table '{table}' has no primary key", hint="name the columns that are the key")
        rows = as_reader(data, self._write_set.schema_for(parsed, data)).read_all()
        # By other columns, the primary key can be checked only when the rows are staged.
        if set(by) == set(primary_key) and rows.nbytes <= SMALL_BYTES:
            own = staging.copy_upserted(version_ref, rows, by)
            self._write_set.record(
                parsed,
                own,
                lambda staged_table: upsert_step(staged_table.version_ref, own, keys=by, primary_key=primary_key),
            )
        else:
            self._stage(
                parsed,
                lambda staged_table: upsert_step(staged_table.version_ref, rows, keys=by, primary_key=primary_key),
            )

    @atomic
    def update(self, table: str, assignments: Mapping[str, str], where: str | None = None) -> int:
        """Set columns to SQL expressions in the rows that match a predicate. Return the number of changed rows.

        Without a predicate the update is refused; `where="true"` updates all rows.

        >>> with repo.transaction() as tx:
        ...     tx.update("shop.orders", {"amount": "amount * 2"}, "item = 'cup'")
        1
        """
        staged_table = self._write_set.get(self._start(table))
        where = shape.require_where(where, "update")
        shape.require_expressions(assignments)
        for name in assignments:
            if name in staged_table.primary_key:
                raise InvalidInputError(
                    f"column {name!r} is part of the primary key of '{table}'",
                    hint="delete the rows and append new ones",
                )
        changed = staging.update(staged_table.version_ref, assignments, where=where)
        self._apply(staged_table, one_time_step("update", changed.version_ref))
        return changed.updated

    @atomic
    def delete(self, table: str, where: str | None = None) -> int:
        """Delete the rows that match a predicate. Return their number.

        Without a predicate the call is refused; `where="true"` deletes all rows.

        >>> with repo.transaction() as tx:
        ...     tx.delete("shop.orders", "amount > 10")
        2
        """
        staged_table = self._write_set.get(self._start(table))
        where = shape.require_where(where, "delete")
        changed = staging.delete(staged_table.version_ref, where)
        self._apply(staged_table, one_time_step("delete", changed.version_ref))
        return changed.deleted

    @atomic
    def overwrite(self, table: str, data: Any) -> None:
        """Replace all rows, and the columns too if the data brings others. The indices are built again.

        A list of dicts or a dict of lists brings no types of its own: the columns stay as they are.

        >>> with repo.transaction() as tx:
        ...     tx.overwrite("shop.orders", {"id": [7], "item": ["hat"], "amount": [20.0]})
        >>> len(repo["shop.orders"])
        1
        """
        parsed = self._start(table)
        rows, schema = self._write_set.read(parsed, data), self._write_set.schema_for(parsed, data)
        if schema is not None:
            rows = fit_rows(rows, schema).to_table()

        def stage(staged_table: StagedTable) -> Step:
            check_primary_key(staged_table.key, rows.schema, staged_table.primary_key)
            return overwrite_step(staged_table.version_ref, rows, unique_by=staged_table.primary_key)

        self._stage(parsed, stage)

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

    def _stage(self, key: TableKey, stage: Callable[[StagedTable], Step]) -> None:
        """Stage a change of rows now."""
        # All that is recorded, because the rows may come from a thread that reads the tables of this transaction, and
        # it must not wait for this one.
        self._write_set.stage_recorded()
        staged_table = self._write_set.get(key)
        self._apply(staged_table, stage(staged_table))

    @atomic
    def _stage_recorded(self, key: TableKey) -> None:
        if self._write_set.is_recorded(key):
            self._write_set.stage_recorded([key])

    def _apply(self, staged_table: StagedTable, step: Step) -> None:
        if step.version_ref != staged_table.version_ref:
            self._write_set.put(staged_table.key, staged_table.then(step))
