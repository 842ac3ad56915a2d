"""Merge the notes of a table and its columns, such as descriptions, defaults and the identity of a column."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from anabranch.format.staging import DEFAULT, Notes, find_wrong_default, notes_of
from anabranch.format.staging.notes import COLUMN_ID, NOT_NULL, column_ids_text
from anabranch.repo.merge.shapes import MergedColumn, SchemaSides
from anabranch.repo.snapshot import Table

# Called with a column (None for the table) and the values of a note in the base, the source and the target. Returns the
# side whose value is used.
Decide = Callable[[str | None, tuple[str | None, str | None, str | None]], str]


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

    def with_constraints(self, strict: Sequence[str], columns: Sequence[MergedColumn]) -> "MergedNotes":
        """Return the notes of a virtual base, in which it is noted that some of its columns take no nulls."""
        noted = {column.name: {NOT_NULL: "true" if column.name in strict else None} for column in columns}
        return replace(self, columns={name: {**self.columns.get(name, {}), **noted[name]} for name in noted})


def merge_notes(sides: SchemaSides, columns: Sequence[MergedColumn], decide: Decide) -> MergedNotes:
    """Merge the notes one by one. Call `decide` if both sides changed a note."""
    base, source, target = (
        {} if table is None else notes_of(table.schema.metadata) for table in (sides.base, sides.source, sides.target)
    )
    of_columns: dict[str, Notes] = {}
    for column in columns:
        triple = column.triple
        if triple.source is None:
            continue
        found = [
            _of_column(table, name)
            for table, name in (
                (sides.base, triple.base),
                (sides.source, triple.source),
                (sides.target, triple.target),
            )
        ]
        changed = _merge(found[0], found[1], found[2], lambda values, name=column.name: decide(name, values))  # type: ignore[misc]
        changed = {**changed, **_merge_identity(sides, column)}
        if changed:
            of_columns[column.name] = changed
    return MergedNotes(table=_merge(base, source, target, lambda values: decide(None, values)), columns=of_columns)


def find_misfit(
    sides: SchemaSides, columns: Sequence[MergedColumn], notes: MergedNotes
) -> tuple[MergedColumn, str] | None:
    """Return the first column whose merged default does not fit the merged column, and what is wrong with it.

    Only columns that are not in the target as they are in the result are checked.
    """
    defaults = {}
    for column in columns:
        now = _of_column(sides.target, column.triple.target)
        default = notes.columns.get(column.name, {}).get(DEFAULT, now.get(DEFAULT))
        if default is not None and not (default == now.get(DEFAULT) and _is_as_in_target(sides, column)):
            defaults[column.name] = default
    wrong = find_wrong_default(pa.schema([column.field for column in columns]), defaults)
    if wrong is None:
        return None
    name, err = wrong
    return next(column for column in columns if column.name == name), err.problem


def _is_as_in_target(sides: SchemaSides, column: MergedColumn) -> bool:
    if column.triple.target is None:
        return False
    now = sides.target.schema.field(column.triple.target)
    return (now.type, now.nullable) == (column.field.type, column.field.nullable)


def defaults_of(sides: SchemaSides, column: MergedColumn) -> tuple[str | None, str | None, str | None]:
    """Return the default of a column in the base, the source and the target."""
    triple = column.triple
    found = [
        _of_column(table, name).get(DEFAULT)
        for table, name in ((sides.base, triple.base), (sides.source, triple.source), (sides.target, triple.target))
    ]
    return found[0], found[1], found[2]


def _merge_identity(sides: SchemaSides, column: MergedColumn) -> Notes:
    """Return the note of the identity of a merged column, if it changes: the identities of both sides."""
    triple = column.triple
    if triple.target is not None and triple.base is not None and not _has_other_identity(sides, column):
        return {}  # Do not read the identities.
    of_source, of_target = sides.column_ids
    ours = of_source.get(triple.source or "", frozenset())
    theirs = of_target.get(triple.target or "", frozenset())
    if triple.target is None:
        # The column is new in the target, or it was dropped there. It is the column of the source.
        ours -= frozenset[str]().union(*of_target.values())
    return {} if ours <= theirs else {COLUMN_ID: column_ids_text(ours | theirs)}


def _has_other_identity(sides: SchemaSides, column: MergedColumn) -> bool:
    """Return whether the recorded identities differ. One that is not recorded may be the same as one that is."""
    ours, theirs = sides.noted_ids
    return ours.get(column.triple.source or "") != theirs.get(column.triple.target or "")


def _of_column(table: Table | None, name: str | None) -> Mapping[str, str]:
    return {} if table is None or name is None else notes_of(table.schema.field(name).metadata)


def _merge(
    base: Mapping[str, str],
    source: Mapping[str, str],
    target: Mapping[str, str],
    decide: Callable[[tuple[str | None, str | None, str | None]], str],
) -> Notes:
    """Return the notes of the target that change."""
    changed: dict[str, str | None] = {}
    for name in sorted({*base, *source}):
        values = base.get(name), source.get(name), target.get(name)
        before, ours, theirs = values
        if ours in (before, theirs):
            continue
        if theirs == before or decide(values) == "source":
            changed[name] = ours
    return changed
