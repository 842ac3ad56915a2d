"""Stream a folder of files into a table, one file in each batch; at a given point, kill the driver with its JVM.

The process has to lead a process group of its own.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import anabranch as ab
from anabranch import testing
from anabranch.repo.repository import Repository
from anabranch.spark.source import StreamCommitWriter
from anabranch.storage import ObjectStore
from pyspark_anabranch import DefaultSource
from tests.handles import open_with
from tests.processes import kill_this_process
from tests.repo.programs.killing import FatalStore, NamedPoint

# In the order in which a batch passes them.
POINTS = (
    "a task begins",
    "a task has written",
    "before put_if_absent _commits",
    "after put_if_absent _commits",
    "after put_if_absent _versions",
    "the batch is published",
)


@dataclass(frozen=True)
class Death:
    """In which batch, at which point, and whose."""

    epoch: int
    point: str
    group: int

    def strike(self, epoch: int, point: str) -> None:
        if (self.epoch, self.point) == (epoch, point):
            self._strike()

    def in_store(self, epoch: int, store: ObjectStore) -> ObjectStore:
        """Return a store that strikes at requests of a batch."""
        return FatalStore(store, NamedPoint(self.point, self._strike)) if epoch == self.epoch else store

    def _strike(self) -> NoReturn:
        os.killpg(self.group, signal.SIGKILL)  # the driver and its JVM
        kill_this_process()  # and the processes that work for them


class DyingWriter(DataSourceStreamArrowWriter):
    def __init__(self, inner: StreamCommitWriter, death: Death) -> None:
        self._inner = inner
        self._death = death

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        epoch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        self._death.strike(epoch, "a task begins")
        message = self._inner.write(iterator)
        self._death.strike(epoch, "a task has written")
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        opened = self._inner._open_repository

        def open_dying(*args: Any, **kwargs: Any) -> Repository:
            context = testing.config_of(opened(*args, **kwargs))
            return open_with(replace(context, store=self._death.in_store(batchId, context.store)))

        self._inner._open_repository = open_dying
        self._inner.commit(messages, batchId)
        self._death.strike(batchId, "the batch is published")


class DyingSource(DefaultSource):
    death: Death

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's
        inner = super().streamWriter(schema, overwrite)
        assert isinstance(inner, StreamCommitWriter)
        return DyingWriter(inner, self.death)


def main(uri: str, feed: str, checkpoint: str, options: str, death: str) -> None:
    assert os.getpgrp() == os.getpid()
    spark = ab.spark_session(master="local[2]")
    if death:
        fate = Death(**json.loads(death), group=os.getpgrp())
        spark.dataSource.register(type("DyingSource", (DyingSource,), {"death": fate}))
    source = spark.readStream.schema("id long, v string").option("maxFilesPerTrigger", "1").json(feed)
    writer = source.writeStream.format("anabranch").option("repo", uri).options(**json.loads(options))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start("s.streamed")
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
