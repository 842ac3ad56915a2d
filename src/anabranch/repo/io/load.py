"""Load files into a table, in one transaction: find the columns, write the rows, put bad records aside."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from anabranch.errors import (
    BadRecordError,
    InvalidInputError,
    KeyConflictError,
    SchemaMismatchError,
)
from anabranch.files.records import BadRecord
from anabranch.files.rows import check_columns, find_columns
from anabranch.repo.io.duplicates import explain_repeated, keep_last
from anabranch.repo.io.existing import find_table, refuse_other_types
from anabranch.repo.io.taking_in import take_in
from anabranch.repo.io.values import (
    Loaded,
    LoadMode,
    LoadRequest,
    LoadTask,
    OnBad,
    OnDuplicate,
    WrittenRows,
    reject_table_of,
)
from anabranch.repo.snapshot import Table
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.staged_table import StagedTable

__all__ = ["REJECTS", "load_files"]

REJECTS = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)

_LONGEST_SHOWN = 200

WriteRows = Callable[[LoadTask], WrittenRows]


def load_files(tx: Transaction, request: LoadRequest, write: WriteRows) -> Loaded:
    """Take rows into a transaction; whatever goes wrong raises, and the transaction is to be forgotten."""
    table = find_table(tx, request)
    if table is not None and request.reading.names is None:
        request = replace(request, reading=replace(request.reading, names=tuple(table.schema.names)))
    schema = _target_schema(request, table)
    may_lack = request.mode is LoadMode.UPSERT and table is not None
    names = check_columns(request.files, request.reading, schema.names, may_lack=may_lack)
    schema = pa.schema([schema.field(name) for name in schema.names if name in names], metadata=schema.metadata)
    draft = _prepare(tx, request, table, schema)
    _require_key(request, draft, schema)
    task = LoadTask(
        pin=draft.pin,
        schema=schema,
        required=draft.primary_key,
        files=request.files,
        reading=request.reading,
        for_overwrite=request.mode is LoadMode.OVERWRITE,
        stops_at_bad=request.on_bad is OnBad.FAIL,
    )
    written = write(task)
    if written.bad and request.on_bad is OnBad.FAIL:
        raise _bad_record_error(written.bad)
    fragments, repeated = written.fragments, 0
    if request.on_duplicate is OnDuplicate.LAST:
        fragments, repeated = keep_last(draft, fragments, overwrites=schema if task.for_overwrite else None)
    try:
        take_in(tx, request.mode, draft, fragments, schema)
    except KeyConflictError as err:
        raise explain_repeated(err, task, draft.primary_key) from None
    _reject(tx, request.key, written.bad)
    return Loaded(
        rows_read=written.rows_read,
        rows_loaded=sum(fragment.rows for fragment in fragments),
        rows_rejected=len(written.bad),
        rows_repeated=repeated,
    )


def _target_schema(request: LoadRequest, table: Table | None) -> pa.Schema:
    """The columns that rows are to have: the table's, unless there is none or it is replaced."""
    if table is not None and (request.mode is not LoadMode.OVERWRITE or request.schema is None):
        existing: pa.Schema = table.schema
        refuse_other_types(request, existing)
        return existing
    if request.schema is not None:
        return request.schema
    types = request.types or pa.schema([])
    found = find_columns(request.files, request.reading, types)
    for name in types.names:
        if name not in found.names:
            raise SchemaMismatchError(
                f"a type is given for {name!r}, which the files do not have", hint=f"they have {', '.join(found.names)}"
            )
    return found


def _prepare(tx: Transaction, request: LoadRequest, table: Table | None, schema: pa.Schema) -> StagedTable:
    if table is not None:
        return tx.prepare(request.key)
    if not schema.names:
        raise SchemaMismatchError(
            "the files have no columns, so no table can be made of them", hint="give a schema, or check the files"
        )
    key = request.primary_key or ()
    return tx.prepare_new(request.key, schema, primary_key=key)


def _require_key(request: LoadRequest, draft: StagedTable, schema: pa.Schema) -> None:
    if request.mode is LoadMode.UPSERT and not draft.primary_key:
        raise InvalidInputError(
            f"table '{request.key}' has no primary key", hint="append the rows, or make the table with one"
        )
    if request.on_duplicate is OnDuplicate.LAST and not draft.primary_key:
        raise InvalidInputError(
            f"table '{request.key}' has no primary key by which rows could be the same", hint="leave on_duplicate out"
        )
    for name in draft.primary_key:
        if name not in schema.names:
            raise SchemaMismatchError(f"the files have no key column {name!r}", hint="add it to the files")


def _reject(tx: Transaction, key: str, bad: Sequence[BadRecord]) -> None:
    """Put bad records into the table beside, which is made when there are any."""
    if not bad:
        return
    rejects = reject_table_of(key)
    if rejects not in tx:
        tx.create_table(rejects, REJECTS)
    columns = {name: [getattr(record, name) for record in bad] for name in REJECTS.names}
    tx.append(rejects, pa.table(columns, schema=REJECTS))


def _bad_record_error(bad: Sequence[BadRecord]) -> BadRecordError:
    """The first of some bad records as an error."""
    first = bad[0]
    text = first.text if len(first.text) <= _LONGEST_SHOWN else f"{first.text[:_LONGEST_SHOWN]}…"
    more = f" (and {len(bad) - 1} more near it)" if len(bad) > 1 else ""
    return BadRecordError(
        f"{first.file}, line {first.line}: {first.reason}: {text!r}{more}",
        hint="correct it, give the columns' types by a schema, or put such lines aside with on_bad='reject'",
        details={"file": first.file, "line": first.line, "reason": first.reason},
    )
