"""Tags of a project: names of commits that do not move."""

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from anabranch.repo.repository import Repository
from anabranch.server.auth import DEFAULT_BRANCH
from anabranch.server.history import Timestamp
from anabranch.server.projects import Projects
from anabranch.server.routing import Body, FreeText, ProjectCall, ProjectToChange, ProjectToRead, make_router

router = make_router("tags", prefix="/projects/{project_id}/tags")

_PATTERN = r"^[A-Za-z0-9._-]+$"
TagPath = Annotated[str, Path(pattern=_PATTERN, max_length=128, examples=["v1.0"])]


class NewTag(Body):
    """A name for a commit. By default, this is the newest commit of main."""

    name: Annotated[str, Field(pattern=_PATTERN, max_length=128, examples=["v1.0"])]
    branch_id: Annotated[str, Field(max_length=64, examples=[DEFAULT_BRANCH])] = DEFAULT_BRANCH
    ref: Annotated[str | None, Field(max_length=200, description="A commit id, another tag or a time.")] = None
    description: FreeText = ""


class Tag(BaseModel):
    """A name of a commit that does not move."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    commit_id: str
    description: str
    created_at: Timestamp
    created_by: str | None


class TagList(BaseModel):
    """The tags of one page. `next` is the value of `after` for the next page, null on the last one."""

    tags: list[Tag]
    next: str | None = None


@router.post("", status_code=201)
def create_project_tag(call: ProjectToChange, body: NewTag) -> Tag:
    """Name a commit."""
    branch = call.service.branches.open(call.project_id, body.branch_id, call.token)
    # Through the branch, which refuses a commit of another dev branch.
    source = branch.name if body.ref is None else branch.snapshot(body.ref).id
    return Tag.model_validate(branch.repository.tag_create(body.name, ref=source, description=body.description))


@router.get("")
def list_tags(
    call: ProjectToRead,
    prefix: Annotated[str | None, Query(max_length=128, description="Only tags that start with this.")] = None,
    after: Annotated[str | None, Query(max_length=128, description="Only tags after this name.")] = None,
    limit: Annotated[int | None, Query(ge=1, le=1000, description="All by default.")] = None,
) -> TagList:
    """List the tags by name."""
    wanted = None if limit is None else limit + 1
    found = _repository(call).tag_list(prefix=prefix, after=after, limit=wanted)
    shown = [Tag.model_validate(tag) for tag in found[:limit]]
    return TagList(tags=shown, next=shown[-1].name if len(found) > len(shown) else None)


@router.get("/{tag}")
def get_tag(call: ProjectToRead, tag: TagPath) -> Tag:
    """Return a tag."""
    return Tag.model_validate(_repository(call).tag_get(tag))


@router.delete("/{tag}", status_code=204)
def delete_tag(call: ProjectToChange, tag: TagPath) -> None:
    """Delete a tag. Its commit stays."""
    _repository(call).tag_delete(tag)


def _repository(call: ProjectCall) -> Repository:
    return call.part(Projects).open(call.project_id, actor=call.token.name)
