"""The UI of a service: sign-in by token, the list of projects, and the pages of each project's repository.

The pages about tokens, the audit and jobs are for the service or for one project. They do what the JSON routes do.
"""

import asyncio
import hmac
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from anabranch.errors import (
    AnabranchError,
    CommitNotFoundError,
    ForbiddenError,
    InvalidInputError,
    TokenNotFoundError,
    UnauthenticatedError,
)
from anabranch.hints import Door
from anabranch.ids import MAIN, TableKey
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.server import audit, jobs, tokens
from anabranch.server.auth import DEFAULT_BRANCH, Scope, Token, require
from anabranch.server.branches import NewBranch, is_branch_id
from anabranch.server.envelope import text_without_folder, without_data_folder
from anabranch.server.files import keep_file
from anabranch.server.imports import ImportOptions, ImportOrder
from anabranch.server.merges import refuse_dev_branches
from anabranch.server.routing import Call, ProjectCall
from anabranch.server.service import Service
from anabranch.server.ui.lake import Lake, LoadOrder, loaded_message
from anabranch.server.ui.overview import PAGES
from anabranch.server.ui.requests import Cookie, Session, Sessions, check_same_site, reading_form
from anabranch.server.ui.responses import Account, render
from anabranch.server.ui.site import Page, PageRoute, Redirect, Shown, Site, Visit, get, parse_days, post

UI_PATH = "/ui"
_HOME = "/ui/"
_SIGN_IN = "/ui/sign-in"
_SIGN_OUT = "/ui/sign-out"
# A longer load continues as a job, and the page reports its id.
_WAIT_SECONDS = 60.0
_LONGEST_BRANCH = 200
_EVENTS = 100
_JOBS = 100
# Sent by visitors without a session.
_SIGN_IN_FORM = {"max_files": 0, "max_fields": 10, "max_part_size": 16 << 10}

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class ProjectLake(Lake):
    """A project of a service: its branches have rows in the service's database, and a token limits the visitor."""

    service: Service
    project_id: str
    token: Token
    has_free_branches: ClassVar[bool] = False

    def allows(self, scope: Scope, branch: str | None = None) -> bool:
        try:
            _require(self.service, self.token, scope, project_id=self.project_id, branch=branch)
        except ForbiddenError:
            return False
        return True

    @cached_property
    def names(self) -> Mapping[str, str]:
        return {branch.id: branch.name for branch in self.service.branches.list_all(self.project_id)}

    def create_branch(
        self,
        name: str,
        *,
        source: str,  # noqa: ARG002 - the branches of a service are live
        mode: str,  # noqa: ARG002
        description: str,
        expires_in: timedelta | None,  # noqa: ARG002
    ) -> str:
        wanted = _checked_body(NewBranch, name=name, description=description)
        create = self.service.branches.create
        return create(self.project_id, name=wanted.name, description=wanted.description, token=self.token).name

    def delete_branch(self, name: str) -> None:
        if name in self.names:
            self.service.branches.delete(self.project_id, name, self.token)
        else:
            # Another tool made this branch in the repository.
            self.repository.branch_delete(name)

    def public_text(self, text: str) -> str:
        return text_without_folder(text, self.service.settings.data)

    def can_rename(self, name: str) -> bool:
        return not self._is_dev_branch(name) and self.allows(Scope.BRANCH, name)

    def rename_branch(self, name: str, new: str) -> None:
        if self._is_dev_branch(name):
            problem = f"'{name}' is a dev branch, and its id does not change"
            raise InvalidInputError(problem, hint="create another dev branch")
        if new == DEFAULT_BRANCH or is_branch_id(new):
            raise InvalidInputError(
                f"'{new}' is reserved: the service uses such ids for main and for dev branches",
                hint="choose another name",
            )
        self.repository.branch_rename(name, new)

    def _is_dev_branch(self, name: str) -> bool:
        return self.service.branches.is_dev_branch(self.project_id, name)

    def check_revert(self, commit_id: str, branch: str) -> None:
        """Refuse a commit of another branch if the token may not read it, or if it is a dev branch.

        A revert brings back the rows that the commit removed. So it is a merge of one commit.
        """
        made_on = EngineAccess(self.repository).published_snapshot_of(commit_id).commit.branch
        if made_on in (branch, MAIN):
            return
        if self.token.branch_id is not None:
            problem = f"commit {commit_id} was made on another branch"
            raise CommitNotFoundError(problem, hint="open a commit of this branch")
        self.check_merge(commit_id, MAIN)

    def check_merge(self, source: str, into: str) -> None:
        refuse_dev_branches(self.service.branches, self.project_id, self.repository, source=source, into=into)

    def load(self, order: LoadOrder) -> str:
        """Run an import as a job, as the JSON route does, and wait for it."""
        service, key = self.service, TableKey.parse(order.table)
        # A branch that another tool called 'default' is not main, which has this id in paths.
        branch_id = DEFAULT_BRANCH if order.branch == MAIN else service.branches.get(self.project_id, order.branch).id
        branch = service.branches.open(self.project_id, branch_id, self.token)
        options = ImportOptions(incremental=order.is_incremental)
        # Before the file is copied, so that a refused import does not fill the disk.
        service.imports.check(branch, key, options)
        upload = keep_file(order.file, order.name, service.files.new_folder(self.project_id))
        try:
            submitted = service.imports.submit(ImportOrder(branch=branch, key=key, options=options, upload=upload))
        except BaseException:
            upload.discard()
            raise
        job = asyncio.run(service.jobs.wait(submitted.id, _WAIT_SECONDS))  # a page has a thread without an event loop
        if job.error is not None:
            raise InvalidInputError(job.error["message"], hint=job.error["details"].get("hint"))
        if job.result is None:
            return f"The job {job.id} loads {order.name} into {order.table}. It has not ended yet."
        return loaded_message(order, rows=job.result["imported_rows"], commit_id=job.result["commit_id"])


def _path(project_id: str | None, branch: str | None) -> dict[str, str]:
    """Return the parameters of the JSON route that does the same, by which tokens are checked."""
    path = {} if project_id is None else {"project_id": project_id}
    return path if branch is None else {**path, "branch_id": DEFAULT_BRANCH if branch == MAIN else branch}


def _require(service: Service, token: Token, needs: Scope, *, project_id: str | None, branch: str | None) -> None:
    """Raise ForbiddenError if a token may not do what needs a scope, to a branch if one is given."""
    is_known = branch is None or branch == MAIN
    if branch is not None and project_id is not None:
        is_known = is_known or service.branches.is_dev_branch(project_id, branch)
    # The JSON routes write to main and to dev branches only. Branches of other tools belong to the whole project.
    raised = Scope.PROJECT if needs is Scope.BRANCH and not is_known else needs
    require(token, raised, path=_path(project_id, branch))


class ServiceSite(Site):
    """Admits visitors who signed in with a token that is still valid."""

    home = _HOME
    static_path = "/ui/static"
    door = Door.SERVICE_PAGE

    def __init__(self, service: Service) -> None:
        super().__init__()
        self.cookie = Cookie(name="anabranch_session", path="/ui")
        self.sessions = Sessions()
        self._service = service
        # Protects the sign-in form, which is sent before there is a session.
        self._form_cookie = Cookie(name="anabranch_sign_in", path=_SIGN_IN)

    def find_token(self, request: Request) -> Token | None:
        """Return the token of the session that a request belongs to, if both are still valid."""
        session = self.sessions.find(self.cookie.read(request))
        if session is None or session.token_id is None:
            return None
        try:
            token = self._service.tokens.get(session.token_id)
        except TokenNotFoundError:
            return None
        # A token that was rotated has another secret, so sessions that began with the old one end.
        is_valid = token.is_alive(self._service.clock()) and token.secret_hash == session.token_hash
        return token if is_valid else None

    def find_session(self, request: Request) -> Session | None:
        token = self.find_token(request)
        if token is None:
            return None
        request.state.token = token
        return self.sessions.find(self.cookie.read(request))

    def check_scope(self, request: Request, needs: Scope) -> None:
        token: Token = request.state.token
        # The branch is in the form, and `check` compares it with that of the token.
        require(token, needs, path=_path(request.path_params.get("project_id"), token.branch_id))

    def check(self, request: Request, needs: Scope, branch: str | None) -> None:
        project_id = request.path_params.get("project_id")
        _require(self._service, request.state.token, needs, project_id=project_id, branch=branch)

    @contextmanager
    def open(self, request: Request) -> Iterator[Lake | None]:
        project_id, token = request.path_params.get("project_id"), request.state.token
        if project_id is None:
            yield None
            return
        with self._service.projects.in_use(project_id):
            project = self._service.projects.get(project_id)
            repository = self._service.projects.open(project_id, actor=token.name)
            yield ProjectLake(
                repository=repository,
                path=f"/ui/projects/{project_id}",
                name=project.name,
                made_at=project.created_at,
                service=self._service,
                project_id=project_id,
                token=token,
            )

    def record(self, request: Request, action: str, branch: str | None, run: Callable[[], Response]) -> Response:
        log = self._service.audit
        # The name comes from a form that is not checked yet, and events are never deleted.
        named = _path(None, branch).get("branch_id", "")[:_LONGEST_BRANCH]
        pending = log.begin(request, action=action, success_status=303, branch_id=named or None)
        try:
            response = run()
        except BaseException:
            log.write((), status=500)
            raise
        if pending.status != response.status_code:
            log.write((), status=response.status_code)
        return response

    def account(self, session: Session, lake: Lake | None) -> Account | None:
        assert session.token_id is not None  # noqa: S101 - set at the start of each session
        token = self._service.tokens.get(session.token_id)
        base = _HOME.rstrip("/") if lake is None else lake.path
        may_administer = token.scope is Scope.ADMIN if lake is None else lake.can_administer
        records = (("Audit", f"{base}/audit"), ("Tokens", f"{base}/tokens"))
        links = (("Projects", _HOME), ("Jobs", f"{base}/jobs"), *(records if may_administer else ()))
        return Account(name=token.name, sign_out=_SIGN_OUT, links=links)

    def explain(self, error: AnabranchError) -> AnabranchError:
        return without_data_folder(error, self._service.settings.data)

    def turn_away(self, request: Request) -> Response:
        return self._show_sign_in(request, wanted=request.url.path if request.method == "GET" else _HOME, status=401)

    async def show_sign_in(self, request: Request) -> Response:
        return self._show_sign_in(request, wanted=_HOME, status=200)

    async def sign_in(self, request: Request) -> Response:
        """Exchange a token for a session."""
        async with reading_form(request, _SIGN_IN_FORM) as form:
            secret, wanted, value = (str(form.get(name, "")) for name in ("token", "wanted", "csrf"))
        # The field comes from the browser: a forged one would lead the visitor to another site after the sign-in.
        wanted = wanted if _is_page(wanted) else _HOME
        try:
            check_same_site(request)
            # There is no session yet, so the token of the form is compared with a cookie, which another site cannot
            # read.
            expected = self._form_cookie.read(request) or ""
            if not expected or not hmac.compare_digest(expected.encode(), value.encode()):
                raise ForbiddenError("the sign-in form has expired", hint="send it again")
            token = self._service.tokens.authenticate(secret.strip())
        except (ForbiddenError, UnauthenticatedError) as err:
            return self._show_sign_in(request, wanted=wanted, status=401, problem=err.problem)
        # Always a new id: an id that an attacker set in the browser before the sign-in never becomes valid.
        session = self.sessions.start(token_id=token.id, token_hash=token.secret_hash)
        response = RedirectResponse(wanted, status_code=303)
        self._form_cookie.delete(response)
        self.cookie.set(response, session.id, is_secure=request.url.scheme == "https")
        return response

    def sign_out(self, visit: Visit) -> Response:
        self.sessions.end(visit.session)
        response = RedirectResponse(_SIGN_IN, status_code=303)
        self.cookie.delete(response)
        return response

    def _show_sign_in(self, request: Request, *, wanted: str, status: int, problem: str = "") -> Response:
        value = secrets.token_urlsafe(32)
        view = {"csrf": value, "action": _SIGN_IN, "wanted": wanted, "problem": problem}
        response = render("service/sign_in.html", view, frame=self.frame(request), status=status)
        self._form_cookie.set(response, value, is_secure=request.url.scheme == "https")
        return response

    def all_routes(self) -> list[PageRoute]:
        """Return the routes of the UI of a service."""
        service_pages = (
            get("/", _show_projects, needs=None),
            post("/sign-out", self.sign_out, needs=None),
            *_SERVICE_PAGES,
        )
        return [
            self.static_route(),
            PageRoute("/", lambda _: RedirectResponse(f"{UI_PATH}/", 303), method="GET", name="open_ui"),
            PageRoute(_SIGN_IN, self.show_sign_in, method="GET", name="show_sign_in"),
            PageRoute(_SIGN_IN, self.sign_in, method="POST", name="sign_in"),
            *self.routes(service_pages, prefix="/ui"),
            *self.routes((*PAGES, *_PROJECT_PAGES), prefix="/ui/projects/{project_id}"),
        ]


def _is_page(path: str) -> bool:
    return path.startswith("/ui/") and "//" not in path and "\\" not in path and path.isprintable()


def _show_projects(visit: Visit) -> Shown | Redirect:
    token: Token = visit.request.state.token
    if token.project_id is not None:
        return Redirect(f"/ui/projects/{token.project_id}/")
    service: Service = visit.request.app.state.service
    return Shown("service/projects.html", service.projects.list_all())


def _checked_body(kind: type[Body], **fields: Any) -> Body:
    """Return the body that a JSON route would get. Raise InvalidInputError if it is not valid."""
    try:
        return kind(**fields)
    except ValidationError as err:
        first = err.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise InvalidInputError(f"{name} is not valid: {str(first['input'])[:100]!r}", hint=first["msg"]) from err


def _call(visit: Visit) -> Call:
    """Return what a JSON route about the whole service would get."""
    return Call(service=visit.request.app.state.service, token=visit.request.state.token)


def _project_of(visit: Visit) -> str | None:
    """Return the project of a page, None for a page about the whole service."""
    project_id: str | None = visit.request.path_params.get("project_id")
    return project_id


def show_tokens(visit: Visit) -> Shown:
    """List the tokens of the service or of a project."""
    project_id = _project_of(visit)
    found = _call(visit).part(tokens.Tokens).list_all(project_id=project_id)
    # A token of the whole service may be bound to any project, or to none.
    scopes = [scope for scope in Scope if project_id is None or scope is not Scope.ADMIN]
    return Shown("service/tokens.html", {"tokens": found, "is_project": project_id is not None, "scopes": scopes})


def create_token_by_form(visit: Visit) -> Redirect:
    """Create a token, and show its secret once."""
    project_id, life = _project_of(visit), parse_days(visit.field("days"))
    fields = {
        "name": visit.field("name"),
        "scope": visit.field("scope"),
        "branch_id": visit.field("branch") or None,
        "expires_in": None if life is None else int(life.total_seconds()),
    }
    call = _call(visit)
    if project_id is not None:
        project_call = ProjectCall(service=call.service, token=call.token, project_id=project_id)
        made = tokens.create_project_token(project_call, _checked_body(tokens.NewProjectToken, **fields))
    else:
        fields["project_id"] = visit.field("project") or None
        made = tokens.create_token(call, _checked_body(tokens.NewToken, **fields))
    notice = f"Token {made.name} was created. Its secret is shown only here: {made.secret}"
    return Redirect(_tokens_path(visit), notice)


def rotate_token_by_form(visit: Visit) -> Redirect:
    """Replace the secret of a token, and show the new one once."""
    token, secret = _call(visit).part(tokens.Tokens).rotate(visit.field("token"), project_id=_project_of(visit))
    if token.id == visit.session.token_id:
        # Only this session continues: without it, the visitor would be signed out before the new secret is shown.
        visit.session.token_hash = token.secret_hash
    return Redirect(_tokens_path(visit), f"Token {token.name} has a new secret, shown only here: {secret}")


def revoke_token_by_form(visit: Visit) -> Redirect:
    token_id = visit.field("token")
    _call(visit).part(tokens.Tokens).revoke(token_id, project_id=_project_of(visit))
    return Redirect(_tokens_path(visit), f"Token {token_id} was revoked.")


def _tokens_path(visit: Visit) -> str:
    # Addresses of a project are below its lake.
    return "/ui/tokens" if _project_of(visit) is None else "/tokens"


def show_audit(visit: Visit) -> Shown:
    """List writes, successful and refused, newest first."""
    before = _checked_body(_AuditQuery, before=visit.query("before") or None).before
    found = _call(visit).part(audit.AuditLog).list_page(project_id=_project_of(visit), before=before, limit=_EVENTS)
    return Shown("service/audit.html", found)


class _AuditQuery(BaseModel):
    """The query of the audit, as its JSON route reads it."""

    before: audit.Before = None


def show_jobs(visit: Visit) -> Shown:
    found = jobs.list_jobs(_call(visit), project_id=_project_of(visit), limit=_JOBS)
    return Shown("service/jobs.html", found)


def _record_pages(needs: Scope, *, needs_of_jobs: Scope | None) -> tuple[Page, ...]:
    return (
        get("/tokens", show_tokens, needs=needs),
        post("/tokens/create", create_token_by_form, needs=needs),
        post("/tokens/rotate", rotate_token_by_form, needs=needs),
        post("/tokens/revoke", revoke_token_by_form, needs=needs),
        get("/audit", show_audit, needs=needs),
        get("/jobs", show_jobs, needs=needs_of_jobs),
    )


# The list of jobs contains what the token may read, as that of the JSON route.
_SERVICE_PAGES = _record_pages(Scope.ADMIN, needs_of_jobs=None)
_PROJECT_PAGES = _record_pages(Scope.PROJECT, needs_of_jobs=Scope.READ)
