"""The audit log: which token did what, and when."""

from dataclasses import astuple, dataclass
from datetime import datetime

from anabranch.server.metadata.database import Database

__all__ = ["AuditEvent", "AuditLog"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One request that changed something, or tried to."""

    happened_at: datetime
    request_id: str
    token_id: str | None
    actor: str | None
    action: str
    project_id: str | None
    branch_id: str | None
    path: str
    status: int


_COLUMNS = ("happened_at", "request_id", "token_id", "actor", "action", "project_id", "branch_id", "path", "status")


class AuditLog:
    """The events of all projects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, event: AuditEvent) -> None:
        """Write an event. It is on disk when this returns."""
        self._database.write(
            f"INSERT INTO audit_events ({', '.join(_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            astuple(event),
        )

    def list_all(
        self, *, project_id: str | None = None, before: datetime | None = None, limit: int = 100
    ) -> list[AuditEvent]:
        """Return the events of all projects or of one, newest first."""
        rows = self._database.read(
            "SELECT * FROM audit_events WHERE ($1::VARCHAR IS NULL OR project_id = $1)"
            " AND ($2::TIMESTAMPTZ IS NULL OR happened_at < $2) ORDER BY happened_at DESC LIMIT $3",
            [project_id, before, limit],
        )
        return [AuditEvent(**row) for row in rows]
