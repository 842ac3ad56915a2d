"""The table of a write: prepare it, check it against the request, and stage the written rows in it.

Every write that hands data files to a transaction begins with `prepare_table`: loads of files and frames, the writers
and streams of Spark, and pipelines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidInputError, KeyConflictError, SchemaMismatchError, TableNotFoundError
from anabranch.files.rows import Part, iter_parts
from anabranch.format import scan, staging
from anabranch.format.staging import WrittenFragment
from anabranch.repo.io.values import FrameRequest, LoadMode, LoadRequest, LoadTask, OnDuplicate
from anabranch.repo.snapshot import Table
from anabranch.repo.transaction import Transaction, table_writes
from anabranch.repo.write.staged_table import StagedTable

__all__ = ["check_types", "find_table", "keep_last", "locate_repeated_key", "prepare_table", "stage_fragments"]


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


def _check_same_key(prepared: StagedTable, given: Sequence[str] | None) -> None:
    if given is None or tuple(given) == prepared.primary_key:
        return
    found, wanted = (", ".join(names) or "no columns" for names in (prepared.primary_key, given))
    raise InvalidInputError(
        f"the primary key of '{prepared.key}' is {found}, not {wanted}",
        hint="leave `primary_key` out, or change the key with `set_primary_key()`",
    )


def check_types(request: LoadRequest | FrameRequest, existing: pa.Schema) -> None:
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
    tables = [part.table.select(keys) for part in _parts(task)]
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
    return KeyConflictError(
        f"{'1 key occurs' if len(repeated) == 1 else f'{len(repeated)} keys occur'} more than once, "
        f"such as {values}: {shown}",
        hint="keep one row for each key, or keep the last row of each key with `on_duplicate='last'`",
        details=_details(positions, values),
    )


def _find_key(task: LoadTask, key: Mapping[str, pa.Scalar]) -> list[tuple[str, int | None]]:
    """Return the file and line of each row with a key. The line is None in binary formats."""
    positions: list[tuple[str, int | None]] = []
    for part in _parts(task):
        is_match = np.ones(len(part.table), dtype=bool)
        for name, value in key.items():
            is_match &= pc.equal(part.table.column(name), value).to_numpy()
        rows = np.flatnonzero(is_match)
        lines = [None] * len(rows) if part.parsed is None else [int(part.parsed.lines[row]) for row in rows]
        positions.extend((part.file, line) for line in lines)
    return positions


def _details(positions: Sequence[tuple[str, int | None]], key: Mapping[str, object]) -> dict[str, object]:
    """Return the error details: the position of the second row of a key, because the first one is valid."""
    file, line = positions[1] if len(positions) > 1 else (None, None)
    return {"file": file, "line": line, "reason": f"the key {key} occurs more than once"}


def _parts(task: LoadTask) -> Iterator[Part]:
    return iter_parts(task.files, task.reading, task.parsed_schema)
