"""Stream a folder of files into a table, one file in each batch; at a given point, kill the driver with its JVM.

The process has to lead a process group of its own.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import anabranch as ab
from anabranch import testing
from anabranch.repo.repository import Repository
from anabranch.spark.source import StreamCommitWriter
from anabranch.storage import ObjectStore
from anabranch.testing import WrappedStore
from pyspark_anabranch import DefaultSource
from tests.handles import open_with

T = TypeVar("T")

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

    def _strike(self) -> NoReturn:
        os.killpg(self.group, signal.SIGKILL)  # the driver and its JVM
        os.kill(os.getpid(), signal.SIGKILL)  # and the processes that work for them
        raise AssertionError


class DyingStore(WrappedStore):
    def __init__(self, inner: ObjectStore, death: Death, epoch: int) -> None:
        super().__init__(inner)
        self._death = death
        self._epoch = epoch

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        label = f"{operation} {path.partition('/')[0]}"
        self._death.strike(self._epoch, f"before {label}")
        answer = send()
        self._death.strike(self._epoch, f"after {label}")
        return answer


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
            return open_with(replace(context, store=DyingStore(context.store, self._death, batchId)))

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
