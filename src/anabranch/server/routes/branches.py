"""Dev branches: the five endpoints."""

from datetime import datetime

from pydantic import BaseModel

from anabranch.ids import TableKey
from anabranch.server.metadata.branches import Branch, CopiedTable
from anabranch.server.routing import (
    Body,
    BranchToChange,
    BranchToRead,
    BucketName,
    FreeName,
    FreeText,
    ProjectToBranch,
    ProjectToRead,
    TableName,
    make_router,
)

__all__ = ["router"]

router = make_router("branches", prefix="/projects/{project_id}/branches")


class NewBranch(Body):
    """A dev branch to be made; its id is the service's choice."""

    name: FreeName
    description: FreeText = ""


class BranchList(BaseModel):
    branches: list[Branch]


class BranchDetail(BaseModel):
    """A dev branch, and the tables that it has of its own."""

    id: str
    project_id: str
    name: str
    description: str
    created_at: datetime
    created_by: str | None
    tables: list[CopiedTable]


class Pulled(BaseModel):
    """`was_local` says whether the branch had a copy, which is gone now."""

    bucket: str
    table: str
    was_local: bool


@router.post("", status_code=201)
def create_branch(call: ProjectToBranch, body: NewBranch) -> Branch:
    """Make a dev branch: it shows main, live, until tables are written on it. Nothing is copied."""
    return call.service.branches.create(call.project_id, name=body.name, description=body.description, token=call.token)


@router.get("")
def list_branches(call: ProjectToRead) -> BranchList:
    """The dev branches of a project, oldest first."""
    return BranchList(branches=call.service.branches.list_all(call.project_id))


@router.get("/{branch_id}")
def get_branch(call: BranchToRead) -> BranchDetail:
    """A dev branch and the tables copied to it."""
    branch = call.service.branches.get(call.project_id, call.branch_id)
    return BranchDetail(
        id=branch.id,
        project_id=branch.project_id,
        name=branch.name,
        description=branch.description,
        created_at=branch.created_at,
        created_by=branch.created_by,
        tables=call.service.branches.list_copied(call.open()),
    )


@router.delete("/{branch_id}", status_code=204)
def delete_branch(call: BranchToChange) -> None:
    """Delete a dev branch. All that was written on it is lost, and nothing else."""
    call.service.branches.delete(call.project_id, call.branch_id, call.token)


@router.post("/{branch_id}/tables/{bucket}/{table}/pull")
def pull_table(call: BranchToChange, bucket: BucketName, table: TableName) -> Pulled:
    """Let a table of a branch follow main again; its copy, if there is one, is lost."""
    call.service.branches.get(call.project_id, call.branch_id)
    was_local = call.service.branches.pull(call.open(), TableKey(bucket, table))
    return Pulled(bucket=bucket, table=table, was_local=was_local)
