"""Who did what, when, from which token."""

import threading
from collections.abc import Sequence
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
    """Writes events so that those who come together share one transaction, since each waits for the disk."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[AuditEvent] = []
        self._adding = threading.Lock()
        self._flushing = threading.Lock()

    def record(self, event: AuditEvent) -> None:
        """Put an event on disk; when this returns it is there."""
        with self._adding:
            self._waiting.append(event)
        with self._flushing:
            with self._adding:
                taken, self._waiting = self._waiting, []
            if taken:
                self._write(taken)

    def list_all(
        self, *, project_id: str | None = None, before: datetime | None = None, limit: int = 100
    ) -> list[AuditEvent]:
        """The newest events first, of all projects or of one."""
        rows = self._database.read(
            "SELECT * FROM audit_events WHERE ($1::VARCHAR IS NULL OR project_id = $1)"
            " AND ($2::TIMESTAMPTZ IS NULL OR happened_at < $2) ORDER BY happened_at DESC LIMIT $3",
            [project_id, before, limit],
        )
        return [AuditEvent(**row) for row in rows]

    def _write(self, events: Sequence[AuditEvent]) -> None:
        with self._database.transaction() as cursor:
            cursor.executemany(
                f"INSERT INTO audit_events ({', '.join(_COLUMNS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                [astuple(event) for event in events],
            )
