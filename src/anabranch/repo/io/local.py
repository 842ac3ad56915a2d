"""Load in this process: files are parsed by a few threads while one writes."""

from collections.abc import Iterator

import pyarrow as pa

from anabranch.files.records import BadRecord
from anabranch.files.rows import iter_parts
from anabranch.format import staging
from anabranch.repo.io.values import LoadProgress, LoadTask, OnProgress, WrittenRows

__all__ = ["write_rows"]


def write_rows(task: LoadTask, *, on_progress: OnProgress) -> WrittenRows:
    """Write the rows of a task, one batch after the other; all of them, unless a bad record ends it."""
    total = sum(file.size for file in task.files)
    bad: list[BadRecord] = []
    rows_read = written = bytes_read = 0

    def watch(count: int) -> None:
        nonlocal bytes_read
        bytes_read += count

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal rows_read, written
        for part in iter_parts(task.files, task.reading, task.parsed_schema, watch=watch):
            rows_read += part.rows_read
            bad.extend(part.bad)
            if part.bad and task.stops_at_bad:
                return
            written += len(part.table)
            yield from part.table.cast(task.schema).combine_chunks().to_batches()
            on_progress(LoadProgress(rows=written, bytes_read=min(bytes_read, total), bytes_total=total))

    reader = pa.RecordBatchReader.from_batches(task.schema, batches())
    fragments = staging.write_fragments(task.pin, reader, for_overwrite=task.for_overwrite)
    return WrittenRows(fragments=fragments, rows_read=rows_read, bad=tuple(bad))
