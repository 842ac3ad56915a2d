"""The columns of a dataset, with the field ids by which data files name them.

Schemas made from Arrow number their fields again and would tie columns to other data; a changed schema is always made
from the stored fields, each as the protobuf message that Lance keeps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
from lance.schema import LanceSchema

from anabranch.column_types import show_type
from anabranch.errors import DamagedFileError, InvalidInputError, InvalidNameError
from anabranch.format.arguments import unknown_column
from anabranch.format.layout.manifest import NO_PARENT
from anabranch.format.layout.messages import Field

# The names of Lance's own columns in rows.
RESERVED = frozenset(
    {
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_distance",
        "_score",
        "_row_created_at_version",
        "_row_last_updated_at_version",
    }
)
# In errors.
_WHAT = "a field of the schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredField:
    """One column, or a part of a nested one."""

    id: int
    parent: int
    name: str
    kind: str
    nullable: bool
    message: bytes

    @classmethod
    def read(cls, message: bytes) -> "StoredField":
        found = Field.parse(message, _WHAT)
        return cls(
            id=found.id,
            parent=found.parent_id,
            name=found.name,
            kind=found.logical_type,
            nullable=found.nullable,
            message=message,
        )

    @property
    def is_top_level(self) -> bool:
        return self.parent == NO_PARENT

    def write(self) -> bytes:
        """Return the message with our values. Its other fields (encodings, metadata, key marks) are kept."""
        found = Field.parse(self.message, _WHAT)
        found.name, found.id, found.parent_id, found.nullable = self.name, self.id, self.parent, self.nullable
        return found.SerializeToString()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTree:
    """All fields of a schema, parents before their children, and the schema's metadata as Lance writes it."""

    fields: tuple[StoredField, ...]
    metadata: str

    @classmethod
    def of(cls, schema: LanceSchema) -> "FieldTree":
        # Lance has no public way to take a schema apart and put it together again but the way it is pickled.
        metadata, *messages = cast(tuple[Any, ...], schema.__reduce__()[1])
        return cls.read(messages, metadata=metadata)

    @classmethod
    def read(cls, messages: Iterable[bytes], *, metadata: str = "") -> "FieldTree":
        return _read_tree(tuple(messages), metadata)

    def to_lance(self) -> LanceSchema:
        made = LanceSchema._from_protos(self.metadata, *(field.write() for field in self.fields))
        # `_from_protos` is not public. If an upgrade of Lance changed it, columns would be tied to the wrong data.
        if FieldTree.of(made).describe() != self.describe():
            raise DamagedFileError(
                "the changed columns lost their identity", hint="this is a bug: keep the dataset, report it"
            )
        return made

    def describe(self) -> list[list[object]]:
        """Return the values that must be equal if schemas share data files: ids, names, types, nullability."""
        return [[field.id, field.parent, field.name, field.kind, field.nullable] for field in self.fields]

    def find(self, path: str) -> StoredField | None:
        """Find a field by its dotted path. A top-level name may contain dots itself."""
        top = self._find_child(NO_PARENT, path)
        if top is not None or "." not in path:
            return top
        parent_path, _, name = path.rpartition(".")
        parent = self.find(parent_path)
        return None if parent is None else self._find_child(parent.id, name)

    def _find_child(self, parent: int, name: str) -> StoredField | None:
        return next((f for f in self.fields if f.parent == parent and f.name == name), None)

    def get(self, path: str) -> StoredField:
        """Return a field by its dotted path. Raise SchemaMismatchError if it does not exist."""
        field = self.find(path)
        if field is None:
            raise unknown_column(path, [field.name for field in self.top_level()])
        return field

    def family(self, field: StoredField) -> frozenset[int]:
        """Return the ids of a field and of all fields below it."""
        # Parents come before their children, so that one pass finds all levels.
        ids = {field.id}
        for candidate in self.fields:
            if candidate.parent in ids:
                ids.add(candidate.id)
        return frozenset(ids)

    def families(self) -> dict[str, frozenset[int]]:
        """Return the ids of each top-level field and of all fields below it, by its name."""
        owners = {field.id: field.id for field in self.fields if field.is_top_level}
        members: dict[int, list[int]] = {owner: [owner] for owner in owners}
        for field in self.fields:
            if field.parent in owners:
                owners[field.id] = owners[field.parent]
                members[owners[field.parent]].append(field.id)
        return {field.name: frozenset(members[field.id]) for field in self.top_level()}

    def replaced(self, changed: StoredField) -> "FieldTree":
        return replace(self, fields=tuple(changed if f.id == changed.id else f for f in self.fields))

    def without(self, ids: Iterable[int]) -> "FieldTree":
        gone = frozenset(ids)
        return replace(self, fields=tuple(f for f in self.fields if f.id not in gone))

    def with_new(self, fields: Iterable[StoredField], *, instead_of: StoredField | None = None) -> "FieldTree":
        """Add fields at the end, or replace a field and all fields below it."""
        new = tuple(fields)
        if instead_of is None:
            return replace(self, fields=self.fields + new)
        gone = self.family(instead_of)
        # A field comes before its children, so the position is still right after all of them are removed.
        at = next(n for n, field in enumerate(self.fields) if field.id == instead_of.id)
        left = self.without(gone)
        return replace(left, fields=left.fields[:at] + new + left.fields[at:])

    def top_level(self) -> tuple[StoredField, ...]:
        return tuple(f for f in self.fields if f.is_top_level)


@lru_cache(maxsize=256)
def _read_tree(messages: tuple[bytes, ...], metadata: str) -> FieldTree:
    """Read the fields of a schema. Most versions of a table have the same ones."""
    return FieldTree(fields=tuple(StoredField.read(message) for message in messages), metadata=metadata)


def new_fields(schema: pa.Schema, *, first_id: int) -> tuple[StoredField, ...]:
    """Return the fields of an Arrow schema, numbered from an id that no data file uses."""

    def shift(number: int) -> int:
        return number if number == NO_PARENT else number + first_id

    return tuple(
        replace(field, id=shift(field.id), parent=shift(field.parent))
        for field in FieldTree.of(LanceSchema.from_pyarrow(schema)).fields
    )


def family_ids(schema: LanceSchema, names: Sequence[str]) -> list[int]:
    """Return the ids of top-level columns and of all fields below them."""
    tree = FieldTree.of(schema)
    return sorted(i for field in tree.top_level() if field.name in names for i in tree.family(field))


def check_column_names(names: Sequence[str]) -> None:
    """Refuse names that Lance does not support, or reserves."""
    if not names:
        raise InvalidInputError("there are no columns", hint="give at least one")
    for name in names:
        # A dot addresses a nested field, and a backtick ends a quoted name.
        if not name or "." in name or "`" in name:
            raise InvalidNameError(
                f"column name {name!r} is empty or holds '.' or a backtick", hint="use another name, such as 'amount'"
            )
        if "\0" in name:  # Arrow cuts names at this character
            raise InvalidNameError(f"column name {name!r} holds a null character", hint="remove it")
        if name in RESERVED:
            raise InvalidNameError(f"column name {name!r} is Lance's own", hint="choose another name")
        if names.count(name) > 1:
            raise InvalidNameError(f"column name {name!r} occurs more than once", hint="choose another name")


def check_columns(schema: pa.Schema) -> None:
    """Refuse columns with a name or type that Lance does not support."""
    check_column_names(schema.names)
    for field in schema:
        try:
            LanceSchema.from_pyarrow(pa.schema([field]))
        except ValueError as err:
            raise InvalidInputError(
                f"column {field.name!r} has type {show_type(field.type)}, which a table cannot hold",
                hint="cast it, for example to text or to decimal(38, 10)",
            ) from err
