"""The columns, the key and the notes of a table on each side of a merge, and merged.

`shape_merge` merges the columns and the key.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from anabranch.format.compare.difference import ColumnPair, Difference
from anabranch.format.staging import DEFAULT, ColumnChange, Notes, VersionRef, find_wrong_default, notes_of
from anabranch.format.staging.expressions import find_default
from anabranch.format.staging.schema_notes import (
    COLUMN_ID,
    NOT_NULL,
    column_ids_text,
    noted_column_ids,
    read_column_ids,
)
from anabranch.repo.history.comparer import ColumnTriple
from anabranch.repo.merge.conflict_resolution import SchemaDecider, SideTexts
from anabranch.repo.merge.conflict_types import Conflict
from anabranch.repo.snapshot import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedColumn:
    """A column of the result, its names in the base and on both sides, and its field in the target `before` the merge.

    `is_restored`: the target dropped it. Any row of the source may have another value in it.
    """

    triple: ColumnTriple
    field: pa.Field
    before: pa.Field | None
    is_restored: bool = False

    @property
    def name(self) -> str:
        return str(self.field.name)

    @property
    def is_new(self) -> bool:
        return self.triple.target is None

    @property
    def change(self) -> ColumnChange | None:
        """The change of the column of the target that makes it the column of the result."""
        before, field = self.before, self.field
        if before is None or before == field:
            return None
        return ColumnChange(
            path=before.name,
            name=None if field.name == before.name else field.name,
            type=None if field.type == before.type else field.type,
            nullable=None if field.nullable == before.nullable else field.nullable,
        )


_NO_DIFFERENCE = Difference(columns=(), older=(), newer=())


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSide:
    """A table in the base or on one side of a merge, its opened version, and how a side differs from the base."""

    table: Table
    version_ref: VersionRef
    changed: Difference = _NO_DIFFERENCE

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        return self.table.primary_key


@dataclass(frozen=True, kw_only=True)
class TableSides:
    """A table in the base and on both sides of a merge."""

    base: TableSide | None
    source: TableSide
    target: TableSide

    @cached_property
    def are_same(self) -> bool:
        """Whether no side changed the columns, their notes or the key."""
        if self.base is None or not (self.source.changed.has_same_schema and self.target.changed.has_same_schema):
            return False
        return self.base.primary_key == self.source.primary_key == self.target.primary_key

    @cached_property
    def column_ids(self) -> tuple[Mapping[str, frozenset[str]], Mapping[str, frozenset[str]]]:
        """The identities of the columns of the source and the target. They are read when they are needed."""
        source, target = self.source.version_ref, self.target.version_ref
        if source.home.root != target.home.root:
            return {}, {}  # Two datasets count their field ids independently.
        return read_column_ids(source), read_column_ids(target)

    @cached_property
    def noted_ids(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The recorded identities of the columns of the source and the target. Few columns have one."""
        source, target = self.source.version_ref.schema, self.target.version_ref.schema
        return noted_column_ids(source), noted_column_ids(target)


def match_columns(sides: TableSides) -> Iterator[ColumnTriple]:
    """Yield the matching columns: those of the target in order, then those only in the base or the source."""
    base, source, target = sides.base, sides.source, sides.target
    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    old_names: list[str] = []
    new_ours, new_theirs = source.schema.names, target.schema.names
    if base is not None:
        ours, new_ours = _kept_and_added(source.changed.columns)
        theirs, new_theirs = _kept_and_added(target.changed.columns)
        old_names = base.schema.names
    base_names = {now: before for before, now in theirs.items()}
    both_added = _match_added(sides, new_ours, new_theirs)
    for name in target.schema.names:
        before = base_names.get(name)
        partner = both_added.get(name) if before is None else ours.get(before)
        yield ColumnTriple(base=before, source=partner, target=name)
    for name in old_names:
        if name not in theirs:
            yield ColumnTriple(base=name, source=ours.get(name), target=None)
    for name in new_ours:
        if name not in both_added.values():
            yield ColumnTriple(base=None, source=name, target=None)


def _match_added(sides: TableSides, ours: Sequence[str], theirs: Sequence[str]) -> dict[str, str]:
    """Return the columns of the source that both sides added, by their names in the target.

    They are matched by identity first, because a cherry-pick may have added one column to both sides, then by name.
    """
    if not ours or not theirs:
        return {}
    found = _match_by_identity(sides, ours, theirs)
    for name in theirs:
        if name not in found and name in ours and name not in found.values():
            found[name] = name
    return found


def _match_by_identity(sides: TableSides, ours: Sequence[str], theirs: Sequence[str]) -> dict[str, str]:
    source_ids, target_ids = sides.column_ids
    by_id = {column_id: name for name in ours for column_id in source_ids.get(name, ())}
    found: dict[str, str] = {}
    for name in theirs:
        partners = {by_id[column_id] for column_id in target_ids.get(name, ()) if column_id in by_id}
        # An identity that names several columns does not decide. The names do then.
        if len(partners) == 1 and partners.isdisjoint(found.values()):
            found[name] = partners.pop()
    return found


def _kept_and_added(pairs: Sequence[ColumnPair]) -> tuple[dict[str, str], list[str]]:
    """Return the new names of the kept columns of the base, and the added columns."""
    kept = {pair.older: pair.newer for pair in pairs if pair.older is not None and pair.newer is not None}
    return kept, [pair.newer for pair in pairs if pair.older is None and pair.newer is not None]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The merged columns and key of a table, and the conflicts.

    `altered` and `dropped` are columns of the target, by their names there. `filled` are new columns that the target
    gets with their default in every row, so that any row of the source may have another value there. `key_candidates`
    are keys of the base or a side whose columns all have, the best one first. `matched_by` is the one that rows are
    matched by, which is chosen later.
    """

    columns: tuple[MergedColumn, ...] = ()
    dropped: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    key_candidates: tuple[tuple[ColumnTriple, ...], ...] = ()
    matched_by: tuple[ColumnTriple, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([column.field for column in self.columns])

    @property
    def added(self) -> tuple[pa.Field, ...]:
        return tuple(column.field for column in self.columns if column.is_new)

    @cached_property
    def altered(self) -> tuple[ColumnChange, ...]:
        changes = (column.change for column in self.columns)
        return tuple(change for change in changes if change is not None)

    @cached_property
    def filled(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns if column.triple.is_filled)

    @property
    def needs_all_rows(self) -> bool:
        """Whether any row of the source may have a value that the target does not have, although it is unchanged."""
        return bool(self.filled) or any(column.is_restored for column in self.columns)

    @cached_property
    def matched_names(self) -> tuple[str, ...]:
        """The names in the result of the columns that rows are matched by."""
        # Not by a dict of all columns: a key has few of them, and most often the first ones.
        return tuple(next(c.name for c in self.columns if c.triple == triple) for triple in self.matched_by)

    @property
    def needs_key_check(self) -> bool:
        """Whether rows that were matched can have equal keys in the result."""
        return bool(self.primary_key) and set(self.matched_names) != set(self.primary_key)

    @property
    def lenient_changes(self) -> tuple[ColumnChange, ...]:
        """The changes of columns, without NOT NULL constraints that may hold only with the merged rows."""
        changes = [replace(change, nullable=change.nullable or None) for change in self.altered]
        return tuple(change for change in changes if change != ColumnChange(path=change.path))

    @property
    def new_constraints(self) -> tuple[str, ...]:
        """The columns of the result that become NOT NULL."""
        strict = (column for column in self.columns if not column.field.nullable)
        return tuple(column.name for column in strict if column.before is None or column.before.nullable)

    def with_defaults(self, without: Collection[str] = ()) -> "Shape":
        """Return the shape with the new columns filled that have a default which needs no other column.

        Rows that only the target has get the default, as rows do that are appended without the column. Columns in
        `without` have no default in the result.
        """
        names = self.schema.names
        columns = tuple(
            replace(column, triple=replace(column.triple, is_filled=True))
            if column.is_new and column.name not in without and find_default(column.field, columns=names)
            else column
            for column in self.columns
        )
        return replace(self, columns=columns)

    @cached_property
    def strict_columns(self) -> frozenset[str]:
        """The columns that do not allow nulls and are not part of the key."""
        return frozenset(c.name for c in self.columns if not c.field.nullable and c.name not in self.primary_key)

    def lenient_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with nulls allowed in all columns that are not part of the key."""
        return pa.schema(map(self._lenient_field, schema), metadata=schema.metadata)

    def loosened(self) -> "Shape":
        """Return the shape with nulls allowed in every column that is not part of the key."""
        columns = tuple(replace(column, field=self._lenient_field(column.field)) for column in self.columns)
        return replace(self, columns=columns)

    def _lenient_field(self, column: pa.Field) -> pa.Field:
        return column.with_nullable(nullable=column.nullable or column.name in self.strict_columns)


# Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedNotes:
    """The notes to change in the target, of the table and of the columns of the result. None removes a note."""

    table: Notes = field(default_factory=dict)
    columns: Mapping[str, Notes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.table or self.columns)

    def with_default(self, column: str, default: str | None) -> "MergedNotes":
        """Return the notes with another default of a column, or without one."""
        return replace(self, columns={**self.columns, column: {**self.columns.get(column, {}), DEFAULT: default}})

    def with_constraints(self, strict: Collection[str], columns: Sequence[MergedColumn]) -> "MergedNotes":
        """Return the notes of a virtual base, in which it is noted that some of its columns take no nulls."""
        noted = {column.name: {NOT_NULL: "true" if column.name in strict else None} for column in columns}
        return replace(self, columns={name: {**self.columns.get(name, {}), **noted[name]} for name in noted})


def merge_notes(sides: TableSides, columns: Sequence[MergedColumn], decider: SchemaDecider) -> MergedNotes:
    """Merge the notes one by one. `decider` decides if both sides changed a note."""
    of_columns: dict[str, Notes] = {}
    for column in columns:
        if column.triple.source is not None:
            changed = _merge(_column_notes(sides, column), decider, column=column.name)
            changed = {**changed, **_merge_identity(sides, column)}
            if changed:
                of_columns[column.name] = changed
    tables = sides.base, sides.source, sides.target
    of_table = _merge([{} if table is None else notes_of(table.schema.metadata) for table in tables], decider)
    return MergedNotes(table=of_table, columns=of_columns)


def find_misfit(sides: TableSides, shape: Shape, notes: MergedNotes) -> tuple[MergedColumn, str] | None:
    """Return the first column whose merged default does not fit the merged column, and the problem.

    Only columns that are not in the target as they are in the result are checked.
    """
    defaults = {}
    for column in shape.columns:
        now = _of_column(sides.target, column.triple.target)
        default = notes.columns.get(column.name, {}).get(DEFAULT, now.get(DEFAULT))
        if default is None:
            continue
        before = column.before
        is_same = before is not None and (before.type, before.nullable) == (column.field.type, column.field.nullable)
        if not is_same or default != now.get(DEFAULT):
            defaults[column.name] = default
    wrong = find_wrong_default(shape.schema, defaults)
    if wrong is None:
        return None
    name, err = wrong
    return next(column for column in shape.columns if column.name == name), err.problem


def defaults_of(sides: TableSides, column: MergedColumn) -> SideTexts:
    """Return the default of a column in the base, the source and the target."""
    base, source, target = (notes.get(DEFAULT) for notes in _column_notes(sides, column))
    return base, source, target


def _column_notes(sides: TableSides, column: MergedColumn) -> list[Mapping[str, str]]:
    """Return the notes of a column in the base, the source and the target."""
    tables = sides.base, sides.source, sides.target
    return [_of_column(table, name) for table, name in zip(tables, column.triple.sides, strict=True)]


def _merge_identity(sides: TableSides, column: MergedColumn) -> Notes:
    """Return the note of the identity of a merged column, if it changes: the identities of both sides."""
    triple = column.triple
    if triple.target is not None and triple.base is not None:
        noted, noted_in_target = sides.noted_ids
        # Do not read the identities if the recorded ones are equal. Otherwise, one that is not recorded may be the same
        # as one that is.
        if noted.get(triple.source or "") == noted_in_target.get(triple.target):
            return {}
    of_source, of_target = sides.column_ids
    ours = of_source.get(triple.source or "", frozenset())
    theirs = of_target.get(triple.target or "", frozenset())
    if triple.target is None:
        # The column is new in the target, or it was dropped there. It is the column of the source.
        ours -= frozenset[str]().union(*of_target.values())
    return {} if ours <= theirs else {COLUMN_ID: column_ids_text(ours | theirs)}


def _of_column(table: TableSide | None, name: str | None) -> Mapping[str, str]:
    return {} if table is None or name is None else notes_of(table.schema.field(name).metadata)


def _merge(notes: Sequence[Mapping[str, str]], decider: SchemaDecider, *, column: str | None = None) -> Notes:
    """Return the notes of the target that change, given those of the base, the source and the target."""
    base, source, target = notes
    changed: dict[str, str | None] = {}
    for name in sorted({*base, *source}):
        values = base.get(name), source.get(name), target.get(name)
        merged = decider.pick("both sides changed this note", *values, column=column)
        if merged != target.get(name):
            changed[name] = merged
    return changed
