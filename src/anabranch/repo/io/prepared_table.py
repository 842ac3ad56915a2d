"""The common steps of loads and other writes: requests and reports, the prepared table, and staging of written rows.

Every write that hands data files to a transaction begins with `prepare_table`: loads of files and frames, the writers,
streams and statements of Spark, and pipelines. It ends with `stage_fragments`, except statements of Spark that also
remove rows by their addresses (`TableWrites.replace_fragments`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from anabranch.column_types import show_type, to_arrow
from anabranch.errors import InvalidInputError, SchemaMismatchError, TableNotFoundError
from anabranch.files.records import BadRecord
from anabranch.files.rows import Reading
from anabranch.files.sources import SourceFile
from anabranch.format import scan, staging
from anabranch.format.staging import VersionRef, WrittenFragment
from anabranch.repo.history.comparer import Choice
from anabranch.repo.log.entries import GraphCommit
from anabranch.repo.runs.engine_access import table_writes
from anabranch.repo.snapshot import Table
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.staged_table import StagedTable
from anabranch.storage.requests import OnProgress


class LoadMode(StrEnum):
    """What a load does with the existing rows of the table."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    UPSERT = "upsert"


class OnBad(StrEnum):
    """What a load does with a record that cannot be parsed."""

    FAIL = "fail"
    REJECT = "reject"


class OnDuplicate(StrEnum):
    """What a load does with rows of the source that have the same primary key."""

    REFUSE = "refuse"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """A load into one table, with checked options. `files` is empty for a load of a frame.

    `schema` has all columns of the table, `types` only some of them. At most one of the two is set.
    """

    key: str
    mode: LoadMode
    schema: pa.Schema | None = None
    types: pa.Schema | None = None
    primary_key: tuple[str, ...] | None = None
    on_duplicate: OnDuplicate = OnDuplicate.REFUSE
    on_bad: OnBad = OnBad.FAIL
    files: tuple[SourceFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTask:
    """The part of a load that an engine runs: write the rows of files as data files next to one version of a table.

    Rows are written in `schema`. A record without a value in a `required` column is a bad record.
    """

    version_ref: VersionRef
    schema: pa.Schema
    required: tuple[str, ...]
    files: tuple[SourceFile, ...]
    reading: Reading
    for_overwrite: bool
    stops_at_bad: bool

    @property
    def parsed_schema(self) -> pa.Schema:
        """Return the schema for parsing: like `schema`, but required columns are not nullable."""
        fields = [
            field.with_nullable(nullable=False) if field.name in self.required else field for field in self.schema
        ]
        return pa.schema(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows:
    """The data files that an engine wrote, in the order of the source files, and the bad records."""

    fragments: tuple[WrittenFragment, ...]
    rows_read: int
    bad: tuple[BadRecord, ...]


class Loader(Protocol):
    """An engine that writes rows as data files on many machines. It publishes nothing."""

    def write(self, task: LoadTask, *, progress: OnProgress) -> WrittenRows:
        """Write the rows of the files of a task."""

    def write_frame(
        self, frame: Any, version_ref: VersionRef, schema: pa.Schema, *, for_overwrite: bool
    ) -> WrittenRows:
        """Write the rows of a DataFrame of this engine."""

    def columns_of(self, frame: Any, existing: pa.Schema | None) -> pa.Schema:
        """Return the schema of a table made from a DataFrame. Types that the engine does not have are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Row counts of a load that is staged in a transaction, and whether it creates the table."""

    rows_read: int
    rows_loaded: int
    rows_rejected: int = 0
    rows_repeated: int = 0
    created: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """Result of a load. `commit_id` is None if the load changed nothing, `created` is True if it made the table."""

    table: str
    branch: str
    mode: LoadMode
    format: str
    engine: Choice
    files: tuple[str, ...]
    rows_read: int
    rows_loaded: int
    rows_rejected: int
    rows_repeated: int
    reject_table: str | None
    commit_id: str | None
    created: bool

    @classmethod
    def of(
        cls, request: LoadRequest, loaded: Loaded, *, branch: str, engine: Choice, commit: GraphCommit | None
    ) -> "LoadReport":
        """Build the report for a request after its transaction was published."""
        files = request.files
        return cls(
            table=request.key,
            branch=branch,
            mode=request.mode,
            format=files[0].format.value if files else "frame",
            engine=engine,
            files=tuple(file.uri for file in files),
            reject_table=reject_table_of(request.key) if loaded.rows_rejected else None,
            commit_id=None if commit is None else commit.graph_commit_id,
            **asdict(loaded),
        )


def reject_table_of(key: str) -> str:
    """Return the key of the table that stores the rejected records of a table."""
    return f"{key}_rejects"


def checked_schema(given: object) -> tuple[pa.Schema | None, pa.Schema | None]:
    """Return (schema, None) for a schema and (None, types) for a mapping of some columns to types."""
    if given is None or isinstance(given, pa.Schema):
        return given, None
    if isinstance(given, Mapping):
        fields = [
            (name, kind if isinstance(kind, pa.DataType) else to_arrow(str(kind))) for name, kind in given.items()
        ]
        return None, pa.schema(fields)
    hint = "pass for example `schema={'id': 'int64'}`"
    raise InvalidInputError(f"schema must be a pyarrow.Schema or a dict of column types, got {given!r}", hint=hint)


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
    new_schema: Callable[[], pa.Schema] | None = None,
    must_be_new: bool = False,
) -> StagedTable:
    """Prepare a table for a write. The transaction does not change before the written rows are staged.

    If the table does not exist, it will be created with `new_schema` and the primary key; without `new_schema`, raise
    TableNotFoundError. With `must_be_new`, raise TableExistsError if it exists. Raise InvalidInputError if the table
    has another primary key than the given one, or none and the write is an upsert.
    """
    if new_schema is not None and (must_be_new or key not in tx):
        prepared = table_writes(tx).prepare_new(key, new_schema(), primary_key=primary_key or ())
    else:
        prepared = table_writes(tx).prepare(key)
        _check_same_key(prepared, primary_key)
    if mode is LoadMode.UPSERT:
        _check_has_key(prepared, "an upsert")
    return prepared


def prepare_request(tx: Transaction, request: LoadRequest, table: Table | None, new_schema: pa.Schema) -> StagedTable:
    """Prepare the table of a load, which is created with `new_schema` if it does not exist."""
    # An overwrite may change the types of the columns.
    if table is not None and request.mode is not LoadMode.OVERWRITE:
        check_types(request, table.schema)
    prepared = prepare_table(
        tx, request.key, mode=request.mode, primary_key=request.primary_key, new_schema=lambda: new_schema
    )
    if request.on_duplicate is OnDuplicate.LAST:
        _check_has_key(prepared, "on_duplicate='last'")
    return prepared


def _check_has_key(prepared: StagedTable, option: str) -> None:
    if not prepared.primary_key:
        hint = "append the rows without it, or create the table with `primary_key=['COLUMN']`"
        raise InvalidInputError(f"table '{prepared.key}' has no primary key, which {option} needs", hint=hint)


def _check_same_key(prepared: StagedTable, given: Sequence[str] | None) -> None:
    if given is None or tuple(given) == prepared.primary_key:
        return
    found, wanted = (", ".join(names) or "no columns" for names in (prepared.primary_key, given))
    hint = "leave `primary_key` out, or change the key with `set_primary_key()`"
    raise InvalidInputError(f"the primary key of '{prepared.key}' is {found}, not {wanted}", hint=hint)


def check_types(request: LoadRequest, existing: pa.Schema) -> None:
    """Raise SchemaMismatchError if the request gives a column another type than the existing table."""
    for field in (*(request.schema or ()), *(request.types or ())):
        if field.name not in existing.names:
            problem = f"table '{request.key}' has no column {field.name!r}, but a type is given for it"
            raise SchemaMismatchError(problem, hint="leave the column out of `schema`, or add it to the table first")
        found = existing.field(field.name).type
        if found != field.type:
            raise SchemaMismatchError(
                f"column {field.name!r} of '{request.key}' has type {show_type(found)}, not {show_type(field.type)}",
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
    tx: Transaction, request: LoadRequest, prepared: StagedTable, written: Sequence[WrittenFragment], schema: pa.Schema
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


def keep_last(
    prepared: StagedTable, fragments: Sequence[WrittenFragment], *, overwrites: pa.Schema | None
) -> tuple[tuple[WrittenFragment, ...], int]:
    """Keep the last written row of each key. Return the data files and the number of dropped rows.

    If rows are dropped, the others are written again to new files. `overwrites` is the schema of an overwrite, or None.
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
    # The data files are in the order of the source files, also if many workers wrote them: the last position wins.
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
