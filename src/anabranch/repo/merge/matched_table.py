"""Plan the merge of a table that both sides have: its columns, its notes, and which rows to compare.

Only manifests and deletion files are read, and rows only to find out whether a dropped column was still used.
"""

import threading
from dataclasses import dataclass, replace

from anabranch.format.descent import descends_from
from anabranch.format.difference import Difference, compare_versions, find_filled, match_fragments
from anabranch.format.parts import Part, all_parts
from anabranch.repo.history.comparer import RowComparer, RowMerge, RowSide
from anabranch.repo.history.diff import RowChangeKind, TableDiff
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import StateId
from anabranch.repo.merge.conflicts import Conflict, ConflictKind
from anabranch.repo.merge.notes import MergedNotes, merge_notes
from anabranch.repo.merge.resolve import Resolution
from anabranch.repo.merge.shapes import SchemaSides, Shape, merge_shapes
from anabranch.repo.merge.steps import KeepTable, MergeTable, ReplaceTable, RowPlan, TableMatch, TableState
from anabranch.repo.snapshot import Table

__all__ = ["TablePlanner"]

# Tables are planned in parallel. Rows of only one of them are read at a time, because they may need much memory.
_READING_ROWS = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlanner:
    """Plans the merge of matched tables, with one way to resolve conflicts."""

    context: RepoConfig
    comparer: RowComparer
    resolution: Resolution

    def plan(self, match: TableMatch) -> KeepTable | ReplaceTable | MergeTable:
        """Return the step that merges a table. Conflicts between rows are found later, when the step is applied."""
        return _MatchedTable(self, match).plan()

    def table(self, state: TableState) -> Table:
        return Table(self.context, state.key, state.entry)


class _MatchedTable:
    """A table in the base and on both sides, while its merge is planned."""

    def __init__(self, planner: TablePlanner, match: TableMatch) -> None:
        self._planner, self._match = planner, match
        self._base = None if match.base is None else planner.table(match.base)
        self._source, self._target = planner.table(match.source), planner.table(match.target)
        self._side = planner.resolution.for_table(match.key)
        self._conflicts: list[Conflict] = []
        self._differences: dict[StateId, Difference] = {}

    def plan(self) -> KeepTable | ReplaceTable | MergeTable:
        shape, notes = self._merge_shapes()
        match = self._match
        if match.is_untouched:
            # Rows without a key are identified by their row ids, which a copy of the table would lose.
            if self._is_rewritten() and not self._can_match_ids():
                return ReplaceTable(match=match, shape=shape, conflicts=tuple(self._conflicts))
            is_compared = False
        elif shape.matched_by or self._can_match_ids():
            is_compared = True
        elif self._only_appends():
            is_compared = False
        else:
            return self._plan_unmatched(shape)
        rows = self._plan_rows(shape, is_compared=is_compared)
        return MergeTable(match=match, shape=shape, notes=notes, rows=rows, conflicts=tuple(self._conflicts))

    def _plan_unmatched(self, shape: Shape) -> KeepTable | ReplaceTable:
        """Decide on a table whose rows cannot be matched: one side wins."""
        has_keys = bool(self._source.primary_key or self._target.primary_key)
        if self._side is None and not shape.conflicts:
            if has_keys:
                self._conflict(ConflictKind.SCHEMA, "its key was changed, and rows on both sides")
            else:
                self._conflict(ConflictKind.KEYLESS, "its rows cannot be matched")
        step = ReplaceTable if self._side == "source" else KeepTable
        return step(match=self._match, shape=shape, conflicts=tuple(self._conflicts))

    # Columns and notes

    def _merge_shapes(self) -> tuple[Shape, MergedNotes]:
        base = self._base
        sides = SchemaSides(
            base=base,
            source=self._source,
            target=self._target,
            of_source=() if base is None else self._difference(base, self._source).columns,
            of_target=() if base is None else self._difference(base, self._target).columns,
        )
        shape = merge_shapes(str(self._match.key), sides, side=self._side, is_used=self._is_used)
        self._conflicts += shape.conflicts
        notes = merge_notes(sides, shape.columns, self._decide_on_note)
        return shape.loosened() if self._planner.resolution.any_cell is not None else shape, notes

    def _decide_on_note(self, column: str | None, values: tuple[str | None, str | None, str | None]) -> str:
        """Return the side whose note is used. Add a conflict if no strategy decides."""
        if self._side is None:
            self._conflict(ConflictKind.SCHEMA, "both sides changed this note", column=column, values=values)
        return self._side or "target"

    def _is_used(self, table: Table, column: str) -> bool:
        """Return whether rows that changed since the base have new values in a column."""
        comparer = self._planner.comparer
        diff = TableDiff(str(self._match.key), before=self._base, after=table, load_comparer=lambda: comparer)
        with _READING_ROWS:
            for row in diff.iter_rows():
                if row.change is RowChangeKind.UPDATED and column in row.columns:
                    return True
                if row.change is RowChangeKind.INSERTED and row.after is not None and row.after[column] is not None:
                    return True
        return False

    def _conflict(
        self,
        kind: ConflictKind,
        problem: str,
        *,
        column: str | None = None,
        values: tuple[str | None, str | None, str | None] = (None, None, None),
    ) -> None:
        base, source, target = values
        key = str(self._match.key)
        found = Conflict(table=key, kind=kind, column=column, base=base, source=source, target=target, problem=problem)
        self._conflicts.append(found)

    # How the rows can be matched

    def _is_rewritten(self) -> bool:
        """Return whether the source replaced all files of the base, so that no row is known to be unchanged."""
        base = self._base
        return base is not None and base.count_rows() > 0 and not match_fragments(base.pin, self._source.pin)

    def _can_match_ids(self) -> bool:
        """Return whether rows without a key can be matched by row id: both sides must descend from the base."""
        if self._base is None or self._source.primary_key or self._target.primary_key:
            return False
        base = self._base.pin
        return descends_from(self._source.pin, base) and descends_from(self._target.pin, base)

    def _only_appends(self) -> bool:
        """Return whether the source only appended rows to a table without a key. Such rows need no match."""
        if self._base is None or self._base.primary_key or self._source.primary_key or self._target.primary_key:
            return False
        found = self._difference(self._base, self._source)
        return not found.older and not found.reshaped

    # Which rows are read

    def _plan_rows(self, shape: Shape, *, is_compared: bool) -> RowPlan:
        """Return the rows to merge. Without `is_compared`, rows of the source need no match in the target."""
        base = self._base
        return RowPlan(
            key=self._match.key,
            sides=self._row_merge(shape, is_compared=is_compared),
            columns=shape.columns,
            key_names=shape.primary_key if shape.matched_by else (),
            pin=self._target.pin,
            fragments={} if base is None else match_fragments(base.pin, self._target.pin),
            resolution=self._planner.resolution,
        )

    def _row_merge(self, shape: Shape, *, is_compared: bool) -> RowMerge:
        both_added = any(
            column.triple.base is None and column.triple.source and column.triple.target for column in shape.columns
        )
        by_ids = not shape.matched_by
        older, source = self._sides(self._source, is_whole=bool(shape.restored), with_filled=True, by_ids=by_ids)
        base, target = (None, None)
        if is_compared:
            base, target = self._sides(self._target, is_whole=False, with_filled=both_added, by_ids=by_ids)
        return RowMerge(
            base_of_source=older,
            source=source,
            base_of_target=base,
            target=target,
            columns=[column.triple for column in shape.columns],
            keys=shape.matched_by,
        )

    def _difference(self, base: Table, table: Table) -> Difference:
        """Return the difference between the base and a side. It is cached, because columns and rows both need it."""
        state = table.entry.state
        if state not in self._differences:
            self._differences[state] = compare_versions(base.pin, table.pin)
        return self._differences[state]

    def _sides(
        self, table: Table, *, is_whole: bool, with_filled: bool, by_ids: bool
    ) -> tuple[RowSide | None, RowSide]:
        """Return the rows of the base and of a side that may differ."""
        newer: tuple[Part, ...]
        if self._base is None or is_whole:
            older, newer = () if self._base is None else all_parts(self._base.pin), all_parts(table.pin)
        else:
            found = self._difference(self._base, table)
            # Ignore dropped columns: they have no values to merge.
            only_added = tuple(replace(part, dropped=()) for part in found.reshaped if part.added and with_filled)
            filled = find_filled(self._base.pin, table.pin, replace(found, reshaped=only_added))
            older = (*found.older, *(part for part, _ in filled))
            newer = (*found.newer, *(part for _, part in filled))
        before = None
        if self._base is not None:
            before = RowSide(pin=self._base.pin, parts=older, with_row_ids=by_ids, with_addresses=True)
        is_target = table is self._target
        return before, RowSide(pin=table.pin, parts=newer, with_row_ids=by_ids or is_target, with_addresses=is_target)
