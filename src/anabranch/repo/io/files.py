"""Load files into a table in one transaction: find the columns, write the rows, store the rejected records."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from anabranch.errors import (
    BadRecordError,
    KeyConflictError,
    SchemaMismatchError,
)
from anabranch.files.records import UNCLOSED, BadRecord
from anabranch.files.rows import check_columns, find_columns, iter_parts
from anabranch.format import staging
from anabranch.repo.io.target import (
    check_types,
    find_table,
    keep_last,
    locate_repeated_key,
    prepare_table,
    stage_fragments,
)
from anabranch.repo.io.values import (
    Loaded,
    LoadMode,
    LoadRequest,
    LoadTask,
    OnBad,
    OnDuplicate,
    WrittenRows,
    reject_table_of,
)
from anabranch.repo.snapshot import Table
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.staged_table import StagedTable
from anabranch.storage.requests import OnProgress, Progress

__all__ = ["REJECTS", "load_files", "write_rows"]

REJECTS = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)

# The text of a bad record may be very long, for example after a quote that is not closed.
_MAX_TEXT_SHOWN = 200

WriteRows = Callable[[LoadTask], WrittenRows]


def load_files(tx: Transaction, request: LoadRequest, write: WriteRows) -> Loaded:
    """Write the rows of files with `write` and stage them in a transaction.

    If this raises, the caller must roll the transaction back: it may hold a part of the load.
    """
    table = find_table(tx, request.key)
    # Files without a header have the columns of the table, in its order.
    if table is not None and request.reading.names is None:
        request = replace(request, reading=replace(request.reading, names=tuple(table.schema.names)))
    schema = _target_schema(request, table)
    # An upsert into an existing table may leave columns out: they keep their values.
    may_lack = request.mode is LoadMode.UPSERT and table is not None
    names = check_columns(request.files, request.reading, schema.names, may_lack=may_lack)
    schema = pa.schema([schema.field(name) for name in schema.names if name in names], metadata=schema.metadata)
    prepared = prepare_table(
        tx,
        request.key,
        mode=request.mode,
        primary_key=request.primary_key,
        on_duplicate=request.on_duplicate,
        new_schema=lambda: _new_schema(request.key, schema),
    )
    # An upsert may leave columns out, but not those by which it finds the rows.
    for name in prepared.primary_key:
        if name not in schema.names:
            raise SchemaMismatchError(f"the files have no key column {name!r}", hint="add the column to the files")
    task = _task(request, prepared, schema)
    written = write(task)
    # Only after the write, because an engine finds bad records while it parses. The data files are not staged yet, so
    # no commit refers to them.
    if written.bad and request.on_bad is OnBad.FAIL:
        raise _bad_record_error(written.bad)
    fragments, repeated = written.fragments, 0
    if request.on_duplicate is OnDuplicate.LAST:
        # After all files are written: rows of one key may be in different files, and different workers write them.
        fragments, repeated = keep_last(prepared, fragments, overwrites=schema if task.for_overwrite else None)
    try:
        stage_fragments(tx, request.mode, prepared, fragments, schema)
    except KeyConflictError as err:
        raise locate_repeated_key(err, task, prepared.primary_key) from None
    _store_rejects(tx, request.key, written.bad)
    return Loaded(
        rows_read=written.rows_read,
        rows_loaded=sum(fragment.rows for fragment in fragments),
        rows_rejected=len(written.bad),
        rows_repeated=repeated,
        created=table is None,
    )


def write_rows(task: LoadTask, *, progress: OnProgress) -> WrittenRows:
    """Write the rows of a task in this process. Threads parse the files while this thread writes.

    If the task stops at bad records, end after the first part of a file that has one.
    """
    total = sum(file.size for file in task.files)
    bad: list[BadRecord] = []
    rows_read = written = bytes_read = 0

    def count_bytes(count: int) -> None:
        nonlocal bytes_read
        bytes_read += count

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal rows_read, written
        for part in iter_parts(task.files, task.reading, task.parsed_schema, watch=count_bytes):
            rows_read += part.rows_read
            bad.extend(part.bad)
            # The load fails anyway, so do not parse and write the remaining files.
            if part.bad and task.stops_at_bad:
                return
            written += len(part.table)
            # For parsing, key columns are not nullable. The data files have the nullability of the table.
            yield from part.table.cast(task.schema).combine_chunks().to_batches()
            progress(Progress(stage="bytes", done=min(bytes_read, total), total=total, rows=written))

    reader = pa.RecordBatchReader.from_batches(task.schema, batches())
    fragments = staging.write_fragments(task.version_ref, reader, for_overwrite=task.for_overwrite)
    return WrittenRows(fragments=fragments, rows_read=rows_read, bad=tuple(bad))


def _task(request: LoadRequest, prepared: StagedTable, schema: pa.Schema) -> LoadTask:
    """Return the part of a load that an engine runs."""
    return LoadTask(
        version_ref=prepared.version_ref,
        schema=schema,
        required=prepared.primary_key,
        files=request.files,
        reading=request.reading,
        for_overwrite=request.mode is LoadMode.OVERWRITE,
        stops_at_bad=request.on_bad is OnBad.FAIL,
    )


def _target_schema(request: LoadRequest, table: Table | None) -> pa.Schema:
    """Return the schema that the loaded rows get.

    It is the table's, unless the table does not exist or is overwritten with a schema of the request.
    """
    if table is not None and (request.mode is not LoadMode.OVERWRITE or request.schema is None):
        existing: pa.Schema = table.schema
        check_types(request, existing)
        return existing
    if request.schema is not None:
        return request.schema
    types = request.types or pa.schema([])
    found = find_columns(request.files, request.reading, types)
    # A misspelt column would be ignored, and the real one would get an inferred type.
    for name in types.names:
        if name not in found.names:
            raise SchemaMismatchError(
                f"schema has the column {name!r}, which is not in the files",
                hint=f"the columns of the files are {', '.join(found.names)}",
            )
    return found


def _new_schema(key: str, schema: pa.Schema) -> pa.Schema:
    if not schema.names:
        raise SchemaMismatchError(
            f"cannot create table '{key}': the files have no columns", hint="check the files, or pass `schema`"
        )
    return schema


def _store_rejects(tx: Transaction, key: str, bad: Sequence[BadRecord]) -> None:
    """Append bad records to the reject table of a table. Create the reject table if needed."""
    if not bad:
        return
    rejects = reject_table_of(key)
    if rejects not in tx:
        tx.create_table(rejects, REJECTS)
    columns = {name: [getattr(record, name) for record in bad] for name in REJECTS.names}
    # In the transaction of the load, so that rows and rejected records are published together or not at all.
    tx.append(rejects, pa.table(columns, schema=REJECTS))


def _remedy(reason: str) -> str:
    """Return how to load a record that is bad for a reason."""
    if "UTF8" in reason:
        return "pass the encoding of the file, such as `csv=CsvOptions(encoding='latin-1')`"
    if reason == UNCLOSED:
        return "correct the record, pass `csv=CsvOptions(quote='')` if quotes are plain text"
    # Another type does not help a record that has too many or too few values.
    if " values for " in reason:
        return "correct the record"
    return "correct the record, pass the column types with `schema`"


def _bad_record_error(bad: Sequence[BadRecord]) -> BadRecordError:
    """Return the error for bad records. It shows the first one and counts the others."""
    first = bad[0]
    text = first.text if len(first.text) <= _MAX_TEXT_SHOWN else f"{first.text[:_MAX_TEXT_SHOWN]}…"
    more = ""
    if len(bad) > 1:
        more = f" (and {len(bad) - 1} more bad record{'s' if len(bad) > 2 else ''} in the same part of the file)"
    return BadRecordError(
        f"{first.file}, line {first.line}: {first.reason}: {text!r}{more}",
        hint=f"{_remedy(first.reason)}, or leave bad records out with `on_bad='reject'`",
        details={"file": first.file, "line": first.line, "reason": first.reason},
    )
