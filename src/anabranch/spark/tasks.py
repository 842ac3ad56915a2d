"""Python tasks on the workers of Spark that return only the names of data files: loading files, rewriting tables.

Our own errors are returned as text inside errors of Spark. `spark_errors` raises them again.
"""

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException

from anabranch import errors
from anabranch.errors import AnabranchError
from anabranch.files.rows import cut_file
from anabranch.files.sources import SourceFile
from anabranch.format.staging import VersionRef, WrittenFragment, rewrite_fragments
from anabranch.repo.io.load import write_rows
from anabranch.repo.io.prepared_table import LoadTask, WrittenRows
from anabranch.spark.session import get_session, stop_jobs, stoppable
from anabranch.spark.source import FragmentWriter
from anabranch.spark.types import new_columns
from anabranch.storage.requests import OnProgress, Progress, counting, ignore_progress

_RESULTS = "number bigint, result binary"
_SECONDS_BETWEEN_CHECKS = 0.5


def do_on_workers(
    work: Callable[[bytes], bytes], tasks: Sequence[bytes], *, check: Callable[[], None] = lambda: None
) -> list[bytes]:
    """Run each task on a worker of the running session, or of a new one. Return the results in order.

    `check` is called while the tasks run. If it raises, they are stopped.
    Tasks travel with the function, not as rows: plans show rows, and tasks may hold credentials. Spark gets only the
    numbers of tasks, one in each partition, so that nothing is shuffled.
    """
    if not tasks:
        return []
    held = list(tasks)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                columns = [pa.array([number], pa.int64()), pa.array([work(held[number])], pa.binary())]
                yield pa.record_batch(columns, names=["number", "result"])

    session, tag = get_session(), f"anabranch-{uuid4().hex}"

    def collect() -> list[Any]:
        with stoppable(session, tag):
            return session.range(0, len(held), 1, len(held)).mapInArrow(run, _RESULTS).collect()

    # The thread of the caller calls `check`: only there it may raise, and find what belongs to a thread.
    with spark_errors(), ThreadPoolExecutor(1) as threads:
        collecting = threads.submit(inheritable_thread_target(session)(collect))
        try:
            while wait([collecting], timeout=_SECONDS_BETWEEN_CHECKS).not_done:
                check()
        except BaseException:
            # Repeated, because Spark may not know the job yet.
            while not collecting.done():
                stop_jobs(session, tag)
                wait([collecting], timeout=_SECONDS_BETWEEN_CHECKS)
            raise
        rows = collecting.result()
    return [bytes(row.result) for row in sorted(rows, key=lambda row: row.number)]


class SparkRewriter:
    """Runs the tasks of compactions on the workers of the running session, or of a new one."""

    def rewrite(self, version_ref: VersionRef, tasks: Sequence[bytes]) -> list[bytes]:
        return do_on_workers(lambda task: rewrite_fragments(version_ref, task), tasks)


_TEXTS = "fragment string"
_BYTES_PER_TASK = 64 << 20


class SparkLoader:
    """Loads with the running session, or with one that it starts."""

    def write(self, task: LoadTask, *, progress: OnProgress) -> WrittenRows:
        pieces = tuple(
            piece for file in task.files for piece in cut_file(file, task.reading, span_bytes=_BYTES_PER_TASK)
        )
        tasks = [pickle.dumps(replace(task, files=files)) for files in _shared_out(pieces)]

        def work(part: bytes) -> bytes:
            return pickle.dumps(write_rows(pickle.loads(part), progress=ignore_progress))  # noqa: S301 - our own

        total = sum(file.size for file in task.files)
        # The workers report nothing, but the callback stops them if it raises.
        results = do_on_workers(work, tasks, check=lambda: counting(progress, "bytes")(0, total))
        written = _joined([pickle.loads(result) for result in results])  # noqa: S301 - our own
        rows_written = written.rows_read - len(written.bad)
        progress(Progress(stage="bytes", done=total, total=total, rows=rows_written))
        return written

    def write_frame(
        self, frame: Any, version_ref: VersionRef, schema: pa.Schema, *, for_overwrite: bool
    ) -> WrittenRows:
        writer = FragmentWriter(version_ref=version_ref, given=frame.schema, columns=schema, is_overwrite=for_overwrite)

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.record_batch([pa.array(writer.write_files(batches), pa.string())], names=["fragment"])

        writer.fitted(iter(()))  # refuses wrong types before the job begins
        get_session(frame.sparkSession)
        with spark_errors():
            texts = [row.fragment for row in frame.mapInArrow(work, _TEXTS).collect()]
        fragments = tuple(WrittenFragment.from_json(text) for text in texts)
        return WrittenRows(fragments=fragments, rows_read=sum(f.rows for f in fragments), bad=())

    def columns_of(self, frame: Any, existing: pa.Schema | None) -> pa.Schema:
        return new_columns(frame.schema, existing)


def _shared_out(files: tuple[SourceFile, ...]) -> list[tuple[SourceFile, ...]]:
    """Return groups of files in their order. Small files are in one group."""
    parts: list[tuple[SourceFile, ...]] = []
    held: list[SourceFile] = []
    size = 0
    # The order is kept: with on_duplicate='last', the last row of a key in this order wins.
    for file in files:
        if held and size + file.size > _BYTES_PER_TASK:
            parts.append(tuple(held))
            held, size = [], 0
        held.append(file)
        size += file.size
    return [*parts, tuple(held)]


def _joined(parts: Sequence[WrittenRows]) -> WrittenRows:
    return WrittenRows(
        fragments=tuple(fragment for part in parts for fragment in part.fragments),
        rows_read=sum(part.rows_read for part in parts),
        bad=tuple(record for part in parts for record in part.bad),
    )


# The last line of a Python traceback, or of an exception of the catalog. Spark keeps only the text.
_LAST_LINE = re.compile(r"(?:^|AnabranchException: )anabranch\.errors\.(\w+): (.*); ([^;\n]*)$", re.MULTILINE)


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise the error of a worker or of the data source on the driver. Spark's own errors are not changed."""
    try:
        yield
    # Rows that are brought here one partition after the other fail with an error of the bridge to Java.
    except (PySparkException, Py4JJavaError) as err:
        found = find_error(str(err))
        if found is None:
            raise
        raise found from err


def find_error(text: str) -> AnabranchError | None:
    """Return the error whose traceback a text contains, or None if it is not one of Anabranch."""
    for name, problem, hint in reversed(_LAST_LINE.findall(text)):  # the cause of an error is printed before it
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, AnabranchError):
            return kind(problem, hint=hint)
    return None
