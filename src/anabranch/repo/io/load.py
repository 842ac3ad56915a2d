"""Load rows from files or from a frame into a table, as one commit."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from anabranch.errors import InvalidInputError, MissingDependencyError
from anabranch.files.formats import CsvOptions, checked_format
from anabranch.files.rows import Reading
from anabranch.files.sources import SourceFile, find_files
from anabranch.format import staging
from anabranch.format.arrow_types import has_own_types
from anabranch.format.staging.incoming import as_reader, fit_rows, require_columns
from anabranch.ids import TableKey, checked_text
from anabranch.repo.history.comparer import Choice
from anabranch.repo.io.load_steps import (
    find_table,
    load_files,
    prepare_request,
    stage_rows,
    write_rows,
)
from anabranch.repo.io.values import (
    FrameRequest,
    Loaded,
    Loader,
    LoadMode,
    LoadReport,
    LoadRequest,
    OnBad,
    OnDuplicate,
    checked_key,
    checked_schema,
)
from anabranch.repo.log.validation import checked_choice
from anabranch.repo.transaction import Transaction
from anabranch.storage.requests import OnProgress


def load_frame(
    tx: Transaction, request: FrameRequest, frame: Any, *, find_loader: Callable[[], Loader | None]
) -> tuple[Loaded, Choice]:
    """Write the rows of a frame and stage them in a transaction. Return the row counts and the engine that was used."""
    overwrites = request.mode is LoadMode.OVERWRITE
    table = find_table(tx, request.key)
    # By the name of the module: PySpark may not be installed, and importing it takes long.
    if type(frame).__module__.startswith("pyspark."):
        loader = find_loader()
        if loader is None:
            raise MissingDependencyError("PySpark is not installed", hint="pip install 'anabranch[spark]'")
        given = loader.columns_of(frame, None if table is None else table.version_ref.schema)
        new_schema = _new_schema(request, given)
        prepared = prepare_request(tx, request, table, new_schema)
        columns = new_schema if overwrites else prepared.version_ref.schema
        fragments = loader.write_frame(frame, prepared.version_ref, columns, for_overwrite=overwrites).fragments
        loaded = stage_rows(tx, request, prepared, fragments, columns if overwrites else given)
        return replace(loaded, created=table is None), Choice.SPARK
    # Rows of Python values do not have types. Those of the table are used, so that an inferred type does not conflict.
    known = request.schema if request.schema is not None or table is None else table.schema
    reader = as_reader(frame, known)
    new_schema = _new_schema(request, reader.schema if has_own_types(frame) or known is None else known)
    prepared = prepare_request(tx, request, table, new_schema)
    # The new data files define the table, so they need the types of the requested schema, not of the frame. This also
    # refuses repeated columns, and nulls in columns that take none.
    if overwrites:
        fitted = fit_rows(reader, new_schema)
        reader = pa.RecordBatchReader.from_batches(fitted.schema, fitted.batches)
    fragments = staging.write_fragments(prepared.version_ref, reader, for_overwrite=overwrites)
    loaded = stage_rows(tx, request, prepared, fragments, reader.schema)
    return replace(loaded, created=table is None), Choice.LOCAL


def _new_schema(request: FrameRequest, given: pa.Schema) -> pa.Schema:
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


# Starting Spark takes seconds. Files of this size and above take longer than that to load in one process.
_SPARK_FROM_BYTES = 2 << 30

Begin = Callable[[str], Transaction]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The options of `Repository.load` as the caller passed them. `load` checks them."""

    format: str | None
    mode: str
    schema: pa.Schema | Mapping[str, Any] | None
    primary_key: Sequence[str] | None
    csv: CsvOptions
    on_bad: str
    on_duplicate: str
    engine: str
    message: str | None
    storage_options: Mapping[str, str]
    progress: OnProgress


def load(
    begin: Begin, key: str, source: Any, options: LoadOptions, *, find_loader: Callable[[], Loader | None]
) -> LoadReport:
    """Load a source into a table and report what was loaded.

    `begin` starts the transaction for a commit message. It is called after the options and the files are checked.
    """
    message = f"Load {key}" if options.message is None else checked_text(options.message)
    schema, types = checked_schema(options.schema)
    request = FrameRequest(
        key=str(TableKey.parse(key)),
        mode=checked_choice(LoadMode, options.mode, "the mode"),
        schema=schema,
        types=types,
        primary_key=checked_key(options.primary_key),
        on_duplicate=checked_choice(OnDuplicate, options.on_duplicate, "on_duplicate"),
    )
    engine = checked_choice(Choice, options.engine, "the engine")
    file_format = None if options.format is None else checked_format(options.format)
    paths = _find_paths(source)
    if paths is None:
        with begin(message) as tx:
            loaded, used = load_frame(tx, request, source, find_loader=find_loader)
        return LoadReport.of(request, loaded, branch=tx.branch, engine=used, commit=tx.published)
    files = find_files(paths, format=file_format, storage_options=options.storage_options)
    file_request = _file_request(request, files, options)
    loader = _choose_loader(engine, sum(file.size for file in files), find_loader)
    write = write_rows if loader is None else loader.write
    with begin(message) as tx:
        loaded = load_files(tx, file_request, lambda task: write(task, progress=options.progress))
    used = Choice.LOCAL if loader is None else Choice.SPARK
    return LoadReport.of(file_request, loaded, branch=tx.branch, engine=used, commit=tx.published)


def _find_paths(source: Any) -> list[str | os.PathLike[str]] | None:
    """Return the paths of a source, or None if it is a frame: a list of dicts is rows, so the items decide."""
    if isinstance(source, str | os.PathLike):
        return [source]
    if not isinstance(source, list | tuple) or not all(isinstance(item, str | os.PathLike) for item in source):
        return None
    # It may be a search that found no files, which must not empty a table.
    if not source:
        raise InvalidInputError(
            "the list to load is empty",
            hint="pass at least one file, folder or pattern; for no rows, pass an Arrow table with columns",
        )
    return list(source)


def _file_request(request: FrameRequest, files: tuple[SourceFile, ...], options: LoadOptions) -> LoadRequest:
    """Extend a request with the files and how to parse them. All files have the format of the first one."""
    csv = options.csv.for_file(files[0].path)
    # None means the columns of the table.
    names = csv.columns or (None if request.schema is None else request.schema.names)
    return LoadRequest(
        **{field.name: getattr(request, field.name) for field in fields(request)},
        files=files,
        reading=Reading(format=files[0].format, csv=csv, names=None if names is None else tuple(names)),
        on_bad=checked_choice(OnBad, options.on_bad, "on_bad"),
    )


def _choose_loader(engine: Choice, size: int, find_loader: Callable[[], Loader | None]) -> Loader | None:
    """Return the Spark loader, or None to load `size` bytes in this process."""
    if engine is Choice.LOCAL or (engine is Choice.AUTO and size < _SPARK_FROM_BYTES):
        return None
    loader = find_loader()
    # With AUTO, a large load without PySpark runs in this process: slower, but it works.
    if loader is None and engine is Choice.SPARK:
        raise MissingDependencyError("PySpark is not installed", hint="pip install 'anabranch[spark]'")
    return loader
