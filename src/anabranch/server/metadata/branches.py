"""The rows of dev branches, and of the tables copied to them."""

from collections.abc import Iterable
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
    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, project_id: str, branch_id: str) -> Branch | None:
        row = self._database.read_one("SELECT * FROM branches WHERE id = ? AND project_id = ?", [branch_id, project_id])
        return None if row is None else Branch(**row)

    def list_all(self, project_id: str) -> list[Branch]:
        rows = self._database.read("SELECT * FROM branches WHERE project_id = ? ORDER BY created_at, id", [project_id])
        return [Branch(**row) for row in rows]

    def insert(self, branch: Branch) -> None:
        """Add a branch whose name no other one of its project has."""
        with self._database.turn():
            taken = self._database.read_one(
                "SELECT id FROM branches WHERE project_id = ? AND name = ?", [branch.project_id, branch.name]
            )
            if taken is not None:
                raise BranchExistsError(
                    f"project '{branch.project_id}' has a branch {branch.name!r} already", hint="choose another name"
                )
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

    def delete(self, branch_id: str) -> None:
        """Forget a branch and all that names it, the latter first."""
        with self._database.turn():
            for table in ("branch_tables", "buckets"):
                self._database.write(f"DELETE FROM {table} WHERE branch_id = ?", [branch_id])  # noqa: S608
            self._database.write("DELETE FROM branches WHERE id = ?", [branch_id])

    def list_copied(self, branch_id: str) -> list[CopiedTable]:
        rows = self._database.read(
            'SELECT bucket_name AS bucket, table_name AS "table", copied_at FROM branch_tables'
            " WHERE branch_id = ? ORDER BY bucket_name, table_name",
            [branch_id],
        )
        return [CopiedTable(**row) for row in rows]

    def add_copied(self, branch_id: str, tables: Iterable[CopiedTable]) -> None:
        """Note tables that were copied, unless they are noted, or the branch is gone."""
        for table in tables:
            self._database.write(
                "INSERT INTO branch_tables (branch_id, bucket_name, table_name, copied_at)"
                " SELECT id, ?, ?, ? FROM branches WHERE id = ? ON CONFLICT DO NOTHING",
                [table.bucket, table.table, table.copied_at, branch_id],
            )

    def remove_copied(self, branch_id: str, keys: Iterable[TableKey]) -> None:
        for key in keys:
            self._database.write(
                "DELETE FROM branch_tables WHERE branch_id = ? AND bucket_name = ? AND table_name = ?",
                [branch_id, key.bucket, key.table],
            )
