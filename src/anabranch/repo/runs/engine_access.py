"""What Spark, DuckDB, pipelines and the service need of a repository and of a transaction, and their users do not.

Batches of streams are part of it. Each becomes exactly one commit of a branch, also if several processes try it
repeatedly. The commits are the only record of what was published: each names its query and epoch in its metadata.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, Self, TypeVar

import pyarrow as pa

from anabranch.errors import InvalidInputError
from anabranch.format.arguments import require_names
from anabranch.format.staging import WrittenFragment
from anabranch.ids import BranchName, TableKey, checked_text
from anabranch.repo.log.commits import CommitSpec, Once
from anabranch.repo.log.entries import CommitKind, GraphCommit
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.log.validation import checked_metadata
from anabranch.repo.refs.branches import create_live_branches, list_written
from anabranch.repo.runs.runs import get_run, run_state
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.homes import check_primary_key
from anabranch.repo.write.publish import Published
from anabranch.repo.write.staged_table import (
    StagedTable,
    Step,
    WrittenChange,
    append_fragments_step,
    overwrite_fragments_step,
    replace_fragments_step,
    upsert_fragments_step,
)
from anabranch.repo.write.table_changes import Rewriter, compact
from anabranch.repo.write.write_set import Change, atomic
from anabranch.storage import in_parallel

# The keys by which a commit's metadata name the batch that it came from.
QUERY = "stream.query"
EPOCH = "stream.epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBatch:
    """One batch of a streaming query for a table. Its epoch is higher than that of the batch before."""

    query: str
    epoch: int
    table: TableKey

    def is_in(self, commit: GraphCommit) -> bool:
        """Return whether a commit is a batch of the same query for the same table."""
        return commit.metadata.get(QUERY) == self.query and str(self.table) in commit.tables


class _Repository(Protocol):
    """What the engines need of a `Repository`."""

    _repo_store: RepoStore

    def _published_snapshot(self, ref: str) -> Snapshot: ...

    def _named(self, branch: str | None) -> BranchName: ...

    def _on_published(self, published: Published) -> None: ...

    def _publishing_once(self, once: Once | None) -> Self: ...


_Handle = TypeVar("_Handle", bound=_Repository)


def publishing_once(repository: _Handle, once: Once | None) -> _Handle:
    """Return a handle whose merges are published only if their branch does not have their commit yet.

    If the branch has it, the earlier commit is the result.
    """
    return repository._publishing_once(once)


class EngineAccess:
    """The operations of a repository for engines that read and write its tables themselves."""

    def __init__(self, repository: _Repository) -> None:
        self._repository = repository
        self._repo_store = repository._repo_store

    def published_snapshot_of(self, ref: str) -> Snapshot:
        """Return the state of a ref like `Repository.snapshot_of`, but refuse a commit that was never published.

        The object of a commit whose writer died before publishing still exists. The check takes one more request.
        """
        return self._repository._published_snapshot(ref)

    def create_live_branches(self, descriptions: Mapping[str, str]) -> bool:
        """Create live branches with descriptions, all or none, in little more time than one takes.

        Return False if one of the names is or was in use. Then create each by itself.
        """
        wanted = {BranchName.parse_new(name): checked_text(text, "description") for name, text in descriptions.items()}
        return create_live_branches(self._repo_store, wanted)

    def list_written(self, branch: str) -> tuple[str, ...]:
        """Return the tables that a branch has made or written itself, also under a former name."""
        return list_written(self._repo_store, BranchName.parse(branch))

    def snapshot_at_begin(self, run_id: str) -> Snapshot:
        """Return the tables as they were when a run began, also after it has ended."""
        record = self._repo_store.commits.get(run_state(get_run(self._repo_store, run_id)).origin)
        return Snapshot.of(self._repo_store, record, version=record.commit.manifest_version)

    def transaction_once(
        self,
        once: Once | None,
        *,
        branch: str | None = None,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        kind: CommitKind = CommitKind.CHANGE,
    ) -> Transaction:
        """Begin a transaction that is published only if the branch does not have its commit yet.

        If the branch has it, `published` of the transaction is the earlier commit. Without `once` it is ordinary.
        """
        spec = CommitSpec(message=checked_text(message), kind=kind, metadata=checked_metadata(metadata), once=once)
        target, on_published = self._repository._named(branch), self._repository._on_published
        return Transaction(self._repo_store, branch=target, spec=spec, on_published=on_published)

    def keep_files(self, *, since: float | None = None) -> AbstractContextManager[object]:
        """Keep garbage collection from files that are written here and published later, maybe by another process.

        `since` is when the first of them was written, in seconds of the wall clock.
        """
        return self._repo_store.config.leases.working(since=since)

    def publish_batch(
        self,
        batch: StreamBatch,
        change: Callable[[Transaction], None],
        *,
        branch: str | None = None,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
    ) -> GraphCommit | None:
        """Publish what `change` does as one commit. None if the branch has the batch already, or if nothing changes.

        A branch has a batch if one of the commits that led to its head is of this epoch of the query, or a later one.
        They are searched back to the last batch of the query; all of them for its first batch if the table is older.
        """
        repo_store, target = self._repo_store, self._repository._named(branch)
        head = repo_store.heads.get(target)
        once = Once(key=EPOCH, value=str(batch.epoch), is_ordered=True, is_relevant=batch.is_in)
        # A batch whose table does not exist is not published yet. So the first one does not search the whole history.
        has_table = View.now(repo_store, head).find_table(repo_store.commits, batch.table) is not None
        if has_table and repo_store.find_once(once, head) is not None:
            return None
        spec = CommitSpec(
            message=checked_text(message),
            kind=CommitKind.LOAD,
            metadata={**checked_metadata(metadata), QUERY: batch.query},
            # Publishing searches again, but only the commits that another process put after these.
            once=replace(once, until=head.head.commit.graph_commit_id),
        )
        made: list[Published] = []
        with Transaction(repo_store, branch=target, spec=spec, on_published=made.append) as tx:
            change(tx)
        if not made:
            return None  # nothing was changed, or another process published the batch first
        self._repository._on_published(made[0])
        return made[0].commit


def table_writes(tx: Transaction) -> "TableWrites":
    """Return how engines write to the tables of a transaction: files of other processes, and many tables at once."""
    return TableWrites(tx)


class TableWrites:
    """Writes to the tables of one transaction.

    A table is prepared, which changes nothing, and other processes write data files for it. A prepared table can be
    pickled. The same or a later transaction takes the files in.
    """

    def __init__(self, tx: Transaction) -> None:
        self._write_set, self._start, self._change, self._lock = tx._write_set, tx._start, tx._change, tx._lock

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
        primary_key, may_exist = prepared.primary_key, not check_keys
        step = append_fragments_step(prepared.version_ref, fragments, primary_key=primary_key, may_exist=may_exist)
        self._take_in(prepared, step)

    @atomic
    def upsert_fragments(
        self, prepared: StagedTable, fragments: Sequence[WrittenFragment], *, columns: Sequence[str]
    ) -> None:
        """Upsert rows that were written for a prepared table and have values in these columns."""
        if not prepared.primary_key:
            raise InvalidInputError(f"table '{prepared.key}' has no primary key", hint="append the rows")
        require_names(columns)
        primary_key = prepared.primary_key
        step = upsert_fragments_step(prepared.version_ref, fragments, columns=columns, primary_key=primary_key)
        self._take_in(prepared, step)

    @atomic
    def overwrite_fragments(
        self, prepared: StagedTable, fragments: Sequence[WrittenFragment], *, schema: pa.Schema
    ) -> None:
        """Replace all rows by those that were written for a prepared table, each in this schema."""
        check_primary_key(prepared.key, schema, prepared.primary_key)
        primary_key = prepared.primary_key
        step = overwrite_fragments_step(prepared.version_ref, fragments, schema=schema, unique_by=primary_key)
        self._take_in(prepared, step)

    @atomic
    def replace_fragments(self, prepared: StagedTable, change: WrittenChange) -> None:
        """Remove rows of a prepared table by their addresses, and add rows that were written for it."""
        self._take_in(prepared, replace_fragments_step(prepared.version_ref, change, primary_key=prepared.primary_key))

    @atomic
    def compact(self, key: str, *, target_rows_per_fragment: int, rewriter: Rewriter | None = None) -> None:
        """Rewrite small fragments of a table as larger ones, by a rewriter, or else in this process."""
        self._change(key, partial(compact, target_rows_per_fragment=target_rows_per_fragment, rewriter=rewriter))

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
