"""Pages about a service, or about one project of it: tokens, the audit and jobs.

They call the functions of the JSON routes.
"""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from anabranch.errors import InvalidInputError
from anabranch.server.audit import Before, list_audit, list_project_audit
from anabranch.server.auth import Scope, hash_secret
from anabranch.server.jobs import list_jobs
from anabranch.server.routing import Call, ProjectCall
from anabranch.server.tokens import (
    NewProjectToken,
    NewToken,
    create_project_token,
    create_token,
    list_project_tokens,
    list_tokens,
    revoke_project_token,
    revoke_token,
    rotate_project_token,
    rotate_token,
)
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, parse_days, post

_EVENTS = 100
_JOBS = 100

Body = TypeVar("Body", bound=BaseModel)


def checked_body(kind: type[Body], **fields: Any) -> Body:
    """Return the body that a JSON route would get. Raise InvalidInputError if it is not valid."""
    try:
        return kind(**fields)
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise InvalidInputError(f"{name} is not valid: {str(first['input'])[:100]!r}", hint=first["msg"]) from err


def _call(visit: Visit) -> Call:
    """Return what a JSON route would get: a call about the project of the page, or about the whole service."""
    service, token = visit.request.app.state.service, visit.request.state.token
    project_id = visit.request.path_params.get("project_id")
    if project_id is None:
        return Call(service=service, token=token)
    return ProjectCall(service=service, token=token, project_id=project_id)


def show_tokens(visit: Visit) -> Shown:
    """List the tokens of the service or of a project."""
    call = _call(visit)
    is_project = isinstance(call, ProjectCall)
    found = list_project_tokens(call) if isinstance(call, ProjectCall) else list_tokens(call)
    # A token of the whole service may be bound to any project, or to none.
    scopes = [scope for scope in Scope if not is_project or scope is not Scope.ADMIN]
    return Shown("service/tokens.html", {"tokens": found.tokens, "is_project": is_project, "scopes": scopes})


def create_token_by_form(visit: Visit) -> Redirect:
    """Create a token, and show its secret once."""
    call, life = _call(visit), parse_days(visit.field("days"))
    fields = {
        "name": visit.field("name"),
        "scope": visit.field("scope"),
        "branch_id": visit.field("branch") or None,
        "expires_in": None if life is None else int(life.total_seconds()),
    }
    if isinstance(call, ProjectCall):
        made = create_project_token(call, checked_body(NewProjectToken, **fields))
    else:
        made = create_token(call, checked_body(NewToken, **fields, project_id=visit.field("project") or None))
    return Redirect(_tokens_path(call), f"Token {made.name} was created. Its secret is shown only here: {made.secret}")


def rotate_token_by_form(visit: Visit) -> Redirect:
    """Replace the secret of a token, and show the new one once."""
    call, token_id = _call(visit), visit.field("token")
    made = rotate_project_token(call, token_id) if isinstance(call, ProjectCall) else rotate_token(call, token_id)
    if made.id == visit.session.token_id:
        # Only this session continues: without it, the visitor would be signed out before the new secret is shown.
        visit.session.token_hash = hash_secret(made.secret)
    return Redirect(_tokens_path(call), f"Token {made.name} has a new secret, shown only here: {made.secret}")


def revoke_token_by_form(visit: Visit) -> Redirect:
    """Revoke a token."""
    call, token_id = _call(visit), visit.field("token")
    if isinstance(call, ProjectCall):
        revoke_project_token(call, token_id)
    else:
        revoke_token(call, token_id)
    return Redirect(_tokens_path(call), f"Token {token_id} was revoked.")


def _tokens_path(call: Call) -> str:
    # Addresses of a project are below its lake.
    return "/tokens" if isinstance(call, ProjectCall) else "/ui/tokens"


def show_audit(visit: Visit) -> Shown:
    """List writes, successful and refused, newest first."""
    before = checked_body(_AuditQuery, before=visit.query("before") or None).before
    call = _call(visit)
    if isinstance(call, ProjectCall):
        found = list_project_audit(call, limit=_EVENTS, before=before)
    else:
        found = list_audit(call, limit=_EVENTS, before=before)
    return Shown("service/audit.html", found)


class _AuditQuery(BaseModel):
    """The query of the audit, as its JSON route reads it."""

    before: Before = None


def show_jobs(visit: Visit) -> Shown:
    """List imports and exports, newest first."""
    found = list_jobs(_call(visit), project_id=visit.request.path_params.get("project_id"), limit=_JOBS)
    return Shown("service/jobs.html", found)


SERVICE_PAGES: tuple[Page, ...] = (
    get("/tokens", show_tokens, needs=Scope.ADMIN),
    post("/tokens/create", create_token_by_form, needs=Scope.ADMIN),
    post("/tokens/rotate", rotate_token_by_form, needs=Scope.ADMIN),
    post("/tokens/revoke", revoke_token_by_form, needs=Scope.ADMIN),
    get("/audit", show_audit, needs=Scope.ADMIN),
    # The list contains what the token may read, as that of the JSON route.
    get("/jobs", show_jobs, needs=None),
)
PROJECT_PAGES: tuple[Page, ...] = (
    get("/tokens", show_tokens, needs=Scope.PROJECT),
    post("/tokens/create", create_token_by_form),
    post("/tokens/rotate", rotate_token_by_form),
    post("/tokens/revoke", revoke_token_by_form),
    get("/audit", show_audit, needs=Scope.PROJECT),
    get("/jobs", show_jobs),
)
