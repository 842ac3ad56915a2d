"""Tags of a project."""

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, Field

from anabranch.server.access import DEFAULT_BRANCH
from anabranch.server.history import Tag, create_tag, tag_of
from anabranch.server.routing import Body, FreeText, ProjectToChange, ProjectToRead, make_router

__all__ = ["router"]

router = make_router("tags", prefix="/projects/{project_id}/tags")

_PATTERN = r"^[A-Za-z0-9._-]+$"
TagPath = Annotated[str, Path(pattern=_PATTERN, max_length=128, examples=["v1.0"])]


class NewTag(Body):
    """A name for a commit: the newest of main, unless another is said."""

    name: Annotated[str, Field(pattern=_PATTERN, max_length=128, examples=["v1.0"])]
    branch_id: Annotated[str, Field(max_length=64, examples=[DEFAULT_BRANCH])] = DEFAULT_BRANCH
    ref: Annotated[str | None, Field(max_length=200, description="A commit id, another tag or a moment.")] = None
    description: FreeText = ""


class TagList(BaseModel):
    tags: list[Tag]


@router.post("", status_code=201)
def create_project_tag(call: ProjectToChange, body: NewTag) -> Tag:
    """Name a commit."""
    branch = call.service.branches.open(call.project_id, body.branch_id, call.token)
    return create_tag(branch, body.name, ref=body.ref, description=body.description)


@router.get("")
def list_tags(call: ProjectToRead) -> TagList:
    """All tags, by name."""
    repository = call.service.projects.open(call.project_id, actor=call.token.name)
    return TagList(tags=[tag_of(tag) for tag in repository.tag_list()])


@router.get("/{tag}")
def get_tag(call: ProjectToRead, tag: TagPath) -> Tag:
    """One tag."""
    return tag_of(call.service.projects.open(call.project_id, actor=call.token.name).tag_get(tag))


@router.delete("/{tag}", status_code=204)
def delete_tag(call: ProjectToChange, tag: TagPath) -> None:
    """Delete a tag; its commit stays."""
    call.service.projects.open(call.project_id, actor=call.token.name).tag_delete(tag)
