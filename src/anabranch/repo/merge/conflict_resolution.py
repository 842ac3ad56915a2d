"""Resolve conflicts of a merge, by a strategy or by resolvers for tables and columns."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from anabranch.errors import InvalidInputError
from anabranch.hints import suggest
from anabranch.repo.merge.cell_resolvers import (
    NAMED,
    Decide,
    Resolver,
    by_function,
    decider,
    first_of,
    is_latest_by,
    leave_open,
    row_decider,
)
from anabranch.repo.merge.conflict_types import Conflict, ConflictKind
from anabranch.repo.merge.decisions import Decisions, TableNames, parse_decisions


class Strategy(StrEnum):
    """The decision on conflicts that no resolver resolves."""

    FAIL = "fail"
    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The strategy, and the resolvers by table (`bucket.table`), column, or both (`bucket.table.column`).

    `decisions` on single conflicts come first. `any_cell` and `any_row`, if set, decide what the resolvers leave open.
    The strategy comes last.
    """

    strategy: Strategy
    resolvers: Mapping[str, Resolver]
    decisions: Decisions = field(default_factory=Decisions)
    any_cell: Decide | None = None
    any_row: Callable[[Conflict], Any] | None = None

    @property
    def side(self) -> str | None:
        """The side that the strategy takes: 'source', 'target', or None."""
        return None if self.strategy is Strategy.FAIL else self.strategy.value


@dataclass(frozen=True, slots=True, kw_only=True)
class TableResolution:
    """How conflicts of one table are resolved. Resolvers and decisions may use any of the names of the table."""

    resolution: Resolution
    names: TableNames

    def for_column(self, column: str, path: str | None = None) -> Decide:
        """Return the function that decides on cells of a column: decisions on them, resolvers, else the strategy."""
        return first_of(self.for_decided(column), self._for_all_cells(column, path))

    def for_decided(self, column: str) -> Decide:
        """Return the function that decides on single cells of a column by the decisions on them."""
        decided = self.resolution.decisions.for_conflicts(self.names, column)
        return leave_open if decided is None else by_function(decided, f"{self.names.tables[0]}.{column}")

    def find_cell_resolver(self, column: str) -> Resolver | None:
        """Return the resolver of all cells of a column, or the side of the strategy. None leaves them unresolved."""
        found = self._find_for_cells(column)
        return self.resolution.side if found is None else found[1]

    def _for_all_cells(self, column: str, path: str | None) -> Decide:
        self._find_resolver()  # refuses one that is for columns only
        if (found := self._find_for_cells(column, path)) is not None:
            name, resolver = found
            return decider(resolver, name)
        if self.resolution.any_cell is not None:
            return self.resolution.any_cell
        return leave_open if self.resolution.side is None else NAMED[self.resolution.side]

    def _find_for_cells(self, column: str, path: str | None = None) -> tuple[str, Resolver] | None:
        """Return the nearest resolver for the cells of a column, and its name."""
        resolvers = self.resolution.resolvers
        names = (*self._names_of(column, path), *self.names.tables)
        return next(((name, resolvers[name]) for name in names if name in resolvers), None)

    def _names_of(self, column: str, path: str | None = None) -> list[str]:
        """Return the names that a resolver of a column, or of a field of it, may have, the nearest first."""
        parts = [] if path is None else path.split(".")
        found = []
        for length in range(len(parts), -1, -1):
            columns = [".".join([name, *parts[:length]]) for name in self.names.of_column(column)]
            found += [*(f"{table}.{name}" for name in columns for table in self.names.tables), *columns]
        return found

    def _find_resolver(self) -> Resolver | None:
        """Return the resolver of the table itself. Raise InvalidInputError if it is for columns only."""
        for name in self.names.tables:
            resolver = self.resolution.resolvers.get(name)
            if resolver is not None:
                check_table_resolver(name, resolver)
                return resolver
        return None

    def _find_side(self) -> str | None:
        """Return the side that the resolver of the table itself names."""
        resolver = self._find_resolver()
        return resolver if isinstance(resolver, str) and resolver in ("source", "target") else None

    def for_table(self) -> str | None:
        """Return the side that decides on the columns and the existence of a table: 'source', 'target', or None."""
        return self._find_side() or self.resolution.side

    def for_schema(self, column: str | None, values: Sequence[Any]) -> str | None:
        """Return the side that decides on the name, type, nulls or notes of a column: 'source', 'target', or None.

        `values` are those of the base, the source and the target.
        """
        decided = self.resolution.decisions.side_of(self.names, column, values)
        if decided is not None:
            return decided
        for name in () if column is None else self._names_of(column):
            # Other resolvers compute the values of cells, and cannot decide on a name or a type.
            if self.resolution.resolvers.get(name) in ("source", "target"):
                return str(self.resolution.resolvers[name])
        return self.for_table()

    def for_misfit(self) -> str | None:
        """Return the side that a resolution or a resolver names for a whole table, because its rows cannot be merged.

        A strategy does not decide this: all changes of the other side would be lost.
        """
        return self.resolution.decisions.side_of(self.names, None, (None, None, None)) or self._find_side()

    def for_row(self) -> Callable[[Conflict], Any] | str | None:
        """Return the side, or a function that returns the row, for a row that one side deleted. None if unresolved."""
        resolver = self._find_resolver()
        others = resolver if callable(resolver) else self.resolution.any_row or self.for_table()
        decided = self.resolution.decisions.for_conflicts(self.names, None)
        return others if decided is None else row_decider(decided, others)


_Value = TypeVar("_Value")
# The values of a property that both sides changed, as texts: of the base, the source and the target.
SideTexts = tuple[str | None, str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDecider:
    """Decides on changes of both sides to a table besides its rows. Undecided ones are added to `conflicts`."""

    resolution: TableResolution
    conflicts: list[Conflict] = field(default_factory=list)

    def decide(
        self, problem: str, texts: SideTexts, *, column: str | None = None, kind: ConflictKind = ConflictKind.SCHEMA
    ) -> str:
        """Return the side that wins, 'source' or 'target'. If nothing decides, add a conflict and keep the target."""
        side = self.resolution.for_schema(column, texts)
        if side is None:
            self.add_conflict(problem, texts, column=column, kind=kind)
        return side or "target"

    def pick(self, problem: str, base: _Value, source: _Value, target: _Value, *, column: str | None) -> _Value:
        """Return the value of the side that changed it, or, if both did, of the side that wins."""
        if source in (base, target):
            return target
        if target == base:
            return source
        old, ours, theirs = (None if value is None else str(value) for value in (base, source, target))
        return source if self.decide(problem, (old, ours, theirs), column=column) == "source" else target

    def add_conflict(
        self,
        problem: str,
        texts: SideTexts = (None, None, None),
        *,
        column: str | None = None,
        kind: ConflictKind = ConflictKind.SCHEMA,
    ) -> None:
        table, (base, source, target) = self.resolution.names.tables[0], texts
        new = Conflict(table=table, kind=kind, column=column, base=base, source=source, target=target, problem=problem)
        self.conflicts.append(new)


def parse_resolution(
    strategy: str,
    resolvers: Mapping[str, Any] | None,
    resolutions: Sequence[Mapping[str, Any]] | None = None,
    *,
    kept: Callable[[], Sequence[Mapping[str, Any]]] | None = None,
) -> Resolution:
    """Check a strategy, resolvers and decisions on single conflicts, those of now and those that were kept.

    Resolvers may be nested by table: {'bucket.table': {'column': 'max'}}.
    """
    if strategy not in list(Strategy):
        raise InvalidInputError(f"unknown strategy {strategy!r}", hint=f"use one of {', '.join(Strategy)}")
    flat = _flatten(resolvers or {})
    decisions = parse_decisions(resolutions)
    if kept is not None:
        read = kept
        # Most merges have no conflicts and need not read them.
        decisions = replace(decisions, kept=cache(lambda: parse_decisions(read(), are_kept=True)))
    # A decision on all conflicts of a column or table is a resolver.
    return Resolution(strategy=Strategy(strategy), resolvers={**flat, **decisions.resolvers}, decisions=decisions)


def _flatten(resolvers: Mapping[str, Any]) -> dict[str, Resolver]:
    """Check resolvers, and return them by full names: one that is nested has the name of the table before its own."""
    if not isinstance(resolvers, Mapping):
        hint = "pass for example {'price': 'max'}"
        raise InvalidInputError(f"resolvers must be a dict, got {resolvers!r}", hint=hint)
    flat: dict[str, Resolver] = {}
    for name, given in resolvers.items():
        for column, resolver in given.items() if isinstance(given, Mapping) else [(None, given)]:
            if column is not None:
                _check(column, resolver)
            full = name if column is None else f"{name}.{column}"
            _check(full, resolver)
            # A column can be named both in one text and nested by table.
            if full in flat:
                problem = f"two resolvers are given for {full!r}: {flat[full]!r} and {resolver!r}"
                raise InvalidInputError(problem, hint="pass one of them")
            flat[full] = resolver
    return flat


def check_names(resolution: Resolution, tables: Mapping[str, Callable[[], Sequence[str]]]) -> None:
    """Raise InvalidInputError if a resolver or decision is for a table or column that does not exist.

    `tables` are the columns of all tables by their keys. They are read only if they are needed.
    """
    known: set[str] = set(tables)
    for name in sorted({*resolution.resolvers, *resolution.decisions.names()}):
        if name in tables:
            check_table_resolver(name, resolution.resolvers.get(name, "source"))
        elif not _is_column(name, tables, known):
            hint = "name a table, a column, or a column of a table, such as 'shop.orders.price'"
            hint = suggest(name, sorted(known), hint)
            raise InvalidInputError(f"the resolver {name!r} matches no table and no column", hint=hint)


def _is_column(name: str, tables: Mapping[str, Callable[[], Sequence[str]]], known: set[str]) -> bool:
    """Return whether a name is that of a column. The names of all columns that are read are added to `known`."""
    table = next((key for key in tables if name.startswith(f"{key}.")), None)
    # Without the name of a table, 'a.b.c' is a nested field of a column of any table.
    for key in tables if table is None else [table]:
        columns = tables[key]()
        known.update(f"{key}.{column}" for column in columns)
        known.update(columns if table is None else ())
        if _is_among(name, known):
            return True
    return False


def _is_among(name: str, known: Set[str]) -> bool:
    """Return whether a name is known. The name 'a.*' of a JSON column means any of its members."""
    return name in known or any(name.startswith(one[:-1]) for one in known if one.endswith(".*"))


def _check(name: Any, resolver: Any) -> None:
    if not isinstance(name, str) or not name:
        hint = "pass for example 'bucket.table.column'"
        raise InvalidInputError(f"a resolver must be for a table or column name, got {name!r}", hint=hint)
    if callable(resolver):
        return
    if not isinstance(resolver, str) or not (resolver in NAMED or is_latest_by(resolver)):
        hint = suggest(str(resolver), NAMED, f"use {', '.join(NAMED)}, or latest_by(column)")
        raise InvalidInputError(f"unknown resolver {resolver!r} for {name!r}", hint=hint)


def check_table_resolver(name: str, resolver: Resolver) -> None:
    """Raise InvalidInputError if the resolver of a table can decide on columns only."""
    if isinstance(resolver, str) and resolver not in ("source", "target") and not is_latest_by(resolver):
        hint = f"pass a column, for example '{name}.amount'"
        raise InvalidInputError(f"the resolver {resolver!r} is for columns, but {name!r} is a table", hint=hint)
