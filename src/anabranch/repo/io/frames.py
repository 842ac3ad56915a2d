"""Load rows that are no files: what Arrow can read, and DataFrames of Spark."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidInputError, MissingDependencyError
from anabranch.format import staging
from anabranch.format.staging import WrittenFragment
from anabranch.format.staging.incoming import as_reader, fit_rows, require_columns
from anabranch.repo.history.choosing import Choice
from anabranch.repo.io.duplicates import keep_last
from anabranch.repo.io.existing import find_table, refuse_other_types
from anabranch.repo.io.taking_in import take_in
from anabranch.repo.io.values import FrameRequest, Loaded, Loader, LoadMode, OnDuplicate
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.staged_table import StagedTable

__all__ = ["load_frame"]


def load_frame(
    tx: Transaction, request: FrameRequest, frame: Any, *, find_loader: Callable[[], Loader | None]
) -> tuple[Loaded, Choice]:
    """Take the rows of a frame into a transaction."""
    overwrites = request.mode is LoadMode.OVERWRITE
    if type(frame).__module__.startswith("pyspark."):
        loader = find_loader()
        if loader is None:
            raise MissingDependencyError("PySpark is not installed", hint="pip install 'anabranch[spark]'")
        given = loader.columns_of(frame)
        wanted = _wanted(request, given)
        draft = _prepare(tx, request, wanted)
        columns = wanted if overwrites else draft.pin.schema
        fragments = loader.write_frame(frame, draft.pin, columns, for_overwrite=overwrites).fragments
        return _take_in(tx, request, draft, fragments, columns if overwrites else given), Choice.SPARK
    reader = as_reader(frame)
    wanted = _wanted(request, reader.schema)
    draft = _prepare(tx, request, wanted)
    if overwrites and wanted is not reader.schema:
        fitted = fit_rows(reader, wanted)
        reader = pa.RecordBatchReader.from_batches(fitted.schema, fitted.batches)
    fragments = staging.write_fragments(draft.pin, reader, for_overwrite=overwrites)
    return _take_in(tx, request, draft, fragments, reader.schema), Choice.LOCAL


def _wanted(request: FrameRequest, given: pa.Schema) -> pa.Schema:
    """The columns of a table that is made of a frame, or gets a frame's instead of its own."""
    if request.schema is not None:
        return request.schema
    if request.types is None:
        return given
    require_columns(given, request.types.names)
    return pa.schema([request.types.field(f.name) if f.name in request.types.names else f for f in given])


def _prepare(tx: Transaction, request: FrameRequest, wanted: pa.Schema) -> StagedTable:
    table = find_table(tx, request)
    if table is None:
        draft = tx.prepare_new(request.key, wanted, primary_key=request.primary_key or ())
    else:
        if request.mode is not LoadMode.OVERWRITE:
            refuse_other_types(request, table.schema)
        draft = tx.prepare(request.key)
    needs_key = request.mode is LoadMode.UPSERT or request.on_duplicate is OnDuplicate.LAST
    if needs_key and not draft.primary_key:
        raise InvalidInputError(f"table '{request.key}' has no primary key", hint="append the rows")
    return draft


def _take_in(
    tx: Transaction, request: FrameRequest, draft: StagedTable, written: Sequence[WrittenFragment], schema: pa.Schema
) -> Loaded:
    fragments, repeated = tuple(written), 0
    if request.on_duplicate is OnDuplicate.LAST:
        overwrites = schema if request.mode is LoadMode.OVERWRITE else None
        fragments, repeated = keep_last(draft, fragments, overwrites=overwrites)
    take_in(tx, request.mode, draft, fragments, schema)
    rows = sum(fragment.rows for fragment in fragments)
    return Loaded(rows_read=rows + repeated, rows_loaded=rows, rows_repeated=repeated)
