"""The data source `anabranch`: tables of a repository as DataFrames, and the reader of one pinned version."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from anabranch.errors import InvalidInputError, TableNotFoundError
from anabranch.format.splits import Selection, Split, plan_splits, read_split, selected_schema
from anabranch.format.staging import VersionRef
from anabranch.hints import suggest
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
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
from anabranch.spark.types import as_shown, shown_columns, shown_schema
from anabranch.spark.writer import CommitWriter, StreamCommitWriter


def find_version_ref(reading: ReadOptions, repository: Repository) -> VersionRef:
    """Return the version to read: the given one, else that of the table at the ref."""
    if reading.version_ref is not None:
        return reading.version_ref
    snapshot = EngineAccess(repository).published_snapshot_of(reading.ref)
    key = reading.location.key
    if key not in snapshot:
        hint = suggest(key, snapshot, "list its tables to see which exist", by_parts=True)
        raise TableNotFoundError(f"there is no table '{key}' in '{reading.ref}'", hint=hint)
    return snapshot[key].version_ref


class _Part(InputPartition):
    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class SnapshotReader(DataSourceReader):
    """Reads a pinned version, part by part.

    It takes no filters from Spark: those it once took would stay with the DataFrame, and later queries of the same one
    would get too few rows. The options `columns` and `where` do the same without that.
    """

    def __init__(self, version_ref: VersionRef, selection: Selection, schema: StructType) -> None:
        self._version_ref = version_ref
        self._selection = replace(selection, columns=tuple(schema.names))
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [_Part(split) for split in plan_splits(self._version_ref, self._selection)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Part):
            return iter(())  # Spark makes up a part where there is none
        rows = read_split(self._version_ref, partition.split, self._selection)
        return as_shown(rows, shown_columns(self._schema))


class AnabranchSource(DataSource):
    """One table, pinned to a version when a DataFrame is made, for reading; and where one is written.

    Spark makes a source in a process of its own, asks it for its schema, and keeps it, pickled, for all queries of the
    DataFrame. So what must stay the same is found out with the schema.
    """

    open_repository: OpenRepository
    # Storage options that a session was lent, by the repository they are for.
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
                # Spark does not report before this whether a stream is meant, for which the branch is enough.
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
        return CommitWriter(
            WriteOptions.parse(self._given),
            schema,
            is_overwrite=overwrite,
            open_repository=type(self).open_repository,
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's
        writer = StreamCommitWriter(
            WriteOptions.parse_stream(self._given),
            schema,
            is_overwrite=overwrite,
            open_repository=type(self).open_repository,
        )
        if not self._was_sent:
            # Spark makes a new source for the workers of each batch, and sends the query's own to where it commits.
            writer.prepare()
        return writer
