"""The rows of buckets: those without tables exist only here, and what a branch hides of main's."""

from dataclasses import dataclass
from datetime import datetime

from anabranch.server.metadata.database import Database

__all__ = ["BucketRow", "BucketRows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRow:
    """A bucket that was made, or, if it is hidden, one of main's that a branch deleted."""

    project_id: str
    branch_id: str
    name: str
    is_hidden: bool
    description: str
    created_at: datetime
    created_by: str | None


class BucketRows:
    def __init__(self, database: Database) -> None:
        self._database = database

    def list_all(self, project_id: str, branch_id: str) -> dict[str, BucketRow]:
        """By name."""
        rows = self._database.read(
            "SELECT * FROM buckets WHERE project_id = ? AND branch_id = ?", [project_id, branch_id]
        )
        return {row["name"]: BucketRow(**row) for row in rows}

    def put(self, bucket: BucketRow) -> None:
        """Add a row, in the place of the one before it."""
        with self._database.turn():
            self.delete(bucket.project_id, bucket.branch_id, bucket.name)
            self._database.write(
                "INSERT INTO buckets (project_id, branch_id, name, is_hidden, description, created_at, created_by)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    bucket.project_id,
                    bucket.branch_id,
                    bucket.name,
                    bucket.is_hidden,
                    bucket.description,
                    bucket.created_at,
                    bucket.created_by,
                ],
            )

    def delete(self, project_id: str, branch_id: str, name: str) -> None:
        self._database.write(
            "DELETE FROM buckets WHERE project_id = ? AND branch_id = ? AND name = ?", [project_id, branch_id, name]
        )
