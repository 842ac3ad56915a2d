"""The steps of a load: prepare the table, write the rows of files, stage them, and store the rejected records.

Every write that hands data files to a transaction begins with `prepare_table`: loads of files and frames, the writers
and streams of Spark, and pipelines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import (
    BadRecordError,
    InvalidInputError,
    KeyConflictError,
    SchemaMismatchError,
    TableNotFoundError,
)
from anabranch.files.records import UNCLOSED, BadRecord
from anabranch.files.rows import check_columns, find_columns, iter_parts
from anabranch.format import scan, staging
from anabranch.format.staging import WrittenFragment
from anabranch.repo.io.values import (
    FrameRequest,
    Loaded,
    LoadMode,
    LoadRequest,
    LoadTask,
    OnBad,
    OnDuplicate,
    WrittenRows,
    reject_table_of,
)
from anabranch.repo.runs.engine_access import table_writes
from anabranch.repo.snapshot import Table
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.staged_table import StagedTable
from anabranch.storage.requests import OnProgress, Progress


def find_table(tx: Transaction, key: str) -> Table | None:
    """Return a table as a transaction sees it, or None if it does not exist."""
    try:
        return tx[key]
    except TableNotFoundError:
        return None


def prepare_table(
    tx: Transaction,
    key: str,
    *,
    mode: LoadMode,
    primary_key: Sequence[str] | None = None,
    on_duplicate: OnDuplicate = OnDuplicate.REFUSE,
    new_schema: Callable[[], pa.Schema] | None = None,
) -> StagedTable:
    """Prepare a table for a write. The transaction does not change before the written rows are staged.

    If the table does not exist, it will be created with `new_schema` and the primary key; without `new_schema`, raise
    TableNotFoundError. Raise InvalidInputError if the table has another primary key than the given one, or none and the
    write needs one.
    """
    if new_schema is not None and key not in tx:
        prepared = table_writes(tx).prepare_new(key, new_schema(), primary_key=primary_key or ())
    else:
        prepared = table_writes(tx).prepare(key)
        _check_same_key(prepared, primary_key)
    for option, is_set in (
        ("an upsert", mode is LoadMode.UPSERT),
        ("on_duplicate='last'", on_duplicate is OnDuplicate.LAST),
    ):
        if is_set and not prepared.primary_key:
            raise InvalidInputError(
                f"table '{key}' has no primary key, which {option} needs",
                hint="append the rows without it, or create the table with `primary_key=['COLUMN']`",
            )
    return prepared


def prepare_request(tx: Transaction, request: FrameRequest, table: Table | None, new_schema: pa.Schema) -> StagedTable:
    """Prepare the table of a load, which is created with `new_schema` if it does not exist."""
    # An overwrite may change the types of the columns.
    if table is not None and request.mode is not LoadMode.OVERWRITE:
        check_types(request, table.schema)
    return prepare_table(
        tx,
        request.key,
        mode=request.mode,
        primary_key=request.primary_key,
        on_duplicate=request.on_duplicate,
        new_schema=lambda: new_schema,
    )


def _check_same_key(prepared: StagedTable, given: Sequence[str] | None) -> None:
    if given is None or tuple(given) == prepared.primary_key:
        return
    found, wanted = (", ".join(names) or "no columns" for names in (prepared.primary_key, given))
    raise InvalidInputError(
        f"the primary key of '{prepared.key}' is {found}, not {wanted}",
        hint="leave `primary_key` out, or change the key with `set_primary_key()`",
    )


def check_types(request: FrameRequest, existing: pa.Schema) -> None:
    """Raise SchemaMismatchError if the request gives a column another type than the existing table."""
    for field in (*(request.schema or ()), *(request.types or ())):
        if field.name not in existing.names:
            raise SchemaMismatchError(
                f"table '{request.key}' has no column {field.name!r}, but a type is given for it",
                hint="leave the column out of `schema`, or add it to the table first",
            )
        found = existing.field(field.name).type
        if found != field.type:
            raise SchemaMismatchError(
                f"column {field.name!r} of '{request.key}' has type {found}, not {field.type}",
                hint="leave the column out of `schema`, or change its type with `alter_columns()` first",
            )


def stage_fragments(
    tx: Transaction, mode: LoadMode, prepared: StagedTable, fragments: Sequence[WrittenFragment], schema: pa.Schema
) -> None:
    """Stage data files that were written for a prepared table. `schema` has the columns of their rows."""
    match mode:
        case LoadMode.APPEND:
            table_writes(tx).append_fragments(prepared, fragments)
        case LoadMode.UPSERT:
            table_writes(tx).upsert_fragments(prepared, fragments, columns=schema.names)
        case LoadMode.OVERWRITE:
            table_writes(tx).overwrite_fragments(prepared, fragments, schema=schema)


def stage_rows(
    tx: Transaction, request: FrameRequest, prepared: StagedTable, written: Sequence[WrittenFragment], schema: pa.Schema
) -> Loaded:
    """Stage the written rows of a load. With on_duplicate='last', keep only the last row of each key."""
    fragments, repeated = tuple(written), 0
    if request.on_duplicate is OnDuplicate.LAST:
        # After all rows are written: rows of one key may be in different files, and different workers write them.
        overwrites = schema if request.mode is LoadMode.OVERWRITE else None
        fragments, repeated = keep_last(prepared, fragments, overwrites=overwrites)
    stage_fragments(tx, request.mode, prepared, fragments, schema)
    rows = sum(fragment.rows for fragment in fragments)
    return Loaded(rows_read=rows + repeated, rows_loaded=rows, rows_repeated=repeated)


_POSITION = "__position"
_MAX_SHOWN = 5


def keep_last(
    prepared: StagedTable, fragments: Sequence[WrittenFragment], *, overwrites: pa.Schema | None
) -> tuple[tuple[WrittenFragment, ...], int]:
    """Keep the last written row of each key. Return the data files and the number of dropped rows.

    If rows are dropped, the kept rows are written again to new data files. `overwrites` is the schema of the rows
    if they overwrite the table, else None.
    """
    version_ref, keys = prepared.version_ref, prepared.primary_key
    if not fragments:
        return (), 0
    # Stage the data files without publishing them, because only a staged version can be scanned.
    if overwrites is None:
        before, staged = version_ref, staging.append_fragments(version_ref, fragments)
    else:
        before, staged = None, staging.overwrite_fragments(version_ref, fragments, schema=overwrites)

    def read(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        if before is None:
            return scan.iter_batches(staged, columns=columns)
        return iter(scan.read_appended(before, staged, columns=columns))

    # Only the keys are in memory at once. The other columns are read again, batch by batch.
    given = pa.Table.from_batches(read(keys), schema=pa.schema([staged.schema.field(name) for name in keys]))
    positions = pa.array(np.arange(len(given), dtype=np.int64))
    # The data files are in the order of the source files, also if many workers wrote them, so the position decides
    # which row is the last one.
    last = given.append_column(_POSITION, positions).group_by(list(keys)).aggregate([(_POSITION, "max")])
    repeated = len(given) - len(last)
    if not repeated:
        return tuple(fragments), 0
    # One byte for each row: a set of positions would take many times the memory.
    is_kept = np.zeros(len(given), dtype=bool)
    is_kept[last.column(f"{_POSITION}_max").to_numpy()] = True

    def kept() -> Iterator[pa.RecordBatch]:
        # Both reads return the rows in the same order, so the positions of the first read are valid in the second.
        at = 0
        for batch in read(None):
            yield batch.filter(pa.array(is_kept[at : at + len(batch)]))
            at += len(batch)

    reader = pa.RecordBatchReader.from_batches(staged.schema, kept())
    return staging.write_fragments(version_ref, reader, for_overwrite=overwrites is not None), repeated


def locate_repeated_key(error: KeyConflictError, task: LoadTask, keys: Sequence[str]) -> KeyConflictError:
    """Return an error that names the files and lines of a repeated key.

    Return `error` itself if no key is repeated in the files.
    """
    # The files are parsed again, only for the error: a load does not keep the line of each row.
    tables = [part.table.select(keys) for part in iter_parts(task.files, task.reading, task.parsed_schema)]
    given = pa.concat_tables(tables) if tables else task.schema.empty_table().select(keys)
    counted = given.group_by(list(keys)).aggregate([([], "count_all")])
    repeated = counted.filter(pc.greater(counted.column("count_all"), 1))
    if not len(repeated):
        return error  # The conflict is with rows that the table already has.
    key = {name: repeated.column(name)[0] for name in keys}
    # Another pass over the files, for this one key: keeping the lines of all rows would need memory for each row.
    positions = _find_key(task, key)
    texts = [file if line is None else f"{file}, line {line}" for file, line in positions[:_MAX_SHOWN]]
    shown = " and ".join(texts) + (" and others" if len(positions) > _MAX_SHOWN else "")
    values = {name: value.as_py() for name, value in key.items()}
    # The position of the second row of the key, because the first one is valid.
    file, line = positions[1] if len(positions) > 1 else (None, None)
    return KeyConflictError(
        f"{'1 key occurs' if len(repeated) == 1 else f'{len(repeated)} keys occur'} more than once, "
        f"such as {values}: {shown}",
        hint="keep one row for each key, or keep the last row of each key with `on_duplicate='last'`",
        details={"file": file, "line": line, "reason": f"the key {values} occurs more than once"},
    )


def _find_key(task: LoadTask, key: Mapping[str, pa.Scalar]) -> list[tuple[str, int | None]]:
    """Return the file and line of each row with a key. The line is None in binary formats."""
    positions: list[tuple[str, int | None]] = []
    for part in iter_parts(task.files, task.reading, task.parsed_schema):
        is_match = np.ones(len(part.table), dtype=bool)
        for name, value in key.items():
            is_match &= pc.equal(part.table.column(name), value).to_numpy()
        rows = np.flatnonzero(is_match)
        lines = [None] * len(rows) if part.parsed is None else [int(part.parsed.lines[row]) for row in rows]
        positions.extend((part.file, line) for line in lines)
    return positions


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
    if table is None and not schema.names:
        raise SchemaMismatchError(
            f"cannot create table '{request.key}': the files have no columns", hint="check the files, or pass `schema`"
        )
    prepared = prepare_request(tx, request, table, schema)
    # An upsert may leave columns out, but not those by which it finds the rows.
    for name in prepared.primary_key:
        if name not in schema.names:
            raise SchemaMismatchError(f"the files have no key column {name!r}", hint="add the column to the files")
    task = LoadTask(
        version_ref=prepared.version_ref,
        schema=schema,
        required=prepared.primary_key,
        files=request.files,
        reading=request.reading,
        for_overwrite=request.mode is LoadMode.OVERWRITE,
        stops_at_bad=request.on_bad is OnBad.FAIL,
    )
    written = write(task)
    # Only after the write, because an engine finds bad records while it parses. The data files are not staged yet, so
    # no commit refers to them.
    if written.bad and request.on_bad is OnBad.FAIL:
        raise _bad_record_error(written.bad)
    try:
        loaded = stage_rows(tx, request, prepared, written.fragments, schema)
    except KeyConflictError as err:
        raise locate_repeated_key(err, task, prepared.primary_key) from None
    _store_rejects(tx, request.key, written.bad)
    return replace(loaded, rows_read=written.rows_read, rows_rejected=len(written.bad), created=table is None)


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
