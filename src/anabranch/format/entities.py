"""One row found by its key."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import InvalidInputError, KeyConflictError, SchemaMismatchError
from anabranch.format.arrow_filters import Call, Column, Value, to_lance
from anabranch.format.lance_errors import lance_errors
from anabranch.format.staging.pin import Pin

__all__ = ["find_row"]


def find_row(pin: Pin, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The row that has these values in its key columns, or None; an index on one of them is used."""
    dataset = pin.open()
    wanted = {name: _typed(dataset.schema, name, value) for name, value in key.items()}
    filters = [
        to_lance(Call("equal", (Column((name,)), Value(value))), dataset.schema) for name, value in wanted.items()
    ]
    known = " AND ".join(text for text in filters if text is not None) or None
    with lance_errors(pin.home.uri, pin.home.storage_options):
        found = _match_in_arrow(dataset, wanted, known) if None in filters else dataset.to_table(filter=known, limit=2)
    if len(found) > 1:
        raise KeyConflictError(
            f"the table at {pin.home.uri!r} holds the key {dict(key)} more than once",
            hint="remove the repeated rows, or choose a key that is unique",
        )
    return found.to_pylist()[0] if len(found) else None


def _typed(schema: pa.Schema, name: str, value: Any) -> pa.Scalar:
    """A value as its column has it. What Arrow would round, cut or read as something else is refused."""
    if value is None:
        raise InvalidInputError(f"the key column {name!r} is given as None", hint="no key is null: give a value")
    if schema.get_field_index(name) < 0:
        raise SchemaMismatchError(f"there is no column {name!r}", hint=f"the columns are {', '.join(schema.names)}")
    kind = schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    try:
        typed = pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        raise _unfit(name, value, kind) from None
    if typed.as_py() != value:
        raise _unfit(name, value, kind)
    return typed


def _unfit(name: str, value: Any, kind: pa.DataType) -> InvalidInputError:
    return InvalidInputError(
        f"{value!r} is no value of the key column {name!r}, which is {kind}", hint="give one of the column's type"
    )


def _match_in_arrow(dataset: lance.LanceDataset, wanted: Mapping[str, pa.Scalar], known: str | None) -> pa.Table:
    """For values that Lance's filters cannot say for sure: read the key columns, compare, and take what is equal."""
    row_ids: list[int] = []
    scan = dataset.scanner(columns=list(wanted), filter=known, with_row_id=True)
    for batch in scan.to_batches():
        row_ids.extend(batch.column("_rowid").filter(_equal_in(batch, wanted)).to_pylist())
    if not row_ids:
        return dataset.schema.empty_table()
    return dataset._take_rows(row_ids[:2], columns=list(dataset.schema.names))


def _equal_in(batch: pa.RecordBatch, wanted: Mapping[str, pa.Scalar]) -> pa.Array:
    columns: Sequence[pa.Array] = [batch.column(name).cast(value.type) for name, value in wanted.items()]
    compared = [pc.equal(column, value) for column, value in zip(columns, wanted.values(), strict=True)]
    return functools.reduce(pc.and_, compared) if len(compared) > 1 else compared[0]
