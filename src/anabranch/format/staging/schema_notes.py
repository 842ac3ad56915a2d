"""The notes of a table and its columns, in the metadata of the Arrow schema. No data is written for them.

One of the notes is the identity of a column, which renames, new types and rewritten files do not change. A column of a
new table is identified by its Lance field id and its name. This alone is not enough later on: Lance uses the id of a
dropped column again, two branches give the same id to different columns, and an overwrite numbers the columns by
position. So a column gets a note with its identity as soon as these two no longer identify it: if it is renamed, if it
gets another field id, or if it is added to an existing table. The note is metadata of the field. Lance keeps it in
updates and compactions, and merges copy it with the field.

If both sides of a merge added a column of the same name, the merged column has the identities of both. So it is
recognized on every branch that has one of the two.

An identity ends with a colon and the first name of the column.

A column without the note that external writers or earlier releases renamed is not recognized by its identity.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar
from uuid import uuid4

import lance
import pyarrow as pa

from anabranch.format.home import VersionRef
from anabranch.format.layout.messages import Field, FieldMetadata
from anabranch.format.staging.fields import FieldTree, StoredField
from anabranch.format.staging.manifests import stage

_T = TypeVar("_T")

# Names and texts; None removes a name.
Notes = Mapping[str, str | None]

DESCRIPTION = "anabranch:description"
# The identity of a column.
COLUMN_ID = "anabranch:column-id"
# A note in the virtual base of a merge, which is never published: the column does not allow nulls, but has them where
# the bases disagree.
NOT_NULL = "anabranch:not-null"
# The indices of a column that could not be built yet.
WANTED_INDICES = "anabranch:wanted-indices"
# Columns that are given with rows may be those of a table with wanted indices, which are not indices of another table.
_NO_INDICES: Mapping[str, str | None] = {WANTED_INDICES: None}

_OWN = "anabranch:"
# These describe how values are stored or typed, so they do not apply to another column.
_TIED_TO_THE_TYPE = ("lance-encoding:", "ARROW:")
# Metadata that Lance, Arrow and pandas write, and that only merges read. Everything else is a note.
_RESERVED = (b"lance", b"ARROW:", b"PARQUET:", b"pandas", *(x.encode() for x in (COLUMN_ID, NOT_NULL, WANTED_INDICES)))


def annotate(version_ref: VersionRef, notes: Notes, *, columns: Mapping[str, Notes]) -> VersionRef:
    """Stage changed metadata of the table and of top-level columns. Other metadata and the rows do not change."""
    dataset = version_ref.open()
    before = FieldTree.of(dataset.lance_schema)
    after = replace(before, metadata=_table_metadata(before.metadata, notes))
    for name, changes in columns.items():
        after = after.replaced(_noted(before.get(name), changes))
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
    """Return a field with the notes of another one, except those that belong to the other's type."""
    return _written(field, {k: v for k, v in _read(other).items() if not k.startswith(_TIED_TO_THE_TYPE)})


def notes_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Return the notes among the metadata of a schema or a field, without reserved metadata."""
    found = (metadata or {}).items()
    return {key.decode(): text.decode() for key, text in found if not key.startswith(_RESERVED)}


def without_own_notes(schema: pa.Schema) -> pa.Schema:
    """Return a schema for other programs: without its metadata, and without our own notes of its columns."""
    return pa.schema([_without(field, (_OWN.encode(),)) for field in schema])


def _without(field: pa.Field, prefixes: tuple[bytes, ...]) -> pa.Field:
    kept = {key: text for key, text in (field.metadata or {}).items() if not key.startswith(prefixes)}
    return field.with_metadata(kept or None)  # None and not an empty dict, which Arrow prints


def _table_metadata(stored: str, notes: Notes) -> str:
    # Lance writes each value as the list of its bytes.
    found = json.loads(stored) if stored else {}
    kept = _changed_notes(found, notes, lambda text: list(text.encode()))
    return stored if kept == found else json.dumps(kept)


def _noted(field: StoredField, notes: Notes) -> StoredField:
    found = _read(field)
    kept = _changed_notes(found, notes, str.encode)
    return field if kept == found else _written(field, kept)


def _changed_notes(found: Mapping[str, _T], notes: Notes, encode: Callable[[str], _T]) -> dict[str, _T]:
    changed = {**found, **{key: encode(text) for key, text in notes.items() if text is not None}}
    return {key: value for key, value in changed.items() if notes.get(key, "") is not None}


def _written(field: StoredField, metadata: Mapping[str, bytes]) -> StoredField:
    message = Field.parse(field.message, "a field of the schema")
    message.ClearField("metadata")
    # Sorted: fields are compared by their messages, so equal notes must give equal bytes.
    message.metadata.extend(FieldMetadata(key=key, value=value) for key, value in sorted(metadata.items()))
    return replace(field, message=message.SerializeToString())


def _read(field: StoredField) -> dict[str, bytes]:
    return {entry.key: entry.value for entry in Field.parse(field.message, "a field of the schema").metadata}


def read_column_ids(version_ref: VersionRef) -> dict[str, frozenset[str]]:
    """Return the identities of the top-level columns of a version by name. Most columns have one."""
    return {field.name: _ids(field) for field in FieldTree.of(version_ref.open_to_read().lance_schema).top_level()}


def column_ids_text(column_ids: Collection[str]) -> str:
    """Return identities as the text of a note: a single one as it is, several as a JSON list."""
    ordered = sorted(column_ids)
    return ordered[0] if len(ordered) == 1 else json.dumps(ordered)


def first_names(column_ids: Iterable[str]) -> set[str]:
    """Return the names that a column with these identities had at first."""
    return {column_id.partition(":")[2] for column_id in column_ids}


def columns_by_id(tree: FieldTree) -> dict[str, str]:
    """Return the names of the top-level columns by their identities, without identities that are not unique.

    A noted identity has precedence over the identity of a column without a note. They can be equal if an external
    writer used a field id again.
    """
    noted: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for field in tree.top_level():
        found = others if _find_noted(field) is None else noted
        found += [(column_id, field.name) for column_id in _ids(field)]
    # An identity that two columns have identifies neither of them, so it is left out.
    counts = Counter(column_id for column_id, _ in noted)
    found_ids = {column_id: name for column_id, name in others if column_id not in counts}
    return found_ids | {column_id: name for column_id, name in noted if counts[column_id] == 1}


def with_id_of(changed: StoredField, field: StoredField) -> StoredField:
    """Return a changed top-level field with its former identity, noted only if it would have another one otherwise."""
    column_id = _find_noted(field) or _first_id(field)
    return _noted(changed, {COLUMN_ID: None if column_id == _first_id(changed) else column_id})


def with_ids_of_added(tree: FieldTree, names: Collection[str], given: Mapping[str, str]) -> FieldTree:
    """Return the columns of a table with unique identities for the added ones.

    An added column that was copied keeps its identity, noted or given, unless another column has the same one. It does
    not keep its wanted indices.
    """
    taken = columns_by_id(replace(tree, fields=tuple(f for f in tree.top_level() if f.name not in names)))

    def identified(field: StoredField) -> StoredField:
        copied = given.get(field.name) or _find_noted(field)
        # Two columns with the same identity would make it useless for both. A copy beside its original gets a new one.
        is_new = copied is None or not taken.keys().isdisjoint(_parsed(copied))
        return _noted(field, {COLUMN_ID: _new_id(field.name) if is_new else copied, **_NO_INDICES})

    return _changed(tree, lambda field: identified(field) if field.name in names else field)


def with_ids_of_overwritten(tree: FieldTree, before: FieldTree | None) -> FieldTree:
    """Return the columns that overwrite a version. They keep the identity of the column with the same name.

    If `before` is None, all columns are new, because the table is another one. Notes of wanted indices are removed.
    """
    known = {} if before is None else {field.name: field for field in before.top_level()}

    def identified(field: StoredField) -> StoredField:
        old = known.get(field.name)
        given = _noted(field, _NO_INDICES)
        return _noted(given, {COLUMN_ID: _new_id(field.name)}) if old is None else with_id_of(given, old)

    return _changed(tree, identified)


def noted_column_ids(fields: Iterable[pa.Field]) -> dict[str, str]:
    """Return the noted identities of Arrow fields by name."""
    found = ((field.name, (field.metadata or {}).get(COLUMN_ID.encode())) for field in fields)
    return {name: noted.decode() for name, noted in found if noted is not None}


def without_column_ids(schema: pa.Schema) -> pa.Schema:
    """Return a schema without identities and wanted indices: its columns become columns of a new table."""
    hidden = COLUMN_ID.encode(), WANTED_INDICES.encode()
    fields = [_without(field, hidden) if field.metadata else field for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def _changed(tree: FieldTree, change: Callable[[StoredField], StoredField]) -> FieldTree:
    return replace(tree, fields=tuple(change(field) if field.is_top_level else field for field in tree.fields))


def _find_noted(field: StoredField) -> str | None:
    # Most columns have no note, and a search is faster than to read the message.
    found = _read(field).get(COLUMN_ID) if COLUMN_ID.encode() in field.message else None
    return None if found is None else found.decode()


def _ids(field: StoredField) -> frozenset[str]:
    noted = _find_noted(field)
    return frozenset([_first_id(field)]) if noted is None else _parsed(noted)


def _parsed(noted: str) -> frozenset[str]:
    # A single identity starts with a field id or a hex id, never with a bracket.
    return frozenset(json.loads(noted)) if noted.startswith("[") else frozenset([noted])


def _first_id(field: StoredField) -> str:
    return f"{field.id}:{field.name}"


def _new_id(name: str) -> str:
    return f"{uuid4().hex}:{name}"
