"""Load rows from objects in memory: everything that Arrow can read, Python values, and Spark DataFrames."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import MissingDependencyError
from anabranch.format import staging
from anabranch.format.staging import WrittenFragment
from anabranch.format.staging.incoming import as_reader, fit_rows, require_columns
from anabranch.format.staging.python_rows import has_own_types
from anabranch.repo.history.comparer import Choice
from anabranch.repo.io.duplicates import keep_last
from anabranch.repo.io.target import check_types, find_table, prepare_table, stage_fragments
from anabranch.repo.io.values import FrameRequest, Loaded, Loader, LoadMode, OnDuplicate
from anabranch.repo.snapshot import Table
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.staged_table import StagedTable

__all__ = ["load_frame"]


def load_frame(
    tx: Transaction, request: FrameRequest, frame: Any, *, find_loader: Callable[[], Loader | None]
) -> tuple[Loaded, Choice]:
    """Write the rows of a frame and stage them in a transaction. Return the row counts and the engine that was used."""
    overwrites = request.mode is LoadMode.OVERWRITE
    table = find_table(tx, request.key)
    if type(frame).__module__.startswith("pyspark."):
        loader = find_loader()
        if loader is None:
            raise MissingDependencyError("PySpark is not installed", hint="pip install 'anabranch[spark]'")
        given = loader.columns_of(frame)
        new_schema = _new_schema(request, given)
        prepared = _prepare(tx, request, table, new_schema)
        columns = new_schema if overwrites else prepared.version_ref.schema
        fragments = loader.write_frame(frame, prepared.version_ref, columns, for_overwrite=overwrites).fragments
        return _stage(tx, request, prepared, fragments, columns if overwrites else given), Choice.SPARK
    known = _known_schema(request, table)
    reader = as_reader(frame, known)
    new_schema = _new_schema(request, reader.schema if has_own_types(frame) or known is None else known)
    prepared = _prepare(tx, request, table, new_schema)
    if overwrites and new_schema is not reader.schema:
        fitted = fit_rows(reader, new_schema)
        reader = pa.RecordBatchReader.from_batches(fitted.schema, fitted.batches)
    fragments = staging.write_fragments(prepared.version_ref, reader, for_overwrite=overwrites)
    return _stage(tx, request, prepared, fragments, reader.schema), Choice.LOCAL


def _known_schema(request: FrameRequest, table: Table | None) -> pa.Schema | None:
    """Return the columns of the table that is written, for rows of Python values. None if they are to be inferred."""
    if request.schema is not None:
        return request.schema
    return None if table is None else table.schema


def _new_schema(request: FrameRequest, given: pa.Schema) -> pa.Schema:
    """Return the schema of a table that is created from, or overwritten with, a frame of the given schema."""
    if request.schema is not None:
        return request.schema
    if request.types is None:
        return given
    require_columns(given, request.types.names)
    return pa.schema([request.types.field(f.name) if f.name in request.types.names else f for f in given])


def _prepare(tx: Transaction, request: FrameRequest, table: Table | None, new_schema: pa.Schema) -> StagedTable:
    """Prepare the table of a request, which is created with `new_schema` if it does not exist."""
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


def _stage(
    tx: Transaction, request: FrameRequest, prepared: StagedTable, written: Sequence[WrittenFragment], schema: pa.Schema
) -> Loaded:
    """Stage written rows. With on_duplicate='last', keep only the last row of each key."""
    fragments, repeated = tuple(written), 0
    if request.on_duplicate is OnDuplicate.LAST:
        overwrites = schema if request.mode is LoadMode.OVERWRITE else None
        fragments, repeated = keep_last(prepared, fragments, overwrites=overwrites)
    stage_fragments(tx, request.mode, prepared, fragments, schema)
    rows = sum(fragment.rows for fragment in fragments)
    return Loaded(rows_read=rows + repeated, rows_loaded=rows, rows_repeated=repeated)
