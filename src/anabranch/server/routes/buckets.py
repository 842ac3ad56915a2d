"""Buckets."""

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from anabranch.server.buckets import Bucket
from anabranch.server.reading import snapshot_at
from anabranch.server.routing import Body, BranchToChange, BranchToRead, BucketName, FreeText, RefQuery, make_router

__all__ = ["router"]

router = make_router("buckets", prefix="/projects/{project_id}/branches/{branch_id}/buckets")


class NewBucket(Body):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$", max_length=128, examples=["in_c_sales"])]
    description: FreeText = ""


class BucketList(BaseModel):
    buckets: list[Bucket]


@router.post("", status_code=201)
def create_bucket(call: BranchToChange, body: NewBucket) -> Bucket:
    """Make an empty bucket."""
    return call.service.buckets.create(call.open(), body.name, description=body.description)


@router.get("")
def list_buckets(call: BranchToRead, ref: RefQuery = None) -> BucketList:
    """The buckets that a branch shows: main's, and its own."""
    branch = call.open()
    return BucketList(buckets=call.service.buckets.list_all(branch, snapshot_at(branch, ref)))


@router.get("/{bucket}")
def get_bucket(call: BranchToRead, bucket: BucketName, ref: RefQuery = None) -> Bucket:
    """One bucket."""
    branch = call.open()
    return call.service.buckets.get(branch, bucket, snapshot_at(branch, ref))


@router.delete("/{bucket}", status_code=204)
def delete_bucket(
    call: BranchToChange,
    bucket: BucketName,
    *,
    cascade: Annotated[bool, Query(description="Drop its tables, too.")] = False,
) -> None:
    """Delete a bucket; on a dev branch it is hidden there only."""
    call.service.buckets.delete(call.open(), bucket, cascade=cascade)
