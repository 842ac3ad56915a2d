"""Write rows of a snapshot as files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.errors import ObjectExistsError
from anabranch.files.csv_options import CsvOptions
from anabranch.files.formats import FileFormat
from anabranch.files.writing import Target, is_part_name, write_file
from anabranch.format.plain import write_plain_dataset
from anabranch.repo.io.values import ExportReport, LoadProgress, OnProgress
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.storage import ObjectStore, find_object

__all__ = ["Wanted", "export_table"]

ROWS_PER_FILE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows of a table, and which of their columns."""

    columns: Sequence[str] | None = None
    filter: str | None = None
    limit: int | None = None


def export_table(  # noqa: PLR0913 - the choices of one export
    snapshot: Snapshot,
    key: str,
    target: Target,
    wanted: Wanted,
    *,
    overwrite: bool,
    csv: CsvOptions,
    on_progress: OnProgress,
) -> ExportReport:
    """Write the rows of one table; refuse to write over what is there, unless asked to."""
    table = snapshot[key]
    rows = _rows(table, wanted, on_progress)
    if target.format is FileFormat.LANCE:
        written = write_plain_dataset(target.uri, target.storage_options, rows, overwrite=overwrite)
        return _report(snapshot, table, target, (target.uri,), rows=written, size=0)
    store, path = target.place()
    counted = [0]
    files = _write_folder(store, target, rows, csv, counted, overwrite=overwrite) if target.is_folder else [path]
    if not target.is_folder:
        _refuse_existing(store, path, target, overwrite=overwrite)
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
    """Files of about as many rows each; only what an older export left goes, after the new ones are whole."""
    before = [info.path for info in store.list()]
    if before and not overwrite:
        raise ObjectExistsError(f"the folder {target.uri!r} is not empty", hint="choose another, or overwrite it")
    batches = _counting(rows, counted)
    files: list[str] = []
    first = next(batches, None)
    while first is not None or not files:
        part = _Part(first, batches)
        name = target.name_of(len(files))
        write_file(store, name, target, _reader(rows.schema, part.take()), csv)
        files.append(name)
        first = next(batches, None)
    for path in before:
        if path not in files and is_part_name(path):
            store.delete(path)
    return files


class _Part:
    """About as many rows as one file is to have."""

    def __init__(self, first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> None:
        self._first, self._rest = first, rest

    def take(self) -> Iterator[pa.RecordBatch]:
        taken = 0
        if self._first is not None:
            taken = len(self._first)
            yield self._first
        while taken < ROWS_PER_FILE and (batch := next(self._rest, None)) is not None:
            taken += len(batch)
            yield batch


def _rows(table: Table, wanted: Wanted, on_progress: OnProgress) -> pa.RecordBatchReader:
    columns = wanted.columns
    batches = table.scan(columns=columns, filter=wanted.filter, limit=wanted.limit)
    schema = table.schema if columns is None else pa.schema([table.schema.field(name) for name in columns])
    total = table.count_rows() if wanted.limit is None else min(table.count_rows(), wanted.limit)

    def watched() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in batches:
            yield batch
            done += len(batch)
            on_progress(LoadProgress(rows=done, bytes_read=done, bytes_total=total))

    return _reader(schema.remove_metadata(), (batch.replace_schema_metadata(None) for batch in watched()))


def _reader(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema, batches)


def _counting(rows: pa.RecordBatchReader, counted: list[int]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        counted[0] += len(batch)
        yield batch


def _refuse_existing(store: ObjectStore, path: str, target: Target, *, overwrite: bool) -> None:
    if not overwrite and find_object(store, path) is not None:
        raise ObjectExistsError(f"there is a file {target.uri!r} already", hint="choose another, or overwrite it")


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
