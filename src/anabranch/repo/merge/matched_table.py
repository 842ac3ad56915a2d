"""Plan the merge of a table that both sides have: its columns, notes and indices, and which rows to compare.

Only manifests and deletion files are read. Rows are read only to find out whether a dropped column was still used, and
whether a column that is not a key on every side has unique values.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from anabranch.errors import KeyConflictError
from anabranch.format.compare.difference import compare_all, descends_from, find_filled
from anabranch.format.compare.parts import Part, all_parts, read_row_ids, select_rows
from anabranch.format.staging import DEFAULT, IndexRecipe, read_recipes
from anabranch.repo.history.comparer import ColumnTriple, RowComparer, RowMerge, RowSide
from anabranch.repo.history.diff import RowChangeKind, TableDiff
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.merge.conflict_resolution import Resolution, SchemaDecider, TableResolution
from anabranch.repo.merge.conflict_types import ConflictKind
from anabranch.repo.merge.decisions import TableNames
from anabranch.repo.merge.shape_merge import merge_shapes
from anabranch.repo.merge.shapes import MergedNotes, Shape, TableSide, TableSides, defaults_of, find_misfit, merge_notes
from anabranch.repo.merge.steps import KeepTable, MergeTable, ReplaceTable, TableMatch
from anabranch.repo.write.staged_table import check_unique
from anabranch.storage import at_once, in_parallel

# Tables are planned in parallel. Rows of only one of them are read at a time, because they may need much memory.
_READING_ROWS = threading.Lock()


def open_sides(match: TableMatch, config: RepoConfig) -> TableSides:
    """Open all versions at once, and compare both sides with the base at once, to wait for the store less often."""
    tables = [state.as_table(config) for state in (match.base, match.source, match.target) if state is not None]
    version_refs = in_parallel(lambda table: table.version_ref, tables, at_a_time=at_once(config.root))
    opened = zip(tables, version_refs, strict=True)
    *bases, source, target = (TableSide(table=table, version_ref=version_ref) for table, version_ref in opened)
    if not bases:
        return TableSides(base=None, source=source, target=target)
    of_source, of_target = compare_all(bases[0].version_ref, (source.version_ref, target.version_ref))
    source, target = replace(source, changed=of_source), replace(target, changed=of_target)
    return TableSides(base=bases[0], source=source, target=target)


class MatchedTable:
    """A table in the base and on both sides, while its merge is planned."""

    def __init__(self, match: TableMatch, sides: TableSides, comparer: RowComparer, resolution: Resolution) -> None:
        self._match, self._sides, self._comparer = match, sides, comparer
        self._base, self._source, self._target = sides.base, sides.source, sides.target
        self._is_virtual_base = resolution.any_cell is not None
        columns: dict[str, set[str | None]] = {}
        for pair in () if sides.are_same else (*self._source.changed.columns, *self._target.changed.columns):
            if pair.older is not None:
                columns.setdefault(pair.older, {pair.older}).add(pair.newer)
        names = TableNames.of(match.names or [match.key], columns.values())
        self._resolution = TableResolution(resolution=resolution, names=names)
        self._decider = SchemaDecider(resolution=self._resolution)

    def plan(self) -> KeepTable | ReplaceTable | MergeTable:
        """Return the step that merges the table. Conflicts between rows are found later, when the step is applied."""
        shape, notes = self._merge_shapes()
        match = self._match
        if match.is_untouched:
            if self._is_replaced():
                return self._replace(shape)
            is_compared = False
        elif shape.matched_by or self._can_match_ids():
            is_compared = True
        elif self._only_appends():
            is_compared = False
        else:
            return self._plan_unmatched(shape)
        # A virtual base needs no index: only its rows are compared.
        built, dropped = ((), ()) if self._is_virtual_base else _merge_indices(self._sides, shape, self._decider)
        return MergeTable(
            match=match,
            shape=shape,
            notes=notes,
            built_indices=built,
            dropped_indices=dropped,
            rows=self._row_merge(shape, is_compared=is_compared),
            version_ref=self._target.version_ref,
            fragments=self._target.changed.fragments,
            resolution=self._resolution,
            undecided_columns=self._find_undecided(shape),
            has_same_schema=self._sides.are_same,
            conflicts=tuple(self._decider.conflicts),
        )

    def _is_replaced(self) -> bool:
        """Return whether an untouched target becomes a copy of the source.

        If the source replaced all files of the base, no row is known to be unchanged. Rows without a key are identified
        by their row ids, which a copy of the table would lose.
        """
        if self._base is None or not len(self._base.table) or self._source.changed.fragments:
            return False
        return self._has_keys or not self._can_match_ids()

    def _find_undecided(self, shape: Shape) -> frozenset[str]:
        """Return the columns with a conflict, which may name a column as one of the sides does."""
        names = {conflict.column for conflict in self._decider.conflicts} - {None}
        return frozenset(each.name for each in shape.columns if names & {each.name, *each.triple.names})

    def _plan_unmatched(self, shape: Shape) -> KeepTable | ReplaceTable:
        """Decide on a table whose rows cannot be matched: one side wins."""
        side = self._resolution.for_table()
        if side is None and not shape.conflicts:
            if self._has_keys:
                self._decider.add_conflict("its key was changed, and rows on both sides")
            else:
                self._decider.add_conflict("its rows cannot be matched", kind=ConflictKind.KEYLESS)
        if side == "source":
            return self._replace(Shape())
        return KeepTable(match=self._match, shape=Shape(), conflicts=tuple(self._decider.conflicts))

    def _replace(self, shape: Shape) -> ReplaceTable:
        # The indices of a source without rows cannot be built in a copy of it.
        wanted = () if self._match.source.entry.rows else tuple(sorted(read_recipes(self._source.version_ref)))
        return ReplaceTable(match=self._match, shape=shape, conflicts=tuple(self._decider.conflicts), wanted=wanted)

    # Columns and notes

    def _merge_shapes(self) -> tuple[Shape, MergedNotes]:
        sides = self._sides
        shape = merge_shapes(sides, decider=self._decider, is_used=self._is_used)
        # One side may have changed the key. Rows can be matched by any key with unique values on all sides.
        matched_by = next((key for key in shape.key_candidates if self._is_key_everywhere(key)), ())
        shape = replace(shape, matched_by=matched_by)
        notes = MergedNotes() if sides.are_same else merge_notes(sides, shape.columns, self._decider)
        if not self._match.is_untouched and not sides.are_same:
            notes, without = self._fit_defaults(shape, notes)
            shape = shape.with_defaults(without)
        if self._is_virtual_base:
            return shape.loosened(), notes.with_constraints(shape.strict_columns, shape.columns)
        return shape, notes

    def _fit_defaults(self, shape: Shape, notes: MergedNotes) -> tuple[MergedNotes, set[str]]:
        """Return the notes with defaults that fit the merged columns, and the columns that have no default then.

        A default that does not fit is a conflict. If it is decided, the column has the default of that side if it fits,
        else none.
        """
        without: set[str] = set()
        while (misfit := find_misfit(self._sides, shape, notes)) is not None:
            column, problem = misfit
            values = defaults_of(self._sides, column)
            side = self._decider.decide(f"its default: {problem}", values, column=column.name)
            merged = notes.columns.get(column.name, {}).get(DEFAULT, values[2])
            chosen = values[1] if side == "source" else values[2]
            # The default of the deciding side is tried once. If it does not fit either, the column has none, so that
            # the loop ends.
            kept = None if chosen == merged else chosen
            notes = notes.with_default(column.name, kept)
            if kept is None:
                without.add(column.name)
        return notes, without

    def _is_key_everywhere(self, key: Sequence[ColumnTriple]) -> bool:
        """Return whether the values of columns are unique in the base and on both sides."""
        for number, side in enumerate((self._base, self._source, self._target)):
            columns = tuple(name for column in key if (name := column.sides[number]) is not None)
            # Writes keep a primary key unique, so that only other columns must be read.
            if side is None or columns == side.primary_key:
                continue
            try:
                check_unique(side.version_ref, columns)
            except KeyConflictError:
                return False
        return True

    def _is_used(self, side: TableSide, column: str) -> bool:
        """Return whether rows that changed since the base have new values in a column."""
        before = None if self._base is None else self._base.table
        diff = TableDiff(str(self._match.key), before=before, after=side.table, load_comparer=lambda: self._comparer)
        with _READING_ROWS:
            for row in diff.iter_rows():
                if row.change is RowChangeKind.UPDATED and column in row.columns:
                    return True
                if row.change is RowChangeKind.INSERTED and row.after is not None and row.after[column] is not None:
                    return True
        return False

    # Ways to match rows

    @property
    def _has_keys(self) -> bool:
        return bool(self._source.primary_key or self._target.primary_key)

    def _can_match_ids(self) -> bool:
        """Return whether rows can be matched by row id: both sides must descend from the base."""
        if self._base is None:
            return False
        # After a step back to an older version, ids are given a second time, so that equal ids may be different rows.
        base = self._base.version_ref
        return descends_from(self._source.version_ref, base) and descends_from(self._target.version_ref, base)

    def _only_appends(self) -> bool:
        """Return whether the source only appended rows to a table without a key. Such rows need no match."""
        # With a key, appended rows may repeat a key of the target, so that they must be matched.
        if self._base is None or self._base.primary_key or self._has_keys:
            return False
        return not self._source.changed.older and not self._source.changed.reshaped

    # The rows to read

    def _row_merge(self, shape: Shape, *, is_compared: bool) -> RowMerge:
        """Return the rows to merge. Without `is_compared`, rows of the source need no match in the target."""
        triples = [column.triple for column in shape.columns]
        both_added = any(triple.base is None and triple.source and triple.target for triple in triples)
        by_ids = not shape.matched_by
        older, newer = self._parts(self._source, is_whole=shape.needs_all_rows, with_filled=True)
        if by_ids:
            newer = self._without_applied(older, newer)
        base_of_source = self._base_rows(older, by_ids=by_ids)
        source = RowSide(version_ref=self._source.version_ref, parts=newer, with_row_ids=by_ids)
        base_of_target, target = None, None
        if is_compared:
            older, newer = self._parts(self._target, is_whole=False, with_filled=both_added)
            base_of_target = self._base_rows(older, by_ids=by_ids)
            # Rows of the target are replaced by their addresses, and keep their row ids.
            target = RowSide(version_ref=self._target.version_ref, parts=newer, with_row_ids=True, with_addresses=True)
        return RowMerge(
            base_of_source=base_of_source,
            source=source,
            base_of_target=base_of_target,
            target=target,
            columns=[*triples, *self._dropped_on_one_side(shape)],
            keys=shape.matched_by,
        )

    def _without_applied(self, older: tuple[Part, ...], newer: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return the rows of the source without inserted rows that the target has already.

        A target that was made from the source has its rows with their row ids: the branch already has the commit that
        is applied to it. Elsewhere, another row may have the id.
        """
        base, source, target = self._base, self._source.version_ref, self._target.version_ref
        # Rows that were inserted after the base are not in the base, so the search ends there.
        if base is None or not newer or not descends_from(target, source, after=base.version_ref):
            return newer
        addresses, row_ids = read_row_ids(source, newer)
        _, updated = read_row_ids(base.version_ref, older)
        _, existing = read_row_ids(target, self._target.changed.newer)
        is_kept = np.isin(row_ids, updated) | ~np.isin(row_ids, existing)
        return newer if is_kept.all() else select_rows(newer, addresses, is_kept)

    def _dropped_on_one_side(self, shape: Shape) -> list[ColumnTriple]:
        """Return the columns that are not in the result because one side dropped them.

        They are compared too: a change of such a column by one side is a conflict if the other side deleted the row.
        """
        if self._sides.are_same:
            return []
        ours, theirs = (
            {pair.older: pair.newer for pair in side.changed.columns if pair.older is not None}
            for side in (self._source, self._target)
        )
        known = {column.triple for column in shape.columns}
        dropped: list[ColumnTriple] = []
        for name in ours:
            triple = ColumnTriple(base=name, source=ours[name], target=theirs.get(name))
            if (triple.source is None) != (triple.target is None) and triple not in known:
                dropped.append(triple)
        return dropped

    def _base_rows(self, parts: tuple[Part, ...], *, by_ids: bool) -> RowSide | None:
        if self._base is None:
            return None
        return RowSide(version_ref=self._base.version_ref, parts=parts, with_row_ids=by_ids, with_addresses=True)

    def _parts(
        self, side: TableSide, *, is_whole: bool, with_filled: bool
    ) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
        """Return the rows of the base and of a side that may differ."""
        if self._base is None:
            return (), all_parts(side.version_ref)
        base, changed = self._base.version_ref, side.changed
        if is_whole:
            return all_parts(base), all_parts(side.version_ref)
        # Ignore dropped columns: they have no values to merge.
        only_added = tuple(replace(part, dropped=()) for part in changed.reshaped if part.added and with_filled)
        filled = find_filled(base, side.version_ref, replace(changed, reshaped=only_added))
        older = (*changed.older, *(part for part, _ in filled))
        return older, (*changed.newer, *(part for _, part in filled))


# Indices


def _merge_indices(
    sides: TableSides, shape: Shape, decider: SchemaDecider
) -> tuple[tuple[IndexRecipe, ...], tuple[str, ...]]:
    """Return the indices to build over the merged rows, and the names of those to drop from the target.

    They are merged by their names. `decider` decides if both sides changed one to different definitions. The rows of
    the result are not those of the source, so an index of the source is built again.
    """
    ours = read_recipes(sides.source.version_ref)
    before = {} if sides.base is None else read_recipes(sides.base.version_ref)
    # The source did not change its indices, so those of the target stay and need not be read.
    if _segments(ours) == _segments(before):
        return (), ()
    # The three sides may have different names for a column. Compare them by the names of the result.
    before, ours = _renamed(before, shape, "base"), _renamed(ours, shape, "source")
    theirs = _renamed(read_recipes(sides.target.version_ref), shape, "target")
    built: list[IndexRecipe] = []
    dropped: list[str] = []
    for name in sorted({*before, *ours}):
        base, source, target = before.get(name), ours.get(name), theirs.get(name)
        if _is_same(base, source) or _is_alike(source, target):
            continue
        texts = _describe(base), _describe(source), _describe(target)
        if not _is_same(base, target) and decider.decide(f"both sides changed the index '{name}'", texts) == "target":
            continue
        if source is None:
            dropped.append(name)
        else:
            built.append(source)
    return tuple(built), tuple(dropped)


def _segments(recipes: Mapping[str, IndexRecipe]) -> dict[str, tuple[str, ...]]:
    return {name: recipe.segments for name, recipe in recipes.items()}


def _renamed(recipes: Mapping[str, IndexRecipe], shape: Shape, side: str) -> dict[str, IndexRecipe]:
    """Return the recipes of a side with the column names of the result, without those of columns it does not have."""
    names = {getattr(column.triple, side): column.name for column in shape.columns}
    found: dict[str, IndexRecipe] = {}
    for name, recipe in recipes.items():
        # A nested column goes with the top-level one that holds it.
        top, dot, path = recipe.column.partition(".")
        if top in names:
            found[name] = replace(recipe, column=f"{names[top]}{dot}{path}")
    return found


def _is_same(one: IndexRecipe | None, other: IndexRecipe | None) -> bool:
    # A branch shares the segments of an index until it builds it again. After that, only the definitions can be
    # compared.
    return one == other or (one is not None and other is not None and one.segments == other.segments)


def _is_alike(one: IndexRecipe | None, other: IndexRecipe | None) -> bool:
    """Return whether two indices answer the same queries. Numbers such as partitions may follow from the rows."""
    if one is None or other is None:
        return one is other
    return (one.column, one.kind, one.metric) == (other.column, other.kind, other.metric)


def _describe(recipe: IndexRecipe | None) -> str | None:
    return None if recipe is None else f"{recipe.kind} of {recipe.column}"
