"""Changes of a table other than its rows, inside a transaction; each returns the staged table that follows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from anabranch.errors import InvalidExpressionError, InvalidInputError
from anabranch.format import staging
from anabranch.format.arguments import checked_number, require_names
from anabranch.format.staging import (
    ColumnChange,
    IndexKind,
    Notes,
    RewriteTask,
    RewrittenFragments,
    VectorOptions,
    VersionRef,
)
from anabranch.repo.write.homes import check_primary_key, check_unique
from anabranch.repo.write.staged_table import StagedTable, Step, one_time_step


class Rewriter(Protocol):
    """Rewrite the files of a table on many machines."""

    def rewrite(self, version_ref: VersionRef, tasks: Sequence[RewriteTask]) -> list[RewrittenFragments]:
        """Run the tasks of a compaction of one version."""
        ...


def add_columns(staged_table: StagedTable, columns: Mapping[str, str] | pa.Schema) -> StagedTable:
    if not isinstance(columns, pa.Schema):
        require_expressions(columns)
    return _after(staged_table, "add columns", staging.add_columns(staged_table.version_ref, columns))


def alter_columns(staged_table: StagedTable, changes: Sequence[ColumnChange]) -> StagedTable:
    """Change columns. The primary key and the indices follow columns that are renamed or get another type."""
    _require_changes(changes)
    names = {change.path: change.name for change in changes if change.name is not None}
    primary_key = tuple(names.get(name, name) for name in staged_table.primary_key)
    staged = staging.alter_columns(staged_table.version_ref, changes)
    check_primary_key(staged_table.key, staged.schema, primary_key)
    # A column with another type is written again, without the indices that it had.
    if any(change.type is not None for change in changes):
        staged = staging.keep_indices(staged, of=staged_table.version_ref, names=names)
    return _after(replace(staged_table, primary_key=primary_key), "alter columns", staged)


def drop_columns(staged_table: StagedTable, columns: Sequence[str]) -> StagedTable:
    require_names(columns)
    for name in columns:
        if name in staged_table.primary_key:
            raise InvalidInputError(
                f"column {name!r} is part of the primary key of '{staged_table.key}'", hint="set another key first"
            )
    return _after(staged_table, "drop columns", staging.drop_columns(staged_table.version_ref, columns))


def set_primary_key(staged_table: StagedTable, columns: Sequence[str]) -> StagedTable:
    """No data is written; the rows must be a table of this key already."""
    check_primary_key(staged_table.key, staged_table.version_ref.schema, columns)
    # The rows are a table of this key already, so that they need not be read.
    if tuple(columns) == staged_table.primary_key:
        return staged_table
    check_unique(staged_table.version_ref, columns)
    return replace(staged_table, primary_key=tuple(columns)).then(
        one_time_step("set the primary key", staged_table.version_ref)
    )


def index_column(
    staged_table: StagedTable, column: str, *, kind: str, name: str | None = None, vector: VectorOptions | None = None
) -> StagedTable:
    require_names([column])
    staged = staging.index(staged_table.version_ref, column, IndexKind.parse(kind), name=name, vector=vector)
    return _after(staged_table, "index", staged)


def drop_index(staged_table: StagedTable, name: str) -> StagedTable:
    return _after(staged_table, "drop the index", staging.drop_index(staged_table.version_ref, name))


def compact(
    staged_table: StagedTable, *, target_rows_per_fragment: int, rewriter: Rewriter | None = None
) -> StagedTable:
    """The rows stay, so that it means the same on any other version."""
    checked_number(target_rows_per_fragment, "target_rows_per_fragment", hint="pass a number of rows")

    def compacted(version_ref: VersionRef) -> VersionRef:
        if rewriter is None:
            return staging.compact(version_ref, target_rows_per_fragment=target_rows_per_fragment)
        tasks = staging.plan_compaction(version_ref, target_rows_per_fragment=target_rows_per_fragment)
        return staging.stage_rewritten(version_ref, rewriter.rewrite(version_ref, tasks) if tasks else [])

    staged = compacted(staged_table.version_ref)
    return staged_table if staged == staged_table.version_ref else staged_table.then(Step("compact", staged, compacted))


def annotate(staged_table: StagedTable, notes: Notes, *, columns: Mapping[str, Notes]) -> StagedTable:
    _require_mapping(columns)
    for given in (notes, *columns.values()):
        _require_mapping(given)
        _require_notes(given)
    return _after(staged_table, "annotate", staging.annotate(staged_table.version_ref, notes, columns=columns))


def with_fitting_defaults(staged_table: StagedTable, columns: Iterable[str]) -> StagedTable:
    """Return a changed table. Raise SchemaMismatchError if a default of these columns does not fit its column."""
    schema = staged_table.version_ref.schema
    names = [name for name in columns if name in schema.names]
    if names:
        staging.check_defaults(schema, names)
    return staged_table


def require_where(where: str | None, what: str) -> str:
    """Refuse a change of rows that does not name its rows: it is more often a mistake than a wish."""
    if where is None:
        raise InvalidExpressionError(
            f"the {what} has no predicate",
            hint=f"pass `where=...`, or `where='true'` to {what} all rows",
        )
    return where


def require_expressions(given: object) -> None:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise InvalidInputError(
            f"{given!r} does not map columns to expressions", hint="give a dict such as {'price': 'price * 2'}"
        )


def _require_changes(given: object) -> None:
    if not isinstance(given, Sequence) or not all(isinstance(change, ColumnChange) for change in given):
        raise InvalidInputError(f"{given!r} is not a list of column changes", hint="give a list of ColumnChange")


def _require_mapping(given: object) -> None:
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"{given!r} is not a mapping of notes", hint="pass a dict such as {'owner': 'ada'}")


def _require_notes(given: Any) -> None:
    for name, text in given.items():
        if not isinstance(name, str) or not (text is None or isinstance(text, str)):
            raise InvalidInputError(f"the note {name!r}: {text!r} is not text", hint="use text, or None to remove it")


def _after(staged_table: StagedTable, name: str, staged: VersionRef) -> StagedTable:
    return staged_table if staged == staged_table.version_ref else staged_table.then(one_time_step(name, staged))
