"""The rows of projects, and what was begun with them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from anabranch.server.metadata.branches import BranchRows
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
    """The rows, and the same in memory: nobody else writes them, and every request asks for one."""

    def __init__(self, database: Database, branches: BranchRows) -> None:
        self._database = database
        self._branches = branches
        self._known = {row["id"]: Project(**row) for row in database.read("SELECT * FROM projects")}

    def find(self, project_id: str) -> Project | None:
        return self._known.get(project_id)

    def list_all(self) -> list[Project]:
        """Oldest first."""
        return sorted(self._known.values(), key=lambda project: (project.created_at, project.id))

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
        with self._database.turn():
            self._database.write(
                "INSERT INTO projects (id, name, description, created_at, created_by) VALUES (?, ?, ?, ?, ?)",
                [project.id, project.name, project.description, project.created_at, project.created_by],
            )
            self._known = {**self._known, project.id: project}  # readers hold no lock

    def delete(self, project_id: str) -> None:
        """Forget a project and all that names it, the latter first."""
        with self._database.turn():
            self._branches.delete_all(project_id)
            for table in ("buckets", "jobs", "files"):
                self._database.write(f"DELETE FROM {table} WHERE project_id = ?", [project_id])  # noqa: S608
            # What was answered about this one is nothing to say about another one of its name.
            self._database.write(
                "DELETE FROM idempotency_keys WHERE starts_with(path, ?)", [f"/projects/{project_id}/"]
            )
            self._database.write("DELETE FROM projects WHERE id = ?", [project_id])
            self._known = {name: project for name, project in self._known.items() if name != project_id}
