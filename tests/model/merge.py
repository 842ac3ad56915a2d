"""The three-way merge of many tables: which of them are added, dropped, renamed or merged, and all right answers."""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace
from itertools import combinations, product

from tests.model.graph import find_table_bases, lowest_common
from tests.model.history import ModelCommit, ModelView, Tables
from tests.model.outcome import Answer, Conflicts, Result, Step, UnclearError
from tests.model.table import ModelTable, content_of
from tests.model.table_merge import Strategy, copy_of, merge_table, virtual_bases


@dataclass(frozen=True, slots=True)
class _State:
    """A table on one side, and its key there."""

    key: str
    table: ModelTable


@dataclass(slots=True, kw_only=True)
class _Plan:
    """The possible states of the tables of the target, by their keys in the result, and conflicts about whole tables.

    A table that stays as it is has no entry, unless it may become a new state with the same content.
    """

    target: Tables
    strategy: Strategy
    may_lose_ids: bool
    outcomes: dict[str, list[ModelTable | Conflicts | None]] = field(default_factory=dict)
    conflicts: int = 0
    names: list[str] = field(default_factory=list)
    leaving: set[str] = field(default_factory=set)

    def add(self, base: _State | None, source: _State | None, target: _State | None) -> None:
        if base == source:
            return
        if base is None and target is None and source is not None:
            self._add_new(source)
        elif base is not None and (source is None or target is None):
            self._add_missing(base, source, target)
        elif source is not None and target is not None:
            self._add_present(base, source, target)

    def _add_missing(self, base: _State, source: _State | None, target: _State | None) -> None:
        """Merge a table that one side dropped."""
        if source is None and target is None:
            return
        if source is not None and _has_same_content(base, source):
            return
        strategy: Strategy = "source"
        if target is None or not _has_same_content(base, target):
            strategy = self.strategy
            self.conflicts += strategy == "fail"
        if strategy == "source" and source is not None:
            self._add_new(source)
        elif strategy == "source" and target is not None:
            self.outcomes[target.key] = [None]
            self.leaving.add(target.key)

    def _add_new(self, source: _State) -> None:
        is_taken = any(table.dataset == source.key for table in self.target.values())
        dataset = object() if is_taken else source.key
        self.outcomes[source.key] = [copy_of(source.table, dataset=dataset, made_from=None)]
        self.names.append(source.key)

    def _add_present(self, base: _State | None, source: _State, target: _State) -> None:
        name = source.key
        if base is not None and source.key in (base.key, target.key):
            name = target.key
        elif base is not None and target.key != base.key:
            self.conflicts += self.strategy == "fail"
            name = source.key if self.strategy == "source" else target.key
        before = None if base is None else base.table
        if source.table in (before, target.table):
            if name == target.key:
                return
            self.outcomes[name] = [target.table]
        else:
            sides = (before, source.table, target.table, self.strategy)
            self.outcomes[name] = [*merge_table(*sides, may_lose_ids=self.may_lose_ids)]
        if name != target.key:
            if target.table in self.outcomes[name]:  # It is moved, or forked.
                self.outcomes[name].append(replace(target.table, made_from=target.table, has_new_ids=False))
            self.outcomes.setdefault(target.key, [None])
        self.names.append(name)
        self.leaving.add(target.key)

    def answers(self) -> list[Answer]:
        staying, names = self.target.keys() - self.leaving, self.names
        repeated = sum(1 for name in set(names) if name in staying or names.count(name) > 1)
        if repeated and self.strategy != "fail":
            raise UnclearError("two tables of one name, of which a strategy chooses one")
        conflicts = self.conflicts + repeated
        return [
            _answer(dict(zip(self.outcomes, found, strict=True)), conflicts, self.target)
            for found in product(*self.outcomes.values())
        ]


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
    return plan.answers()


def _match(
    base: Tables, source: Tables, target: Tables
) -> Iterator[tuple[_State | None, _State | None, _State | None]]:
    """Yield each table of the base or the source with its state on all sides. It may have another key on each side."""
    ours, theirs = _renamed(base, source), _renamed(base, target)
    for key in sorted(base):
        yield _find(base, key), _find(source, ours.get(key, key)), _find(target, theirs.get(key, key))
    for key in sorted(source.keys() - base.keys() - set(ours.values())):
        yield None, _find(source, key), None if key in theirs.values() else _find(target, key)


def _renamed(before: Tables, after: Tables) -> dict[str, str]:
    """Return the new keys of renamed tables by their old keys."""
    added = [key for key in sorted(after) if key not in before]
    found: dict[str, str] = {}
    for old in sorted(before.keys() - after.keys()):
        new = next((new for new in added if after[new].dataset == before[old].dataset), None)
        if new is not None:
            added.remove(new)
            found[old] = new
    return found


def _find(tables: Tables, key: str) -> _State | None:
    return _State(key, tables[key]) if key in tables else None


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
        answers += merge_tables(base, touched, theirs, strategy, may_lose_ids=may_lose_ids)
    # An answer without changes fits every result, so it comes last.
    return sorted(answers, key=lambda answer: not (isinstance(answer, Result) and answer.changes))


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
    return virtual_bases(lower[0] if lower else None, one, other)


def _former_keys(source: ModelView, target: ModelView) -> set[str]:
    """Return the keys of tables at the merge bases. Both sides may have renamed these tables since."""
    common = lowest_common(source.commit, target.commit, lambda commit: commit.parents)
    seen = [commit for commit in (source.below, target.below) if commit is not None]
    return {key for commit in (*common, *seen) for key in commit.tables}


def pick_tables(before: Tables, after: Tables, target: Tables, keys: Set[str], *, may_lose_ids: bool) -> list[Answer]:
    """Return all right answers to the change of a commit, applied to the target.

    A table that is still as it was before the commit gets its state after it, by pointer if that is in a home of the
    branch. The model does not know the homes. The other tables are merged.
    """
    still = {key for key in keys if target.get(key) is before.get(key)}
    dropped = {key for key in still if key not in after}
    found: list[Answer] = []
    for moved in subsets(still - dropped):
        left = keys - moved - dropped
        base, source = ({key: side[key] for key in left if key in side} for side in (before, after))
        merged = merge_tables(base, source, target, may_lose_ids=may_lose_ids)
        found += with_tables({key: after.get(key) for key in moved | dropped}, merged, target)
    return found


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
