"""One commit over many tables: staged step by step, published at once or not at all."""

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from anabranch.errors import BusyError, InvalidInputError
from anabranch.format import staging
from anabranch.format.arguments import checked_number, require_names
from anabranch.format.staging.incoming import as_reader, fit_rows
from anabranch.ids import BranchName, TableKey, checked_text
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.log.validation import checked_metadata
from anabranch.repo.snapshot import Table
from anabranch.repo.write.homes import check_primary_key
from anabranch.repo.write.publish import Published, publish
from anabranch.repo.write.staged_table import (
    StagedTable,
    Step,
    append_copied_step,
    append_step,
    check_appended,
    overwrite_step,
    upsert_step,
)
from anabranch.repo.write.table_changes import TableChanges, require_expressions, require_where
from anabranch.repo.write.write_set import SMALL_BYTES, WRITERS, Writer, WriteSet, atomic, warn_dropped

T = TypeVar("T")


class Transaction(TableChanges):
    """Changes to the tables of one branch, on top of the snapshot it began with.

    Use it as a context manager: leaving it commits, and an exception rolls back. Without `with`, call `commit` or
    `rollback`; a transaction with changes that is dropped without either warns with a ResourceWarning, and its changes
    are lost. Reads inside it (`tx["bucket.table"]`) see its own writes. `published` is its commit, or None.

    Threads may share a transaction: its changes run one after the other, and reads never wait. Data that is read as a
    stream must not change the same transaction while it is read.
    """

    def __init__(
        self, repo_store: RepoStore, *, branch: BranchName, spec: CommitSpec, on_published: Callable[[Published], None]
    ) -> None:
        self._lock = threading.RLock()
        self._config = repo_store.config
        self._lease = self._config.leases.start_work()
        self._repo_store = replace(repo_store, lease=self._lease)
        self._spec = replace(spec, staged_since=self._config.clock())
        self._on_published = on_published
        self._writer = Writer()
        self._generation = WRITERS.generation  # before the head: who leaves in between is noticed, not missed
        self._write_set = WriteSet(self._repo_store, branch)
        self._write_set.begin()
        self._has_read = False
        self._is_open = True
        # Not `__del__`: this runs at the end of the interpreter, too, and never on a half-made transaction.
        self._warning = weakref.finalize(self, warn_dropped, self._write_set)
        self.published: GraphCommit | None = None

    def __enter__(self) -> Self:
        return self

    @atomic
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._is_open:
            self.commit()
        self._close()

    # Reading

    def __getitem__(self, key: str) -> Table:
        """A table as this transaction has it."""
        if not self._is_open:
            raise _ended_error()
        parsed = TableKey.parse(key)
        self._has_read = True
        if self._write_set.is_recorded(parsed):
            self._stage_recorded(parsed)
        return Table(self._config, parsed, self._write_set.entry(parsed))

    def __contains__(self, key: str) -> bool:
        if not self._is_open:
            raise _ended_error()
        self._has_read = True
        return self._write_set.has(TableKey.parse(key))

    @property
    def branch(self) -> str:
        """The branch that the transaction is for."""
        return str(self._write_set.head.branch)

    @property
    def base_commit_id(self) -> str:
        """The commit that this transaction sees, and builds on unless others are faster."""
        return self._write_set.head.head.commit.graph_commit_id

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables as the transaction has them now."""
        if not self._is_open:
            raise _ended_error()
        self._has_read = True
        return tuple(sorted(map(str, self._write_set.table_keys())))

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
        rows = data if isinstance(data, pa.Table) else self._write_set.read(parsed, data)
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
        own = staging.copy_rows(rows, version_ref.schema)
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

        def stage(staged_table: StagedTable) -> Step:
            return upsert_step(staged_table.version_ref, rows, keys=by, primary_key=primary_key)

        # By other columns, the primary key can be checked only when the rows are staged.
        if set(by) == set(primary_key) and rows.nbytes <= SMALL_BYTES:
            rows = staging.copy_upserted(version_ref, rows, by)
            self._write_set.record(parsed, rows, stage)
        else:
            self._stage(parsed, stage)

    @atomic
    def update(self, table: str, assignments: Mapping[str, str], where: str | None = None) -> int:
        """Set columns to SQL expressions in the rows that match a predicate. Return the number of changed rows.

        Without a predicate the update is refused; `where="true"` updates all rows.

        >>> with repo.transaction() as tx:
        ...     tx.update("shop.orders", {"amount": "amount * 2"}, "item = 'cup'")
        1
        """
        staged_table = self._write_set.get(self._start(table))
        where = require_where(where, "update")
        require_expressions(assignments)
        for name in assignments:
            if name in staged_table.primary_key:
                hint = "delete the rows and append new ones"
                raise InvalidInputError(f"column {name!r} is part of the primary key of '{table}'", hint=hint)
        changed = staging.update(staged_table.version_ref, assignments, where=where)
        self._apply(staged_table, Step("update", changed.version_ref))
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
        where = require_where(where, "delete")
        changed = staging.delete(staged_table.version_ref, where)
        self._apply(staged_table, Step("delete", changed.version_ref))
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

    # Publishing

    @atomic
    def add_metadata(self, metadata: Mapping[str, str]) -> None:
        """Add metadata to the commit.

        >>> with repo.transaction() as tx:
        ...     _ = tx.delete("shop.orders", "id = 2")
        ...     tx.add_metadata({"ticket": "SHOP-7"})
        >>> repo.snapshot().commit.metadata["ticket"]
        'SHOP-7'
        """
        if not self._is_open:
            raise _ended_error()
        both = checked_metadata({**self._spec.metadata, **checked_metadata(metadata)})
        self._spec = replace(self._spec, metadata=both)

    @atomic
    def commit(self, message: str | None = None) -> GraphCommit | None:
        """Publish all changes as one commit, end, and return the commit; None if there are no changes.

        A message replaces the one that the transaction began with. If the commit fails, the transaction has ended and
        nothing is published.

        >>> tx = repo.transaction()
        >>> tx.append("shop.orders", [{"id": 4, "item": "tea", "amount": 12.5}])
        >>> tx.commit("More tea").message
        'More tea'
        """
        if not self._is_open:
            raise _ended_error()
        if message is not None:
            self._spec = replace(self._spec, message=checked_text(message))
        try:
            self._lease.check()  # before reading files that may have been collected
            changes = self._write_set.changes()
            if not changes:
                return None
            published = publish(
                self._repo_store,
                expected=self._write_set.head,
                changes=changes,
                spec=replace(self._spec, created=frozenset(self._write_set.created)),
                rebase=self._write_set.rebase,
                main=self._write_set.main,
            )
            self.published = published.commit
            if not published.is_earlier:
                self._on_published(published)
            return self.published
        finally:
            self._close()

    @atomic
    def rollback(self) -> None:
        """Discard all changes and end. Does nothing after a commit or another rollback.

        >>> tx = repo.transaction()
        >>> tx.append("shop.orders", [{"id": 4, "item": "tea", "amount": 12.5}])
        >>> tx.rollback()
        >>> len(repo["shop.orders"])
        3
        """
        self._close()

    # Beginning and ending a change

    def _start(self, key: str) -> TableKey:
        if not self._is_open:
            raise _ended_error()
        parsed = TableKey.parse(key)
        WRITERS.take(self._writer, (self._config.root, self._write_set.head.branch, parsed))
        if WRITERS.generation != self._generation and self._write_set.is_empty and not self._has_read:
            # Others in this process may have moved the branch; nothing here hangs on the old state yet.
            self._generation = WRITERS.generation
            self._write_set.begin()
        return parsed

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._warning.detach()
            WRITERS.leave(self._writer)
            self._lease.release()

    def _stage(self, key: TableKey, stage: Callable[[StagedTable], Step]) -> None:
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


def _ended_error() -> InvalidInputError:
    hint = "begin another transaction"
    return InvalidInputError("this transaction has ended: it was committed or rolled back", hint=hint)


def transact(
    config: RepoConfig, begin: Callable[[], Transaction], change: Callable[[Transaction], T], *, retries: int
) -> tuple[T, GraphCommit | None]:
    """Run a function in a transaction and publish it. Return the result of the function, and the commit.

    If the commit conflicts with another writer, run the function again in a new transaction, on the new state of the
    branch. Only conflicts are retried: after an error of the store the commit may have been published.
    """
    hint = "pass how often to run the function again, 0 for never"
    left = checked_number(retries, "number of retries", hint=hint)
    if left < 0:
        raise InvalidInputError(f"the number of retries {left} is negative", hint=hint)
    if not callable(change):
        problem = f"{change!r} is not a function"
        raise InvalidInputError(problem, hint="pass a function that takes the transaction, such as a lambda")
    losses = 0
    while True:
        started = config.clock()
        try:
            with begin() as tx:
                result = change(tx)
            return result, tx.published
        except BusyError:
            losses += 1
            if losses > left:
                raise
        # Writers that lost against the same commit would prepare at the same time again, and all but one would lose
        # again.
        config.give_way(losses, config.clock() - started)
