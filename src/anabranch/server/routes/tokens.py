"""Tokens: of the whole service, and of a project."""

from datetime import datetime, timedelta
from typing import Annotated, Self

from fastapi import Path
from pydantic import BaseModel, Field

from anabranch.errors import ForbiddenError, TokenNotFoundError
from anabranch.server.access import Scope, Token
from anabranch.server.routing import Body, Call, ForAdmin, FreeName, ProjectCall, ProjectToChange, make_router

__all__ = ["router"]

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
    """A token for everything, or for one project."""

    project_id: Annotated[str | None, Field(max_length=64, description="Only for this project.")] = None


class TokenInfo(BaseModel):
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

    @classmethod
    def of(cls, token: Token) -> Self:
        return cls(**{name: getattr(token, name) for name in TokenInfo.model_fields})


class Secret(TokenInfo):
    """A token with its secret, which is shown this once."""

    secret: str

    @classmethod
    def with_secret(cls, token: Token, secret: str) -> Self:
        return cls(**TokenInfo.of(token).model_dump(), secret=secret)


class TokenList(BaseModel):
    tokens: list[TokenInfo]


@router.post("/tokens", status_code=201)
def create_token(call: ForAdmin, body: NewToken) -> Secret:
    """Make a token; its secret is told only here."""
    return _create(call, body, project_id=body.project_id)


@router.get("/tokens")
def list_tokens(call: ForAdmin) -> TokenList:
    """All tokens, the dead ones too."""
    return TokenList(tokens=[TokenInfo.of(token) for token in call.service.tokens.list_all()])


@router.get("/tokens/{token_id}")
def get_token(call: ForAdmin, token_id: TokenId) -> TokenInfo:
    """One token."""
    return TokenInfo.of(call.service.tokens.get(token_id))


@router.post("/tokens/{token_id}/rotate")
def rotate_token(call: ForAdmin, token_id: TokenId) -> Secret:
    """Give a token a new secret; the old one is worth nothing from now on."""
    return Secret.with_secret(*call.service.tokens.rotate(token_id))


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(call: ForAdmin, token_id: TokenId) -> None:
    """Revoke a token."""
    call.service.tokens.revoke(token_id)


@router.post("/projects/{project_id}/tokens", status_code=201)
def create_project_token(call: ProjectToChange, body: NewProjectToken) -> Secret:
    """Make a token of a project; its secret is told only here."""
    if body.scope is Scope.ADMIN:
        raise ForbiddenError("a project has no tokens with the scope 'admin'", hint="use 'project', or ask an admin")
    return _create(call, body, project_id=call.project_id)


@router.get("/projects/{project_id}/tokens")
def list_project_tokens(call: ProjectToChange) -> TokenList:
    """The tokens of a project, the dead ones too."""
    call.service.projects.get(call.project_id)
    found = call.service.tokens.list_all(project_id=call.project_id)
    return TokenList(tokens=[TokenInfo.of(token) for token in found])


@router.post("/projects/{project_id}/tokens/{token_id}/rotate")
def rotate_project_token(call: ProjectToChange, token_id: TokenId) -> Secret:
    """Give a token of a project a new secret."""
    return Secret.with_secret(*call.service.tokens.rotate(_of_project(call, token_id).id))


@router.delete("/projects/{project_id}/tokens/{token_id}", status_code=204)
def revoke_project_token(call: ProjectToChange, token_id: TokenId) -> None:
    """Revoke a token of a project."""
    call.service.tokens.revoke(_of_project(call, token_id).id)


def _create(call: Call, body: NewProjectToken, *, project_id: str | None) -> Secret:
    service = call.service
    if project_id is not None:
        service.projects.get(project_id)
        if body.branch_id is not None:
            service.branches.get(project_id, body.branch_id)
    expires_at = None if body.expires_in is None else service.clock() + timedelta(seconds=body.expires_in)
    made = service.tokens.create(
        body.name,
        body.scope,
        project_id=project_id,
        branch_id=body.branch_id,
        expires_at=expires_at,
        created_by=call.token.name,
    )
    return Secret.with_secret(*made)


def _of_project(call: ProjectCall, token_id: str) -> Token:
    token = call.service.tokens.get(token_id)
    if token.project_id != call.project_id:
        raise TokenNotFoundError(f"there is no token '{token_id}'", hint="list the tokens to see which exist")
    return token
