"""A dev branch: its row and those of its copied tables, and the branch as a request reads and changes it."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Generic, TypeVar

from anabranch.display import to_datetime
from anabranch.errors import BranchExistsError, BusyError, CommitNotFoundError, InvalidNameError, TagNotFoundError
from anabranch.ids import MAIN, CommitId, TableKey, TagName
from anabranch.repo.log.entries import CommitKind
from anabranch.repo.refs.branches import BranchInfo
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.repo.snapshot import Snapshot
from anabranch.repo.transaction import Transaction
from anabranch.server.auth import DEFAULT_BRANCH, Token
from anabranch.server.database import Change, Database, Insert, row_of
from anabranch.server.idempotency import IDEMPOTENCY_KEY, Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A dev branch. `id` is also its name in the repository."""

    id: str
    project_id: str
    name: str
    description: str
    created_at: datetime
    created_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """A table of which a branch has its own copy."""

    bucket: str
    table: str
    copied_at: datetime


class BranchRows:
    """The rows, and a copy of them in memory: only this class writes them, and every request reads some.

    Readers hold no lock. A single operation on a dict is atomic, so they list the values before they filter them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changing = threading.Lock()
        self._known = {row["id"]: Branch(**row) for row in database.read("SELECT * FROM branches")}
        self._names = {(branch.project_id, branch.name) for branch in self._known.values()}
        self._copied: dict[str, tuple[CopiedTable, ...]] = {}
        for row in database.read("SELECT * FROM branch_tables ORDER BY bucket_name, table_name"):
            table = CopiedTable(bucket=row["bucket_name"], table=row["table_name"], copied_at=row["copied_at"])
            self._copied[row["branch_id"]] = (*self._copied.get(row["branch_id"], ()), table)

    def find(self, project_id: str, branch_id: str) -> Branch | None:
        found = self._known.get(branch_id)
        return found if found is not None and found.project_id == project_id else None

    def list_all(self, project_id: str) -> list[Branch]:
        """Return the branches of a project, oldest first."""
        found = [branch for branch in list(self._known.values()) if branch.project_id == project_id]
        return sorted(found, key=lambda branch: (branch.created_at, branch.id))

    @contextmanager
    def reserve_name(self, project_id: str, name: str) -> Iterator[None]:
        """Keep a name for the branch that is created inside. Raise BranchExistsError if the name is taken.

        The name is kept in memory and not by a lock, so that branches can be created concurrently.
        """
        key = (project_id, name)
        with self._changing:
            if key in self._names:
                raise BranchExistsError(
                    f"project '{project_id}' already has a branch {name!r}", hint="choose another name"
                )
            self._names.add(key)
        try:
            yield
        except BaseException:
            with self._changing:
                self._names.discard(key)
            raise

    def insert(self, *branches: Branch, write: Callable[[Sequence[Change]], None] | None = None) -> None:
        """Add branches whose names are reserved, all or none. `write` is the function that writes the rows."""
        (write or self._database.write_all)([Insert("branches", row_of(branch)) for branch in branches])
        self._known.update((branch.id, branch) for branch in branches)

    def delete(self, branch_id: str) -> None:
        """Delete a branch, after the rows that name it."""
        with self._database.turn():
            for table in ("branch_tables", "buckets"):
                self._database.write(f"DELETE FROM {table} WHERE branch_id = ?", [branch_id])  # noqa: S608
            self._database.write("DELETE FROM branches WHERE id = ?", [branch_id])
            self._forget(branch_id)

    def delete_all(self, project_id: str) -> None:
        """Delete the branches of a project, after the rows that name them."""
        named = "SELECT id FROM branches WHERE project_id = ?"
        with self._database.turn():
            self._database.write(f"DELETE FROM branch_tables WHERE branch_id IN ({named})", [project_id])  # noqa: S608
            self._database.write("DELETE FROM branches WHERE project_id = ?", [project_id])
            for branch in self.list_all(project_id):
                self._forget(branch.id)

    def _forget(self, branch_id: str) -> None:
        self._copied.pop(branch_id, None)
        with self._changing:
            branch = self._known.pop(branch_id, None)
            if branch is not None:
                self._names.discard((branch.project_id, branch.name))

    def list_copied(self, branch_id: str) -> list[CopiedTable]:
        """Return the copied tables of a branch by name."""
        return list(self._copied.get(branch_id, ()))

    def add_copied(self, branch_id: str, tables: Iterable[CopiedTable]) -> None:
        """Add rows for copied tables that have none, unless the branch was deleted."""
        for table in tables:
            # One turn for the check and the insert: two writers may copy the same table, and the row has a primary key.
            with self._database.turn():
                noted = self._copied.get(branch_id, ())
                if branch_id not in self._known or any(_key(one) == _key(table) for one in noted):
                    continue
                row = {"bucket_name": table.bucket, "table_name": table.table, "copied_at": table.copied_at}
                self._database.insert("branch_tables", {"branch_id": branch_id, **row})
                self._copied[branch_id] = tuple(sorted((*noted, table), key=_key))

    def remove_copied(self, branch_id: str, keys: Iterable[TableKey]) -> None:
        sql = "DELETE FROM branch_tables WHERE branch_id = ? AND bucket_name = ? AND table_name = ?"
        for key in keys:
            with self._database.turn():
                self._database.write(sql, [branch_id, key.bucket, key.table])
                if branch_id in self._copied:
                    self._copied[branch_id] = tuple(one for one in self._copied[branch_id] if _key(one) != key)


def _key(table: CopiedTable) -> TableKey:
    return TableKey(table.bucket, table.table)


_Result = TypeVar("_Result")
_LONGEST_PAUSE_SECONDS = 0.5
# The name in the metadata of a commit under which a repeated request finds the result of its first attempt.
_RESULT = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed(Generic[_Result]):
    """The result of a change, and its commit. The commit is None if nothing changed."""

    result: _Result
    commit_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBranch:
    """A branch of a project, its repository, and the token and attempt of the request.

    `note_copies` updates the rows of copied tables after a change.
    """

    project_id: str
    branch_id: str
    repository: Repository
    token: Token
    retry_seconds: float
    note_copies: Callable[["OpenBranch"], None]
    attempt: Attempt | None = None

    @property
    def is_main(self) -> bool:
        return self.branch_id == DEFAULT_BRANCH

    @property
    def name(self) -> str:
        """The name of the branch in the repository."""
        return MAIN if self.is_main else self.branch_id

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of commits of the request."""
        found = {"token_id": self.token.id}
        if self.attempt is not None:
            found[IDEMPOTENCY_KEY] = self.attempt.digest
        return found

    def snapshot(self, ref: str | None = None) -> Snapshot:
        """Return the tables now, or at a commit of the branch or of main, at a tag of such a commit, or at a time."""
        if ref is None:
            return self.repository.snapshot_of(self.name)
        commit_id = self._find_commit_id(ref)
        if commit_id is None:
            return self.repository.snapshot_of(f"{self.name}@{{{ref}}}")
        return self.snapshot_of_commit(commit_id)

    def snapshot_of_commit(self, commit_id: str) -> Snapshot:
        """Return the tables at a commit. Raise CommitNotFoundError if it was made on another branch than this or main.

        A token may be bound to a branch, and must not read the commits of others.
        """
        snapshot = EngineAccess(self.repository).published_snapshot_of(commit_id)
        if snapshot.commit.branch not in (self.name, MAIN):
            raise CommitNotFoundError(
                f"commit {commit_id} was made on another branch", hint="list the commits of this branch"
            )
        return snapshot

    def change(self, change: Callable[[Transaction], _Result], *, message: str) -> Changed[_Result]:
        """Commit a change. Retry while other writers commit first.

        On a dev branch the change is made to the branch's own copies of the tables.
        """
        # The first attempt was published, and only its answer was lost.
        if self.attempt is not None and (made := self.attempt.commit) is not None:
            self.note_copies(self)
            return Changed(result=json.loads(made.metadata[_RESULT]), commit_id=made.graph_commit_id)
        # A put of an earlier attempt that timed out may still arrive. Then publishing finds it and changes nothing.
        once = None if self.attempt is None else self.attempt.once(self.name)

        def attempt() -> Changed[_Result]:
            access = EngineAccess(self.repository)
            tx = access.transaction_once(once, branch=self.name, message=message, metadata=self.metadata)
            with tx:
                result = change(tx)
                # The commit keeps the result, so that a repeated request can answer from it after a crash.
                if self.attempt is not None:
                    tx.add_metadata({_RESULT: json.dumps(result)})
            return Changed(result=result, commit_id=None if tx.published is None else tx.published.graph_commit_id)

        done = retried(attempt, seconds=self.retry_seconds)
        self.note_copies(self)
        return done

    def _find_commit_id(self, ref: str) -> str | None:
        """Return the id of the commit that a ref names, or None if the ref is a time."""
        with suppress(InvalidNameError):
            return str(CommitId.parse(ref))
        try:
            # A date is also a valid name of a tag. If both are possible, the tag wins.
            return self.repository.tag_get(str(TagName.parse(ref))).commit_id
        except (InvalidNameError, TagNotFoundError):
            with suppress(ValueError):
                datetime.fromisoformat(ref)
                return None
            raise CommitNotFoundError(
                f"no commit, tag or time {ref!r} exists",
                hint="give a commit id, a tag or a time like 2026-11-15T10:00:00Z",
            ) from None


def retried(action: Callable[[], _Result], *, seconds: float) -> _Result:
    """Return the result of an action. Retry it for a bounded time while it raises BusyError."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        try:
            return action()
        except BusyError:
            if time.monotonic() >= deadline:
                raise
        # A random pause: writers that failed together would otherwise retry together.
        time.sleep(random.uniform(0, pause))  # noqa: S311 - not for security
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def adopt(rows: BranchRows, project_id: str, info: BranchInfo) -> None:
    """Add the row of a branch that exists in the repository only. If its name is taken, its id becomes its name."""
    name, description = name_and_description(info.description)
    for candidate in (name or info.name, info.name):
        with suppress(BranchExistsError), rows.reserve_name(project_id, candidate):
            rows.insert(
                Branch(
                    id=info.name,
                    project_id=project_id,
                    name=candidate,
                    description=description,
                    created_at=to_datetime(info.created_at),
                    created_by=info.created_by,
                )
            )
            return


def note_copies(rows: BranchRows, repository: Repository, branch_id: str) -> None:
    info, there = repository.branch_get(branch_id), repository.snapshot_of(branch_id)
    # A table that was dropped on the branch belongs to it as well, but there is no copy.
    own = {TableKey.parse(key) for key in info.own_tables if key in there}
    noted = set(map(_key, rows.list_copied(branch_id)))
    rows.remove_copied(branch_id, noted - own)
    if new := own - noted:
        rows.add_copied(branch_id, _iter_copies(repository, info, new))


def describe(name: str, description: str) -> str:
    """Return the description of a branch in the repository. Its first line is the name."""
    return f"{name}\n\n{description}" if description else name


def name_and_description(text: str) -> tuple[str, str]:
    """Return the name and the description that `describe` has joined."""
    name, _, description = text.partition("\n\n")
    return name.strip(), description


def _iter_copies(repository: Repository, info: BranchInfo, keys: set[TableKey]) -> Iterator[CopiedTable]:
    """Yield the copied tables. The first commit that changes a table after its last pull copies it."""
    first = {str(key): info.created_at for key in keys}
    wanted = set(first)
    commits = repository.snapshot_of(info.name).iter_commits()
    # From new to old, so the oldest commit of a table wins. Commits before a pull do not count: their copy is gone.
    for commit in takewhile(lambda one: one.branch == info.name, commits):
        touched = wanted.intersection(commit.tables)
        if commit.kind is CommitKind.PULL:
            wanted -= touched
        else:
            first |= dict.fromkeys(touched, commit.created_at)
    for key in sorted(keys):
        yield CopiedTable(bucket=key.bucket, table=key.table, copied_at=to_datetime(first[str(key)]))
