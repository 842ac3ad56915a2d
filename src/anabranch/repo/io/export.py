"""Write the rows of one table of a snapshot to files, or to a plain Lance dataset."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.errors import ObjectExistsError
from anabranch.files.formats import CsvOptions, FileFormat, checked_format
from anabranch.files.writer import Target, is_part_name, write_file
from anabranch.format import staging
from anabranch.format.arguments import checked_limit
from anabranch.format.plain_tables import write_plain_dataset
from anabranch.repo.io.values import ExportReport
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.storage import ObjectStore
from anabranch.storage.requests import OnProgress, Progress

ROWS_PER_FILE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The options of `Repository.export` as the caller passed them. `export` checks them."""

    format: str | None
    columns: Sequence[str] | None
    where: str | None
    limit: int | None
    single_file: bool
    overwrite: bool
    csv: CsvOptions
    storage_options: Mapping[str, str]
    progress: OnProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rows and columns of a table to export."""

    columns: Sequence[str] | None = None
    where: str | None = None
    limit: int | None = None


def export(snapshot: Snapshot, key: str, target: str | os.PathLike[str], options: ExportOptions) -> ExportReport:
    """Check the options of an export and write the rows of a table to its target."""
    parsed = Target.parse(
        target,
        format=None if options.format is None else checked_format(options.format),
        single_file=options.single_file,
        storage_options=options.storage_options,
    )
    limit = checked_limit(options.limit, "rows")
    selection = Selection(columns=options.columns, where=options.where, limit=limit)
    return export_table(
        snapshot,
        key,
        parsed,
        selection,
        overwrite=options.overwrite,
        csv=options.csv.for_file(parsed.uri),
        progress=options.progress,
    )


def export_table(  # noqa: PLR0913 - the options of one export
    snapshot: Snapshot,
    key: str,
    target: Target,
    selection: Selection,
    *,
    overwrite: bool,
    csv: CsvOptions,
    progress: OnProgress,
) -> ExportReport:
    """Write the rows of one table. Raise ObjectExistsError if the target exists and `overwrite` is False."""
    table = snapshot[key]
    rows = _open_rows(table, selection, progress)
    if target.format is FileFormat.LANCE:
        written = write_plain_dataset(target.uri, target.storage_options, rows, overwrite=overwrite)
        return _report(snapshot, table, target, (target.uri,), rows=written, size=0)
    store, path = target.location()
    counted = [0]
    if target.is_folder:
        files = _write_folder(store, target, rows, csv, counted, overwrite=overwrite)
    else:
        files = [path]
        # Before the write: a refused export must not read the whole table first.
        if not overwrite and store.find_info(path) is not None:
            raise ObjectExistsError(
                f"the file {target.uri!r} already exists", hint="name another file, or pass `overwrite=True`"
            )
        write_file(store, path, target, _reader(rows.schema, _counting(rows, counted)), csv)
    size = sum(store.head(name).size for name in files)
    return _report(snapshot, table, target, tuple(target.uri_of(name) for name in files), rows=counted[0], size=size)


def _write_folder(
    store: ObjectStore,
    target: Target,
    rows: pa.RecordBatchReader,
    csv: CsvOptions,
    counted: list[int],
    *,
    overwrite: bool,
) -> list[str]:
    """Write files of about ROWS_PER_FILE rows each, then delete the remaining files of an older export.

    Other files in the folder are kept.
    """
    before = [info.path for info in store.list()]
    if before and not overwrite:
        raise ObjectExistsError(
            f"the folder {target.uri!r} is not empty", hint="name another folder, or pass `overwrite=True`"
        )
    batches = _counting(rows, counted)
    files: list[str] = []
    first = next(batches, None)
    # Without rows there is one file as well, so that a reader finds the columns.
    while first is not None or not files:
        name = target.name_of(len(files))
        write_file(store, name, target, _reader(rows.schema, _one_file(first, batches)), csv)
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


def _open_rows(table: Table, selection: Selection, progress: OnProgress) -> pa.RecordBatchReader:
    """Return a reader of the selected rows, without notes of the repository, that reports progress."""
    columns = selection.columns
    batches = table.scan(columns=columns, where=selection.where, limit=selection.limit)
    schema = table.schema if columns is None else pa.schema([table.schema.field(name) for name in columns])
    # With a predicate this is only an upper bound: an exact count would scan the table twice.
    total = table.count_rows() if selection.limit is None else min(table.count_rows(), selection.limit)

    def reported() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in batches:
            yield batch
            # Counted when the writer asks for the next batch, so this one is written.
            done += len(batch)
            progress(Progress(stage="rows", done=done, total=total, rows=done))

    # Descriptions and defaults do not belong to a file: a table that is made from it would get them.
    return _reader(staging.without_own_notes(schema), reported())


def _reader(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema, batches)


def _counting(rows: pa.RecordBatchReader, counted: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a reader and add their rows to `counted[0]`."""
    for batch in rows:
        counted[0] += len(batch)
        yield batch


def _report(
    snapshot: Snapshot, table: Table, target: Target, files: tuple[str, ...], *, rows: int, size: int
) -> ExportReport:
    return ExportReport(
        table=table.key,
        commit_id=snapshot.id,
        format=target.format.value,
        files=files,
        rows=rows,
        bytes_written=size,
    )
