"""The names of a table and its columns: in the result of a merge, in the base and on both sides."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.ids import TableKey
from anabranch.repo.log.entries import TableEntry

__all__ = ["TableNames", "with_other_names"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNames:
    """The names of a table, the one of the result first, and for each renamed column its names.

    Resolvers may use any of them. A name that two columns have, because names were swapped, is not here: it names
    the column that has it in the result.
    """

    tables: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, keys: Iterable[TableKey | None], columns: Iterable[Iterable[str | None]] = ()) -> "TableNames":
        """Return the names of a table with these keys. `columns` are the names of each column on the sides."""
        tables = dict.fromkeys(str(key) for key in keys if key is not None)
        groups = [{name for name in names if name is not None} for names in columns]
        used = Counter(name for names in groups for name in names)
        found: dict[str, tuple[str, ...]] = {}
        for names in groups:
            # A name that two columns have on different sides is ambiguous, so that it stands only for itself.
            own = tuple(sorted(name for name in names if used[name] == 1))
            found.update({name: own for name in own if len(own) > 1})
        return cls(tables=tuple(tables), columns=found)

    def of_column(self, name: str) -> tuple[str, ...]:
        """Return all names of a column, the given one first."""
        return (name, *(other for other in self.columns.get(name, ()) if other != name))

    def canonical(self, name: str) -> str:
        """Return one name of a column, which is the same for all its names."""
        return self.columns.get(name, (name,))[0]


def with_other_names(keys: Iterable[TableKey], *states: Mapping[TableKey, TableEntry | None]) -> set[TableKey]:
    """Return keys, with all other keys that the tables of these keys have in the given states."""
    found = set(keys)
    while True:
        datasets = {entry.dataset for state in states for key in found if (entry := state.get(key)) is not None}
        others = {key for state in states for key, entry in state.items() if entry and entry.dataset in datasets}
        if others <= found:
            return found
        found |= others
