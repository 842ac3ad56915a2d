"""Desired schemas of the model: the tables of a bucket, with their columns and keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.errors import DestructiveChangeError
from tests.model.history import Tables
from tests.model.table import ModelTable

_HINT = "the model has no advice"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredTable:
    """Columns with their types. `was` are the earlier names of renamed columns."""

    columns: Mapping[str, str]
    primary_key: tuple[str, ...] = ()
    was: Mapping[str, str]

    def to_document(self) -> dict[str, Any]:
        columns = {
            name: {"type": kind, "was": self.was[name]} if name in self.was else kind
            for name, kind in self.columns.items()
        }
        return {"columns": columns, "primary_key": list(self.primary_key)}

    def made_of(self, table: ModelTable) -> ModelTable:
        """Return the table with this schema, the same state if it has it already."""
        table = table.with_key(self.primary_key)
        for new, old in self.was.items():
            if old in table.columns and new not in table.columns:
                table = table.rename_column(old, new)
        for name in self.columns:
            if name not in table.columns:
                table = table.add_column(name, lambda _: None)
        for name in table.columns:
            if name not in self.columns:
                table = table.drop_column(name)
        return table

    def loses_columns_of(self, table: ModelTable) -> bool:
        return any(name not in self.columns and name not in self.was.values() for name in table.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSchema:
    """All tables of one bucket by their keys."""

    bucket: str
    tables: Mapping[str, DesiredTable]

    def to_document(self) -> dict[str, Any]:
        tables = {key.partition(".")[2]: table.to_document() for key, table in self.tables.items()}
        return {"tables": {self.bucket: tables}}

    def changes_to(self, shown: Tables, *, allow_destructive: bool) -> dict[str, ModelTable | None]:
        """Return the tables to change. A table to drop is None."""
        there = {key: table for key, table in shown.items() if key.startswith(f"{self.bucket}.")}
        gone = [key for key in there if key not in self.tables]
        loses = any(self.tables[key].loses_columns_of(there[key]) for key in there if key in self.tables)
        if (gone or loses) and not allow_destructive:
            raise DestructiveChangeError("data would be lost", hint=_HINT)
        wanted = {
            key: table.made_of(there[key])
            if key in there
            else ModelTable.create(key, tuple(table.columns), table.primary_key, among=shown)
            for key, table in self.tables.items()
        }
        return {
            **dict.fromkeys(gone),
            **{key: table for key, table in wanted.items() if table is not there.get(key)},
        }
