"""The rows of files that wait to be imported."""

from dataclasses import dataclass
from datetime import datetime

from anabranch.server.metadata.database import Database

__all__ = ["FileRows", "StagedFile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A file of a project; `stored_as` is its name in its folder."""

    id: str
    project_id: str
    name: str
    stored_as: str
    size_bytes: int
    sha256: str
    created_at: datetime
    created_by: str | None


class FileRows:
    def __init__(self, database: Database) -> None:
        self._database = database

    def insert(self, file: StagedFile) -> None:
        """Add a file, unless its project is gone."""
        self._database.write(
            "INSERT INTO files (id, project_id, name, stored_as, size_bytes, sha256, created_at, created_by)"
            " SELECT ?, projects.id, ?, ?, ?, ?, ?, ? FROM projects WHERE projects.id = ?",
            [
                file.id,
                file.name,
                file.stored_as,
                file.size_bytes,
                file.sha256,
                file.created_at,
                file.created_by,
                file.project_id,
            ],
        )

    def find(self, project_id: str, file_id: str) -> StagedFile | None:
        row = self._database.read_one("SELECT * FROM files WHERE project_id = ? AND id = ?", [project_id, file_id])
        return None if row is None else StagedFile(**row)

    def list_all(self, project_id: str | None = None) -> list[StagedFile]:
        """The newest first."""
        rows = self._database.read(
            "SELECT * FROM files WHERE ($1::VARCHAR IS NULL OR project_id = $1) ORDER BY created_at DESC, id",
            [project_id],
        )
        return [StagedFile(**row) for row in rows]

    def delete(self, file_id: str) -> None:
        self._database.write("DELETE FROM files WHERE id = ?", [file_id])
