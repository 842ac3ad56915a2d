"""Pages about a service, or about one project of it: tokens, the audit and jobs.

They call the functions of the JSON routes.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from anabranch.errors import InvalidInputError
from anabranch.server.audit import AuditEvents, Before, list_audit, list_project_audit
from anabranch.server.auth import Scope, hash_secret
from anabranch.server.jobs import list_jobs
from anabranch.server.routing import Call, ProjectCall
from anabranch.server.tokens import (
    NewProjectToken,
    NewToken,
    TokenInfo,
    create_project_token,
    create_token,
    list_project_tokens,
    list_tokens,
    revoke_project_token,
    revoke_token,
    rotate_project_token,
    rotate_token,
)
from anabranch.server.ui.site import Page, Redirect, Shown, Visit, get, post

_EVENTS = 100
_JOBS = 100
_DAY_SECONDS = 86_400

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensView:
    """`project_id` is None on the page of the whole service, where a token may be bound to any project or to none."""

    tokens: tuple[TokenInfo, ...]
    project_id: str | None
    scopes: tuple[Scope, ...]


def checked_body(kind: type[Body], **fields: Any) -> Body:
    """Return the body that a JSON route would get. Raise InvalidInputError if it is not valid."""
    try:
        return kind(**fields)
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise InvalidInputError(f"{name} is not valid: {str(first['input'])[:100]!r}", hint=first["msg"]) from err


def _call(visit: Visit) -> Call:
    return Call(service=visit.request.app.state.service, token=visit.request.state.token)


def _project_call(visit: Visit) -> ProjectCall:
    call = _call(visit)
    return ProjectCall(service=call.service, token=call.token, project_id=visit.request.path_params["project_id"])


def _project_id(visit: Visit) -> str | None:
    return visit.request.path_params.get("project_id")


def show_tokens(visit: Visit) -> Shown:
    """List the tokens of the service or of a project."""
    project_id = _project_id(visit)
    found = list_tokens(_call(visit)) if project_id is None else list_project_tokens(_project_call(visit))
    scopes = tuple(scope for scope in Scope if project_id is None or scope is not Scope.ADMIN)
    view = TokensView(tokens=tuple(found.tokens), project_id=project_id, scopes=scopes)
    return Shown("service/tokens.html", view)


def create_token_by_form(visit: Visit) -> Redirect:
    """Create a token, and show its secret once."""
    days = visit.field("days")
    if days and not (days.isascii() and days.isdigit() and len(days) < 6):
        raise InvalidInputError(f"the number of days must be a number, got {days[:50]!r}", hint="for example 30")
    fields = {
        "name": visit.field("name"),
        "scope": visit.field("scope"),
        "branch_id": visit.field("branch") or None,
        "expires_in": int(days) * _DAY_SECONDS if days else None,
    }
    if _project_id(visit) is None:
        bound_to = visit.field("project") or None
        made = create_token(_call(visit), checked_body(NewToken, **fields, project_id=bound_to))
    else:
        made = create_project_token(_project_call(visit), checked_body(NewProjectToken, **fields))
    return Redirect(_tokens_path(visit), f"Token {made.name} was created. Its secret is shown only here: {made.secret}")


def rotate_token_by_form(visit: Visit) -> Redirect:
    """Replace the secret of a token, and show the new one once."""
    token_id = visit.field("token")
    if _project_id(visit) is None:
        made = rotate_token(_call(visit), token_id)
    else:
        made = rotate_project_token(_project_call(visit), token_id)
    if made.id == visit.session.token_id:
        # Only this session continues: without it, the visitor would be signed out before the new secret is shown.
        visit.session.token_hash = hash_secret(made.secret)
    return Redirect(_tokens_path(visit), f"Token {made.name} has a new secret, shown only here: {made.secret}")


def revoke_token_by_form(visit: Visit) -> Redirect:
    """Revoke a token."""
    token_id = visit.field("token")
    if _project_id(visit) is None:
        revoke_token(_call(visit), token_id)
    else:
        revoke_project_token(_project_call(visit), token_id)
    return Redirect(_tokens_path(visit), f"Token {token_id} was revoked.")


def _tokens_path(visit: Visit) -> str:
    return "/ui/tokens" if _project_id(visit) is None else "/tokens"


def show_audit(visit: Visit) -> Shown:
    """List writes, successful and refused, newest first."""
    before = checked_body(_AuditQuery, before=visit.query("before") or None).before
    if _project_id(visit) is None:
        found: AuditEvents = list_audit(_call(visit), limit=_EVENTS, before=before)
    else:
        found = list_project_audit(_project_call(visit), limit=_EVENTS, before=before)
    return Shown("service/audit.html", found)


class _AuditQuery(BaseModel):
    """The query of the audit, as its JSON route reads it."""

    before: Before = None


def show_jobs(visit: Visit) -> Shown:
    """List imports and exports, newest first."""
    return Shown("service/jobs.html", list_jobs(_call(visit), project_id=_project_id(visit), limit=_JOBS))


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
