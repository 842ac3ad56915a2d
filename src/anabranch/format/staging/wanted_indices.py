"""Indices that belong to a table but could not be built yet, because Lance builds none over no rows.

Each of them is noted with its column, so that it follows a rename and goes with the column. The first commit that
brings rows builds it and removes the note.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from anabranch.errors import CorruptError
from anabranch.format.home import VersionRef
from anabranch.format.staging.notes import WANTED_INDICES, annotate


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedIndex:
    """The definition of an index that is not built. `kind` is the value of an `IndexKind`."""

    name: str
    column: str
    kind: str
    arguments: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The definition as it is noted with the column."""
        document = {"name": self.name, "type": self.kind, "arguments": dict(self.arguments)}
        return json.dumps(document, sort_keys=True)


def read_wanted(schema: pa.Schema) -> list[WantedIndex]:
    """Return the wanted indices that are noted with the columns of a schema."""
    return [found for field in schema if field.metadata for found in _read(field)]


def _read(field: pa.Field) -> list[WantedIndex]:
    text = field.metadata.get(WANTED_INDICES.encode())
    try:
        documents = [] if text is None else json.loads(text)
        found = [
            WantedIndex(name=one["name"], column=field.name, kind=one["type"], arguments=dict(one["arguments"]))
            for one in documents
        ]
        if any(not isinstance(value, str) for index in found for value in (index.name, index.kind)):
            raise TypeError("a name or type is not text")
        return found
    # The note is metadata of a column, which any Lance tool can write.
    except (LookupError, RecursionError, TypeError, ValueError) as err:
        raise CorruptError(
            f"the note about wanted indices of column {field.name!r} cannot be read: {text!r:.200}",
            hint="remove it with `annotate()`, and build the index again",
        ) from err


def set_wanted(version_ref: VersionRef, wanted: Sequence[WantedIndex]) -> VersionRef:
    """Stage the notes of the wanted indices, instead of those that exist. Nested columns cannot have a note."""
    schema = version_ref.schema
    texts: dict[str, list[str]] = {}
    for index in wanted:
        texts.setdefault(index.column, []).append(index.text)
    noted = {index.column for index in read_wanted(schema)} | (texts.keys() & set(schema.names))
    if not noted:
        return version_ref
    notes = {name: f"[{', '.join(texts[name])}]" if name in texts else None for name in noted}
    return annotate(version_ref, {}, columns={name: {WANTED_INDICES: text} for name, text in notes.items()})
