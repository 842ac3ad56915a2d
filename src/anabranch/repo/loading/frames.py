"""Load rows that are no files: what Arrow can read, and DataFrames of Spark."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidInputError, MissingDependencyError
from anabranch.format.staging.incoming import as_reader
from anabranch.repo.engine import Loader
from anabranch.repo.loading.values import Choice, FrameRequest, Loaded, LoadMode
from anabranch.repo.transaction import Transaction

__all__ = ["load_frame"]


def load_frame(
    tx: Transaction, request: FrameRequest, frame: Any, *, find_loader: Callable[[], Loader | None]
) -> tuple[Loaded, Choice]:
    """Take the rows of a frame into a transaction."""
    if type(frame).__module__.startswith("pyspark."):
        return _load_spark(tx, request, frame, find_loader()), Choice.SPARK
    counted = [0]
    reader = _counted(as_reader(frame), counted)
    if request.key not in tx:
        tx.create_table(request.key, request.schema or reader.schema, primary_key=request.primary_key or ())
    match request.mode:
        case LoadMode.APPEND:
            tx.append(request.key, reader)
        case LoadMode.UPSERT:
            tx.upsert(request.key, reader)
        case LoadMode.OVERWRITE:
            tx.overwrite(request.key, reader)
    return _loaded(counted[0]), Choice.LOCAL


def _load_spark(tx: Transaction, request: FrameRequest, frame: Any, loader: Loader | None) -> Loaded:
    if loader is None:
        raise MissingDependencyError("PySpark is not installed", hint="pip install 'anabranch[spark]'")
    schema = loader.columns_of(frame)
    if request.key in tx:
        draft = tx.prepare(request.key)
    else:
        draft = tx.prepare_new(request.key, request.schema or schema, primary_key=request.primary_key or ())
    if request.mode is LoadMode.UPSERT and not draft.primary_key:
        raise InvalidInputError(f"table '{request.key}' has no primary key", hint="append the rows")
    overwrites = request.mode is LoadMode.OVERWRITE
    columns = (request.schema or schema) if overwrites else draft.pin.schema
    written = loader.write_frame(frame, draft.pin, columns, for_overwrite=overwrites)
    match request.mode:
        case LoadMode.APPEND:
            tx.append_fragments(draft, written.fragments)
        case LoadMode.UPSERT:
            tx.upsert_fragments(draft, written.fragments, columns=schema.names)
        case LoadMode.OVERWRITE:
            tx.overwrite_fragments(draft, written.fragments, schema=columns)
    return _loaded(sum(fragment.rows for fragment in written.fragments))


def _counted(reader: pa.RecordBatchReader, counted: list[int]) -> pa.RecordBatchReader:
    def batches() -> Any:
        for batch in reader:
            counted[0] += len(batch)
            yield batch

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _loaded(rows: int) -> Loaded:
    return Loaded(rows_read=rows, rows_loaded=rows)
