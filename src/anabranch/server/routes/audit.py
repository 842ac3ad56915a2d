"""Who did what, when, from which token."""

import re
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, BeforeValidator

from anabranch.server.metadata.audit import AuditEvent
from anabranch.server.routing import ForAdmin, Limit, ProjectToChange, make_router

__all__ = ["router"]

router = make_router("audit")


def _written_out(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"[-+.\deE_]*", value):
        raise ValueError("must be a moment like 2026-11-15T10:00:00Z")
    return value


Before = Annotated[
    AwareDatetime | None,
    BeforeValidator(_written_out),
    Query(description="Only what happened before this moment.", examples=["2026-11-15T10:00:00Z"]),
]


class AuditEvents(BaseModel):
    """`next` is what `before` takes to go on; nothing if this is all."""

    events: list[AuditEvent]
    next: datetime | None


@router.get("/audit")
def list_audit(call: ForAdmin, limit: Limit = 100, before: Before = None) -> AuditEvents:
    """All writes, done and refused, newest first."""
    return _page(call.service.audit.list_all(before=before, limit=limit + 1), limit)


@router.get("/projects/{project_id}/audit")
def list_project_audit(call: ProjectToChange, limit: Limit = 100, before: Before = None) -> AuditEvents:
    """The writes to a project, done and refused, newest first."""
    call.service.projects.get(call.project_id)
    found = call.service.audit.list_all(project_id=call.project_id, before=before, limit=limit + 1)
    return _page(found, limit)


def _page(found: list[AuditEvent], limit: int) -> AuditEvents:
    shown = found[:limit]
    return AuditEvents(events=shown, next=shown[-1].happened_at if len(found) > limit else None)
