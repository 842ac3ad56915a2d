"""What is noted beside a table and its columns, in the metadata of the Arrow schema; no data is written for it."""

import json
from collections.abc import Mapping
from dataclasses import replace

import lance
import pyarrow as pa

from anabranch.format.arguments import unknown_column
from anabranch.format.layout.messages import Field, FieldMetadata
from anabranch.format.staging.fields import FieldTree, StoredField
from anabranch.format.staging.version_ref import VersionRef, stage

__all__ = [
    "COLUMN_ID",
    "DESCRIPTION",
    "NOT_NULL",
    "Notes",
    "annotate",
    "find_note",
    "keep_notes",
    "notes_of",
    "with_metadata_of",
    "with_note",
    "without_own_notes",
]

# Names and texts; None removes a name.
Notes = Mapping[str, str | None]

DESCRIPTION = "anabranch:description"
# The identity of a column, see column_ids.py.
COLUMN_ID = "anabranch:column-id"
# Noted in the virtual base of a merge, which is never published: the column takes no nulls, but has them where the
# bases disagree.
NOT_NULL = "anabranch:not-null"

_OWN = "anabranch:"
# These describe how values are stored or typed, so they do not apply to another column.
_TIED_TO_THE_TYPE = ("lance-encoding:", "ARROW:")
# Metadata that Lance, Arrow and pandas write, and that only merges read. Everything else is a note.
_RESERVED = (b"lance", b"ARROW:", b"PARQUET:", b"pandas", COLUMN_ID.encode(), NOT_NULL.encode())


def annotate(version_ref: VersionRef, notes: Notes, *, columns: Mapping[str, Notes]) -> VersionRef:
    """Stage other metadata of the table and of top-level columns; what is not named stays. The rows are as before."""
    dataset = version_ref.open()
    before = FieldTree.of(dataset.lance_schema)
    after = replace(before, metadata=_table_metadata(before.metadata, notes))
    for name, changes in columns.items():
        field = before.find(name)
        if field is None:
            raise unknown_column(name, [f.name for f in before.top_level()])
        after = after.replaced(_noted(field, changes))
    if after == before:
        return version_ref
    return stage(dataset, version_ref, lance.LanceOperation.Project(after.to_lance()))


def keep_notes(staged: VersionRef, *, of: VersionRef) -> VersionRef:
    """Stage the notes of another version, for the columns that still exist by name.

    Notes of the new version stay, apart from our own. If a column has another type, our own notes are not kept, apart
    from the description: a default or an index may not fit it.
    """
    before, after = of.schema, staged.schema
    columns: dict[str, dict[str, str]] = {}
    for field in before:
        if field.name in after.names:
            other = after.field(field.name)
            kept = _kept_notes(field.metadata, other.metadata)
            if other.type != field.type:
                kept = {key: text for key, text in kept.items() if key == DESCRIPTION or not key.startswith(_OWN)}
            columns[field.name] = kept
    kept = _kept_notes(before.metadata, after.metadata)
    return annotate(staged, kept, columns={name: notes for name, notes in columns.items() if notes})


def _kept_notes(before: Mapping[bytes, bytes] | None, after: Mapping[bytes, bytes] | None) -> dict[str, str]:
    new = notes_of(after)
    return {key: text for key, text in notes_of(before).items() if key.startswith(_OWN) or key not in new}


def with_metadata_of(field: StoredField, other: StoredField) -> StoredField:
    """A field with what is noted of another one, but for what belongs to that one's type."""
    return _written(field, {k: v for k, v in _read(other).items() if not k.startswith(_TIED_TO_THE_TYPE)})


def notes_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Return the notes among the metadata of a schema or a field, without reserved metadata."""
    found = (metadata or {}).items()
    return {key.decode(): text.decode() for key, text in found if not key.startswith(_RESERVED)}


def without_own_notes(schema: pa.Schema) -> pa.Schema:
    """Return a schema for other programs: without its metadata, and without our own notes of its columns."""
    return pa.schema([field.with_metadata(_other_notes(field.metadata)) for field in schema])


def _other_notes(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    # None and not an empty dict, which Arrow prints.
    return {key: text for key, text in (metadata or {}).items() if not key.startswith(_OWN.encode())} or None


def find_note(field: StoredField, name: str) -> str | None:
    found = _read(field).get(name)
    return None if found is None else found.decode()


def with_note(field: StoredField, name: str, text: str | None) -> StoredField:
    """Return a field with a note. None removes it."""
    return _noted(field, {name: text})


def _table_metadata(stored: str, notes: Notes) -> str:
    # Lance writes each value as the list of its bytes.
    found = json.loads(stored) if stored else {}
    changed = {**found, **{key: list(text.encode()) for key, text in notes.items() if text is not None}}
    kept = {key: value for key, value in changed.items() if notes.get(key, "") is not None}
    return stored if kept == found else json.dumps(kept)


def _noted(field: StoredField, notes: Notes) -> StoredField:
    found = _read(field)
    changed = {**found, **{key: text.encode() for key, text in notes.items() if text is not None}}
    kept = {key: value for key, value in changed.items() if notes.get(key, "") is not None}
    return field if kept == found else _written(field, kept)


def _written(field: StoredField, metadata: Mapping[str, bytes]) -> StoredField:
    message = Field.parse(field.message, "a field of the schema")
    message.ClearField("metadata")
    # Sorted: fields are compared by their messages, so equal notes must give equal bytes.
    message.metadata.extend(FieldMetadata(key=key, value=value) for key, value in sorted(metadata.items()))
    return replace(field, message=message.SerializeToString())


def _read(field: StoredField) -> dict[str, bytes]:
    message = Field.parse(field.message, "a field of the schema")
    return {entry.key: entry.value for entry in message.metadata}
