"""Data rewritten by Spark's workers without becoming Spark's rows: only the tasks and their results travel."""

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from anabranch.format.home import Home
from anabranch.format.staging import Pin, RewriteTask, RewrittenFragments, rewrite_fragments
from anabranch.spark.session import get_session
from anabranch.spark.spark_errors import spark_errors

__all__ = ["SparkRewriter"]

_TASKS = "task binary"
_RESULTS = "result binary"


class SparkRewriter:
    """Does the tasks of compactions on the workers of the running session, or of one that it starts."""

    def rewrite(self, pin: Pin, tasks: Sequence[RewriteTask]) -> list[RewrittenFragments]:
        session = get_session()
        where = (pin.home.root, pin.home.branch, json.dumps(dict(pin.home.storage_options)), pin.version)

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            root, branch, options, version = where
            there = Pin(home=Home(root=root, branch=branch, storage_options=json.loads(options)), version=version)
            for batch in batches:
                done = [rewrite_fragments(there, RewriteTask(data)).data for data in batch.column(0).to_pylist()]
                yield pa.record_batch([pa.array(done, pa.binary())], names=["result"])

        with spark_errors():
            given = session.createDataFrame([(task.data,) for task in tasks], _TASKS).repartition(len(tasks))
            rows = given.mapInArrow(work, _RESULTS).collect()
        return [RewrittenFragments(bytes(row.result)) for row in rows]
