"""Rows of Spark as commits: workers write data files, the driver publishes them.

A stream is one commit for each batch that brings rows, exactly once.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.errors import InvalidInputError
from anabranch.format import staging
from anabranch.format.staging import VersionRef, WrittenFragment
from anabranch.format.staging.incoming import fit_rows
from anabranch.ids import TableKey
from anabranch.repo.io.load_steps import prepare_table
from anabranch.repo.io.values import LoadMode
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess, StreamBatch, table_writes
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.homes import check_primary_key
from anabranch.repo.write.staged_table import StagedTable
from anabranch.spark.options import OpenRepository, WriteOptions
from anabranch.spark.types import as_columns, new_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentWriter:
    """What a worker needs to write rows of Spark as data files of a prepared table."""

    version_ref: VersionRef
    given: StructType
    columns: pa.Schema
    is_overwrite: bool
    prepared_at: float = field(default_factory=time.time)

    def write(self, batches: Iterator[pa.RecordBatch], repository: Repository) -> tuple[str, ...]:
        """Write rows as `write_files` does, and protect the files from garbage collection until the commit."""
        with EngineAccess(repository).keep_files(since=self.prepared_at):
            return self.write_files(batches)

    def write_files(self, batches: Iterator[pa.RecordBatch]) -> tuple[str, ...]:
        """Write rows into the table's folder; return the fragments as text."""
        written = staging.write_fragments(self.version_ref, self.fitted(batches), for_overwrite=self.is_overwrite)
        return tuple(fragment.to_json() for fragment in written)

    def fitted(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
        """Return the rows in the table's columns, with nulls where they are missing."""
        rows = fit_rows(as_columns(batches, self.given, self.columns), self.columns)
        return pa.RecordBatchReader.from_batches(rows.schema, rows.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTable:
    """A table made ready for rows of Spark: workers write files by its writer, and the driver takes them in."""

    staged_table: StagedTable
    writer: FragmentWriter
    is_upsert: bool

    @classmethod
    def make(cls, tx: Transaction, options: WriteOptions, given: StructType, *, is_overwrite: bool) -> Self:
        """Make a table ready by a transaction, which it does not change; refuse wrong types before the job begins."""
        # Taken first: the leases of the tasks begin at this time, and garbage collection keeps files that are newer.
        prepared_at = time.time()
        staged_table = prepare_table(
            tx,
            options.location.key,
            mode=LoadMode.UPSERT if options.is_upsert else LoadMode.APPEND,
            primary_key=options.primary_key or None,
            new_schema=lambda: new_columns(given),
        )
        return cls.of(
            staged_table, given, is_overwrite=is_overwrite, is_upsert=options.is_upsert, prepared_at=prepared_at
        )

    @classmethod
    def of(
        cls,
        staged_table: StagedTable,
        given: StructType,
        *,
        is_overwrite: bool,
        is_upsert: bool = False,
        columns: pa.Schema | None = None,
        prepared_at: float,
    ) -> Self:
        """Make a staged table ready for rows of Spark. With `columns`, an overwrite gives the table these."""
        existing = staged_table.version_ref.schema
        if not is_overwrite:
            columns = existing
        elif columns is None:
            columns = new_columns(given, existing)
        check_primary_key(staged_table.key, columns, staged_table.primary_key)
        writer = FragmentWriter(
            version_ref=staged_table.version_ref,
            given=given,
            columns=columns,
            is_overwrite=is_overwrite,
            prepared_at=prepared_at,
        )
        # Raises for wrong types here on the driver, before a job begins.
        writer.fitted(iter(()))
        return cls(staged_table=staged_table, writer=writer, is_upsert=is_upsert)

    def take_in(self, tx: Transaction, fragments: Iterable[str]) -> None:
        """Make what the workers wrote part of a transaction."""
        written = [WrittenFragment.from_json(text) for text in fragments]
        # A task may have written long ago: publishing a file that garbage collection removed would break the table.
        staging.require_files(self.staged_table.version_ref, written)
        if self.writer.is_overwrite:
            table_writes(tx).overwrite_fragments(self.staged_table, written, schema=self.writer.columns)
        elif self.is_upsert:
            table_writes(tx).upsert_fragments(self.staged_table, written, columns=self.writer.given.names)
        else:
            table_writes(tx).append_fragments(self.staged_table, written)


@dataclass
class _Written(WriterCommitMessage):
    fragments: tuple[str, ...]


class CommitWriter(DataSourceArrowWriter):
    """Makes the table ready before the job begins, writes on the workers, and commits when all have written.

    Spark makes it in one process, has it write in others, and commit in one more; so it holds values only. A job that
    fails leaves unreferenced data files.
    """

    def __init__(
        self, options: WriteOptions, given: StructType, *, is_overwrite: bool, open_repository: OpenRepository
    ) -> None:
        refuse_overwriting_upsert(options, is_overwrite=is_overwrite, hint="use the mode 'append' with it")
        self._options = options
        self._open_repository = open_repository
        with self._begin() as tx:  # without changes, so that it publishes nothing
            self._table = PreparedTable.make(tx, options, given, is_overwrite=is_overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Written(fragments=self._table.writer.write(iterator, self._options.open(self._open_repository)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = [text for message in messages if isinstance(message, _Written) for text in message.fragments]
        with self._begin() as tx:
            self._table.take_in(tx, written)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: what no commit refers to does not exist, and garbage collection removes its files."""

    def _begin(self) -> Transaction:
        options, repository = self._options, self._options.open(self._open_repository)
        if options.run is not None:
            return repository.run_get(options.run).transaction(message=options.message, metadata=options.metadata)
        return repository.transaction(options.branch, message=options.message, metadata=options.metadata, kind="load")


def refuse_overwriting_upsert(options: WriteOptions, *, is_overwrite: bool, hint: str) -> None:
    if is_overwrite and options.is_upsert:
        raise InvalidInputError("an upsert keeps the other rows", hint=hint)


# Where Spark gives every task the id of its query. The id is kept in the checkpoint, so that it survives a restart.
# Spark does not give it to the driver's side of a source that is written in Python.
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class _WrittenBatch(WriterCommitMessage):
    """What one task wrote, and all that the driver needs to take it in."""

    query: str
    table: PreparedTable
    fragments: tuple[str, ...]


class StreamCommitWriter(DataSourceStreamArrowWriter):
    """Writes each batch on the workers, and publishes it as one commit, unless the branch has it already.

    For each batch Spark makes one writer for the workers, which has to `prepare` the table, and another one that takes
    in what they wrote. All that the second one knows of the first is in the messages.
    """

    def __init__(
        self, options: WriteOptions, given: StructType, *, is_overwrite: bool, open_repository: OpenRepository
    ) -> None:
        refuse_overwriting_upsert(options, is_overwrite=is_overwrite, hint="use the output mode 'append' with it")
        self._options = options
        self._given = given
        self._is_overwrite = is_overwrite
        self._open_repository = open_repository
        self._table: PreparedTable | None = None

    def prepare(self) -> None:
        """Make the table ready for one batch."""
        repository = self._options.open(self._open_repository)
        with repository.transaction(self._options.branch) as tx:  # without changes, so that it publishes nothing
            self._table = PreparedTable.make(tx, self._options, self._given, is_overwrite=self._is_overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        if query is None or self._table is None:
            raise InvalidInputError(
                "Spark does not name the streaming query for which it writes",
                hint="use PySpark 4.3 and a trigger of batches",
            )
        fragments = self._table.writer.write(iterator, self._options.open(self._open_repository))
        return _WrittenBatch(query=query, table=self._table, fragments=fragments)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        written = [message for message in messages if isinstance(message, _WrittenBatch)]
        fragments = [text for message in written for text in message.fragments]
        # An overwrite removes rows, and the first batch creates a missing table. Both are changes also without new
        # rows.
        if not written or not (fragments or self._is_overwrite or written[0].table.staged_table.origin is None):
            return  # no rows: nothing to publish, and nothing to look up
        options, first = self._options, written[0]
        EngineAccess(options.open(self._open_repository)).publish_batch(
            StreamBatch(query=first.query, epoch=batchId, table=TableKey.parse(options.location.key)),
            lambda tx: first.table.take_in(tx, fragments),
            branch=options.branch,
            message=options.message or f"Batch {batchId} of a stream into '{options.location.key}'",
            metadata=options.metadata,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: what no commit refers to does not exist, and garbage collection removes its files."""
