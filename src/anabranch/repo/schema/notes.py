"""Notes of tables and columns, for what an Arrow schema cannot hold: descriptions, defaults and declared indices.

A declared index is noted at its column, because Lance cannot build an index on a table without rows. The note keeps the
declaration, and follows the column when it is renamed.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import CorruptError
from anabranch.format.staging import DEFAULT, DESCRIPTION, IndexKind
from anabranch.repo.schema.state import Column, Index, TableSchema
from anabranch.repo.schema.types import show_type

__all__ = ["notes_of_column", "notes_of_table", "read_column", "read_description", "read_declared_indices"]

_INDICES = "anabranch:indices"
_SETTINGS = ("name", "metric", "num_partitions", "num_sub_vectors")


def notes_of_table(table: TableSchema) -> dict[str, str | None]:
    return {DESCRIPTION: table.description}


def notes_of_column(column: Column, indices: Sequence[Index]) -> dict[str, str | None]:
    """Return all notes of a column. None removes a note."""
    declared = [_write_index(index) for index in indices if index.column == column.name]
    return {
        DESCRIPTION: column.description,
        DEFAULT: column.default,
        _INDICES: json.dumps(declared) if declared else None,
    }


def read_column(field: pa.Field) -> Column:
    """Return a column of a schema from an Arrow field and its notes."""
    return Column(
        name=field.name,
        type=show_type(field.type),
        nullable=field.nullable,
        default=_find(field.metadata, DEFAULT),
        description=_find(field.metadata, DESCRIPTION),
    )


def read_description(schema: pa.Schema) -> str | None:
    return _find(schema.metadata, DESCRIPTION)


def read_declared_indices(field: pa.Field) -> list[Index]:
    """Return the declared indices of a column. Raise CorruptError if the note is not valid."""
    text = _find(field.metadata, _INDICES)
    try:
        return [] if text is None else [_read_index(field.name, document) for document in json.loads(text)]
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as err:
        raise CorruptError(
            f"the note about indices of column {field.name!r} cannot be read: {text!r:.200}",
            hint="write it again with schema apply, or remove it with annotate()",
        ) from err


def _write_index(index: Index) -> dict[str, Any]:
    settings = {name: getattr(index, name) for name in _SETTINGS}
    # Notes have Lance's spelling of the kind, so that the note of an index that was declared before does not differ.
    return {"type": index.kind.value.upper(), **{name: value for name, value in settings.items() if value is not None}}


def _read_index(column: str, document: Mapping[str, Any]) -> Index:
    settings = {name: document.get(name) for name in _SETTINGS}
    return Index(column=column, kind=IndexKind(document["type"]), **settings)


def _find(metadata: Mapping[bytes, bytes] | None, name: str) -> str | None:
    found = (metadata or {}).get(name.encode())
    return None if found is None else found.decode(errors="replace")
