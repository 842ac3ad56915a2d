"""The table that a load writes to: find it, check it against the request, and stage the written rows in it."""

from collections.abc import Sequence

import pyarrow as pa

from anabranch.errors import InvalidInputError, SchemaMismatchError, TableNotFoundError
from anabranch.format.staging import WrittenFragment
from anabranch.repo.io.values import FrameRequest, LoadMode, LoadRequest
from anabranch.repo.snapshot import Table
from anabranch.repo.transaction import Transaction, table_writes
from anabranch.repo.write.staged_table import StagedTable

__all__ = ["check_types", "find_table", "stage_fragments"]


def find_table(tx: Transaction, request: LoadRequest | FrameRequest) -> Table | None:
    """Return the table of a request, or None if it does not exist.

    Raise InvalidInputError if the request has another primary key than the table.
    """
    try:
        table = tx[request.key]
    except TableNotFoundError:
        return None
    if request.primary_key is not None and request.primary_key != table.primary_key:
        found = ", ".join(table.primary_key) or "no columns"
        given = ", ".join(request.primary_key) or "no columns"
        raise InvalidInputError(
            f"the primary key of '{request.key}' is {found}, not {given}",
            hint="leave primary_key out, or change it with set_primary_key()",
        )
    return table


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
