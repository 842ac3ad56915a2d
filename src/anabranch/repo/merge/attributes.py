"""Merge what a table has besides columns and rows: its notes, such as descriptions and defaults, and its indices."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from anabranch.format.staging import DEFAULT, IndexRecipe, Notes, find_wrong_default, notes_of, read_recipes
from anabranch.format.staging.notes import COLUMN_ID, NOT_NULL, column_ids_text
from anabranch.repo.merge.resolve import SchemaDecider, SideTexts
from anabranch.repo.merge.shapes import MergedColumn, TableSide, TableSides

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


def find_misfit(
    sides: TableSides, columns: Sequence[MergedColumn], notes: MergedNotes
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


def _is_as_in_target(sides: TableSides, column: MergedColumn) -> bool:
    if column.triple.target is None:
        return False
    now = sides.target.schema.field(column.triple.target)
    return (now.type, now.nullable) == (column.field.type, column.field.nullable)


def defaults_of(sides: TableSides, column: MergedColumn) -> SideTexts:
    """Return the default of a column in the base, the source and the target."""
    base, source, target = (notes.get(DEFAULT) for notes in _column_notes(sides, column))
    return base, source, target


def _column_notes(sides: TableSides, column: MergedColumn) -> list[Mapping[str, str]]:
    """Return the notes of a column in the base, the source and the target."""
    triple = column.triple
    named = (sides.base, triple.base), (sides.source, triple.source), (sides.target, triple.target)
    return [_of_column(table, name) for table, name in named]


def _merge_identity(sides: TableSides, column: MergedColumn) -> Notes:
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


def _has_other_identity(sides: TableSides, column: MergedColumn) -> bool:
    """Return whether the recorded identities differ. One that is not recorded may be the same as one that is."""
    ours, theirs = sides.noted_ids
    return ours.get(column.triple.source or "") != theirs.get(column.triple.target or "")


def _of_column(table: TableSide | None, name: str | None) -> Mapping[str, str]:
    return {} if table is None or name is None else notes_of(table.schema.field(name).metadata)


def _merge(notes: Sequence[Mapping[str, str]], decider: SchemaDecider, *, column: str | None = None) -> Notes:
    """Return the notes of the target that change, given those of the base, the source and the target."""
    base, source, target = notes
    changed: dict[str, str | None] = {}
    for name in sorted({*base, *source}):
        values = base.get(name), source.get(name), target.get(name)
        before, ours, theirs = values
        if ours in (before, theirs):
            continue
        if theirs == before or decider.decide("both sides changed this note", values, column=column) == "source":
            changed[name] = ours
    return changed


# Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedIndices:
    """The indices to build over the merged rows, and the names of those to drop from the target."""

    built: tuple[IndexRecipe, ...] = ()
    dropped: tuple[str, ...] = ()


def merge_indices(sides: TableSides, columns: Sequence[MergedColumn], decider: SchemaDecider) -> MergedIndices:
    """Merge the indices by their names. `decider` decides if both sides changed one to different definitions.

    The rows of the result are not those of the source, so an index of the source is built again.
    """
    ours = read_recipes(sides.source.version_ref)
    before = {} if sides.base is None else read_recipes(sides.base.version_ref)
    # The source left its indices alone, so that those of the target stay and need not be read.
    if _segments(ours) == _segments(before):
        return MergedIndices()
    theirs = read_recipes(sides.target.version_ref)
    # The three sides may have different names for a column. Compare them by the names of the result.
    names = {column.name: column.triple for column in columns}
    before = _renamed(before, {triple.base: name for name, triple in names.items()})
    ours = _renamed(ours, {triple.source: name for name, triple in names.items()})
    theirs = _renamed(theirs, {triple.target: name for name, triple in names.items()})
    built: list[IndexRecipe] = []
    dropped: list[str] = []
    for name in sorted({*before, *ours}):
        states = before.get(name), ours.get(name), theirs.get(name)
        if _takes_source(name, states, decider):
            if states[1] is not None:
                built.append(states[1])
            else:
                dropped.append(name)
    return MergedIndices(built=tuple(built), dropped=tuple(dropped))


def _takes_source(
    name: str, states: tuple[IndexRecipe | None, IndexRecipe | None, IndexRecipe | None], decider: SchemaDecider
) -> bool:
    """Return whether the target gets the index of the source, or loses its own because the source dropped it."""
    before, ours, theirs = states
    if _is_same(before, ours) or _is_alike(ours, theirs):
        return False
    if _is_same(before, theirs):
        return True
    texts = _describe(before), _describe(ours), _describe(theirs)
    return decider.decide(f"both sides changed the index '{name}'", texts) == "source"


def _segments(recipes: Mapping[str, IndexRecipe]) -> dict[str, tuple[str, ...]]:
    return {name: recipe.segments for name, recipe in recipes.items()}


def _renamed(recipes: Mapping[str, IndexRecipe], names: Mapping[str | None, str]) -> dict[str, IndexRecipe]:
    """Return the recipes with the column names of the result, without those of columns that it does not have."""
    found: dict[str, IndexRecipe] = {}
    for name, recipe in recipes.items():
        # A nested column goes with the top-level one that holds it.
        top, dot, path = recipe.column.partition(".")
        if top in names:
            found[name] = replace(recipe, column=f"{names[top]}{dot}{path}")
    return found


def _is_same(one: IndexRecipe | None, other: IndexRecipe | None) -> bool:
    if one is None or other is None:
        return one is other
    # A branch shares the segments of an index until it builds it again. After that, only the definitions can be
    # compared.
    return one.segments == other.segments or one == other


def _is_alike(one: IndexRecipe | None, other: IndexRecipe | None) -> bool:
    """Return whether two indices answer the same queries. Numbers such as partitions may follow from the rows."""
    if one is None or other is None:
        return one is other
    return (one.column, one.kind, one.metric) == (other.column, other.kind, other.metric)


def _describe(recipe: IndexRecipe | None) -> str | None:
    return None if recipe is None else f"{recipe.kind} of {recipe.column}"
