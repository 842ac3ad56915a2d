"""The rows of dev branches, and of the tables copied to them."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from anabranch.errors import BranchExistsError
from anabranch.ids import TableKey
from anabranch.server.metadata.database import Database

__all__ = ["Branch", "BranchRows", "CopiedTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A dev branch; `id` is also what the repository calls it."""

    id: str
    project_id: str
    name: str
    description: str
    created_at: datetime
    created_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """A table that a branch has of its own."""

    bucket: str
    table: str
    copied_at: datetime


class BranchRows:
    """The rows, and a copy of them in memory: only this class writes them, and every request reads some."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changing = threading.Lock()
        self._reserved: set[tuple[str, str]] = set()
        self._known = {row["id"]: Branch(**row) for row in database.read("SELECT * FROM branches")}
        self._copied: dict[str, tuple[CopiedTable, ...]] = {}
        for row in database.read("SELECT * FROM branch_tables ORDER BY bucket_name, table_name"):
            table = CopiedTable(bucket=row["bucket_name"], table=row["table_name"], copied_at=row["copied_at"])
            self._copied[row["branch_id"]] = (*self._copied.get(row["branch_id"], ()), table)

    def find(self, project_id: str, branch_id: str) -> Branch | None:
        found = self._known.get(branch_id)
        return found if found is not None and found.project_id == project_id else None

    def list_all(self, project_id: str) -> list[Branch]:
        """Oldest first."""
        found = [branch for branch in self._known.values() if branch.project_id == project_id]
        return sorted(found, key=lambda branch: (branch.created_at, branch.id))

    def insert(self, branch: Branch) -> None:
        """Add a branch. Raise BranchExistsError if another one of its project has the name."""
        # Reserve the name instead of taking a turn: then inserts that wait for the disk share one commit.
        with self._reserve_name(branch):
            self._database.write(
                "INSERT INTO branches (id, project_id, name, created_at, created_by, description)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                [
                    branch.id,
                    branch.project_id,
                    branch.name,
                    branch.created_at,
                    branch.created_by,
                    branch.description,
                ],
            )
            with self._changing:
                self._known = {**self._known, branch.id: branch}  # readers hold no lock

    @contextmanager
    def _reserve_name(self, branch: Branch) -> Iterator[None]:
        name = (branch.project_id, branch.name)
        with self._changing:
            if name in self._reserved or any(other.name == branch.name for other in self.list_all(branch.project_id)):
                raise BranchExistsError(
                    f"project '{branch.project_id}' has a branch {branch.name!r} already", hint="choose another name"
                )
            self._reserved.add(name)
        try:
            yield
        finally:
            with self._changing:
                self._reserved.discard(name)

    def delete(self, branch_id: str) -> None:
        """Delete a branch, after the rows that name it."""
        with self._database.turn():
            for table in ("branch_tables", "buckets"):
                self._database.write(f"DELETE FROM {table} WHERE branch_id = ?", [branch_id])  # noqa: S608
            self._database.write("DELETE FROM branches WHERE id = ?", [branch_id])
            with self._changing:
                self._known = {name: branch for name, branch in self._known.items() if name != branch_id}
            self._copied.pop(branch_id, None)

    def delete_all(self, project_id: str) -> None:
        """Delete the branches of a project, after the rows that name them."""
        named = "SELECT id FROM branches WHERE project_id = ?"
        with self._database.turn():
            self._database.write(f"DELETE FROM branch_tables WHERE branch_id IN ({named})", [project_id])  # noqa: S608
            self._database.write("DELETE FROM branches WHERE project_id = ?", [project_id])
            for branch in self.list_all(project_id):
                self._copied.pop(branch.id, None)
            with self._changing:
                self._known = {name: found for name, found in self._known.items() if found.project_id != project_id}

    def list_copied(self, branch_id: str) -> list[CopiedTable]:
        """By name."""
        return list(self._copied.get(branch_id, ()))

    def add_copied(self, branch_id: str, tables: Iterable[CopiedTable]) -> None:
        """Note tables that were copied, unless they are noted, or the branch is gone."""
        for table in tables:
            with self._database.turn():
                noted = self._copied.get(branch_id, ())
                if branch_id not in self._known or any(_key(one) == _key(table) for one in noted):
                    continue
                self._database.write(
                    "INSERT INTO branch_tables (branch_id, bucket_name, table_name, copied_at) VALUES (?, ?, ?, ?)",
                    [branch_id, table.bucket, table.table, table.copied_at],
                )
                self._copied[branch_id] = tuple(sorted((*noted, table), key=_key))

    def remove_copied(self, branch_id: str, keys: Iterable[TableKey]) -> None:
        for key in keys:
            with self._database.turn():
                self._database.write(
                    "DELETE FROM branch_tables WHERE branch_id = ? AND bucket_name = ? AND table_name = ?",
                    [branch_id, key.bucket, key.table],
                )
                left = tuple(one for one in self._copied.get(branch_id, ()) if _key(one) != key)
                if branch_id in self._copied:
                    self._copied[branch_id] = left


def _key(table: CopiedTable) -> TableKey:
    return TableKey(table.bucket, table.table)
