"""Bearer tokens of requests, and what each scope allows."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fastapi import Request
from fastapi.security.utils import get_authorization_scheme_param

from anabranch.errors import ForbiddenError, UnauthenticatedError

# The id of main in paths.
DEFAULT_BRANCH = "default"


class Scope(StrEnum):
    """What a token may do. Each scope includes those after it.

    `admin` does everything, `project` everything inside its project, `branch` writes to dev branches and makes and
    deletes them, `read` reads.
    """

    ADMIN = "admin"
    PROJECT = "project"
    BRANCH = "branch"
    READ = "read"

    def includes(self, other: "Scope") -> bool:
        order = list(Scope)
        return order.index(self) <= order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    """A token without its secret."""

    id: str
    name: str
    scope: Scope
    project_id: str | None
    branch_id: str | None
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Token(TokenInfo):
    """A token with the hash of its secret. Answers are `TokenInfo`, and so leave the hash out."""

    secret_hash: str

    def is_alive(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def hash_secret(secret: str) -> str:
    # The secrets are random and long, so a fast hash is enough.
    return hashlib.sha256(secret.encode()).hexdigest()


def check_token(token: Token | None, secret: str, *, now: datetime) -> Token:
    """Return a token if it has this secret and is valid now, or raise UnauthenticatedError."""
    # The comparison takes as long for a wrong secret as for the right one.
    if token is None or not hmac.compare_digest(hash_secret(secret), token.secret_hash):
        raise UnauthenticatedError("the token is not known", hint="send one that this service made")
    if not token.is_alive(now):
        how = "expired" if token.revoked_at is None else "was revoked"
        raise UnauthenticatedError(f"token {token.id} {how}", hint="ask for a new one")
    return token


def require(token: Token, needed: Scope, *, path: Mapping[str, str]) -> None:
    """Raise ForbiddenError if a token has too small a scope for a route, or is bound to another project or branch.

    The error does not reveal whether the project or branch of the path exists.
    """
    project, branch = path.get("project_id"), path.get("branch_id")
    if token.project_id is not None and project != token.project_id:
        raise ForbiddenError(
            f"token {token.id} is for project '{token.project_id}' only", hint="use a token of the other project"
        )
    if token.branch_id is not None and branch != token.branch_id:
        raise ForbiddenError(
            f"token {token.id} is for branch '{token.branch_id}' only", hint="use a token that is bound to no branch"
        )
    # A write to main needs a token for the whole project.
    raised = Scope.PROJECT if needed is Scope.BRANCH and branch == DEFAULT_BRANCH else needed
    if not token.scope.includes(raised):
        raise ForbiddenError(
            f"token {token.id} has the scope '{token.scope}', and this needs '{raised}'",
            hint=f"use a token with the scope '{raised}'",
        )


def find_secret(authorization: str | None) -> str | None:
    """Return the secret in a header `Authorization: Bearer ...`, or None. Reads the header as `HTTPBearer` does."""
    scheme, secret = get_authorization_scheme_param(authorization)
    return secret if scheme.lower() == "bearer" and secret else None


def authenticate(request: Request) -> Token:
    """Return the token of a request, or raise UnauthenticatedError.

    The middleware has checked the token and keeps a valid one in the state of the request.
    """
    token: Token | None = getattr(request.state, "token", None)
    if token is not None:
        return token
    secret = find_secret(request.headers.get("Authorization"))
    if secret is None:
        raise UnauthenticatedError("the request has no token", hint="send 'Authorization: Bearer ab_...'")
    # Raises the error with the reason if the token is not valid.
    found: Token = request.app.state.service.tokens.authenticate(secret)
    return found
