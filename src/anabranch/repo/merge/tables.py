"""Decide for each table of a merge whether it is added, dropped, renamed or matched with the table of the source."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from anabranch.ids import TableKey
from anabranch.repo.log.entries import TableEntry, TableMap, is_same_state
from anabranch.repo.merge.conflicts import Conflict, ConflictKind
from anabranch.repo.merge.decisions import TableNames
from anabranch.repo.merge.resolve import Resolution, SchemaDecider
from anabranch.repo.merge.steps import AddTable, DropTable, RenameTable, TableMatch, TableState

PlannedTable = AddTable | DropTable | RenameTable | TableMatch
# The states of a table in the base, the source and the target, None where it does not exist.
_States = tuple[TableState | None, TableState | None, TableState | None]
# Whether two states have the same content.
AreEqual = Callable[[TableState, TableState], bool]
# The keys of the tables of one state in another one.
Match = Callable[[TableMap, TableMap], dict[TableKey, TableKey]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTables:
    """The tables that the source changed, and the conflicts about whole tables."""

    tables: list[PlannedTable] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)


def plan_tables(
    base: TableMap,
    source: TableMap,
    target: TableMap,
    resolution: Resolution,
    *,
    match: Match,
    has_same_content: AreEqual,
) -> PlannedTables:
    """Return the changes to the tables of the target."""
    planner = _Planner(target, resolution, has_same_content)
    for states in _match_tables(base, source, target, match):
        planner.plan(*states)
    planner.make_names_unique()
    planner.name_matches()
    return planner.planned


def _match_tables(base: TableMap, source: TableMap, target: TableMap, match: Match) -> Iterator[_States]:
    """Yield each table of the base or the source with its state on every side. It may have another key on each side."""
    ours, theirs = (match(base, side) for side in (source, target))
    for key in sorted(base):
        yield _find_state(base, key), _find_state(source, ours.get(key)), _find_state(target, theirs.get(key))
    new = target.keys() - theirs.values()
    for key in sorted(source.keys() - ours.values()):
        # Two new tables of one name are one table. Another table of the target that has the name competes for it.
        yield None, _find_state(source, key), _find_state(target, key if key in new else None)


def _find_state(tables: TableMap, key: TableKey | None) -> TableState | None:
    return None if key is None else TableState(key, tables[key])


class _Planner:
    """Collects the changes of the tables, one by one."""

    def __init__(self, target: TableMap, resolution: Resolution, has_same_content: AreEqual) -> None:
        self._target = target
        self._resolution = resolution
        self._has_same_content = has_same_content
        self.planned = PlannedTables()
        # The names in the source of tables that both sides have, by their names in the target.
        self._source_keys: dict[TableKey, TableKey] = {}

    def plan(self, base: TableState | None, source: TableState | None, target: TableState | None) -> None:
        """Decide on one table, given its state on each side that has it."""
        if source is None and target is None:
            return
        if source is not None and target is not None:
            self._source_keys[target.key] = source.key
        # The source did not change the table, so that whatever the target has stays.
        if base == source or (base is not None and source is not None and _is_as_before(base, source)):
            return
        if source is not None and target is not None:
            self._plan_both(base, source, target)
        elif base is not None:
            self._plan_missing(base, source, target)
        elif source is not None:
            self.planned.tables.append(AddTable(key=source.key, source=source))

    def _plan_both(self, base: TableState | None, source: TableState, target: TableState) -> None:
        """Decide on a table that both sides have, maybe by different names."""
        key = self._merge_names(base, source, target)
        is_same = is_same_state(_entry(base), source.entry) or is_same_state(target.entry, source.entry)
        if not is_same:
            self.planned.tables.append(TableMatch(key=key, base=base, source=source, target=target))
        elif key != target.key:
            self.planned.tables.append(RenameTable(key=key, target=target))

    def _merge_names(self, base: TableState | None, source: TableState, target: TableState) -> TableKey:
        if base is None:
            return source.key
        if source.key in (base.key, target.key):
            return target.key
        if target.key == base.key:
            return source.key
        side = self._find_side(target.key, (base, source, target), "both sides renamed it")
        return source.key if side == "source" else target.key

    def _plan_missing(self, base: TableState, source: TableState | None, target: TableState | None) -> None:
        """Decide on a table of the base that one of the sides dropped.

        The other side may have a new state with the same content: it compacted or indexed the table, or got it by an
        earlier merge. Then the table is dropped without a conflict.
        """
        side: str | None = "source"
        if source is not None and self._is_unchanged(base, source):
            return
        if target is None or not self._is_unchanged(base, target):
            # The name that the table has if it is kept. Another table may have the name in the base by now.
            name = next(state.key for state in (target, source, base) if state is not None)
            dropped, changed = ("target", "source") if target is None else ("source", "target")
            problem = f"the {dropped} dropped it, the {changed} changed it"
            side = self._find_side(name, (base, source, target), problem, ConflictKind.DELETE_VS_UPDATE)
        if side != "source":
            return
        if source is not None:
            self.planned.tables.append(AddTable(key=source.key, source=source))
        elif target is not None:
            self.planned.tables.append(DropTable(key=target.key, target=target))

    def _find_side(
        self, name: TableKey, states: _States, problem: str, kind: ConflictKind = ConflictKind.SCHEMA
    ) -> str | None:
        """Return the side that decides on the name or the existence of a table, which is reported by `name`.

        Add a conflict and return None if nothing decides.
        """
        base, source, target = states
        own = _key(target)
        # A name that another table of the target has means that table.
        names = (state.key for state in (target, base, source) if state is not None)
        decider = self._decider(name, *(key for key in names if key not in self._target or key == own))
        texts = _text(_key(base)), _text(_key(source)), _text(own)
        return decider.find_side(problem, texts, kind=kind)

    def _decider(self, *names: TableKey) -> SchemaDecider:
        """Return what decides on a table with these names, the one to report first."""
        resolution = self._resolution.of_table(TableNames.of(names))
        return SchemaDecider(table=str(names[0]), resolution=resolution, conflicts=self.planned.conflicts)

    def _is_unchanged(self, base: TableState, now: TableState) -> bool:
        return _is_as_before(base, now) or (base.key == now.key and self._has_same_content(base, now))

    def make_names_unique(self) -> None:
        """Decide on names that two tables would have: one was renamed, the other one added or renamed.

        A table that loses gets back the name that it has on the side that wins. It is left out if it does not exist
        there. If the name is that of another table, the same side wins again. All names of a side are different, so
        that this ends.
        """
        losers: dict[TableKey, str] = {}
        while (name := self._find_repeated_name()) is not None:
            tables = self._named(name)
            won = [losers[key] for table in tables if (key := _target_key(table)) in losers]
            # The target wins against a table that lost to the source, so that no table moves back and forth.
            wins = "target" if "target" in won else next(iter(won), None)
            texts = None, str(name), str(name)
            wins = wins or self._decider(name).decide("two tables would have this name", texts)
            winner_key = {"source": self._source_key, "target": _target_key}[wins]
            loser = next(table for table in tables if winner_key(table) != name)
            if (key := _target_key(loser)) is not None:
                losers[key] = wins
            self._rename_loser(loser, winner_key(loser))

    def _find_repeated_name(self) -> TableKey | None:
        tables = self.planned.tables
        # A table that is renamed or dropped by this merge frees its name for another one.
        leaving = {_target_key(table) for table in tables}
        names = Counter(table.key for table in tables if not isinstance(table, DropTable))
        found = (name for name, count in names.items() if count > 1 or (name in self._target and name not in leaving))
        return min(found, default=None)

    def _named(self, name: TableKey) -> list[PlannedTable]:
        """Return the tables of the result that would have a name. One may be a table that the source left as it is."""
        found: list[PlannedTable] = []
        found += (table for table in self.planned.tables if table.key == name and not isinstance(table, DropTable))
        if len(found) < 2:
            found.append(RenameTable(key=name, target=TableState(name, self._target[name])))
        return found

    def _source_key(self, table: PlannedTable) -> TableKey | None:
        """Return the name of a table in the source."""
        if isinstance(table, AddTable | TableMatch):
            return table.source.key
        return self._source_keys.get(table.target.key)

    def _rename_loser(self, table: PlannedTable, name: TableKey | None) -> None:
        """Give a table of the result another name, or leave it out if there is none."""
        tables = self.planned.tables
        if table in tables:
            tables.remove(table)
        if isinstance(table, AddTable):
            return  # Only the source has it.
        if name is None:
            tables.append(DropTable(key=table.target.key, target=table.target))
        elif isinstance(table, TableMatch):
            tables.append(replace(table, key=name))
        elif name != table.target.key:
            tables.append(RenameTable(key=name, target=table.target))

    def name_matches(self) -> None:
        """Give each matched table the names that resolvers may use for it: those that no other table has."""
        tables = self.planned.tables
        leaving = {_target_key(table) for table in tables}
        names = {table.key for table in tables if not isinstance(table, DropTable)} | (self._target.keys() - leaving)
        for number, table in enumerate(tables):
            if isinstance(table, TableMatch):
                states = (table.target, table.source, table.base)
                others = (state.key for state in states if state is not None and state.key not in names)
                tables[number] = replace(table, names=(table.key, *others))


def _target_key(table: PlannedTable) -> TableKey | None:
    """Return the name of a table in the target."""
    return None if isinstance(table, AddTable) else table.target.key


def _is_as_before(base: TableState, now: TableState) -> bool:
    return base.key == now.key and is_same_state(base.entry, now.entry)


def _entry(state: TableState | None) -> TableEntry | None:
    return None if state is None else state.entry


def _key(state: TableState | None) -> TableKey | None:
    return None if state is None else state.key


def _text(key: TableKey | None) -> str | None:
    return None if key is None else str(key)
