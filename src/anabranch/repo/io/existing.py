"""What a load finds where its rows are to go."""

import pyarrow as pa

from anabranch.errors import InvalidInputError, SchemaMismatchError, TableNotFoundError
from anabranch.repo.io.values import FrameRequest, LoadRequest
from anabranch.repo.snapshot import Table
from anabranch.repo.transaction import Transaction

__all__ = ["find_table", "refuse_other_types"]


def find_table(tx: Transaction, request: LoadRequest | FrameRequest) -> Table | None:
    """The table, if it is there; refuse another primary key than its own."""
    try:
        table = tx[request.key]
    except TableNotFoundError:
        return None
    if request.primary_key is not None and request.primary_key != table.primary_key:
        found = ", ".join(table.primary_key) or "no columns"
        raise InvalidInputError(
            f"the primary key of '{request.key}' is {found}, not {', '.join(request.primary_key) or 'none'}",
            hint="leave the primary key out",
        )
    return table


def refuse_other_types(request: LoadRequest | FrameRequest, existing: pa.Schema) -> None:
    """Refuse types that are given for columns of a table that has others."""
    for field in (*(request.schema or ()), *(request.types or ())):
        if field.name not in existing.names or existing.field(field.name).type != field.type:
            found = existing.field(field.name).type if field.name in existing.names else "not there"
            raise SchemaMismatchError(
                f"column {field.name!r} of '{request.key}' is {found}, not {field.type}",
                hint="leave the type out, or change the table first",
            )
