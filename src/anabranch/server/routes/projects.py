"""Projects."""

from typing import Annotated

from pydantic import BaseModel, Field

from anabranch.server.metadata.projects import Project
from anabranch.server.routing import Body, ForAdmin, FreeName, FreeText, ProjectToEnd, ProjectToRead, make_router

__all__ = ["router"]

router = make_router("projects")


class NewProject(Body):
    """A project to be made; without an id, it gets one."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$", max_length=64, examples=["123"])] | None = None
    name: FreeName | None = None
    description: FreeText = ""


class ProjectList(BaseModel):
    projects: list[Project]


@router.post("/projects", status_code=201)
def create_project(call: ForAdmin, body: NewProject) -> Project:
    """Make a project with an empty repository."""
    return call.service.projects.create(body.id, name=body.name, description=body.description, actor=call.token.name)


@router.get("/projects")
def list_projects(call: ForAdmin) -> ProjectList:
    """All projects."""
    return ProjectList(projects=call.service.projects.list_all())


@router.get("/projects/{project_id}")
def get_project(call: ProjectToRead) -> Project:
    """One project."""
    return call.service.projects.get(call.project_id)


@router.delete("/projects/{project_id}", status_code=204)
def delete_project(call: ProjectToEnd) -> None:
    """Delete a project with all of its data, for good."""
    call.service.projects.delete(call.project_id)
