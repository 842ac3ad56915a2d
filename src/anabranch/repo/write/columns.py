"""Changes of a table other than its rows, inside a transaction; each gives the draft that follows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from anabranch.errors import InvalidExpressionError, InvalidInputError
from anabranch.format import staging
from anabranch.format.arguments import checked_number
from anabranch.format.staging import (
    ColumnChange,
    IndexKind,
    Notes,
    Pin,
    RewriteTask,
    RewrittenFragments,
    VectorOptions,
)
from anabranch.repo.log.arguments import require_names
from anabranch.repo.write.homes import check_primary_key, check_unique
from anabranch.repo.write.staged_table import StagedTable, Step, one_time_step

__all__ = [
    "Rewriter",
    "add_columns",
    "alter_columns",
    "annotate",
    "compact",
    "drop_columns",
    "drop_index",
    "index_column",
    "require_expressions",
    "require_where",
    "set_primary_key",
]


class Rewriter(Protocol):
    """Rewrite the files of a table on many machines."""

    def rewrite(self, pin: Pin, tasks: Sequence[RewriteTask]) -> list[RewrittenFragments]:
        """Run the tasks of a compaction of one version."""
        ...


def add_columns(draft: StagedTable, columns: Mapping[str, str] | pa.Schema) -> StagedTable:
    if not isinstance(columns, pa.Schema):
        require_expressions(columns)
    return _after(draft, "add columns", staging.add_columns(draft.pin, columns))


def alter_columns(draft: StagedTable, changes: Sequence[ColumnChange]) -> StagedTable:
    """The primary key follows columns that are renamed."""
    _require_changes(changes)
    names = {change.path: change.name for change in changes if change.name is not None}
    primary_key = tuple(names.get(name, name) for name in draft.primary_key)
    staged = staging.alter_columns(draft.pin, changes)
    check_primary_key(draft.key, staged.schema, primary_key)
    return _after(replace(draft, primary_key=primary_key), "alter columns", staged)


def drop_columns(draft: StagedTable, columns: Sequence[str]) -> StagedTable:
    require_names(columns)
    for name in columns:
        if name in draft.primary_key:
            raise InvalidInputError(
                f"column {name!r} is part of the primary key of '{draft.key}'", hint="set another key first"
            )
    return _after(draft, "drop columns", staging.drop_columns(draft.pin, columns))


def set_primary_key(draft: StagedTable, columns: Sequence[str]) -> StagedTable:
    """No data is written; the rows must be a table of this key already."""
    check_primary_key(draft.key, draft.pin.schema, columns)
    if tuple(columns) == draft.primary_key:
        return draft
    check_unique(draft.pin, columns)
    return replace(draft, primary_key=tuple(columns)).then(one_time_step("set the primary key", draft.pin))


def index_column(
    draft: StagedTable, column: str, *, kind: str, name: str | None = None, vector: VectorOptions | None = None
) -> StagedTable:
    require_names([column])
    staged = staging.index(draft.pin, column, IndexKind.parse(kind), name=name, vector=vector)
    return _after(draft, "index", staged)


def drop_index(draft: StagedTable, name: str) -> StagedTable:
    return _after(draft, "drop the index", staging.drop_index(draft.pin, name))


def compact(draft: StagedTable, *, target_rows_per_fragment: int, rewriter: Rewriter | None = None) -> StagedTable:
    """The rows stay, so that it means the same on any other version."""
    checked_number(target_rows_per_fragment, "target_rows_per_fragment", hint="pass a number of rows")

    def compacted(pin: Pin) -> Pin:
        if rewriter is None:
            return staging.compact(pin, target_rows_per_fragment=target_rows_per_fragment)
        tasks = staging.plan_compaction(pin, target_rows_per_fragment=target_rows_per_fragment)
        return staging.stage_rewritten(pin, rewriter.rewrite(pin, tasks) if tasks else [])

    staged = compacted(draft.pin)
    return draft if staged == draft.pin else draft.then(Step("compact", staged, compacted))


def annotate(draft: StagedTable, notes: Notes, *, columns: Mapping[str, Notes]) -> StagedTable:
    _require_mapping(columns)
    for given in (notes, *columns.values()):
        _require_mapping(given)
        _require_notes(given)
    return _after(draft, "annotate", staging.annotate(draft.pin, notes, columns=columns))


def require_where(where: str | None, what: str) -> str:
    """Refuse a change of rows that does not name its rows: it is more often a mistake than a wish."""
    if where is None:
        raise InvalidExpressionError(
            f"the {what} has no predicate: where is None", hint=f"pass where=..., or where='true' to {what} all rows"
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


def _after(draft: StagedTable, name: str, staged: Pin) -> StagedTable:
    return draft if staged == draft.pin else draft.then(one_time_step(name, staged))
