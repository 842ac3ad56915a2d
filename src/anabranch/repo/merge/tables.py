"""Decide for each table of a merge whether it is added, dropped, renamed or merged."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from anabranch.ids import TableKey
from anabranch.repo.history.diff import find_renamed
from anabranch.repo.log.entries import TableEntry, TableMap
from anabranch.repo.merge.conflicts import Conflict, ConflictKind
from anabranch.repo.merge.resolve import Resolution

__all__ = ["TableState", "TableAction", "TableMerge", "is_same_state", "plan_tables"]


class TableAction(StrEnum):
    """The change of a table of the target: added from the source, dropped, merged by rows, or only renamed."""

    ADDED = "added"
    DROPPED = "dropped"
    MERGED = "merged"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True)
class TableState:
    """A table on one side: its key there, and its entry."""

    key: TableKey
    entry: TableEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMerge:
    """One table that the source changed. `key` is its key in the result."""

    key: TableKey
    action: TableAction
    base: TableState | None
    source: TableState | None
    target: TableState | None

    @property
    def is_untouched(self) -> bool:
        """Whether the target did not change the table since the base."""
        return is_same_state(_entry(self.base), _entry(self.target))


def is_same_state(one: TableEntry | None, other: TableEntry | None) -> bool:
    """Return whether two entries have the same rows and the same key. Settling does not change the state."""
    if one is None or other is None:
        return one is other
    return (one.dataset, one.home, one.version, one.primary_key) == (
        other.dataset,
        other.home,
        other.version,
        other.primary_key,
    )


def plan_tables(
    base: TableMap, source: TableMap, target: TableMap, resolution: Resolution
) -> tuple[list[TableMerge], list[Conflict]]:
    """Return the changes to the tables of the target, and the conflicts about whole tables."""
    conflicts: list[Conflict] = []
    merges = []
    for states in _match_tables(base, source, target):
        merge = _plan(*states, resolution=resolution, conflicts=conflicts)
        if merge is not None:
            merges.append(merge)
    conflicts += _duplicate_names(merges, target)
    return merges, conflicts


def _match_tables(
    base: TableMap, source: TableMap, target: TableMap
) -> Iterator[tuple[TableState | None, TableState | None, TableState | None]]:
    """Yield each table of the base or the source with its state on every side. It may have another key on each side."""
    ours, theirs = find_renamed(base, source), find_renamed(base, target)
    our_names = {old: new for new, old in ours.items()}
    their_names = {old: new for new, old in theirs.items()}
    for key in sorted(base):
        found = _find_state(base, key)
        yield found, _find_state(source, our_names.get(key, key)), _find_state(target, their_names.get(key, key))
    for key in sorted(source):
        if key not in base and key not in ours:
            there = None if key in base or key in theirs else _find_state(target, key)
            yield None, _find_state(source, key), there


def _find_state(tables: TableMap, key: TableKey) -> TableState | None:
    return TableState(key, tables[key]) if key in tables else None


def _plan(
    base: TableState | None,
    source: TableState | None,
    target: TableState | None,
    *,
    resolution: Resolution,
    conflicts: list[Conflict],
) -> TableMerge | None:
    if base == source or (base is not None and source is not None and _is_unchanged(base, source)):
        return None
    if source is None or target is None:
        return _plan_missing(base, source, target, resolution=resolution, conflicts=conflicts)
    name = source.key
    if base is not None and source.key in (base.key, target.key):
        name = target.key
    elif base is not None and target.key != base.key:
        side = resolution.for_table(target.key)
        if side is None:
            conflicts.append(
                _table_conflict(target.key, ConflictKind.SCHEMA, "both sides renamed it", *_keys(base, source, target))
            )
        name = source.key if side == "source" else target.key
    is_same = is_same_state(_entry(base), source.entry) or is_same_state(target.entry, source.entry)
    if is_same and name == target.key:
        return None
    action = TableAction.RENAMED if is_same else TableAction.MERGED
    return TableMerge(key=name, action=action, base=base, source=source, target=target)


def _plan_missing(
    base: TableState | None,
    source: TableState | None,
    target: TableState | None,
    *,
    resolution: Resolution,
    conflicts: list[Conflict],
) -> TableMerge | None:
    """Decide on a table that one of the sides does not have."""
    if source is None and target is None:
        return None
    if base is None and source is not None:
        return TableMerge(key=source.key, action=TableAction.ADDED, base=None, source=source, target=None)
    if base is None:
        return None
    existing = source or target
    side: str | None = "source"
    if target is None or not _is_unchanged(base, target):
        side = resolution.for_table(base.key)
        if side is None:
            problem = "the source dropped it, the target changed it"
            if target is None:
                problem = "the target dropped it, the source changed it"
            keys = _keys(base, source, target)
            conflicts.append(_table_conflict(base.key, ConflictKind.DELETE_VS_UPDATE, problem, *keys))
    if side != "source" or existing is None:
        return None
    action = TableAction.DROPPED if source is None else TableAction.ADDED
    return TableMerge(key=existing.key, action=action, base=base, source=source, target=target)


def _is_unchanged(base: TableState, now: TableState) -> bool:
    return base.key == now.key and is_same_state(base.entry, now.entry)


def _duplicate_names(merges: list[TableMerge], target: TableMap) -> Iterator[Conflict]:
    """Yield a conflict for each name that two tables would have."""
    leaving = {merge.target.key for merge in merges if merge.target is not None}
    staying = {key for key in target if key not in leaving}
    names = [merge.key for merge in merges if merge.action is not TableAction.DROPPED]
    for name in sorted({name for name in names if name in staying or names.count(name) > 1}):
        yield _table_conflict(name, ConflictKind.SCHEMA, "two tables would have this name", None, str(name), str(name))


def _entry(state: TableState | None) -> TableEntry | None:
    return None if state is None else state.entry


def _keys(*states: TableState | None) -> list[str | None]:
    return [None if state is None else str(state.key) for state in states]


def _table_conflict(
    key: TableKey, kind: ConflictKind, problem: str, base: str | None, source: str | None, target: str | None
) -> Conflict:
    return Conflict(table=str(key), kind=kind, base=base, source=source, target=target, problem=problem)
