"""Dev branches and the tables copied to them, as rows in the database of the service."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from anabranch.errors import BranchExistsError
from anabranch.ids import TableKey
from anabranch.server.database import Change, Database, Insert, row_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A dev branch. `id` is also its name in the repository."""

    id: str
    project_id: str
    name: str
    description: str
    created_at: datetime
    created_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """A table of which a branch has its own copy."""

    bucket: str
    table: str
    copied_at: datetime


class BranchRows:
    """The rows, and a copy of them in memory: only this class writes them, and every request reads some.

    Readers hold no lock. A single operation on a dict is atomic, so they list the values before they filter them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changing = threading.Lock()
        self._known = {row["id"]: Branch(**row) for row in database.read("SELECT * FROM branches")}
        self._names = {(branch.project_id, branch.name) for branch in self._known.values()}
        self._copied: dict[str, tuple[CopiedTable, ...]] = {}
        for row in database.read("SELECT * FROM branch_tables ORDER BY bucket_name, table_name"):
            table = CopiedTable(bucket=row["bucket_name"], table=row["table_name"], copied_at=row["copied_at"])
            self._copied[row["branch_id"]] = (*self._copied.get(row["branch_id"], ()), table)

    def find(self, project_id: str, branch_id: str) -> Branch | None:
        found = self._known.get(branch_id)
        return found if found is not None and found.project_id == project_id else None

    def list_all(self, project_id: str) -> list[Branch]:
        """Return the branches of a project, oldest first."""
        found = [branch for branch in list(self._known.values()) if branch.project_id == project_id]
        return sorted(found, key=lambda branch: (branch.created_at, branch.id))

    @contextmanager
    def reserve_name(self, project_id: str, name: str) -> Iterator[None]:
        """Keep a name for the branch that is created inside. Raise BranchExistsError if the name is taken.

        The name is kept in memory and not by a lock, so that branches can be created concurrently.
        """
        key = (project_id, name)
        with self._changing:
            if key in self._names:
                raise BranchExistsError(
                    f"project '{project_id}' already has a branch {name!r}", hint="choose another name"
                )
            self._names.add(key)
        try:
            yield
        except BaseException:
            with self._changing:
                self._names.discard(key)
            raise

    def insert(self, *branches: Branch, write: Callable[[Sequence[Change]], None] | None = None) -> None:
        """Add branches whose names are reserved, all or none. `write` is how the rows are written."""
        (write or self._database.write_all)([Insert("branches", row_of(branch)) for branch in branches])
        self._known.update((branch.id, branch) for branch in branches)

    def delete(self, branch_id: str) -> None:
        """Delete a branch, after the rows that name it."""
        with self._database.turn():
            for table in ("branch_tables", "buckets"):
                self._database.write(f"DELETE FROM {table} WHERE branch_id = ?", [branch_id])  # noqa: S608
            self._database.write("DELETE FROM branches WHERE id = ?", [branch_id])
            self._forget(branch_id)

    def delete_all(self, project_id: str) -> None:
        """Delete the branches of a project, after the rows that name them."""
        named = "SELECT id FROM branches WHERE project_id = ?"
        with self._database.turn():
            self._database.write(f"DELETE FROM branch_tables WHERE branch_id IN ({named})", [project_id])  # noqa: S608
            self._database.write("DELETE FROM branches WHERE project_id = ?", [project_id])
            for branch in self.list_all(project_id):
                self._forget(branch.id)

    def _forget(self, branch_id: str) -> None:
        self._copied.pop(branch_id, None)
        with self._changing:
            branch = self._known.pop(branch_id, None)
            if branch is not None:
                self._names.discard((branch.project_id, branch.name))

    def list_copied(self, branch_id: str) -> list[CopiedTable]:
        """Return the copied tables of a branch by name."""
        return list(self._copied.get(branch_id, ()))

    def add_copied(self, branch_id: str, tables: Iterable[CopiedTable]) -> None:
        """Add rows for copied tables that have none, unless the branch was deleted."""
        for table in tables:
            # One turn for the check and the insert: two writers may copy the same table, and the row has a primary key.
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
