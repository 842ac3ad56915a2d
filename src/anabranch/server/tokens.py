"""Tokens: their rows, secrets and routes."""

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Annotated, Self

from fastapi import Path
from pydantic import BaseModel, Field

from anabranch.errors import ForbiddenError, InvalidInputError, TokenNotFoundError, UnauthenticatedError
from anabranch.server.auth import Scope, Token, TokenInfo, check_token, hash_secret
from anabranch.server.database import Database, row_of
from anabranch.server.routing import Body, Call, ForAdmin, FreeName, ProjectToChange, make_router

_PREFIX = "ab_"
_SECRET_BYTES = 32
_ID_BYTES = 6


class Tokens:
    """All tokens of the service."""

    def __init__(self, database: Database, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock
        self._changing = threading.Lock()
        self._by_id: dict[str, Token] = {}
        for row in database.read("SELECT * FROM tokens ORDER BY created_at"):
            self._keep(Token(**{**row, "scope": Scope(row["scope"])}))

    def create(
        self,
        name: str,
        scope: Scope,
        *,
        project_id: str | None = None,
        branch_id: str | None = None,
        expires_at: datetime | None = None,
        created_by: str | None = None,
    ) -> tuple[Token, str]:
        """Return a new token and its secret, which cannot be read again."""
        _check_binding(scope, project_id, branch_id)
        token_id = secrets.token_hex(_ID_BYTES)
        secret = _new_secret(token_id)
        token = Token(
            id=token_id,
            name=name,
            secret_hash=hash_secret(secret),
            scope=scope,
            project_id=project_id,
            branch_id=branch_id,
            created_at=self._clock(),
            created_by=created_by,
            expires_at=expires_at,
            revoked_at=None,
        )
        with self._changing:
            self._database.insert("tokens", row_of(token))
            self._keep(token)
        return token, secret

    def authenticate(self, secret: str) -> Token:
        """Return the valid token with this secret, or raise UnauthenticatedError."""
        # The id is not secret. Only the comparison of the hashes must take the same time for all secrets.
        return check_token(self._by_id.get(_id_of(secret)), secret, now=self._clock())

    def find(self, secret: str) -> Token | None:
        """Return the valid token with this secret, or None."""
        try:
            return self.authenticate(secret)
        except UnauthenticatedError:
            return None

    def list_all(self, *, project_id: str | None = None) -> list[Token]:
        """Return all tokens, or those that are bound to a project."""
        return [token for token in self._by_id.values() if project_id is None or token.project_id == project_id]

    def get(self, token_id: str, *, project_id: str | None = None) -> Token:
        """Return a token. If a project is given, it has to be bound to that."""
        token = self._by_id.get(token_id)
        if token is None or project_id not in (None, token.project_id):
            raise TokenNotFoundError(f"there is no token '{token_id}'", hint="list the tokens to see which exist")
        return token

    def rotate(self, token_id: str, *, project_id: str | None = None) -> tuple[Token, str]:
        """Replace the secret of a token. The old one is no longer valid."""
        with self._changing:
            token = self.get(token_id, project_id=project_id)
            if not token.is_alive(self._clock()):
                raise InvalidInputError(f"token {token_id} has expired or was revoked", hint="create another one")
            secret = _new_secret(token_id)
            rotated = replace(token, secret_hash=hash_secret(secret))
            # The row first: if it cannot be written, the old secret stays valid, also after a restart.
            self._database.write("UPDATE tokens SET secret_hash = ? WHERE id = ?", [rotated.secret_hash, token_id])
            self._keep(rotated)
        return rotated, secret

    def revoke(self, token_id: str, *, project_id: str | None = None) -> None:
        with self._changing:
            self._revoke(self.get(token_id, project_id=project_id))

    def revoke_all(self, *, project_id: str, branch_id: str | None = None) -> None:
        """Revoke the tokens that are bound to a project, or to one branch of it."""
        with self._changing:
            for token in self.list_all(project_id=project_id):
                if branch_id in (None, token.branch_id):
                    self._revoke(token)

    def _revoke(self, token: Token) -> None:
        if token.revoked_at is None:
            revoked = replace(token, revoked_at=self._clock())
            self._database.write("UPDATE tokens SET revoked_at = ? WHERE id = ?", [revoked.revoked_at, token.id])
            self._keep(revoked)

    def _keep(self, token: Token) -> None:
        self._by_id = {**self._by_id, token.id: token}  # readers hold no lock


def _new_secret(token_id: str) -> str:
    return f"{_PREFIX}{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"


def _id_of(secret: str) -> str:
    """Return the id inside a secret, by which its token is found without comparing secrets."""
    # The id is hexadecimal, so the first '_' ends it. The rest may contain more of them.
    return secret.removeprefix(_PREFIX).partition("_")[0]


def _check_binding(scope: Scope, project_id: str | None, branch_id: str | None) -> None:
    if scope is Scope.ADMIN and project_id is not None:
        raise InvalidInputError("a token with the scope 'admin' is bound to no project", hint="use 'project'")
    # Only `read` may be without a project: a monitor of /metrics needs no more.
    if scope in (Scope.PROJECT, Scope.BRANCH) and project_id is None:
        raise InvalidInputError(f"a token with the scope '{scope}' needs a project", hint="give a project_id")
    if branch_id is not None and (project_id is None or scope not in (Scope.BRANCH, Scope.READ)):
        raise InvalidInputError(
            f"a token with the scope '{scope}' cannot be bound to a branch",
            hint="bind one with the scope 'branch' or 'read', and a project_id",
        )


router = make_router("tokens")

TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]+$", max_length=64, examples=["0123456789ab"])]
_LONGEST_LIFE_SECONDS = 10 * 365 * 24 * 3600


class NewProjectToken(Body):
    """A token for one project."""

    name: FreeName
    scope: Scope
    branch_id: Annotated[str | None, Field(max_length=64, description="Only for this branch.")] = None
    expires_in: Annotated[int | None, Field(ge=1, le=_LONGEST_LIFE_SECONDS, description="Seconds from now.")] = None


class NewToken(NewProjectToken):
    """A token for the whole service, or for one project."""

    project_id: Annotated[str | None, Field(max_length=64, description="Only for this project.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret(TokenInfo):
    """A token with its secret, which is shown only once."""

    secret: str

    @classmethod
    def of(cls, token: Token, secret: str) -> Self:
        return cls(**{field.name: getattr(token, field.name) for field in fields(TokenInfo)}, secret=secret)


class TokenList(BaseModel):
    tokens: Sequence[TokenInfo]


@router.post("/tokens", status_code=201)
def create_token(call: ForAdmin, body: NewToken) -> Secret:
    """Create a token. Its secret is shown only in this answer."""
    return _create(call, body, project_id=body.project_id)


@router.get("/tokens")
def list_tokens(call: ForAdmin) -> TokenList:
    """List all tokens, including expired and revoked ones."""
    return TokenList(tokens=call.part(Tokens).list_all())


@router.get("/tokens/{token_id}")
def get_token(call: ForAdmin, token_id: TokenId) -> TokenInfo:
    """Return a token."""
    return call.part(Tokens).get(token_id)


@router.post("/tokens/{token_id}/rotate")
def rotate_token(call: ForAdmin, token_id: TokenId) -> Secret:
    """Replace the secret of a token. The old secret is no longer valid."""
    return Secret.of(*call.part(Tokens).rotate(token_id))


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(call: ForAdmin, token_id: TokenId) -> None:
    """Revoke a token."""
    call.part(Tokens).revoke(token_id)


@router.post("/projects/{project_id}/tokens", status_code=201)
def create_project_token(call: ProjectToChange, body: NewProjectToken) -> Secret:
    """Create a token of a project. Its secret is shown only in this answer."""
    if body.scope is Scope.ADMIN:
        raise ForbiddenError("a project has no tokens with the scope 'admin'", hint="use 'project', or ask an admin")
    return _create(call, body, project_id=call.project_id)


@router.get("/projects/{project_id}/tokens")
def list_project_tokens(call: ProjectToChange) -> TokenList:
    """List the tokens of a project, including expired and revoked ones."""
    call.service.projects.get(call.project_id)
    return TokenList(tokens=call.part(Tokens).list_all(project_id=call.project_id))


@router.post("/projects/{project_id}/tokens/{token_id}/rotate")
def rotate_project_token(call: ProjectToChange, token_id: TokenId) -> Secret:
    """Replace the secret of a token of a project."""
    return Secret.of(*call.part(Tokens).rotate(token_id, project_id=call.project_id))


@router.delete("/projects/{project_id}/tokens/{token_id}", status_code=204)
def revoke_project_token(call: ProjectToChange, token_id: TokenId) -> None:
    """Revoke a token of a project."""
    call.part(Tokens).revoke(token_id, project_id=call.project_id)


def _create(call: Call, body: NewProjectToken, *, project_id: str | None) -> Secret:
    service = call.service
    if project_id is not None:
        service.projects.get(project_id)
        if body.branch_id is not None:
            service.branches.get(project_id, body.branch_id)
    expires_at = None if body.expires_in is None else service.clock() + timedelta(seconds=body.expires_in)
    made = call.part(Tokens).create(
        body.name,
        body.scope,
        project_id=project_id,
        branch_id=body.branch_id,
        expires_at=expires_at,
        created_by=call.token.name,
    )
    return Secret.of(*made)
