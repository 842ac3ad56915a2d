"""Python tasks on the workers of Spark, without rows of Spark, such as the rewriting of data files."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from anabranch.format.staging import RewriteTask, RewrittenFragments, VersionRef, rewrite_fragments
from anabranch.spark.session import get_session
from anabranch.spark.spark_errors import spark_errors

__all__ = ["SparkRewriter", "do_on_workers"]


_RESULTS = "number bigint, result binary"


def do_on_workers(work: Callable[[bytes], bytes], tasks: Sequence[bytes]) -> list[bytes]:
    """Do each task on a worker of the running session, or of one that is started; give the results in their order.

    Tasks travel with the function, not as rows: plans show rows, and tasks may hold credentials. Numbers of tasks are
    all that Spark sees, one in each partition, so that nothing is shuffled.
    """
    if not tasks:
        return []
    held = list(tasks)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                columns = [pa.array([number], pa.int64()), pa.array([work(held[number])], pa.binary())]
                yield pa.record_batch(columns, names=["number", "result"])

    session = get_session()
    with spark_errors():
        numbers = session.range(0, len(held), 1, len(held))
        rows = numbers.mapInArrow(run, _RESULTS).collect()
    return [bytes(row.result) for row in sorted(rows, key=lambda row: row.number)]


class SparkRewriter:
    """Does the tasks of compactions on the workers of the running session, or of one that it starts."""

    def rewrite(self, version_ref: VersionRef, tasks: Sequence[RewriteTask]) -> list[RewrittenFragments]:
        def work(task: bytes) -> bytes:
            return rewrite_fragments(version_ref, RewriteTask(task)).data

        return [RewrittenFragments(result) for result in do_on_workers(work, [task.data for task in tasks])]
