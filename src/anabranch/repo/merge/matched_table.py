"""Plan the merge of a table that both sides have: its columns, its notes, and which rows to compare.

Only manifests and deletion files are read, and rows only to find out whether a dropped column was still used.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from anabranch.errors import KeyConflictError
from anabranch.format.compare.difference import Difference, compare_all, find_filled
from anabranch.format.compare.parts import Part, all_parts, read_row_ids, select_rows
from anabranch.format.compare.version_steps import descends_from
from anabranch.format.staging import DEFAULT, VersionRef, read_recipes
from anabranch.repo.history.comparer import ColumnTriple, RowComparer, RowMerge, RowSide
from anabranch.repo.history.diff import RowChangeKind, TableDiff
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.merge.attributes import (
    MergedIndices,
    MergedNotes,
    defaults_of,
    find_misfit,
    merge_indices,
    merge_notes,
)
from anabranch.repo.merge.conflicts import ConflictKind
from anabranch.repo.merge.decisions import TableNames
from anabranch.repo.merge.resolve import Resolution, SchemaDecider
from anabranch.repo.merge.shape_merge import merge_shapes
from anabranch.repo.merge.shapes import SchemaSides, Shape
from anabranch.repo.merge.steps import KeepTable, MergeTable, ReplaceTable, TableMatch
from anabranch.repo.snapshot import Table
from anabranch.repo.write.homes import check_unique
from anabranch.storage import at_once, in_parallel

_NO_DIFFERENCE = Difference(columns=(), older=(), newer=())
# Tables are planned in parallel. Rows of only one of them are read at a time, because they may need much memory.
_READING_ROWS = threading.Lock()


def plan_matched_table(
    match: TableMatch, *, config: RepoConfig, comparer: RowComparer, resolution: Resolution
) -> KeepTable | ReplaceTable | MergeTable:
    """Return the step that merges a table. Conflicts between rows are found later, when the step is applied."""
    return _MatchedTable(match, config, comparer, resolution).plan()


class _MatchedTable:
    """A table in the base and on both sides, while its merge is planned."""

    def __init__(self, match: TableMatch, config: RepoConfig, comparer: RowComparer, resolution: Resolution) -> None:
        self._match, self._comparer = match, comparer
        self._is_virtual_base = resolution.any_cell is not None
        base = None if match.base is None else Table(config, match.base.key, match.base.entry)
        source, target = (Table(config, state.key, state.entry) for state in (match.source, match.target))
        # Open all versions at once, and compare both sides with the base at once, to wait for the store less often.
        tables = [table for table in (base, source, target) if table is not None]
        *of_base, self._source_version_ref, self._target_version_ref = in_parallel(
            lambda table: table.version_ref, tables, at_a_time=at_once(config.root)
        )
        self._base_version_ref: VersionRef | None = of_base[0] if of_base else None
        self._of_source, self._of_target = self._compare()
        has_same_schema = self._of_source.has_same_schema and self._of_target.has_same_schema
        has_same_key = len({table.primary_key for table in tables}) == 1
        self._sides = SchemaSides(
            base=base,
            source=source,
            target=target,
            are_same=base is not None and has_same_schema and has_same_key,
            of_source=self._of_source.columns,
            of_target=self._of_target.columns,
        )
        self._resolution = resolution.of_table(self._names())
        self._decider = SchemaDecider(table=str(match.key), resolution=self._resolution)

    def _names(self) -> TableNames:
        columns: dict[str, set[str | None]] = {}
        pairs = () if self._sides.are_same else (*self._of_source.columns, *self._of_target.columns)
        for pair in pairs:
            if pair.older is not None:
                columns.setdefault(pair.older, {pair.older}).add(pair.newer)
        return TableNames.of(self._match.names or [self._match.key], columns.values())

    def _compare(self) -> tuple[Difference, Difference]:
        """Return the differences between the base and both sides. Without a base, there are none to use."""
        base = self._base_version_ref
        if base is None:
            return _NO_DIFFERENCE, _NO_DIFFERENCE
        of_source, of_target = compare_all(base, (self._source_version_ref, self._target_version_ref))
        return of_source, of_target

    def plan(self) -> KeepTable | ReplaceTable | MergeTable:
        shape, notes = self._merge_shapes()
        match = self._match
        if match.is_untouched:
            # Rows without a key are identified by their row ids, which a copy of the table would lose.
            if self._is_rewritten() and (self._has_keys or not self._can_match_ids()):
                conflicts = tuple(self._decider.conflicts)
                return ReplaceTable(match=match, shape=shape, conflicts=conflicts, wanted=self._find_wanted())
            is_compared = False
        elif shape.matched_by or self._can_match_ids():
            is_compared = True
        elif self._only_appends():
            is_compared = False
        else:
            return self._plan_unmatched(shape)
        indices = self._merge_indices(shape)
        return MergeTable(
            match=match,
            shape=shape,
            notes=notes,
            indices=indices,
            rows=self._row_merge(shape, is_compared=is_compared),
            version_ref=self._target_version_ref,
            fragments=self._of_target.fragments,
            resolution=self._resolution,
            undecided_columns=self._undecided_columns(shape),
            has_same_schema=self._sides.are_same,
            conflicts=tuple(self._decider.conflicts),
        )

    def _plan_unmatched(self, shape: Shape) -> KeepTable | ReplaceTable:
        """Decide on a table whose rows cannot be matched: one side wins."""
        side = self._resolution.for_table()
        if side is None and not shape.conflicts:
            if self._has_keys:
                self._decider.add_conflict("its key was changed, and rows on both sides")
            else:
                self._decider.add_conflict("its rows cannot be matched", kind=ConflictKind.KEYLESS)
        conflicts = tuple(self._decider.conflicts)
        if side == "source":
            return ReplaceTable(match=self._match, shape=Shape(), conflicts=conflicts, wanted=self._find_wanted())
        return KeepTable(match=self._match, shape=Shape(), conflicts=conflicts)

    # Columns and notes

    def _merge_shapes(self) -> tuple[Shape, MergedNotes]:
        sides = self._sides
        shape = merge_shapes(sides, decider=self._decider, is_used=self._is_used)
        # One side may have changed the key. Rows can be matched by any key whose values are unique on all sides.
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
        misfit = find_misfit(self._sides, shape.columns, notes)
        while misfit is not None:
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
            misfit = find_misfit(self._sides, shape.columns, notes)
        return notes, without

    def _is_key_everywhere(self, key: Sequence[ColumnTriple]) -> bool:
        """Return whether the values of columns are unique in the base and on both sides, also where they are no key."""
        sides = (
            (self._sides.base, self._base_version_ref, [column.base for column in key]),
            (self._sides.source, self._source_version_ref, [column.source for column in key]),
            (self._sides.target, self._target_version_ref, [column.target for column in key]),
        )
        for table, version_ref, names in sides:
            columns = tuple(name for name in names if name is not None)
            # Writes keep a primary key unique, so that only other columns must be read.
            if table is None or version_ref is None or columns == table.primary_key:
                continue
            try:
                check_unique(version_ref, columns)
            except KeyConflictError:
                return False
        return True

    def _merge_indices(self, shape: Shape) -> MergedIndices:
        if self._is_virtual_base:
            return MergedIndices()  # a virtual base needs no index: only its rows are compared
        return merge_indices(
            self._base_version_ref,
            self._source_version_ref,
            self._target_version_ref,
            shape.columns,
            self._decider,
        )

    def _find_wanted(self) -> tuple[str, ...]:
        """Return the indices of the source if it has no rows, so that they cannot be built in a copy of it."""
        return () if self._match.source.entry.rows else tuple(sorted(read_recipes(self._source_version_ref)))

    def _is_used(self, table: Table, column: str) -> bool:
        """Return whether rows that changed since the base have new values in a column."""
        before, key = self._sides.base, str(self._match.key)
        diff = TableDiff(key, before=before, after=table, load_comparer=lambda: self._comparer)
        with _READING_ROWS:
            for row in diff.iter_rows():
                if row.change is RowChangeKind.UPDATED and column in row.columns:
                    return True
                if row.change is RowChangeKind.INSERTED and row.after is not None and row.after[column] is not None:
                    return True
        return False

    # How the rows can be matched

    @property
    def _has_keys(self) -> bool:
        return bool(self._sides.source.primary_key or self._sides.target.primary_key)

    def _is_rewritten(self) -> bool:
        """Return whether the source replaced all files of the base, so that no row is known to be unchanged."""
        if self._sides.base is None or self._base_version_ref is None or not self._sides.base.count_rows():
            return False
        return not self._of_source.fragments

    def _can_match_ids(self) -> bool:
        """Return whether rows can be matched by row id: both sides must descend from the base."""
        base = self._base_version_ref
        if base is None:
            return False
        # After a step back to an older version, ids are given a second time, so that equal ids may be different rows.
        return descends_from(self._source_version_ref, base) and descends_from(self._target_version_ref, base)

    def _only_appends(self) -> bool:
        """Return whether the source only appended rows to a table without a key. Such rows need no match."""
        # With a key, appended rows may repeat a key of the target, so that they must be matched.
        if self._sides.base is None or self._sides.base.primary_key or self._has_keys:
            return False
        return not self._of_source.older and not self._of_source.reshaped

    # Which rows are read

    def _undecided_columns(self, shape: Shape) -> frozenset[str]:
        """Return the columns that have a conflict of their own. It may name them as one of the sides does."""
        names = {conflict.column for conflict in self._decider.conflicts} - {None}
        if not names:
            return frozenset()
        return frozenset(
            column.name
            for column in shape.columns
            if names & {column.name, column.triple.base, column.triple.source, column.triple.target}
        )

    def _row_merge(self, shape: Shape, *, is_compared: bool) -> RowMerge:
        """Return the rows to merge. Without `is_compared`, rows of the source need no match in the target."""
        both_added = any(
            column.triple.base is None and column.triple.source and column.triple.target for column in shape.columns
        )
        by_ids = not shape.matched_by
        older, newer = self._parts(
            self._source_version_ref, self._of_source, is_whole=bool(shape.restored or shape.filled), with_filled=True
        )
        if by_ids:
            newer = self._without_applied(older, newer)
        base_of_source = self._base_rows(older, by_ids=by_ids)
        source = RowSide(version_ref=self._source_version_ref, parts=newer, with_row_ids=by_ids)
        base_of_target, target = None, None
        if is_compared:
            older, newer = self._parts(
                self._target_version_ref, self._of_target, is_whole=False, with_filled=both_added
            )
            base_of_target = self._base_rows(older, by_ids=by_ids)
            # Rows of the target are replaced by their addresses, and keep their row ids.
            target = RowSide(version_ref=self._target_version_ref, parts=newer, with_row_ids=True, with_addresses=True)
        return RowMerge(
            base_of_source=base_of_source,
            source=source,
            base_of_target=base_of_target,
            target=target,
            columns=[*(column.triple for column in shape.columns), *self._dropped_on_one_side(shape)],
            keys=shape.matched_by,
        )

    def _without_applied(self, older: tuple[Part, ...], newer: tuple[Part, ...]) -> tuple[Part, ...]:
        """Return the rows of the source without those that it inserted and that the target has already.

        A target that was made from the source has its rows with their row ids: the branch already has the commit that
        is applied to it. Elsewhere, another row may have the id.
        """
        base, source, target = self._base_version_ref, self._source_version_ref, self._target_version_ref
        # Rows that were inserted after the base are not in the base, so the search ends there.
        if base is None or not newer or not descends_from(target, source, after=base):
            return newer
        addresses, row_ids = read_row_ids(source, newer)
        _, updated = read_row_ids(base, older)
        _, existing = read_row_ids(target, self._of_target.newer)
        is_kept = np.isin(row_ids, updated) | ~np.isin(row_ids, existing)
        return newer if is_kept.all() else select_rows(newer, addresses, is_kept)

    def _dropped_on_one_side(self, shape: Shape) -> list[ColumnTriple]:
        """Return the columns that are not in the result because one side dropped them.

        They are compared too: a change of such a column by one side is a conflict if the other side deleted the row.
        """
        if self._sides.are_same:
            return []
        ours, theirs = (
            {pair.older: pair.newer for pair in side.columns if pair.older is not None}
            for side in (self._of_source, self._of_target)
        )
        known = {column.triple for column in shape.columns}
        found = [
            ColumnTriple(base=name, source=ours.get(name), target=theirs.get(name))
            for name in ours
            if (ours.get(name) is None) != (theirs.get(name) is None)
        ]
        return [triple for triple in found if triple not in known]

    def _base_rows(self, parts: tuple[Part, ...], *, by_ids: bool) -> RowSide | None:
        if self._base_version_ref is None:
            return None
        return RowSide(version_ref=self._base_version_ref, parts=parts, with_row_ids=by_ids, with_addresses=True)

    def _parts(
        self, version_ref: VersionRef, found: Difference, *, is_whole: bool, with_filled: bool
    ) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
        """Return the rows of the base and of a side that may differ."""
        base = self._base_version_ref
        if base is None or is_whole:
            return () if base is None else all_parts(base), all_parts(version_ref)
        # Ignore dropped columns: they have no values to merge.
        only_added = tuple(replace(part, dropped=()) for part in found.reshaped if part.added and with_filled)
        filled = find_filled(base, version_ref, replace(found, reshaped=only_added))
        older = (*found.older, *(part for part, _ in filled))
        return older, (*found.newer, *(part for _, part in filled))
