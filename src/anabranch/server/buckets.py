"""Buckets: created explicitly, or by a table in them. A dev branch shows those of main and may hide them."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from anabranch.errors import BucketExistsError, BucketNotEmptyError, BucketNotFoundError
from anabranch.ids import MAIN, TableKey
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.transaction import Transaction
from anabranch.server.auth import DEFAULT_BRANCH
from anabranch.server.branch_access import OpenBranch
from anabranch.server.database import Database, Row
from anabranch.server.routing import Body, BranchToChange, BranchToRead, BucketName, FreeText, RefQuery, make_router


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket of a branch. `created_at` is null if a table created the bucket."""

    name: str
    description: str
    source: str
    table_count: int
    created_at: datetime | None
    created_by: str | None


# For a bucket that a table created.
_NO_ROW: Row = {"description": "", "created_at": None, "created_by": None}


class Buckets:
    def __init__(self, database: Database, *, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock
        self._creating = threading.Lock()

    def list_all(self, branch: OpenBranch, snapshot: Snapshot) -> list[Bucket]:
        """Return the buckets of a branch, with the tables of a snapshot."""
        counts = Counter(key.bucket for key in snapshot.entries)
        main = self._rows(branch.project_id, DEFAULT_BRANCH)
        own = {} if branch.is_main else self._rows(branch.project_id, branch.branch_id)
        # A row of the branch hides the row of main with the same name. A bucket with tables is visible in any case: a
        # hidden one has none, until a table is created in it again.
        made = {name for name, row in own.items() if not row["is_hidden"]}
        visible = (main.keys() - own.keys()) | made
        local = made | _without_main(branch, counts.keys() - main.keys())
        rows, found = {**main, **own}, []
        for name in sorted(visible | counts.keys()):
            facts = {field: rows.get(name, _NO_ROW)[field] for field in _NO_ROW}
            source = "branch" if name in local else "main"
            found.append(Bucket(name=name, source=source, table_count=counts[name], **facts))
        return found

    def get(self, branch: OpenBranch, name: str, snapshot: Snapshot) -> Bucket:
        for bucket in self.list_all(branch, snapshot):
            if bucket.name == name:
                return bucket
        raise BucketNotFoundError(f"there is no bucket '{name}'", hint="create it, or list the buckets")

    def create(self, branch: OpenBranch, name: str, *, description: str) -> Bucket:
        # Bucket names have no parser of their own. A table key checks them with the same rules as a write.
        TableKey.parse(f"{name}.t")
        snapshot = branch.snapshot()
        with self._creating:  # of two concurrent requests for the same bucket, the second is refused
            if any(bucket.name == name for bucket in self.list_all(branch, snapshot)):
                raise BucketExistsError(f"bucket '{name}' already exists", hint="choose another name")
            self._put(branch, name, description=description, is_hidden=False)
        return self.get(branch, name, snapshot)

    def delete(self, branch: OpenBranch, name: str, *, cascade: bool) -> None:
        """Delete a bucket, with its tables if `cascade`. On a dev branch, those of main are only hidden."""
        snapshot = branch.snapshot()
        self.get(branch, name, snapshot)
        tables = [str(key) for key in snapshot.entries if key.bucket == name]
        if tables and not cascade:
            raise BucketNotEmptyError(
                f"bucket '{name}' has {len(tables)} tables", hint="drop them first, or delete with cascade=true"
            )
        if tables:
            branch.change(lambda tx: _drop_tables(tx, name), message=f"Drop bucket {name}")
        # Without a row of the branch, the row of main would make the bucket visible again, so it is hidden by a row.
        if branch.is_main or name not in self._rows(branch.project_id, DEFAULT_BRANCH):
            self._delete_row(branch, name)
        else:
            self._put(branch, name, description="", is_hidden=True)

    def _rows(self, project_id: str, branch_id: str) -> dict[str, Row]:
        """Return the rows of a branch by bucket name.

        Each was created explicitly or, if `is_hidden`, is a bucket of main that was deleted on the branch.
        """
        sql = "SELECT * FROM buckets WHERE project_id = ? AND branch_id = ?"
        return {row["name"]: row for row in self._database.read(sql, [project_id, branch_id])}

    def _put(self, branch: OpenBranch, name: str, *, description: str, is_hidden: bool) -> None:
        """Add a row, or replace the row of the same bucket."""
        row = {
            "project_id": branch.project_id,
            "branch_id": branch.branch_id,
            "name": name,
            "is_hidden": is_hidden,
            "description": description,
            "created_at": self._clock(),
            "created_by": branch.token.name,
        }
        with self._database.turn():
            self._delete_row(branch, name)
            self._database.insert("buckets", row)

    def _delete_row(self, branch: OpenBranch, name: str) -> None:
        sql = "DELETE FROM buckets WHERE project_id = ? AND branch_id = ? AND name = ?"
        self._database.write(sql, [branch.project_id, branch.branch_id, name])


def _without_main(branch: OpenBranch, names: set[str]) -> set[str]:
    """Return the given buckets in which main has no table."""
    if branch.is_main or not names:
        return set()
    return names - {key.bucket for key in branch.repository.snapshot_of(MAIN).entries}


def _drop_tables(tx: Transaction, bucket: str) -> None:
    # Read the tables from the transaction: another table may have been created after the request's snapshot.
    for key in tx.tables:
        if TableKey.parse(key).bucket == bucket:
            tx.drop_table(key)


router = make_router("buckets", prefix="/projects/{project_id}/branches/{branch_id}/buckets")


class NewBucket(Body):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$", max_length=128, examples=["in_c_sales"])]
    description: FreeText = ""


class BucketList(BaseModel):
    buckets: list[Bucket]


@router.post("", status_code=201)
def create_bucket(call: BranchToChange, body: NewBucket) -> Bucket:
    """Create an empty bucket."""
    return call.part(Buckets).create(call.open(), body.name, description=body.description)


@router.get("")
def list_buckets(call: BranchToRead, ref: RefQuery = None) -> BucketList:
    """List the buckets of a branch: those of main, and its own."""
    branch = call.open()
    return BucketList(buckets=call.part(Buckets).list_all(branch, branch.snapshot(ref)))


@router.get("/{bucket}")
def get_bucket(call: BranchToRead, bucket: BucketName, ref: RefQuery = None) -> Bucket:
    """Return a bucket."""
    branch = call.open()
    return call.part(Buckets).get(branch, bucket, branch.snapshot(ref))


@router.delete("/{bucket}", status_code=204)
def delete_bucket(
    call: BranchToChange,
    bucket: BucketName,
    *,
    cascade: Annotated[bool, Query(description="Drop its tables too.")] = False,
) -> None:
    """Delete a bucket. On a dev branch, a bucket of main is only hidden."""
    call.part(Buckets).delete(call.open(), bucket, cascade=cascade)
