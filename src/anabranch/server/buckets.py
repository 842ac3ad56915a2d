"""Buckets: made by themselves, or by a table in them; a branch sees main's, and may have and hide some."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from anabranch.errors import BucketExistsError, BucketNotEmptyError, BucketNotFoundError
from anabranch.ids import MAIN, TableKey
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.transaction import Transaction
from anabranch.server.access import DEFAULT_BRANCH
from anabranch.server.branches import OpenBranch
from anabranch.server.changing import Changing
from anabranch.server.metadata.buckets import BucketRow, BucketRows

__all__ = ["Bucket", "Buckets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket as a branch has it; `created_at` is only known of those that were made by themselves."""

    name: str
    description: str
    source: str
    table_count: int
    created_at: datetime | None
    created_by: str | None


class Buckets:
    def __init__(self, rows: BucketRows, changing: Changing, *, clock: Callable[[], datetime]) -> None:
        self._rows = rows
        self._changing = changing
        self._clock = clock
        self._creating = threading.Lock()

    def list_all(self, branch: OpenBranch, snapshot: Snapshot) -> list[Bucket]:
        """The buckets of a branch at a state of its tables."""
        counts: dict[str, int] = {}
        for key in snapshot.entries:
            counts[key.bucket] = counts.get(key.bucket, 0) + 1
        main = self._rows.list_all(branch.project_id, DEFAULT_BRANCH)
        own = {} if branch.is_main else self._rows.list_all(branch.project_id, branch.branch_id)
        made = {name for name, row in own.items() if not row.is_hidden}
        visible = {name for name in main if name not in own} | made
        local = made | _without_main(branch, counts.keys() - main.keys())
        return [
            _bucket(name, counts.get(name, 0), own.get(name) or main.get(name), is_local=name in local)
            for name in sorted(visible | counts.keys())
        ]

    def get(self, branch: OpenBranch, name: str, snapshot: Snapshot) -> Bucket:
        for bucket in self.list_all(branch, snapshot):
            if bucket.name == name:
                return bucket
        raise BucketNotFoundError(f"there is no bucket '{name}'", hint="create it, or list the buckets")

    def create(self, branch: OpenBranch, name: str, *, description: str) -> Bucket:
        TableKey.parse(f"{name}.t")
        snapshot = branch.repository.snapshot_of(branch.name)
        with self._creating:  # of two who make the same one at once, the second is told
            if any(bucket.name == name for bucket in self.list_all(branch, snapshot)):
                raise BucketExistsError(f"there is a bucket '{name}' already", hint="choose another name")
            self._put(branch, name, description=description, is_hidden=False)
        return self.get(branch, name, snapshot)

    def delete(self, branch: OpenBranch, name: str, *, cascade: bool) -> None:
        """Delete a bucket, and its tables only if that is asked for; on a branch both are only hidden there."""
        snapshot = branch.repository.snapshot_of(branch.name)
        self.get(branch, name, snapshot)
        tables = [str(key) for key in snapshot.entries if key.bucket == name]
        if tables and not cascade:
            raise BucketNotEmptyError(
                f"bucket '{name}' has {len(tables)} tables", hint="drop them first, or delete with cascade=true"
            )
        if tables:
            self._changing.apply(branch, lambda tx: _drop_tables(tx, name), message=f"Drop bucket {name}")
        if branch.is_main or name not in self._rows.list_all(branch.project_id, DEFAULT_BRANCH):
            self._rows.delete(branch.project_id, branch.branch_id, name)
        else:
            self._put(branch, name, description="", is_hidden=True)

    def _put(self, branch: OpenBranch, name: str, *, description: str, is_hidden: bool) -> None:
        self._rows.put(
            BucketRow(
                project_id=branch.project_id,
                branch_id=branch.branch_id,
                name=name,
                is_hidden=is_hidden,
                description=description,
                created_at=self._clock(),
                created_by=branch.token.name,
            )
        )


def _without_main(branch: OpenBranch, names: set[str]) -> set[str]:
    """Those of the buckets, known by their tables only, in which main has no table: it may have dropped its own."""
    if branch.is_main or not names:
        return set()
    return names - {key.bucket for key in branch.repository.snapshot_of(MAIN).entries}


def _bucket(name: str, count: int, row: BucketRow | None, *, is_local: bool) -> Bucket:
    return Bucket(
        name=name,
        description="" if row is None else row.description,
        source="branch" if is_local else "main",
        table_count=count,
        created_at=None if row is None else row.created_at,
        created_by=None if row is None else row.created_by,
    )


def _drop_tables(tx: Transaction, bucket: str) -> None:
    for key in tx.tables:
        if TableKey.parse(key).bucket == bucket:
            tx.drop_table(key)
