"""One commit over many tables: staged step by step, published at once or not at all."""

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from anabranch.errors import InvalidInputError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.arguments import checked_metadata, checked_text
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.log.making import CommitSpec
from anabranch.repo.log.store import RepoStore
from anabranch.repo.snapshot import Table
from anabranch.repo.write.publish import Published, publish
from anabranch.repo.write.queue import WRITERS, Writer, atomic
from anabranch.repo.write.table_changes import TableChanges
from anabranch.repo.write.table_writes import TableWrites
from anabranch.repo.write.write_set import WriteSet, warn_dropped

__all__ = ["Transaction", "table_writes"]


class Transaction(TableChanges):
    """Changes to the tables of one branch, on top of the snapshot it began with.

    Use it as a context manager: leaving it commits, and an exception rolls back. Without `with`, call `commit` or
    `rollback`; a transaction with changes that is dropped without either warns with a ResourceWarning, and its changes
    are lost. Reads inside it (`tx["bucket.table"]`) see its own writes. `published` is its commit, or None.

    Threads may share a transaction: its changes run one after the other, and reads never wait. Data that is read as a
    stream must not change the same transaction while it is read.
    """

    def __init__(
        self,
        repo_store: RepoStore,
        *,
        branch: BranchName,
        spec: CommitSpec,
        on_published: Callable[[Published], None],
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
        self._require_open()
        parsed = TableKey.parse(key)
        self._has_read = True
        if self._write_set.is_recorded(parsed):
            self._stage_recorded(parsed)
        return Table(self._config, parsed, self._write_set.entry(parsed))

    def __contains__(self, key: str) -> bool:
        self._require_open()
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
        self._require_open()
        self._has_read = True
        return tuple(sorted(map(str, self._write_set.table_keys())))

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
        self._require_open()
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
        self._require_open()
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
                spec=replace(self._spec, created=self._write_set.created_keys()),
                rebase=self._write_set.rebase,
                main=self._write_set.main,
            )
            self.published = published.commit
            if published.earlier is None:
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
        self._require_open()
        parsed = TableKey.parse(key)
        WRITERS.take(self._writer, (self._config.root, self._write_set.head.branch, parsed))
        if WRITERS.generation != self._generation and self._write_set.is_empty and not self._has_read:
            # Others in this process may have moved the branch; nothing here hangs on the old state yet.
            self._generation = WRITERS.generation
            self._write_set.begin(self._write_set.head.branch)
        return parsed

    def _require_open(self) -> None:
        if not self._is_open:
            raise InvalidInputError(
                "this transaction has ended: it was committed or rolled back", hint="begin another transaction"
            )

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._warning.detach()
            WRITERS.leave(self._writer)
            self._lease.release()


def table_writes(tx: Transaction) -> TableWrites:
    """Return how engines write to the tables of a transaction: files of other processes, and many tables at once."""
    return TableWrites(tx._write_set, tx._start, tx._lock)
