"""The audit log: which token did what, and when."""

import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import AwareDatetime, BaseModel, BeforeValidator

from anabranch.server.auth import Token
from anabranch.server.database import Change, Database, Insert, row_of
from anabranch.server.routing import ForAdmin, Limit, ProjectToChange, make_router


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """A write request, successful or refused."""

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
    """The event of a request that has not been answered, with the status of success.

    `status` is the one that was recorded last, None until the event is on disk.
    """

    event: AuditEvent
    status: int | None = None


class AuditEvents(BaseModel):
    """`next` is the value of `before` for the next page, and null on the last page.

    A page has all events of the microsecond of its last event, and so may have more than `limit`.
    """

    events: list[AuditEvent]
    next: datetime | None


# The pending event of the request that this task or thread works for.
_pending: ContextVar[PendingEvent | None] = ContextVar("pending_event", default=None)


class AuditLog:
    """The events of all projects."""

    def __init__(self, database: Database, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def begin(
        self, request: Request, *, action: str, success_status: int, branch_id: str | None = None
    ) -> PendingEvent:
        """Return the event of a request with a valid token, to be recorded with the status of its answer.

        The branch is that of the path, unless another one is given.
        """
        token: Token = request.state.token
        event = AuditEvent(
            happened_at=self._clock(),
            request_id=getattr(request.state, "request_id", secrets.token_hex(8)),
            token_id=token.id,
            actor=token.name,
            action=action,
            project_id=request.path_params.get("project_id"),
            branch_id=branch_id or request.path_params.get("branch_id"),
            # The client determines the length of the path, and events are never deleted.
            path=request.url.path[:1000],
            status=success_status,
        )
        pending = PendingEvent(event=event)
        _pending.set(pending)
        return pending

    @property
    def pending(self) -> PendingEvent | None:
        """The event of the request that this task or thread works for, None if there is no request."""
        return _pending.get()

    def write(
        self,
        changes: Sequence[Change],
        *,
        status: int | None = None,
        requests: Iterable[PendingEvent | None] | None = None,
    ) -> None:
        """Make the last changes of a request and record its event in one transaction, which waits for the disk once.

        The event has the status of success unless another is given. An event that was recorded with the same status is
        not recorded again. With `requests`, the changes and events are those of several requests.
        """
        recorded: list[tuple[PendingEvent, AuditEvent]] = []
        for pending in [_pending.get()] if requests is None else requests:
            if pending is None:
                continue
            wanted = status or pending.event.status
            if pending.status != wanted:
                recorded.append((pending, replace(pending.event, status=wanted, happened_at=self._clock())))
        if writes := [*changes, *(Insert("audit_events", row_of(event)) for _, event in recorded)]:
            self._database.write_all(writes)
        # Only after the transaction: if it fails, the route records the event again, with the status of the error.
        for pending, event in recorded:
            pending.status = event.status

    def list_page(self, *, project_id: str | None = None, before: datetime | None = None, limit: int) -> AuditEvents:
        """Return a page of the events of all projects or of one, newest first.

        A page may exceed the limit: it has all events with the time of its last one, because the next page begins
        before that time.
        """
        chosen = (
            "FROM audit_events WHERE ($1::VARCHAR IS NULL OR project_id = $1)"
            " AND ($2::TIMESTAMPTZ IS NULL OR happened_at < $2)"
        )
        newest = f"SELECT happened_at {chosen} ORDER BY happened_at DESC LIMIT $3"
        # Rows are never deleted or changed, so the row id is the order in which they were written.
        rows = self._database.read(
            f"SELECT * {chosen} AND happened_at >= (SELECT min(happened_at) FROM ({newest}))"  # noqa: S608
            " ORDER BY happened_at DESC, rowid DESC",
            [project_id, before, limit],
        )
        events = [AuditEvent(**row) for row in rows]
        if len(events) < limit:
            return AuditEvents(events=events, next=None)
        oldest = events[-1].happened_at
        has_more = self._database.read_one(f"SELECT 1 {chosen} LIMIT 1", [project_id, oldest]) is not None
        return AuditEvents(events=events, next=oldest if has_more else None)


router = make_router("audit")


def _refuse_number(value: Any) -> Any:
    # Pydantic reads a number as seconds since 1970.
    if isinstance(value, str) and re.fullmatch(r"[-+.\deE_]*", value):
        raise ValueError("must be a time like 2026-11-15T10:00:00Z")
    return value


Before = Annotated[
    AwareDatetime | None,
    BeforeValidator(_refuse_number),
    Query(description="Only events before this time.", examples=["2026-11-15T10:00:00Z"]),
]


@router.get("/audit")
def list_audit(call: ForAdmin, limit: Limit = 100, before: Before = None) -> AuditEvents:
    """List all writes, successful and refused, newest first."""
    return call.part(AuditLog).list_page(before=before, limit=limit)


@router.get("/projects/{project_id}/audit")
def list_project_audit(call: ProjectToChange, limit: Limit = 100, before: Before = None) -> AuditEvents:
    """List the writes to a project, successful and refused, newest first."""
    call.service.projects.get(call.project_id)
    return call.part(AuditLog).list_page(project_id=call.project_id, before=before, limit=limit)
