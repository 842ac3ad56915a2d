"""Which tables a merge is about, and what becomes of each as a whole."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from anabranch.ids import TableKey
from anabranch.repo.history.diff import find_renamed
from anabranch.repo.log.entries import TableEntry, TableMap
from anabranch.repo.merge.conflicts import Conflict, ConflictKind
from anabranch.repo.merge.resolving import Resolution

__all__ = ["Place", "TableAction", "TableMerge", "is_same_state", "plan_tables"]


class TableAction(StrEnum):
    """What is done to a table of the target: the source's comes, it goes, its rows are merged, or only its name is."""

    ADDED = "added"
    DROPPED = "dropped"
    MERGED = "merged"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True)
class Place:
    """A table on one side: what it is called there, and its entry."""

    key: TableKey
    entry: TableEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMerge:
    """One table that the source changed; `key` is what it is called in the result."""

    key: TableKey
    action: TableAction
    base: Place | None
    source: Place | None
    target: Place | None

    @property
    def is_untouched(self) -> bool:
        """Whether the target has it as it was in the base."""
        return is_same_state(_entry(self.base), _entry(self.target))


def is_same_state(one: TableEntry | None, other: TableEntry | None) -> bool:
    """Whether two entries are the same rows in the same shape; where their home was settled to is no matter."""
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
    """What is to be done to the tables of the target, and what cannot be decided."""
    conflicts: list[Conflict] = []
    merges = []
    for places in _follow(base, source, target):
        merge = _plan(*places, resolution=resolution, conflicts=conflicts)
        if merge is not None:
            merges.append(merge)
    conflicts += _same_names(merges, target)
    return merges, conflicts


def _follow(
    base: TableMap, source: TableMap, target: TableMap
) -> Iterator[tuple[Place | None, Place | None, Place | None]]:
    """Each table of the base or the source with what it is on every side, whatever it is called there."""
    ours, theirs = find_renamed(base, source), find_renamed(base, target)
    our_names = {old: new for new, old in ours.items()}
    their_names = {old: new for new, old in theirs.items()}
    for key in sorted(base):
        found = _place(base, key)
        yield found, _place(source, our_names.get(key, key)), _place(target, their_names.get(key, key))
    for key in sorted(source):
        if key not in base and key not in ours:
            there = None if key in base or key in theirs else _place(target, key)
            yield None, _place(source, key), there


def _place(tables: TableMap, key: TableKey) -> Place | None:
    return Place(key, tables[key]) if key in tables else None


def _plan(
    base: Place | None,
    source: Place | None,
    target: Place | None,
    *,
    resolution: Resolution,
    conflicts: list[Conflict],
) -> TableMerge | None:
    if base == source or (base is not None and source is not None and _is_still(base, source)):
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
    base: Place | None,
    source: Place | None,
    target: Place | None,
    *,
    resolution: Resolution,
    conflicts: list[Conflict],
) -> TableMerge | None:
    """One of the sides does not have it."""
    if source is None and target is None:
        return None
    if base is None and source is not None:
        return TableMerge(key=source.key, action=TableAction.ADDED, base=None, source=source, target=None)
    if base is None:
        return None
    there = source or target
    side: str | None = "source"
    if target is None or not _is_still(base, target):
        side = resolution.for_table(base.key)
        if side is None:
            problem = "the source dropped it, the target changed it"
            if target is None:
                problem = "the target dropped it, the source changed it"
            told = _keys(base, source, target)
            conflicts.append(_table_conflict(base.key, ConflictKind.DELETE_VS_UPDATE, problem, *told))
    if side != "source" or there is None:
        return None
    action = TableAction.DROPPED if source is None else TableAction.ADDED
    return TableMerge(key=there.key, action=action, base=base, source=source, target=target)


def _is_still(base: Place, now: Place) -> bool:
    return base.key == now.key and is_same_state(base.entry, now.entry)


def _same_names(merges: list[TableMerge], target: TableMap) -> Iterator[Conflict]:
    """Tables that would have one name."""
    leaving = {merge.target.key for merge in merges if merge.target is not None}
    staying = {key for key in target if key not in leaving}
    names = [merge.key for merge in merges if merge.action is not TableAction.DROPPED]
    for name in sorted({name for name in names if name in staying or names.count(name) > 1}):
        yield _table_conflict(name, ConflictKind.SCHEMA, "two tables would have this name", None, str(name), str(name))


def _entry(place: Place | None) -> TableEntry | None:
    return None if place is None else place.entry


def _keys(*places: Place | None) -> list[str | None]:
    return [None if place is None else str(place.key) for place in places]


def _table_conflict(
    key: TableKey, kind: ConflictKind, problem: str, base: str | None, source: str | None, target: str | None
) -> Conflict:
    return Conflict(table=str(key), kind=kind, base=base, source=source, target=target, problem=problem)
