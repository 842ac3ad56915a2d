"""How a real merge ended, for the model to find out which of the ends that may be it was."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from anabranch.errors import AnabranchError, CheckFailedError, InvalidInputError, MergeConflictError
from anabranch.ids import TableKey
from anabranch.repo.log.entries import TableEntry
from anabranch.repo.snapshot import Snapshot
from tests.model.history import Tables
from tests.model.table import ModelTable, new_ids
from tests.model.table_merge import content_of

__all__ = ["RealEnd", "state_of"]


def state_of(entry: TableEntry) -> object:
    """What is equal of all entries of one state of a table, however much of it was settled since."""
    return entry.dataset, entry.home, entry.version, entry.primary_key


@dataclass(frozen=True, slots=True, kw_only=True)
class RealEnd:
    """The error, or what a branch shows since; `known` are the tables of the model by their real states."""

    error: AnabranchError | None
    snapshot: Snapshot | None
    known: Mapping[object, ModelTable]

    @classmethod
    def of(
        cls,
        error: AnabranchError | None,
        look: Callable[[], Snapshot | None],
        known: Mapping[object, ModelTable],
    ) -> "RealEnd":
        """What a caller saw: an error, or a state; also one that a check refused, or that is as it was."""
        is_still = isinstance(error, InvalidInputError) and "would change nothing" in error.problem
        has_result = error is None or is_still or isinstance(error, CheckFailedError)
        return cls(error=error, snapshot=look() if has_result else None, known=known)

    @property
    def conflicts(self) -> int | None:
        return self.error.count if isinstance(self.error, MergeConflictError) else None

    @property
    def has_result(self) -> bool:
        return self.snapshot is not None

    def is_now(self, key: str, table: ModelTable | None) -> bool:
        entry = None if self.snapshot is None else self.snapshot.entries.get(TableKey.parse(key))
        if entry is None or table is None:
            return entry is None and table is None
        known = self.known.get(state_of(entry))
        if known is not None or any(table is other for other in self.known.values()):
            return known is table
        return content_of(self._read(key)) == content_of(table)

    def arrange(self, key: str, table: ModelTable) -> ModelTable:
        """The same table with its columns in the order that they really have, which a merge may choose."""
        names = self._read(key).columns
        if names == table.columns or any(table is other for other in self.known.values()):
            return table
        fields = dict(zip(table.columns, table.fields, strict=True))
        return replace(table, columns=names, fields=tuple(fields[name] for name in names))

    def take(self, key: str, target: ModelTable) -> ModelTable | None:
        """A table as it really is by now, made from one of the target."""
        if self.snapshot is None or key not in self.snapshot:
            return None
        known = self.known.get(state_of(self.snapshot[key].entry))
        return known or replace(self._read(key), dataset=target.dataset, made_from=target, is_copied=True)

    def take_all(self, target: Tables) -> dict[str, ModelTable | None]:
        """All tables that differ from the target's."""
        assert self.snapshot is not None
        found: dict[str, ModelTable | None] = dict.fromkeys(target.keys() - set(self.snapshot))
        for key in self.snapshot:
            table = self.take(key, target[key]) if key in target else self._read(key)
            if table is not target.get(key):
                found[key] = table
        return found

    def _read(self, key: str) -> ModelTable:
        assert self.snapshot is not None
        table = self.snapshot[key]
        rows = tuple(table.to_arrow().to_pylist())
        names = tuple(table.schema.names)
        return ModelTable(
            columns=names,
            primary_key=table.primary_key,
            rows=rows,
            row_ids=new_ids(rows),
            are_columns_known=False,
        )
