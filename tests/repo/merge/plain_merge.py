"""Tables as plain dicts, and their three-way merge as it is meant to be."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["UNKNOWN", "Plain", "PlainMerge", "merge_plain"]

Row = Mapping[str, Any]
# What several bases do not agree on: it is equal to nothing that a side can have.
UNKNOWN = object()


@dataclass(frozen=True)
class Plain:
    """A table: the columns that its rows have beside their key, and the rows by their key."""

    columns: frozenset[str]
    rows: Mapping[int, Row] = field(default_factory=dict)

    def padded(self) -> dict[int, dict[str, Any]]:
        return {key: {name: row.get(name) for name in self.columns} for key, row in self.rows.items()}


@dataclass
class PlainMerge:
    """What came of a merge, with the conflicts as (key, column), or (key, None) for a whole row."""

    result: Plain
    conflicts: set[tuple[int, str | None]]


def merge_plain(base: Plain | None, source: Plain, target: Plain, *, side: str | None) -> PlainMerge:
    """Merge; a `side` wins where there are conflicts, and with `unknown` neither does."""
    known = Plain(frozenset()) if base is None else base
    old, ours, theirs = known.padded(), source.padded(), target.padded()
    conflicts: set[tuple[int, str | None]] = set()
    rows: dict[int, Row] = {}
    for key in {*ours, *theirs}:
        found = _merge_row(old.get(key), ours.get(key), theirs.get(key), side=side)
        conflicts |= {(key, column) for column in found.conflicts}
        if found.row is not None:
            rows[key] = found.row
    return PlainMerge(Plain(source.columns | target.columns, rows), conflicts)


@dataclass
class _Merged:
    row: dict[str, Any] | None
    conflicts: tuple[str | None, ...] = ()


def _merge_row(base: Row | None, source: Row | None, target: Row | None, *, side: str | None) -> _Merged:
    if source is None or target is None:
        if base is None:
            there = target if source is None else source
            return _Merged(None if there is None else dict(there))
        return _merge_deleted(base, source, target, side=side)
    row: dict[str, Any] = {}
    conflicts = []
    for column in {*source, *target}:
        values = dict(_merge_cell(column, base, source, target))
        if len(values) == 1:
            (row[column],) = values.values()
            continue
        conflicts.append(column)
        row[column] = UNKNOWN if side == "unknown" else values["source" if side == "source" else "target"]
    return _Merged(row, tuple(conflicts))


def _merge_cell(column: str, base: Row | None, source: Row, target: Row) -> Iterator[tuple[str, Any]]:
    """The value by the side that it is of; both sides where they contradict each other."""
    if column not in target:
        yield "source", source[column]
    elif column not in source or source[column] == target[column]:
        yield "target", target[column]
    else:
        was = None if base is None else base.get(column)
        if base is None or source[column] != was:
            yield "source", source[column]
        if base is None or target[column] != was:
            yield "target", target[column]


def _merge_deleted(base: Row, source: Row | None, target: Row | None, *, side: str | None) -> _Merged:
    """A row of the base that at least one side deleted; values in new columns are no change of it."""
    there = target if source is None else source
    if there is None or all(there.get(column) == base[column] for column in base if column in there):
        return _Merged(None)
    if side == "unknown":
        return _Merged(dict.fromkeys(there, UNKNOWN), (None,))
    wins = source if side == "source" else target
    return _Merged(None if wins is None else dict(wins), (None,))
