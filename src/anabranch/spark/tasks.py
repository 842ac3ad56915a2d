"""Python tasks on the workers of Spark that return only the names of data files: loading files, rewriting tables.

Our own errors are returned as text inside errors of Spark. `spark_errors` raises them again.
"""

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from anabranch import errors
from anabranch.errors import AnabranchError
from anabranch.files.rows import cut_file
from anabranch.files.sources import SourceFile
from anabranch.format.staging import VersionRef, WrittenFragment, rewrite_fragments
from anabranch.repo.io.load import write_rows
from anabranch.repo.io.prepared_table import LoadTask, WrittenRows
from anabranch.spark.session import get_session
from anabranch.spark.source import FragmentWriter
from anabranch.spark.types import new_columns
from anabranch.storage.requests import OnProgress, Progress, ignore_progress

_RESULTS = "number bigint, result binary"


def do_on_workers(work: Callable[[bytes], bytes], tasks: Sequence[bytes]) -> list[bytes]:
    """Run each task on a worker of the running session, or of a new one. Return the results in order.

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

    session = get_session()
    with spark_errors():
        numbers = session.range(0, len(held), 1, len(held))
        rows = numbers.mapInArrow(run, _RESULTS).collect()
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

        done: list[WrittenRows] = [pickle.loads(result) for result in do_on_workers(work, tasks)]  # noqa: S301 - our own
        total = sum(file.size for file in task.files)
        written = WrittenRows(
            fragments=tuple(fragment for part in done for fragment in part.fragments),
            rows_read=sum(part.rows_read for part in done),
            bad=tuple(record for part in done for record in part.bad),
        )
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
