"""Write the rows of one table of a snapshot to files, or to a plain Lance dataset."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.errors import ObjectExistsError
from anabranch.files.formats import CsvOptions, FileFormat
from anabranch.files.writer import Target, check_csv, is_part_name, write_file
from anabranch.format import staging
from anabranch.format.plain_tables import write_plain_dataset
from anabranch.repo.snapshot import Snapshot
from anabranch.storage import ObjectStore
from anabranch.storage.requests import OnProgress, Progress, ignore_progress

ROWS_PER_FILE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The rows and columns of a table to export, and how to write them."""

    columns: Sequence[str] | None = None
    where: str | None = None
    limit: int | None = None
    overwrite: bool = False
    csv: CsvOptions = field(default_factory=CsvOptions)
    progress: OnProgress = ignore_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The result of an export: the files, and the commit of their rows."""

    table: str
    commit_id: str
    format: str
    files: tuple[str, ...]
    rows: int
    bytes_written: int


def export_table(snapshot: Snapshot, key: str, target: Target, options: ExportOptions) -> ExportReport:
    """Write the rows of one table. Raise ObjectExistsError if the target exists and `overwrite` is False."""
    if target.format is FileFormat.CSV:
        check_csv(options.csv)
    table = snapshot[key]
    columns, limit = options.columns, options.limit
    scanned = table.scan(columns=columns, where=options.where, limit=limit)
    schema = table.schema if columns is None else pa.schema([table.schema.field(name) for name in columns])
    # With a predicate this is only an upper bound: an exact count would scan the table twice.
    total = table.count_rows() if limit is None else min(table.count_rows(), limit)
    count = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in scanned:
            yield batch
            # Counted when the writer asks for the next batch, so this one is written.
            count += len(batch)
            options.progress(Progress(stage="rows", done=count, total=total, rows=count))

    # Leave out descriptions and defaults: a table that is made from the file would get them.
    rows = pa.RecordBatchReader.from_batches(staging.without_own_notes(schema), batches())
    if target.format is FileFormat.LANCE:
        write_plain_dataset(target.uri, target.storage_options, rows, overwrite=options.overwrite)
        files, size = [target.uri], 0
    else:
        store, path = target.location()
        names = _write_files(store, path, target, rows, options)
        files, size = [target.uri_of(name) for name in names], sum(store.head(name).size for name in names)
    return ExportReport(
        table=table.key,
        commit_id=snapshot.id,
        format=target.format.value,
        files=tuple(files),
        rows=count,
        bytes_written=size,
    )


def _write_files(
    store: ObjectStore, path: str, target: Target, rows: pa.RecordBatchReader, options: ExportOptions
) -> list[str]:
    """Write one file or a folder of files, and return their paths in the store."""
    csv = options.csv.for_file(target.uri)
    if target.is_folder:
        return _write_folder(store, target, rows, csv, overwrite=options.overwrite)
    # Before the write: a refused export must not read the whole table first.
    if not options.overwrite and store.find_info(path) is not None:
        hint = "name another file, or pass `overwrite=True`"
        raise ObjectExistsError(f"the file {target.uri!r} already exists", hint=hint)
    write_file(store, path, target, rows, csv)
    return [path]


def _write_folder(
    store: ObjectStore, target: Target, rows: pa.RecordBatchReader, csv: CsvOptions, *, overwrite: bool
) -> list[str]:
    """Write files of about ROWS_PER_FILE rows each, then delete the remaining files of an older export.

    Other files in the folder are kept.
    """
    before = [info.path for info in store.list()]
    if before and not overwrite:
        hint = "name another folder, or pass `overwrite=True`"
        raise ObjectExistsError(f"the folder {target.uri!r} is not empty", hint=hint)
    batches = iter(rows)
    files: list[str] = []
    first = next(batches, None)
    # Write one file even without rows, so that a reader finds the columns.
    while first is not None or not files:
        name = target.name_of(len(files))
        write_file(store, name, target, pa.RecordBatchReader.from_batches(rows.schema, _one_file(first, batches)), csv)
        files.append(name)
        first = next(batches, None)
    # Deleted last, when all new files are complete.
    for path in before:
        if path not in files and is_part_name(path):
            store.delete(path)
    return files


def _one_file(first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one file: the first one, and following ones until the file has ROWS_PER_FILE rows."""
    taken = 0
    batch = first
    while batch is not None:
        taken += len(batch)
        yield batch
        # The size is tested first: a batch that was taken from the iterator has to be written to this file.
        batch = next(rest, None) if taken < ROWS_PER_FILE else None
