"""The three-way merge of many tables: which of them are added, dropped, renamed or merged, and all right answers."""

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace
from itertools import combinations, product

from tests.model.graph import find_table_bases, lowest_common
from tests.model.history import ModelCommit, ModelView, Tables
from tests.model.outcome import Answer, Conflicts, Result, Step, UnclearError
from tests.model.table import ModelTable, content_of
from tests.model.table_merge import Strategy, copy_of, merge_table, origins_of, virtual_bases


@dataclass(frozen=True, slots=True)
class _State:
    """A table on one side, and its key there."""

    key: str
    table: ModelTable


@dataclass(slots=True, kw_only=True, eq=False)
class _Merged:
    """A table on all sides, and its name in the result. None if it is not there."""

    base: _State | None
    source: _State | None
    target: _State | None
    name: str | None = None

    def name_on(self, side: Strategy) -> str | None:
        state = self.source if side == "source" else self.target
        return None if state is None else state.key


@dataclass(slots=True, kw_only=True)
class _Plan:
    """All tables of a merge with their names in the result, and the number of conflicts about whole tables."""

    target: Tables
    strategy: Strategy
    may_lose_ids: bool
    tables: list[_Merged] = field(default_factory=list)
    conflicts: int = 0

    def add(self, base: _State | None, source: _State | None, target: _State | None) -> None:
        found = _Merged(base=base, source=source, target=target)
        if source is not None and target is not None:
            found.name = self._merge_names(base, source, target)
        elif base is not None:
            found.name = self._name_of_missing(base, source, target)
        else:
            found.name = found.name_on("target") or found.name_on("source")
        self.tables.append(found)

    def _name_of_missing(self, base: _State, source: _State | None, target: _State | None) -> str | None:
        """Return the name of a table that at least one of the sides dropped, if it is kept."""
        kept = source or target
        if kept is None or _has_same_content(base, kept):
            return None
        self.conflicts += self.strategy == "fail"
        is_source_kept = source is not None and self.strategy == "source"
        is_target_kept = target is not None and self.strategy != "source"
        return kept.key if is_source_kept or is_target_kept else None

    def _merge_names(self, base: _State | None, source: _State, target: _State) -> str:
        if base is None or source.key in (base.key, target.key):
            return target.key
        if target.key == base.key:
            return source.key
        self.conflicts += self.strategy == "fail"
        return source.key if self.strategy == "source" else target.key

    def decide_names(self) -> None:
        """Decide on names that two tables would have.

        On each side a table has a name of its own. So one of two tables has the name on the side that wins. The other
        one gets its own name of that side, or is left out if it is not there. That name may be one of a third table,
        which then gets its name of that side, too.
        """
        while names := self._repeated_names():
            if self.strategy == "fail":
                self.conflicts += len(names)
                return
            for table in self.tables:
                if table.name in names and table.name != table.name_on(self.strategy):
                    table.name = table.name_on(self.strategy)

    def _repeated_names(self) -> set[str]:
        counts = Counter(table.name for table in self.tables if table.name is not None)
        return {name for name, count in counts.items() if count > 1}

    def answers(self) -> list[Answer]:
        if self.conflicts:
            outcomes = {str(number): self._contents(table) for number, table in enumerate(self.tables)}
        else:
            outcomes = {table.name: self._contents(table) for table in self.tables if table.name is not None}
            gone = (table.target.key for table in self.tables if table.target is not None)
            outcomes |= {key: [None] for key in gone if key not in outcomes}
        return [
            _answer(dict(zip(outcomes, found, strict=True)), self.conflicts, self.target)
            for found in product(*outcomes.values())
        ]

    def _contents(self, table: _Merged) -> list[ModelTable | Conflicts | None]:
        """Return all right states of a table in the result."""
        base, source, target = table.base, table.source, table.target
        if table.name is None:
            return [None]
        if target is None and source is not None:
            is_taken = any(other.dataset == table.name for other in self.target.values())
            return [copy_of(source.table, dataset=object() if is_taken else table.name, made_from=None)]
        assert target is not None
        before = None if base is None else base.table
        found: list[ModelTable | Conflicts | None] = [target.table]
        if source is not None and source.table not in (before, target.table):
            sides = (before, source.table, target.table, self.strategy)
            found = [*merge_table(*sides, may_lose_ids=self.may_lose_ids)]
        if table.name != target.key and target.table in found:  # It is moved, or forked.
            found.append(replace(target.table, made_from=target.table, has_new_ids=False))
        return found


def _has_same_content(one: _State, other: _State) -> bool:
    return one.key == other.key and content_of(one.table) == content_of(other.table)


def _answer(outcomes: dict[str, ModelTable | Conflicts | None], conflicts: int, target: Tables) -> Answer:
    conflicts += sum(found.count for found in outcomes.values() if isinstance(found, Conflicts))
    if conflicts:
        return Conflicts(conflicts)
    tables = {key: found for key, found in outcomes.items() if not isinstance(found, Conflicts)}
    return Result((Step(changes={key: table for key, table in tables.items() if table is not target.get(key)}),))


def merge_tables(
    base: Tables, source: Tables, target: Tables, strategy: Strategy = "fail", *, may_lose_ids: bool
) -> list[Answer]:
    """Return all right answers to what the source did since the base, applied to the target."""
    plan = _Plan(target=target, strategy=strategy, may_lose_ids=may_lose_ids)
    for before, ours, theirs in _match(base, source, target):
        plan.add(before, ours, theirs)
    plan.decide_names()
    return plan.answers()


def _match(
    base: Tables, source: Tables, target: Tables
) -> Iterator[tuple[_State | None, _State | None, _State | None]]:
    """Yield each table with its state on all sides. It may have another key on each side."""
    ours, theirs = _find_names(base, source), _find_names(base, target)
    for key in sorted(base):
        yield _find(base, key), _find(source, ours.get(key)), _find(target, theirs.get(key))
    # New tables of one name are one table.
    added, others = source.keys() - set(ours.values()), target.keys() - set(theirs.values())
    for key in sorted(added | others):
        yield None, _find(source, key if key in added else None), _find(target, key if key in others else None)


def _find_names(before: Tables, after: Tables) -> dict[str, str]:
    """Return the keys that tables have later.

    A table that is in its folder under its name is the same, even if it was created again. A renamed table is found in
    its folder. Else a table of the same name replaced it.
    """
    found = {key: key for key in before if key in after and before[key].dataset == after[key].dataset}
    for key in sorted(before.keys() - found.keys()):
        others = sorted(after.keys() - set(found.values()))
        renamed = next((other for other in others if _is_same_table(before[key], after[other])), None)
        if renamed is not None:
            found[key] = renamed
    replaced = (before.keys() & after.keys()) - found.keys() - set(found.values())
    return found | {key: key for key in replaced}


def _is_same_table(one: ModelTable, other: ModelTable) -> bool:
    """Return whether two states are of one table: in one folder, in which two branches may have created a table."""
    fields = [{found for number in table.fields for found in origins_of(number)} for table in (one, other)]
    return one.dataset == other.dataset and not fields[0].isdisjoint(fields[1])


def _find(tables: Tables, key: str | None) -> _State | None:
    return None if key is None else _State(key, tables[key])


def merge_views(source: ModelView, target: ModelView, strategy: Strategy, *, may_lose_ids: bool) -> list[Answer]:
    """Return all right answers to the merge of a view into a branch."""
    ours, theirs = source.tables, target.tables
    bases: dict[str, list[ModelTable]] = {}
    for key in sorted({*ours, *theirs, *_former_keys(source, target)}):
        if key in ours and ours[key] is theirs.get(key):
            continue
        found = _merge_bases(find_table_bases(source.origin(key), target.origin(key), key), key)
        if found:
            bases[key] = found
    touched = {key: table for key, table in ours.items() if key in bases or table is not theirs.get(key)}
    answers: list[Answer] = []
    for chosen in product(*bases.values()):
        base = dict(zip(bases, chosen, strict=True))
        # Both sides may have the same state of a table that has another name in the base.
        missing = {table.dataset for table in chosen} - {table.dataset for table in touched.values()}
        renamed = {key: table for key, table in ours.items() if table.dataset in missing}
        answers += merge_tables(base, touched | renamed, theirs, strategy, may_lose_ids=may_lose_ids)
    return answers


def _merge_bases(commits: list[ModelCommit], key: str) -> list[ModelTable]:
    """Return the possible bases of a table. If both sides were merged with each other before, two are merged into one.

    All of them have the same content.
    """
    tables = [table for commit in commits if (table := commit.tables.get(key)) is not None]
    if len(commits) > 2:
        raise UnclearError("more than two bases")
    if len(tables) < 2:
        return tables
    one, other = tables
    lower = _merge_bases(find_table_bases(commits[0], commits[1], key), key)
    if lower and one.dataset != other.dataset:
        # One of the bases has another table under this name.
        replaced = [table for table in tables if table.dataset != lower[0].dataset]
        return replaced or tables
    return virtual_bases(lower[0] if lower else None, one, other)


def _former_keys(source: ModelView, target: ModelView) -> set[str]:
    """Return the keys of tables at the merge bases. Both sides may have renamed these tables since."""
    common = lowest_common(source.commit, target.commit, lambda commit: commit.parents)
    seen = [commit for commit in (source.below, target.below) if commit is not None]
    return {key for commit in (*common, *seen) for key in commit.tables}


def pick_tables(before: Tables, after: Tables, target: Tables, keys: Set[str], *, may_lose_ids: bool) -> list[Answer]:
    """Return all right answers to the change of a commit, applied to the target.

    A table that is still as it was before the commit gets its state after it, by pointer if that is in a home of the
    branch. The model does not know the homes. The other tables are merged, each with all its names.
    """
    still = {key for key in keys if target.get(key) is before.get(key)}
    dropped = {key for key in still if key not in after}
    found: list[Answer] = []
    for moved in subsets(still - dropped):
        left = with_other_names(keys - moved - dropped, keys, before, after)
        base, source = ({key: side[key] for key in left if key in side} for side in (before, after))
        merged = merge_tables(base, source, target, may_lose_ids=may_lose_ids)
        found += with_tables({key: after.get(key) for key in keys - left}, merged, target)
    return found


def with_other_names(some: Set[str], keys: Set[str], *sides: Tables) -> set[str]:
    """Return some keys, and those of all keys that their tables have on the sides."""
    found = set(some)
    while True:
        datasets = {side[key].dataset for side in sides for key in found if key in side}
        others = {key for side in sides for key in keys if key in side and side[key].dataset in datasets}
        if others <= found:
            return found
        found |= others


def with_tables(tables: dict[str, ModelTable | None], answers: list[Answer], target: Tables) -> list[Answer]:
    """Return answers in which some tables get a known state."""
    changed = {key: table for key, table in tables.items() if table is not target.get(key)}
    return [
        answer if isinstance(answer, Conflicts) else Result((Step(changes={**changed, **answer.changes}),))
        for answer in answers
    ]


def subsets(keys: Set[str]) -> Iterator[Set[str]]:
    """Yield all subsets, the largest first."""
    for size in range(len(keys), -1, -1):
        yield from map(frozenset, combinations(sorted(keys), size))
