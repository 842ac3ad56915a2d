"""The data source `anabranch`: tables of a repository as DataFrames, and rows of Spark as commits.

A pinned version is read part by part. Workers write data files, and the driver publishes them. A stream makes one
commit for each batch with rows, exactly once.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.errors import InvalidInputError
from anabranch.format import staging
from anabranch.format.arguments import unknown_table
from anabranch.format.splits import Selection, Split, plan_splits, read_split, selected_schema
from anabranch.format.staging import VersionRef, WrittenFragment
from anabranch.format.staging.incoming import fit_rows
from anabranch.ids import TableKey
from anabranch.repo.io.prepared_table import LoadMode, prepare_table, stage_fragments
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess, StreamBatch
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.homes import check_primary_key
from anabranch.repo.write.staged_table import StagedTable
from anabranch.spark.change_feed import ChangeReader, ChangeStreamReader, PinnedFeed
from anabranch.spark.options import (
    FORMAT,
    FeedOptions,
    OpenRepository,
    ReadOptions,
    WriteOptions,
    asks_for_changes,
    with_lent_options,
)
from anabranch.spark.types import as_columns, as_shown, new_columns, shown_columns, shown_schema


def find_version_ref(reading: ReadOptions, repository: Repository) -> VersionRef:
    """Return the version to read: the given one, else that of the table at the ref."""
    if reading.version_ref is not None:
        return reading.version_ref
    snapshot = EngineAccess(repository).published_snapshot_of(reading.ref)
    key = reading.location.key
    if key not in snapshot:
        raise unknown_table(key, f"in '{reading.ref}'", snapshot, "list its tables to see which exist")
    return snapshot[key].version_ref


class SnapshotReader(DataSourceReader):
    """Reads a pinned version, part by part.

    It accepts no filters from Spark: they would stay with the DataFrame, and later queries of it would get too few
    rows. Use the options `columns` and `where` instead.
    """

    def __init__(self, version_ref: VersionRef, selection: Selection, schema: StructType) -> None:
        self._version_ref = version_ref
        self._selection = replace(selection, columns=tuple(schema.names))
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(split) for split in plan_splits(self._version_ref, self._selection)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition.value, Split):
            return iter(())  # Spark makes up a part where there is none
        rows = read_split(self._version_ref, partition.value, self._selection)
        return as_shown(rows, shown_columns(self._schema))


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
        """Write rows into the table's folder. Return the fragments as text."""
        written = staging.write_fragments(self.version_ref, self.fitted(batches), for_overwrite=self.is_overwrite)
        return tuple(fragment.to_json() for fragment in written)

    def fitted(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
        """Return the rows in the table's columns, with nulls where they are missing."""
        rows = fit_rows(as_columns(batches, self.given, self.columns), self.columns)
        return pa.RecordBatchReader.from_batches(rows.schema, rows.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTable:
    """A table that is prepared for rows of Spark: workers write files with its writer, and the driver stages them."""

    staged_table: StagedTable
    writer: FragmentWriter
    mode: LoadMode

    @classmethod
    def make(cls, tx: Transaction, options: WriteOptions, given: StructType) -> Self:
        """Prepare a table by a transaction without changing it. Refuse wrong types before the job begins."""
        # Read the time first: the leases of the tasks begin then, and garbage collection keeps newer files.
        prepared_at = time.time()
        staged_table = prepare_table(
            tx,
            options.location.key,
            mode=options.mode,
            primary_key=options.primary_key or None,
            new_schema=lambda: new_columns(given),
        )
        return cls.of(staged_table, given, mode=options.mode, prepared_at=prepared_at)

    @classmethod
    def of(
        cls,
        staged_table: StagedTable,
        given: StructType,
        *,
        mode: LoadMode,
        columns: pa.Schema | None = None,
        prepared_at: float,
    ) -> Self:
        """Prepare a staged table for rows of Spark. With `columns`, an overwrite changes the columns to these."""
        existing, is_overwrite = staged_table.version_ref.schema, mode is LoadMode.OVERWRITE
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
        return cls(staged_table=staged_table, writer=writer, mode=mode)

    @property
    def is_changed_without_rows(self) -> bool:
        """Whether a commit without rows changes the table, too: it removes all rows, or creates the table."""
        return self.mode is LoadMode.OVERWRITE or self.staged_table.origin is None

    def take_in(self, tx: Transaction, fragments: Iterable[str]) -> None:
        """Stage the files of the workers in a transaction."""
        written = [WrittenFragment.from_json(text) for text in fragments]
        # A task may have written long ago: publishing a file that garbage collection removed would break the table.
        staging.require_files(self.staged_table.version_ref, written)
        columns = self.writer.columns
        if self.mode is not LoadMode.OVERWRITE:
            columns = pa.schema([columns.field(name) for name in self.writer.given.names])
        stage_fragments(tx, self.mode, self.staged_table, written, columns)


@dataclass
class _Written(WriterCommitMessage):
    fragments: tuple[str, ...]


class CommitWriter(DataSourceArrowWriter):
    """Prepares the table before the job begins, writes on the workers, and commits when all have written.

    Spark creates, runs and commits it in different processes, so it has only values. A job that fails leaves data files
    that no commit names, and garbage collection removes them.
    """

    def __init__(self, options: WriteOptions, given: StructType, open_repository: OpenRepository) -> None:
        self._options = options
        self._open_repository = open_repository
        with self._begin() as tx:  # without changes, so that it publishes nothing
            self._table = PreparedTable.make(tx, options, given)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Written(fragments=self._table.writer.write(iterator, self._options.open(self._open_repository)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        written = [text for message in messages if isinstance(message, _Written) for text in message.fragments]
        with self._begin() as tx:
            self._table.take_in(tx, written)

    def _begin(self) -> Transaction:
        options, repository = self._options, self._options.open(self._open_repository)
        if options.run is not None:
            return repository.run_get(options.run).transaction(message=options.message, metadata=options.metadata)
        return repository.transaction(options.branch, message=options.message, metadata=options.metadata, kind="load")


# Where Spark gives every task the id of its query. The id is kept in the checkpoint, so that it survives a restart.
# Spark does not give it to the driver's side of a source that is written in Python.
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class _WrittenBatch(WriterCommitMessage):
    """The files of one task, and the values with which the driver stages them."""

    query: str
    table: PreparedTable
    fragments: tuple[str, ...]


class StreamCommitWriter(DataSourceStreamArrowWriter):
    """Writes each batch on the workers, and publishes it as one commit, unless the branch has it already.

    For each batch Spark makes one writer for the workers, which has to `prepare` the table, and another one that
    commits. The second one gets values of the first only in the messages.
    """

    def __init__(self, options: WriteOptions, given: StructType, open_repository: OpenRepository) -> None:
        self._options = options
        self._given = given
        self._open_repository = open_repository
        self._table: PreparedTable | None = None

    def prepare(self) -> None:
        """Prepare the table for one batch."""
        repository = self._options.open(self._open_repository)
        with repository.transaction(self._options.branch) as tx:  # without changes, so that it publishes nothing
            self._table = PreparedTable.make(tx, self._options, self._given)

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
        if not written or not (fragments or written[0].table.is_changed_without_rows):
            return  # nothing to publish or to search
        first, options = written[0], self._options
        EngineAccess(options.open(self._open_repository)).publish_batch(
            StreamBatch(query=first.query, epoch=batchId, table=TableKey.parse(options.location.key)),
            lambda tx: first.table.take_in(tx, fragments),
            branch=options.branch,
            message=options.message or f"Batch {batchId} of a stream into '{options.location.key}'",
            metadata=options.metadata,
        )


class AnabranchSource(DataSource):
    """One table to read, pinned to a version when a DataFrame is made, or to write.

    Spark makes a source in a process of its own, requests its schema, and keeps it, pickled, for all queries of the
    DataFrame. So values that must not change are read together with the schema.
    """

    open_repository: OpenRepository
    # Storage options that were lent to the session, by repository.
    credentials: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = with_lent_options(options, type(self).credentials)
        self._version_ref: VersionRef | None = None
        self._feed: PinnedFeed | None = None
        self._was_sent = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Unpickled, so this is not the source that Spark makes for the workers of a batch. See `streamWriter`.
        self._was_sent = True

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        if asks_for_changes(self._given):
            options = FeedOptions.parse(self._given)
            self._feed = PinnedFeed.find(options, options.location.open(type(self).open_repository))
            return self._feed.shown
        reading = ReadOptions.parse(self._given)
        self._version_ref = find_version_ref(reading, reading.location.open(type(self).open_repository))
        return shown_schema(selected_schema(self._version_ref, reading.selection))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        if self._feed is None:
            raise InvalidInputError(
                "the branch of the stream is not given",
                hint="give the option 'branch', with 'since' to begin after a commit, and no schema",
            )
        return ChangeStreamReader(self._feed, type(self).open_repository)

    def reader(self, schema: StructType) -> DataSourceReader:
        if self._feed is not None:
            if self._feed.options.since is None and self._feed.options.until is None:
                # Only now is it known whether this is a stream, for which the branch is enough.
                raise InvalidInputError(
                    "by the option 'branch' alone a stream follows a branch",
                    hint="read it by the option 'ref', or its changes by 'since'",
                )
            return ChangeReader(self._feed, type(self).open_repository)
        if self._version_ref is None:
            # Spark did not ask for the schema, and would make a new source for every query.
            raise InvalidInputError(
                "a schema is given for a table, which has its own", hint="choose columns by the option 'columns'"
            )
        return SnapshotReader(self._version_ref, ReadOptions.parse(self._given).selection, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        options = WriteOptions.parse(self._given, is_overwrite=overwrite)
        return CommitWriter(options, schema, type(self).open_repository)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's
        options = WriteOptions.parse_stream(self._given, is_overwrite=overwrite)
        writer = StreamCommitWriter(options, schema, type(self).open_repository)
        if not self._was_sent:
            # Spark makes a new source for the workers of each batch, and sends the query's own to where it commits.
            writer.prepare()
        return writer
