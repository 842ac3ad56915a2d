"""Load rows from files or from a frame into a table, as one commit."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import (
    BadRecordError,
    InvalidInputError,
    KeyConflictError,
    MissingDependencyError,
    SchemaMismatchError,
)
from anabranch.files.formats import CsvOptions, checked_format
from anabranch.files.records import UNCLOSED, BadRecord
from anabranch.files.rows import Reading, check_columns, find_columns, iter_parts
from anabranch.files.sources import find_files
from anabranch.format import staging
from anabranch.format.arguments import require_names
from anabranch.format.arrow_types import has_own_types
from anabranch.format.staging.incoming import as_reader, fit_rows, require_columns
from anabranch.ids import TableKey
from anabranch.repo.history.comparer import Choice
from anabranch.repo.io.prepared_table import (
    Loaded,
    Loader,
    LoadMode,
    LoadReport,
    LoadRequest,
    LoadTask,
    OnBad,
    OnDuplicate,
    WrittenRows,
    check_types,
    checked_schema,
    find_table,
    prepare_request,
    reject_table_of,
    stage_rows,
)
from anabranch.repo.log.validation import checked_choice
from anabranch.repo.snapshot import Table
from anabranch.repo.transaction import Transaction
from anabranch.storage.requests import OnProgress, Progress

_MOST_LINES_SHOWN = 5


def load_frame(
    tx: Transaction, request: LoadRequest, frame: Any, *, find_loader: Callable[[], Loader | None]
) -> tuple[Loaded, Choice]:
    """Write the rows of a frame and stage them in a transaction. Return the row counts and the engine that was used."""
    table = find_table(tx, request.key)
    # Compare the module name: PySpark may not be installed, and importing it takes long.
    if type(frame).__module__.startswith("pyspark."):
        loaded = _load_spark_frame(tx, request, table, frame, _require_spark(find_loader()))
        return replace(loaded, created=table is None), Choice.SPARK
    # Python values have no types. Use those of the table, so that an inferred type does not conflict.
    known = request.schema if request.schema is not None or table is None else table.schema
    reader = as_reader(frame, known)
    new_schema = _new_schema(request, reader.schema if has_own_types(frame) or known is None else known)
    prepared = prepare_request(tx, request, table, new_schema)
    # The new data files define the table, so they need the types of the requested schema, not of the frame. This also
    # refuses repeated columns, and nulls in columns that do not allow them.
    overwrites = request.mode is LoadMode.OVERWRITE
    if overwrites:
        fitted = fit_rows(reader, new_schema)
        reader = pa.RecordBatchReader.from_batches(fitted.schema, fitted.batches)
    fragments = staging.write_fragments(prepared.version_ref, reader, for_overwrite=overwrites)
    loaded = stage_rows(tx, request, prepared, fragments, reader.schema)
    return replace(loaded, created=table is None), Choice.LOCAL


def _load_spark_frame(tx: Transaction, request: LoadRequest, table: Table | None, frame: Any, loader: Loader) -> Loaded:
    given = loader.columns_of(frame, None if table is None else table.version_ref.schema)
    new_schema = _new_schema(request, given)
    prepared = prepare_request(tx, request, table, new_schema)
    overwrites = request.mode is LoadMode.OVERWRITE
    columns = new_schema if overwrites else prepared.version_ref.schema
    fragments = loader.write_frame(frame, prepared.version_ref, columns, for_overwrite=overwrites).fragments
    return stage_rows(tx, request, prepared, fragments, columns if overwrites else given)


def _require_spark(loader: Loader | None) -> Loader:
    if loader is None:
        raise MissingDependencyError("PySpark is not installed", hint="pip install 'anabranch[spark]'")
    return loader


def _new_schema(request: LoadRequest, given: pa.Schema) -> pa.Schema:
    """Return the schema of a table that is created from, or overwritten with, a frame of the given schema."""
    if request.schema is not None:
        return request.schema
    given = pa.schema([_with_room_for_values(field) for field in given], metadata=given.metadata)
    if request.types is None:
        return given
    require_columns(given, request.types.names)
    return pa.schema([request.types.field(f.name) if f.name in request.types.names else f for f in given])


def _with_room_for_values(field: pa.Field) -> pa.Field:
    """Return a column of categories with an index for as many values as later rows may bring.

    pandas chooses the smallest index for the categories of one frame.
    """
    kind = field.type
    if not pa.types.is_dictionary(kind) or kind.index_type.bit_width >= 32:
        return field
    return field.with_type(pa.dictionary(pa.int32(), kind.value_type, kind.ordered))


def locate_repeated_key(error: KeyConflictError, task: LoadTask, keys: Sequence[str]) -> KeyConflictError:
    """Return an error that names the files and lines of a repeated key, or `error` if the files repeat no key."""
    repeated = _find_repeated_keys(task, keys)
    if not len(repeated):
        return error  # The conflict is with rows that the table already has.
    key = {name: repeated.column(name)[0] for name in keys}
    # Another pass over the files, for this one key: keeping the lines of all rows would need memory for each row.
    positions = _find_key(task, key)
    texts = [file if line is None else f"{file}, line {line}" for file, line in positions[:_MOST_LINES_SHOWN]]
    shown = " and ".join(texts) + (" and others" if len(positions) > _MOST_LINES_SHOWN else "")
    values = {name: value.as_py() for name, value in key.items()}
    # The position of the second row of the key, because the first one is valid.
    file, line = positions[1] if len(positions) > 1 else (None, None)
    return KeyConflictError(
        f"{'1 key occurs' if len(repeated) == 1 else f'{len(repeated)} keys occur'} more than once, "
        f"such as {values}: {shown}",
        hint="keep one row for each key, or keep the last row of each key with `on_duplicate='last'`",
        details={"file": file, "line": line, "reason": f"the key {values} occurs more than once"},
    )


def _find_repeated_keys(task: LoadTask, keys: Sequence[str]) -> pa.Table:
    # The files are parsed again, only for the error: a load does not keep the line of each row.
    tables = [part.table.select(keys) for part in iter_parts(task.files, task.reading, task.parsed_schema)]
    given = pa.concat_tables(tables) if tables else task.schema.empty_table().select(keys)
    counted = given.group_by(list(keys)).aggregate([([], "count_all")])
    return counted.filter(pc.greater(counted.column("count_all"), 1))


def _find_key(task: LoadTask, key: Mapping[str, pa.Scalar]) -> list[tuple[str, int | None]]:
    """Return the file and line of each row with a key. The line is None in binary formats."""
    positions: list[tuple[str, int | None]] = []
    for part in iter_parts(task.files, task.reading, task.parsed_schema):
        is_match = np.ones(len(part.table), dtype=bool)
        for name, value in key.items():
            is_match &= pc.equal(part.table.column(name), value).to_numpy()
        rows = np.flatnonzero(is_match)
        records = part.records
        positions.extend((part.file, None if records is None else records[row].line) for row in rows)
    return positions


_REJECT_COLUMNS = {"file": pa.string(), "line": pa.int64(), "reason": pa.string(), "text": pa.string()}
REJECTS = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _REJECT_COLUMNS.items()])

# The text of a bad record may be very long, for example after a quote that is not closed.
_MAX_TEXT_SHOWN = 200


def load_files(
    tx: Transaction, request: LoadRequest, reading: Reading, write: Callable[[LoadTask], WrittenRows]
) -> Loaded:
    """Write the rows of files with `write` and stage them in a transaction.

    If this raises, the caller must roll the transaction back: it may hold a part of the load.
    """
    table = find_table(tx, request.key)
    # Files without a header have the columns of the table, in its order.
    if table is not None and reading.names is None:
        reading = replace(reading, names=tuple(table.schema.names))
    schema = _loaded_schema(request, reading, table)
    prepared = prepare_request(tx, request, table, schema)
    # An upsert may leave columns out, but not those of the key.
    for name in prepared.primary_key:
        if name not in schema.names:
            raise SchemaMismatchError(f"the files have no key column {name!r}", hint="add the column to the files")
    task = LoadTask(
        version_ref=prepared.version_ref,
        schema=schema,
        required=prepared.primary_key,
        files=request.files,
        reading=reading,
        for_overwrite=request.mode is LoadMode.OVERWRITE,
        stops_at_bad=request.on_bad is OnBad.FAIL,
    )
    written = write(task)
    # Only after the write: an engine finds bad records while it parses. No commit refers to the data files yet.
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


def _loaded_schema(request: LoadRequest, reading: Reading, table: Table | None) -> pa.Schema:
    """Return the columns of the target schema that the files have."""
    schema = _target_schema(request, reading, table)
    # An upsert into an existing table may leave columns out: they keep their values.
    may_lack = request.mode is LoadMode.UPSERT and table is not None
    names = check_columns(request.files, reading, schema.names, may_lack=may_lack)
    schema = pa.schema([schema.field(name) for name in schema.names if name in names], metadata=schema.metadata)
    if table is None and not schema.names:
        hint = "check the files, or pass `schema`"
        raise SchemaMismatchError(f"cannot create table '{request.key}': the files have no columns", hint=hint)
    return schema


def _target_schema(request: LoadRequest, reading: Reading, table: Table | None) -> pa.Schema:
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
    found = find_columns(request.files, reading, types)
    # A misspelt column would be ignored, and the real one would get an inferred type.
    for name in types.names:
        if name not in found.names:
            hint = f"the columns of the files are {', '.join(found.names)}"
            raise SchemaMismatchError(f"schema has the column {name!r}, which is not in the files", hint=hint)
    return found


def _store_rejects(tx: Transaction, key: str, bad: Sequence[BadRecord]) -> None:
    if not bad:
        return
    rejects = reject_table_of(key)
    if rejects not in tx:
        tx.create_table(rejects, REJECTS)
    columns = {name: [getattr(record, name) for record in bad] for name in REJECTS.names}
    # In the transaction of the load, so that rows and rejected records are published together or not at all.
    tx.append(rejects, pa.table(columns, schema=REJECTS))


def _remedy(reason: str) -> str:
    if "UTF8" in reason:
        return "pass the encoding of the file, such as `csv=CsvOptions(encoding='latin-1')`"
    if reason == UNCLOSED:
        return "correct the record, pass `csv=CsvOptions(quote='')` if quotes are plain text"
    # Another type does not help if a record has too many or too few values.
    if " values for " in reason:
        return "correct the record"
    return "correct the record, pass the column types with `schema`"


def _bad_record_error(bad: Sequence[BadRecord]) -> BadRecordError:
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


# Starting Spark takes seconds. Files of this size and above take longer than that to load in one process.
_SPARK_FROM_BYTES = 2 << 30


def checked_request(
    key: str,
    *,
    mode: str,
    schema: pa.Schema | Mapping[str, Any] | None,
    primary_key: Sequence[str] | None,
    on_bad: str,
    on_duplicate: str,
) -> LoadRequest:
    """Check options as the caller passed them, and return them as a request."""
    columns, types = checked_schema(schema)
    if primary_key is not None:
        require_names(primary_key, "primary_key")
    return LoadRequest(
        key=str(TableKey.parse(key)),
        mode=checked_choice(LoadMode, mode, "the mode"),
        schema=columns,
        types=types,
        primary_key=None if primary_key is None else tuple(primary_key),
        on_duplicate=checked_choice(OnDuplicate, on_duplicate, "on_duplicate"),
        on_bad=checked_choice(OnBad, on_bad, "on_bad"),
    )


def load(  # noqa: PLR0913 - the options of `Repository.load` that are about the source
    begin: Callable[[], Transaction],
    request: LoadRequest,
    source: Any,
    *,
    file_format: str | None,
    csv: CsvOptions,
    engine: str,
    storage_options: Mapping[str, str],
    progress: OnProgress,
    find_loader: Callable[[], Loader | None],
) -> LoadReport:
    """Load a source into a table and report what was loaded.

    `begin` starts the transaction. It is called after the options and the files are checked.
    """
    chosen = checked_choice(Choice, engine, "the engine")
    checked = None if file_format is None else checked_format(file_format)
    paths = _find_paths(source)
    if paths is None:
        with begin() as tx:
            loaded, used = load_frame(tx, request, source, find_loader=find_loader)
        return LoadReport.of(request, loaded, branch=tx.branch, engine=used, commit=tx.published)
    files = find_files(paths, format=checked, storage_options=storage_options)
    request = replace(request, files=files)
    csv = csv.for_file(files[0].path)
    # None means the columns of the table.
    names = csv.columns or (None if request.schema is None else request.schema.names)
    # All files have the format of the first one.
    reading = Reading(format=files[0].format, csv=csv, names=None if names is None else tuple(names))
    loader = _choose_loader(chosen, sum(file.size for file in files), find_loader)
    write = write_rows if loader is None else loader.write
    with begin() as tx:
        loaded = load_files(tx, request, reading, lambda task: write(task, progress=progress))
    used = Choice.LOCAL if loader is None else Choice.SPARK
    return LoadReport.of(request, loaded, branch=tx.branch, engine=used, commit=tx.published)


def _find_paths(source: Any) -> list[str | os.PathLike[str]] | None:
    """Return the paths of a source, or None if it is a frame: a list of dicts is rows, so the items decide."""
    if isinstance(source, str | os.PathLike):
        return [source]
    if not isinstance(source, list | tuple) or not all(isinstance(item, str | os.PathLike) for item in source):
        return None
    # The list may come from a search that found no files. It must not empty a table.
    if not source:
        hint = "pass at least one file, folder or pattern; for no rows, pass an Arrow table with columns"
        raise InvalidInputError("the list to load is empty", hint=hint)
    return list(source)


def _choose_loader(engine: Choice, size: int, find_loader: Callable[[], Loader | None]) -> Loader | None:
    """Return the Spark loader, or None to load `size` bytes in this process."""
    if engine is Choice.LOCAL or (engine is Choice.AUTO and size < _SPARK_FROM_BYTES):
        return None
    loader = find_loader()
    # With AUTO, a large load without PySpark runs in this process: slower, but it works.
    return _require_spark(loader) if engine is Choice.SPARK else loader
