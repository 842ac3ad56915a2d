"""Conflicts between the two sides of a merge, as values. `cell_merge` and `shape_merge` find them."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

from anabranch.display import MAX_ROWS, Listing
from anabranch.errors import MergeConflictError

# A merge may have a conflict in every row. All are counted, and the first ones are kept for the error.
_MAX_CONFLICTS_KEPT = 100


class ConflictKind(StrEnum):
    """The kind of a conflict.

    `divergent_insert` and `divergent_update` are about one cell. `delete_vs_update` is about a row, or, without a key,
    a table. `schema` is about a column or the shape of a table. `keyless` is a table without a key whose rows cannot be
    matched.
    """

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    SCHEMA = "schema"
    KEYLESS = "keyless"


class Operation(StrEnum):
    """The operation whose conflicts are listed."""

    MERGE = "merge"
    CHERRY_PICK = "cherry_pick"
    REVERT = "revert"
    REBASE = "rebase"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One conflict, with the values of the common base, the source and the target.

    The values are cells if `column` is set, rows as dicts if only `key` is set, else texts that describe the table.
    None is null, or a row, table or column that does not exist. With `path` they are those of one field of a struct, or
    of one member of a JSON object, as JSON text. `decision` is the `take` or `value` of a conflict that is decided.
    `hint` is the next step for a conflict that the strategy does not decide.
    """

    table: str
    kind: ConflictKind
    key: Mapping[str, Any] | None = None
    column: str | None = None
    path: str | None = None
    base: Any = None
    source: Any = None
    target: Any = None
    problem: str = ""
    hint: str = ""
    decision: Mapping[str, Any] | None = None

    def _repr_row_(self) -> dict[str, object]:
        key = None if self.key is None else ", ".join(f"{name}={value}" for name, value in self.key.items())
        values = {"base": self.base, "source": self.source, "target": self.target}
        return {"table": self.table, "kind": self.kind.value, "key": key, "column": self.column, **values}


class Conflicts(Iterator[Conflict]):
    """Conflicts that are found one by one. A notebook shows the first ones. Iterating yields all of them."""

    def __init__(self, found: Iterator[Conflict]) -> None:
        self._found = found
        self._shown: deque[Conflict] = deque()

    def __next__(self) -> Conflict:
        return self._shown.popleft() if self._shown else next(self._found)

    def _repr_html_(self) -> str:
        self._shown.extend(islice(self._found, MAX_ROWS + 1 - len(self._shown)))
        more = "<p>... and more</p>" if len(self._shown) > MAX_ROWS else ""
        return Listing(list(self._shown)[:MAX_ROWS])._repr_html_() + more


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyGap:
    """Conflicts of a table that the strategy does not decide, and what to do instead.

    With the strategy `fail`, these are the conflicts that neither `source` nor `target` would decide.
    """

    table: str
    conflicts: int
    hint: str


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Conflicts that no resolver and no strategy decided. `build` makes the objects, which a count does not need.

    All of them have the same `hint`.
    """

    count: int
    build: Callable[[], Iterator[Conflict]]
    hint: str = ""

    @classmethod
    def of(cls, conflicts: Sequence[Conflict]) -> "Unresolved":
        return cls(len(conflicts), lambda: iter(conflicts), conflicts[0].hint if conflicts else "")


NO_CONFLICTS = Unresolved.of(())


class ConflictLog:
    """Counts conflicts by table, and keeps the first ones."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[Conflict] = []
        self.by_table = Counter[str]()
        self._gaps = Counter[tuple[str, str]]()

    @property
    def strategy_gaps(self) -> tuple[StrategyGap, ...]:
        """The conflicts that the strategy does not decide, by table and what to do instead."""
        found = sorted(self._gaps.items())
        return tuple(StrategyGap(table=table, conflicts=count, hint=hint) for (table, hint), count in found)

    def add(self, table: str, found: Unresolved) -> None:
        """Count conflicts of a table. Only those that are kept are built."""
        if found.count:
            self.count += found.count
            self.by_table[table] += found.count
            if found.hint:
                self._gaps[table, found.hint] += found.count
            self.first += islice(found.build(), _MAX_CONFLICTS_KEPT - len(self.first))

    def add_all(self, other: "ConflictLog") -> None:
        """Count the conflicts of another log, for example of one table, after those of this one."""
        self.count += other.count
        self.by_table.update(other.by_table)
        self._gaps.update(other._gaps)
        self.first += other.first[: _MAX_CONFLICTS_KEPT - len(self.first)]

    def check_none(self, what: str, *, hint: str) -> None:
        """Raise MergeConflictError if there are conflicts."""
        if not self.count:
            return
        tables = ", ".join(f"'{table}' ({count})" for table, count in sorted(self.by_table.items()))
        number = "1 conflict" if self.count == 1 else f"{self.count} conflicts"
        problem = f"{what} has {number}, in {tables}"
        raise MergeConflictError(problem, hint=hint, conflicts=tuple(self.first), count=self.count)
