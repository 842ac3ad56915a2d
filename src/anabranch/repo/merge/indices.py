"""Merge the indices of a table: which of them the source built, replaced or dropped since the base."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.format.staging import IndexRecipe, VersionRef, read_recipes
from anabranch.repo.merge.shapes import MergedColumn

# Called with the name of an index that both sides changed. Returns the side whose index is used.
Decide = Callable[[str, tuple[str | None, str | None, str | None]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedIndices:
    """The indices to build over the merged rows, and the names of those to drop from the target."""

    built: tuple[IndexRecipe, ...] = ()
    dropped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.built or self.dropped)


def merge_indices(
    base: VersionRef | None,
    source: VersionRef,
    target: VersionRef,
    columns: Sequence[MergedColumn],
    decide: Decide,
) -> MergedIndices:
    """Merge the indices by their names. Call `decide` if both sides changed one to different definitions.

    The rows of the result are not those of the source, so an index of the source is built again.
    """
    ours = read_recipes(source)
    before = {} if base is None else read_recipes(base)
    # The source left its indices alone, so that those of the target stay and need not be read.
    if _segments(ours) == _segments(before):
        return MergedIndices()
    theirs = read_recipes(target)
    # The three sides may have different names for a column. Compare them by the names of the result.
    names = {column.name: column.triple for column in columns}
    before = _renamed(before, {triple.base: name for name, triple in names.items()})
    ours = _renamed(ours, {triple.source: name for name, triple in names.items()})
    theirs = _renamed(theirs, {triple.target: name for name, triple in names.items()})
    built: list[IndexRecipe] = []
    dropped: list[str] = []
    for name in sorted({*before, *ours}):
        states = before.get(name), ours.get(name), theirs.get(name)
        if _takes_source(name, states, decide):
            if states[1] is not None:
                built.append(states[1])
            else:
                dropped.append(name)
    return MergedIndices(built=tuple(built), dropped=tuple(dropped))


def _takes_source(
    name: str, states: tuple[IndexRecipe | None, IndexRecipe | None, IndexRecipe | None], decide: Decide
) -> bool:
    """Return whether the target gets the index of the source, or loses its own because the source dropped it."""
    before, ours, theirs = states
    if _is_same(before, ours) or _is_alike(ours, theirs):
        return False
    if _is_same(before, theirs):
        return True
    base, source, target = map(_describe, states)
    return decide(name, (base, source, target)) == "source"


def _segments(recipes: Mapping[str, IndexRecipe]) -> dict[str, tuple[str, ...]]:
    return {name: recipe.segments for name, recipe in recipes.items()}


def _renamed(recipes: Mapping[str, IndexRecipe], names: Mapping[str | None, str]) -> dict[str, IndexRecipe]:
    """Return the recipes with the column names of the result, without those of columns that it does not have."""
    return {
        name: replace(recipe, column=names[recipe.column]) for name, recipe in recipes.items() if recipe.column in names
    }


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
