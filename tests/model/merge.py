"""Three-way merges of many plain tables, and which of their possible ends a real one came to."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Protocol

from anabranch.errors import MergeConflictError
from tests.model.graph import find_table_bases, lowest_common
from tests.model.history import ModelView, Tables
from tests.model.table import ModelTable
from tests.model.table_merge import Anything, Clash, Outcome, Side, copy_of, merge_table, subsets

__all__ = [
    "Decided",
    "Merge",
    "Witness",
    "after_collection",
    "decide",
    "merge_tables",
    "merge_views",
    "pick_tables",
]

_HINT = "the model has no advice"
Changes = Mapping[str, ModelTable | None]


class Witness(Protocol):
    """Who saw how a real merge ended."""

    @property
    def conflicts(self) -> int | None:
        """How many there were, None if there was another end."""

    @property
    def has_result(self) -> bool: ...

    def is_now(self, key: str, table: ModelTable | None) -> bool:
        """Whether a table became this one."""

    def arrange(self, key: str, table: ModelTable) -> ModelTable:
        """The same table with its columns in the order that they really have."""

    def take_all(self, target: Tables) -> Changes:
        """All tables that differ from the target's."""

    def take(self, key: str, target: ModelTable) -> ModelTable | None:
        """A table as it really is by now, made from one of the target."""


@dataclass(slots=True, kw_only=True)
class Merge:
    """What may become of the tables of the target, by their names there, and conflicts about whole tables.

    A table that is to stay is not named, unless it may also become another state. `without_ids` is what else may become
    of some where states between were collected. Of a merge that `is_open` the model knows nothing: both sides were
    merged with each other before, in ways that do not agree.
    """

    outcomes: dict[str, list[Outcome | None]] = field(default_factory=dict)
    without_ids: dict[str, list[Outcome]] = field(default_factory=dict)
    clashes: int = 0
    is_open: bool = False

    def totals(self) -> set[int]:
        """How many conflicts there may be, 0 if none."""
        counts = [{_conflicts_of(outcome) for outcome in outcomes} for outcomes in self.outcomes.values()]
        return {self.clashes + sum(found) for found in product(*counts)}

    @property
    def is_unforeseen(self) -> bool:
        return self.is_open or any(
            isinstance(outcome, Anything) for outcomes in self.outcomes.values() for outcome in outcomes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """How a merge ends: with conflicts, or with these tables."""

    conflicts: int = 0
    changes: Changes = field(default_factory=dict)
    merge: Merge

    def refuse_conflicts(self) -> None:
        if self.conflicts:
            problem = f"both sides changed the same: {self.merge}"
            raise MergeConflictError(problem, hint=_HINT, conflicts=(), count=self.conflicts)


def decide(merges: Sequence[Merge], witness: Witness, target: Tables) -> Decided:
    """The end that was seen, if it is among those that may be; else the one to be expected."""
    for merge in merges:
        if witness.conflicts is not None:
            if witness.conflicts in merge.totals() or merge.is_unforeseen:
                return Decided(conflicts=witness.conflicts, merge=merge)
        elif (changes := _seen(merge, witness, target)) is not None:
            return Decided(changes=_without_same(changes, target), merge=merge)
    first = merges[0]
    conflicts = min(first.totals())
    if conflicts:
        return Decided(conflicts=conflicts, merge=first)
    changes = {key: _expected(found) for key, found in first.outcomes.items()}
    return Decided(changes=_without_same(changes, target), merge=first)


def after_collection(merge: Merge) -> Merge:
    """The same merge where states between may have been collected."""
    more = merge.without_ids
    return replace(merge, outcomes={key: [*found, *more.get(key, ())] for key, found in merge.outcomes.items()})


def _seen(merge: Merge, witness: Witness, target: Tables) -> Changes | None:
    """The tables that were seen, None if others were."""
    if merge.is_open and witness.has_result:
        return witness.take_all(target)
    if merge.clashes or not witness.has_result:
        return None
    changes: dict[str, ModelTable | None] = {}
    for key, outcomes in merge.outcomes.items():
        for outcome in outcomes:
            if isinstance(outcome, Anything):
                changes[key] = witness.take(key, outcome.target)
            elif not isinstance(outcome, Clash) and witness.is_now(key, outcome):
                changes[key] = None if outcome is None else witness.arrange(key, outcome)
            else:
                continue
            break
        else:
            return None
    return changes


def _without_same(changes: Changes, target: Tables) -> Changes:
    return {key: table for key, table in changes.items() if table is not target.get(key)}


def _expected(outcomes: Sequence[Outcome | None]) -> ModelTable | None:
    for outcome in outcomes:
        if not isinstance(outcome, Clash):
            return outcome.target if isinstance(outcome, Anything) else outcome
    return None


def _conflicts_of(outcome: Outcome | None) -> int:
    return outcome.conflicts if isinstance(outcome, Clash) else 0


@dataclass(frozen=True, slots=True)
class _Place:
    """A table on one side, and what it is called there."""

    key: str
    table: ModelTable


class _Plan:
    """What is to be done to the tables of a target, found table by table."""

    def __init__(self, target: Tables, side: Side) -> None:
        self._target, self._side = target, side
        self.merge = Merge()
        self.names: list[str] = []
        self.leaving: set[str] = set()

    def add(self, base: _Place | None, source: _Place | None, target: _Place | None) -> None:
        if base == source:
            return
        if base is None and target is None and source is not None:
            self._come(source)
        elif base is not None and (source is None or target is None):
            self._add_missing(base, source, target)
        elif source is not None and target is not None:
            self._add_present(base, source, target)

    def _add_missing(self, base: _Place, source: _Place | None, target: _Place | None) -> None:
        """One side dropped it."""
        if source is None and target is None:
            return
        side: Side = "source"
        if target is None or base != target:
            side = self._side
            self.merge.clashes += side is None
        if side == "source" and source is not None:
            self._come(source)
        elif side == "source" and target is not None:
            self.merge.outcomes[target.key] = [None]
            self.leaving.add(target.key)

    def _come(self, source: _Place) -> None:
        is_taken = any(table.dataset == source.key for table in self._target.values())
        dataset = object() if is_taken else source.key
        self.merge.outcomes[source.key] = [copy_of(source.table, dataset=dataset, made_from=None)]
        self.names.append(source.key)

    def _add_present(self, base: _Place | None, source: _Place, target: _Place) -> None:
        name = source.key
        if base is not None and source.key in (base.key, target.key):
            name = target.key
        elif base is not None and target.key != base.key:
            self.merge.clashes += self._side is None
            name = source.key if self._side == "source" else target.key
        before = None if base is None else base.table
        if source.table in (before, target.table):
            if name == target.key:
                return
            forked = replace(target.table, made_from=target.table, is_copied=False)
            self.merge.outcomes[name] = [target.table, forked]
        else:
            sides = (before, source.table, target.table, self._side)
            self.merge.outcomes[name] = [*merge_table(*sides)]
            self.merge.without_ids[name] = merge_table(*sides, are_ids_lost=True)
            if name != target.key and target.table in self.merge.outcomes[name]:
                self.merge.outcomes[name].append(replace(target.table, made_from=target.table, is_copied=False))
        if name != target.key:
            self.merge.outcomes.setdefault(target.key, [None])
        self.names.append(name)
        self.leaving.add(target.key)


def merge_tables(base: Tables, source: Tables, target: Tables, side: Side = None) -> Merge:
    """What the source did since the base, done to the target."""
    plan = _Plan(target, side)
    for places in _follow(base, source, target):
        plan.add(*places)
    staying, names = target.keys() - plan.leaving, plan.names
    plan.merge.clashes += sum(1 for name in set(names) if name in staying or names.count(name) > 1)
    return plan.merge


def _follow(
    base: Tables, source: Tables, target: Tables
) -> Iterator[tuple[_Place | None, _Place | None, _Place | None]]:
    """Each table of the base or the source on all sides, by whatever name."""
    ours, theirs = _renamed(base, source), _renamed(base, target)
    for key in sorted(base):
        yield _at(base, key), _at(source, ours.get(key, key)), _at(target, theirs.get(key, key))
    for key in sorted(source.keys() - base.keys() - set(ours.values())):
        yield None, _at(source, key), None if key in theirs.values() else _at(target, key)


def _renamed(before: Tables, after: Tables) -> dict[str, str]:
    """What tables are called by now whose name is gone, {old: new}."""
    come = [key for key in sorted(after) if key not in before]
    found: dict[str, str] = {}
    for old in sorted(before.keys() - after.keys()):
        new = next((new for new in come if after[new].dataset == before[old].dataset), None)
        if new is not None:
            come.remove(new)
            found[old] = new
    return found


def _at(tables: Tables, key: str) -> _Place | None:
    return _Place(key, tables[key]) if key in tables else None


def merge_views(source: ModelView, target: ModelView, side: Side) -> Merge:
    """What a ref did since it parted from a branch, done to that."""
    ours, theirs = source.tables, target.tables
    base: dict[str, ModelTable] = {}
    contested: set[str] = set()
    for key in {*ours, *theirs, *_former_keys(source, target)}:
        if key in ours and ours[key] is theirs.get(key):
            continue
        match find_table_bases(source, target, key):
            case [ModelTable() as found]:
                base[key] = found
            case [None] | []:
                pass
            case _:
                contested.add(key)
    if any(key not in ours or key not in theirs for key in contested):
        return Merge(is_open=True)
    touched = {key: table for key, table in ours.items() if key in base or table is not theirs.get(key)}
    merge = merge_tables(base, {key: touched[key] for key in touched if key not in contested}, theirs, side)
    merge.outcomes.update({key: [Anything(theirs[key])] for key in contested})
    return merge


def _former_keys(source: ModelView, target: ModelView) -> set[str]:
    """What tables were called when two views parted."""
    parted = lowest_common(source.commit, target.commit, lambda commit: commit.parents)
    seen = [commit for commit in (source.saw, target.saw) if commit is not None]
    return {key for commit in (*parted, *seen) for key in commit.tables}


def pick_tables(before: Tables, after: Tables, target: Tables, keys: Set[str]) -> list[Merge]:
    """What turns one state of some tables into another, done to the target.

    Those that are just as before become what they were after, if that lies where the target's branch may write; the
    model does not know where that is. The rest is merged.
    """
    still = {key for key in keys if target.get(key) is before.get(key)}
    gone = {key for key in still if key not in after}
    found = []
    for moved in subsets(still - gone):
        left = keys - moved - gone
        base, source = ({key: side[key] for key in left if key in side} for side in (before, after))
        merge = merge_tables(base, source, target)
        merge.outcomes.update({key: [after.get(key)] for key in moved | gone})
        found.append(merge)
    return found
