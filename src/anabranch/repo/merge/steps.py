"""The steps of a merge as values: the change of each table of the target. Nothing here reads or writes.

`combiner` decides which tables are added, dropped, renamed or matched; `matched_table` plans the columns and rows of
those that are matched. `apply` counts a step, or stages it. A step does not hold rows, only where they are stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from anabranch.format.staging import IndexRecipe, VersionRef
from anabranch.ids import TableKey
from anabranch.repo.history.comparer import RowMerge, TableCounts, count_rows
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import TableEntry, is_same_state
from anabranch.repo.merge.conflict_resolution import TableResolution
from anabranch.repo.merge.conflict_types import Conflict
from anabranch.repo.merge.shapes import MergedNotes, Shape
from anabranch.repo.snapshot import Table

NO_ROWS = TableCounts()


class TableAction(StrEnum):
    """The change of a table of the target: added from the source, dropped, merged by rows, or only renamed.

    `undecided`: a conflict about the name or the existence of the table is left.
    """

    ADDED = "added"
    DROPPED = "dropped"
    MERGED = "merged"
    RENAMED = "renamed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class TableState:
    """A table on one side: its key there, and its entry."""

    key: TableKey
    entry: TableEntry

    def as_table(self, config: RepoConfig) -> Table:
        return Table(config, self.key, self.entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMatch:
    """A table that both sides have, and that the source changed. `key` is its key in the result.

    `names` are its keys that no other table of the result has, its own key first.
    """

    key: TableKey
    base: TableState | None
    source: TableState
    target: TableState
    names: tuple[TableKey, ...] = ()

    @property
    def is_untouched(self) -> bool:
        """Whether the target did not change the table since the base."""
        return self.base is not None and is_same_state(self.base.entry, self.target.entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """The change of one table. The defaults are those of a step that changes no rows and keeps the name.

    `conflicts` are those of columns, keys and notes. `wanted` are the indices of a table that has no rows to build them
    from.
    """

    conflicts: tuple[Conflict, ...] = ()
    wanted: tuple[str, ...] = ()

    @property
    def rows_read(self) -> int:
        """The number of rows that are read or copied to apply the step."""
        return 0

    @property
    def renamed_from(self) -> TableKey | None:
        """The key of the table in the target, if the result has another one."""
        return None

    @property
    def counts(self) -> TableCounts:
        """The number of rows that change, without those that are merged one by one."""
        return NO_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class AddTable(_Step):
    """Copy a table that only the source has."""

    action: ClassVar[TableAction] = TableAction.ADDED
    key: TableKey
    source: TableState

    @property
    def counts(self) -> TableCounts:
        return TableCounts(inserted=self.source.entry.rows)

    @property
    def rows_read(self) -> int:
        return self.source.entry.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable(_Step):
    """Drop a table that the source dropped."""

    action: ClassVar[TableAction] = TableAction.DROPPED
    key: TableKey
    target: TableState

    @property
    def counts(self) -> TableCounts:
        return TableCounts(deleted=self.target.entry.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable(_Step):
    """Rename a table whose rows the source did not change."""

    action: ClassVar[TableAction] = TableAction.RENAMED
    key: TableKey
    target: TableState

    @property
    def renamed_from(self) -> TableKey | None:
        return self.target.key


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedStep(_Step):
    """The change of a table that both sides have."""

    action: ClassVar[TableAction] = TableAction.MERGED
    match: TableMatch
    shape: Shape

    @property
    def key(self) -> TableKey:
        return self.match.key

    @property
    def target(self) -> TableState:
        return self.match.target

    @property
    def renamed_from(self) -> TableKey | None:
        return None if self.target.key == self.key else self.target.key


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepTable(MatchedStep):
    """Keep the table of the target: its rows cannot be matched or merged with those of the source."""

    @property
    def taken_from(self) -> str | None:
        return None if self.conflicts else "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceTable(MatchedStep):
    """Copy the table of the source over that of the target."""

    @property
    def taken_from(self) -> str | None:
        return None if self.match.is_untouched else "source"

    @property
    def counts(self) -> TableCounts:
        return TableCounts(inserted=self.match.source.entry.rows, deleted=self.target.entry.rows)

    @property
    def rows_read(self) -> int:
        return self.match.source.entry.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTable(MatchedStep):
    """Change the columns and notes of the target, merge the rows one by one, then build and drop indices.

    `rows` are matched by the key of the shape, or, if it has none, by their row ids. `version_ref` is the version of
    the target that was compared, `fragments` maps the fragments of the base to those of the target with the same rows.
    `undecided_columns` have a conflict of their own, so nulls in them are not reported. `has_same_schema` is True if no
    side changed the columns.
    """

    notes: MergedNotes
    built_indices: tuple[IndexRecipe, ...]
    dropped_indices: tuple[str, ...]
    rows: RowMerge
    version_ref: VersionRef
    fragments: Mapping[int, int]
    resolution: TableResolution
    undecided_columns: frozenset[str] = frozenset()
    has_same_schema: bool = False

    @property
    def rows_read(self) -> int:
        return count_rows(self.rows)

    @property
    def changes_columns(self) -> bool:
        """Whether the columns, the notes, the key or the name of the table change, or indices are dropped."""
        target, shape = self.match.target, self.shape
        if target.entry.primary_key != shape.primary_key or self.renamed_from:
            return True
        return bool(shape.added or shape.dropped or shape.altered or self.notes or self.dropped_indices)


TableStep = AddTable | DropTable | RenameTable | KeepTable | ReplaceTable | MergeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSteps:
    """The plan of a merge: a step for each table that the source changed, and the conflicts about whole tables."""

    steps: tuple[TableStep, ...]
    conflicts: tuple[Conflict, ...] = ()

    @property
    def has_conflicts(self) -> bool:
        """Whether there are conflicts already before rows are compared."""
        return bool(self.conflicts) or any(step.conflicts for step in self.steps)
