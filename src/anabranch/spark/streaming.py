"""Streams of Spark as commits: one for each batch that brings rows, exactly once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from anabranch.errors import InvalidInputError
from anabranch.ids import TableKey
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.runs.streams import StreamBatch
from anabranch.spark.options import OpenRepository, WriteOptions
from anabranch.spark.writer import PreparedTable, refuse_overwriting_upsert

__all__ = ["StreamCommitWriter"]

# Where Spark gives every task the id of its query. The id is kept in the checkpoint, so that it survives a restart.
# Spark does not give it to the driver's side of a source that is written in Python.
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class _Written(WriterCommitMessage):
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
        with self._open().transaction(self._options.branch) as tx:  # without changes, so that it publishes nothing
            self._table = PreparedTable.make(tx, self._options, self._given, is_overwrite=self._is_overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        if query is None or self._table is None:
            raise InvalidInputError(
                "Spark does not name the streaming query for which it writes",
                hint="use PySpark 4.3 and a trigger of batches",
            )
        return _Written(query=query, table=self._table, fragments=self._table.write(iterator, self._open()))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        written = [message for message in messages if isinstance(message, _Written)]
        fragments = [text for message in written for text in message.fragments]
        # An overwrite removes rows, and the first batch creates a missing table. Both are changes also without new
        # rows.
        if not written or not (fragments or self._is_overwrite or written[0].table.staged_table.origin is None):
            return  # no rows: nothing to publish, and nothing to look up
        options, first = self._options, written[0]
        EngineAccess(self._open()).publish_batch(
            StreamBatch(query=first.query, epoch=batchId, table=TableKey.parse(options.location.key)),
            lambda tx: first.table.take_in(tx, fragments),
            branch=options.branch,
            message=options.message or f"Batch {batchId} of a stream into '{options.location.key}'",
            metadata=options.metadata,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: what no commit refers to does not exist, and garbage collection removes its files."""

    def _open(self) -> Repository:
        options, location = self._options, self._options.location
        return self._open_repository(location.repository, actor=options.actor, storage_options=location.storage_options)
