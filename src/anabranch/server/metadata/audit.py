"""The audit log: which token did what, and when."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from anabranch.server.metadata.database import Change, Database, Insert

__all__ = ["AuditEvent", "AuditLog", "PendingEvent", "pending_event"]


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


@dataclass(slots=True, kw_only=True)
class PendingEvent:
    """The event of a request that has not been answered. `status` is None until the event is on disk."""

    make: Callable[[int], AuditEvent]
    success_status: int
    status: int | None = None


# The pending event of the request that this task or thread works for.
pending_event: ContextVar[PendingEvent | None] = ContextVar("pending_event", default=None)


class AuditLog:
    """The events of all projects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, changes: Sequence[Change], *, status: int | None = None) -> None:
        """Make the last changes of a request and record its event, in one transaction: each waits for the disk.

        The event has the status of success unless another is given. An event that was recorded with the same status is
        not recorded again.
        """
        pending = pending_event.get()
        if pending is None:
            if changes:
                self._database.write_all(changes)
            return
        status = pending.success_status if status is None else status
        if status == pending.status:
            events = []
        else:
            event = pending.make(status)
            events = [Insert("audit_events", {name: getattr(event, name) for name in event.__slots__})]
        if changes or events:
            self._database.write_all([*changes, *events])
        pending.status = status

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
