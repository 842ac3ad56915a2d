"""Merge the notes of a table and its columns, such as descriptions and defaults."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.format.staging import Notes, notes_of
from anabranch.repo.merge.shapes import MergedColumn, SchemaSides
from anabranch.repo.snapshot import Table

__all__ = ["MergedNotes", "merge_notes"]

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


def merge_notes(sides: SchemaSides, columns: Sequence[MergedColumn], decide: Decide) -> MergedNotes:
    """Merge the notes one by one. Call `decide` if both sides changed a note."""
    base, source, target = (
        {} if table is None else notes_of(table.schema.metadata) for table in (sides.base, sides.source, sides.target)
    )
    of_columns = {}
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
        if changed:
            of_columns[column.name] = changed
    return MergedNotes(table=_merge(base, source, target, lambda values: decide(None, values)), columns=of_columns)


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
