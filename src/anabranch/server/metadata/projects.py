"""The rows of projects, and what was begun with them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from anabranch.server.metadata.database import Database

__all__ = ["Intent", "IntentKind", "Project", "ProjectRows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One project: one repository."""

    id: str
    name: str
    description: str
    created_at: datetime
    created_by: str | None


class IntentKind(StrEnum):
    CREATE_PROJECT = "create_project"
    DELETE_PROJECT = "delete_project"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What was begun; it is gone once that is done."""

    id: str
    kind: IntentKind
    project_id: str
    begun_at: datetime


class ProjectRows:
    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, project_id: str) -> Project | None:
        row = self._database.read_one("SELECT * FROM projects WHERE id = ?", [project_id])
        return None if row is None else Project(**row)

    def list_all(self) -> list[Project]:
        return [Project(**row) for row in self._database.read("SELECT * FROM projects ORDER BY created_at, id")]

    def begin(self, intent: Intent) -> None:
        self._database.write(
            "INSERT INTO intents VALUES (?, ?, ?, ?)",
            [intent.id, str(intent.kind), intent.project_id, intent.begun_at],
        )

    def intents(self) -> list[Intent]:
        rows = self._database.read("SELECT * FROM intents ORDER BY begun_at")
        return [Intent(**{**row, "kind": IntentKind(row["kind"])}) for row in rows]

    def end(self, intent_id: str) -> None:
        self._database.write("DELETE FROM intents WHERE id = ?", [intent_id])

    def insert(self, project: Project) -> None:
        self._database.write(
            "INSERT INTO projects (id, name, description, created_at, created_by) VALUES (?, ?, ?, ?, ?)",
            [project.id, project.name, project.description, project.created_at, project.created_by],
        )

    def delete(self, project_id: str) -> None:
        """Forget a project and all that names it, the latter first."""
        named = "SELECT id FROM branches WHERE project_id = ?"
        with self._database.turn():
            self._database.write(f"DELETE FROM branch_tables WHERE branch_id IN ({named})", [project_id])  # noqa: S608
            self._database.write("DELETE FROM branches WHERE project_id = ?", [project_id])
            for table in ("buckets", "jobs", "files"):
                self._database.write(f"DELETE FROM {table} WHERE project_id = ?", [project_id])  # noqa: S608
            self._database.write("DELETE FROM projects WHERE id = ?", [project_id])
