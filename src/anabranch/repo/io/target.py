"""The table of a write: prepare it, check it against the request, and stage the written rows in it.

Every write that hands data files to a transaction begins with `prepare_table`: loads of files and frames, the writers
and streams of Spark, and pipelines.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from anabranch.errors import InvalidInputError, SchemaMismatchError, TableNotFoundError
from anabranch.format.staging import WrittenFragment
from anabranch.repo.io.values import FrameRequest, LoadMode, LoadRequest, OnDuplicate
from anabranch.repo.snapshot import Table
from anabranch.repo.transaction import Transaction, table_writes
from anabranch.repo.write.staged_table import StagedTable

__all__ = ["check_types", "find_table", "prepare_table", "stage_fragments"]


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
                hint="append the rows without it, or create the table with a primary key",
            )
    return prepared


def _check_same_key(prepared: StagedTable, given: Sequence[str] | None) -> None:
    if given is None or tuple(given) == prepared.primary_key:
        return
    found, wanted = (", ".join(names) or "no columns" for names in (prepared.primary_key, given))
    raise InvalidInputError(
        f"the primary key of '{prepared.key}' is {found}, not {wanted}",
        hint="leave the primary key out, or change it with set_primary_key()",
    )


def check_types(request: LoadRequest | FrameRequest, existing: pa.Schema) -> None:
    """Raise SchemaMismatchError if the request gives a column another type than the existing table."""
    for field in (*(request.schema or ()), *(request.types or ())):
        if field.name not in existing.names:
            raise SchemaMismatchError(
                f"table '{request.key}' has no column {field.name!r}, but a type is given for it",
                hint="leave the column out of schema, or add it to the table first",
            )
        found = existing.field(field.name).type
        if found != field.type:
            raise SchemaMismatchError(
                f"column {field.name!r} of '{request.key}' has type {found}, not {field.type}",
                hint="leave the column out of schema, or change its type with alter_columns() first",
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
