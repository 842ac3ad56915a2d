"""Dev branches: live branches of a project's repository, under free names."""

import asyncio
import logging
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel

from anabranch.errors import AnabranchError, BranchNotFoundError, BusyError, ProjectNotFoundError
from anabranch.ids import MAIN, TableKey
from anabranch.repo.log.entries import BranchMode
from anabranch.repo.repository import Repository
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.server.audit import AuditLog, PendingEvent
from anabranch.server.auth import DEFAULT_BRANCH, Token
from anabranch.server.branch_access import (
    Branch,
    BranchRows,
    CopiedTable,
    OpenBranch,
    adopt,
    describe,
    note_copies,
    retried,
)
from anabranch.server.database import row_of
from anabranch.server.projects import Projects
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
from anabranch.server.settings import Settings
from anabranch.server.tokens import Tokens

_Result = TypeVar("_Result")

_log = logging.getLogger("anabranch.server")
_ID_PREFIX = "br_"
# Without i, l, o and u, which are easily misread. 32 divides 256, so each character is equally likely.
_ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH = 13
_LONGEST_PAUSE_SECONDS = 0.02
_ID = re.compile(f"{_ID_PREFIX}[{_ID_ALPHABET}]{{{_ID_LENGTH}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A branch to create together with others, and the audit event of its request."""

    branch: Branch
    event: PendingEvent | None
    is_created: asyncio.Future[bool]


class _Queue:
    """The branches of one project that wait while a task creates those before them."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._expected = 1
        self._is_full = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, one: _Waiting) -> None:
        self._waiting.append(one)
        if len(self._waiting) >= self._expected:
            self._is_full.set()

    async def take(self, *, expected: int, seconds: float) -> list[_Waiting]:
        """Return the waiting branches when the expected number waits, or after a time. The list may be empty."""
        if len(self._waiting) < expected:
            self._expected = expected
            self._is_full.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._is_full.wait()
        taken, self._waiting = self._waiting, []
        return taken


class Branches:
    """The dev branches of all projects.

    A row is written after its branch is created, and deleted after its branch is deleted. When the service starts, it
    adopts branches without a row and finishes the deletion of branches that have only a row.
    """

    def __init__(
        self,
        settings: Settings,
        projects: Projects,
        rows: BranchRows,
        tokens: Tokens,
        audit: AuditLog,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._retry_seconds = settings.limits.retry_seconds
        self._projects = projects
        self._rows = rows
        self._tokens = tokens
        self._audit = audit
        self._clock = clock
        # By project. A project is in it while a task creates its branches.
        self._queues: dict[str, _Queue] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def create(self, project_id: str, *, name: str, description: str, token: Token) -> Branch:
        """Create a branch that follows main."""
        branch = self._new(project_id, name, description, token)
        with self._rows.reserve_name(project_id, name):
            self._create_alone(branch)
        return branch

    async def create_shared(self, project_id: str, *, name: str, description: str, token: Token) -> Branch:
        """Create a branch like `create`, together with those of other requests: they wait for the disk once."""
        branch = self._new(project_id, name, description, token)
        # In a task of its own: a request that is cancelled must not release the name while the branch is created.
        return await asyncio.shield(self._start(self._create_shared(branch)))

    def _start(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        task = asyncio.create_task(work)
        self._tasks.add(task)  # asyncio itself keeps no reference to it
        task.add_done_callback(self._tasks.discard)
        return task

    def _new(self, project_id: str, name: str, description: str, token: Token) -> Branch:
        return Branch(
            id=_new_id(),
            project_id=project_id,
            name=name,
            description=description,
            created_at=self._clock(),
            created_by=token.name,
        )

    async def _create_shared(self, branch: Branch) -> Branch:
        with self._projects.in_use(branch.project_id), self._rows.reserve_name(branch.project_id, branch.name):
            waiting = _Waiting(branch=branch, event=self._audit.pending, is_created=asyncio.Future())
            is_first = branch.project_id not in self._queues
            self._queues.setdefault(branch.project_id, _Queue()).add(waiting)
            if is_first:
                self._start(self._create_waiting(branch.project_id))
            if await waiting.is_created:
                return branch
            # With another id: if the first one could not be rolled back, it is in use.
            alone = replace(branch, id=_new_id())
            await run_in_threadpool(self._create_alone, alone)
            return alone

    async def _create_waiting(self, project_id: str) -> None:
        """Create all waiting branches of a project in one thread: several threads would wait for the interpreter.

        Requests that arrive until it has finished form the next batch. Each project has its own thread, so that a slow
        or damaged project does not delay the others.
        """
        queue = self._queues[project_id]
        expected, pause = 1, 0.0
        try:
            while waiting := await queue.take(expected=expected, seconds=pause):
                began = time.monotonic()
                is_created = False
                try:
                    is_created = await run_in_threadpool(self._create_together, project_id, waiting)
                except Exception:  # noqa: BLE001 - later requests wait for this task, so it must not end here
                    _log.exception("branches of project %s could not be created together", project_id)
                for one in waiting:
                    one.is_created.set_result(is_created)
                # Most of the time for a batch is the same for one branch and for many. Clients that are answered now
                # send their next requests soon, so wait for them, but not for long: they may have no more requests.
                expected = len(waiting) + len(queue)
                pause = min((time.monotonic() - began) / 2, _LONGEST_PAUSE_SECONDS)
        finally:
            del self._queues[project_id]

    def _create_alone(self, branch: Branch) -> None:
        """Create a branch whose name is reserved. Retry, and report the reason of a failure."""
        repository = self._projects.open(branch.project_id, actor=branch.created_by)
        description = describe(branch.name, branch.description)
        create = partial(repository.branch_create_from, MAIN, branch.id, mode=BranchMode.LIVE, description=description)
        retried(create, seconds=self._retry_seconds)
        try:
            # The row comes last, so that it is committed in one transaction with the audit event. A crash before
            # leaves a branch without a row, which the next start adopts.
            self._rows.insert(branch, write=self._audit.write)
        except BaseException:
            self._remove([branch])
            raise

    def _create_together(self, project_id: str, waiting: Sequence["_Waiting"]) -> bool:
        """Create branches of a project whose names are reserved, all or none. Return whether they were created.

        If not, each request creates its own branch, which may take long and may fail.
        """
        branches = [one.branch for one in waiting]
        by_actor: defaultdict[str | None, dict[str, str]] = defaultdict(dict)
        for branch in branches:
            by_actor[branch.created_by][branch.id] = describe(branch.name, branch.description)
        try:
            for actor, some in by_actor.items():
                repository = self._projects.open(project_id, actor=actor)
                if not EngineAccess(repository).create_live_branches(some):
                    raise BusyError("the id of a branch is in use", hint="create each by itself")
            self._rows.insert(*branches, write=partial(self._audit.write, requests=[one.event for one in waiting]))
        except ProjectNotFoundError:
            return False  # an error of the client, and nothing was created
        except Exception:  # noqa: BLE001 - `_create_alone` reports it to the client
            _log.warning("%d branches could not be created together", len(waiting), exc_info=True)
            # Delete all of them: after a disk error it is not known which ones were created.
            self._remove(branches)
            return False
        return True

    def _remove(self, branches: Sequence[Branch]) -> None:
        """Delete branches that have no rows. Skip those that do not exist."""
        for branch in branches:
            try:
                repository = self._projects.open(branch.project_id, actor=branch.created_by)
                with suppress(BranchNotFoundError):
                    repository.branch_delete(branch.id, purge=True)
            except Exception:  # noqa: BLE001 - the others are deleted nevertheless, and the next start adopts this one
                _log.exception("branch %s of project %s could not be deleted", branch.id, branch.project_id)

    def list_all(self, project_id: str) -> list[Branch]:
        self._projects.get(project_id)
        return self._rows.list_all(project_id)

    def get(self, project_id: str, branch_id: str) -> Branch:
        self._projects.get(project_id)
        branch = self._rows.find(project_id, branch_id)
        if branch is None:
            raise BranchNotFoundError(
                f"project '{project_id}' has no branch '{branch_id}'", hint="list the branches to see which exist"
            )
        return branch

    def is_dev_branch(self, project_id: str, name: str) -> bool:
        """Return whether a branch of a repository is a dev branch, given its name there."""
        return self._rows.find(project_id, name) is not None

    def open(self, project_id: str, branch_id: str, token: Token) -> OpenBranch:
        """Open a dev branch, or main with the id that paths use for it."""
        if branch_id != DEFAULT_BRANCH:
            self.get(project_id, branch_id)
        repository = self._projects.open(project_id, actor=token.name)
        return OpenBranch(
            project_id=project_id,
            branch_id=branch_id,
            repository=repository,
            token=token,
            retry_seconds=self._retry_seconds,
            note_copies=self.note_copies,
        )

    def list_copied(self, branch: OpenBranch) -> list[CopiedTable]:
        """Return the tables that were copied to a branch or created on it."""
        self.note_copies(branch)
        return self._rows.list_copied(branch.branch_id)

    def delete(self, project_id: str, branch_id: str, token: Token) -> None:
        """Delete a branch with all of its tables."""
        # `open` alone accepts the id of main, which must not be deleted.
        branch = self.open(project_id, self.get(project_id, branch_id).id, token)
        self._finish_delete(branch.repository, project_id, branch_id)

    def pull(self, branch: OpenBranch, key: TableKey) -> bool:
        """Make a table of a branch follow main again. Return whether the branch had a copy."""
        pull = partial(branch.repository.branch_pull, branch.name, str(key))
        was_local = retried(pull, seconds=self._retry_seconds)
        self.note_copies(branch)
        return was_local

    def note_copies(self, branch: OpenBranch) -> None:
        """Update the rows of copied tables from the repository."""
        if not branch.is_main:
            note_copies(self._rows, branch.repository, branch.branch_id)

    @contextmanager
    def at_work(self, project_id: str, branch_id: str, *, since: datetime) -> Iterator[None]:
        """Keep a project from being deleted while a job runs that was submitted at a time.

        Raise ProjectNotFoundError if the project was deleted and created again since then, and BranchNotFoundError if
        the work fails because the branch was deleted with its files.
        """
        with self._projects.in_use(project_id, patiently=True):
            if self._projects.get(project_id).created_at > since:
                raise ProjectNotFoundError(f"the project '{project_id}' was deleted", hint="send it to the new one")
            try:
                yield
            except Exception:
                self.require_there(project_id, branch_id)
                raise

    def require_there(self, project_id: str, branch_id: str) -> None:
        """Raise BranchNotFoundError if a branch was deleted or is being deleted."""
        if branch_id != DEFAULT_BRANCH:
            self.get(project_id, branch_id)
            self._projects.open(project_id, actor=None).branch_get(branch_id)

    def recover(self) -> None:
        """Repair what a crash left: update the rows from the repositories and finish deletions."""
        for project in self._projects.list_all():
            try:
                self._recover(project.id)
            except AnabranchError:
                # The service starts nevertheless, for the other projects.
                _log.exception("the branches of project %s cannot be read", project.id)

    def _recover(self, project_id: str) -> None:
        repository = self._projects.open(project_id, actor=None)
        known = {info.name: info for info in repository.branch_list()}
        for branch in self._rows.list_all(project_id):
            if branch.id not in known:
                self._finish_delete(repository, project_id, branch.id)
            # Only branches with copies: a start must not read the commits of every branch.
            elif known[branch.id].own_tables or self._rows.list_copied(branch.id):
                note_copies(self._rows, repository, branch.id)
        for info in known.values():
            # Only branches of this service: others may be created in the repository by other tools.
            if is_branch_id(info.name) and self._rows.find(project_id, info.name) is None:
                adopt(self._rows, project_id, info)

    def _finish_delete(self, repository: Repository, project_id: str, branch_id: str) -> None:
        """Delete a branch with its files, and its row last: until then, a start repeats the deletion."""
        with suppress(BranchNotFoundError):
            retried(lambda: repository.branch_delete(branch_id, purge=True), seconds=self._retry_seconds)
        self._tokens.revoke_all(project_id=project_id, branch_id=branch_id)
        self._rows.delete(branch_id)


def is_branch_id(name: str) -> bool:
    """Return whether a name has the form of an id of a dev branch. A start adopts branches with such names."""
    return _ID.fullmatch(name) is not None


def _new_id() -> str:
    # One call: each reads the random source of the system.
    numbers = secrets.token_bytes(_ID_LENGTH)
    return _ID_PREFIX + "".join(_ID_ALPHABET[number % len(_ID_ALPHABET)] for number in numbers)


router = make_router("branches", prefix="/projects/{project_id}/branches")


class NewBranch(Body):
    """A dev branch to create. The service chooses its id."""

    name: FreeName
    description: FreeText = ""


class BranchList(BaseModel):
    branches: list[Branch]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchDetail(Branch):
    """A dev branch, and the tables of which it has its own copy."""

    tables: list[CopiedTable]


class Pulled(BaseModel):
    """`was_local` is true if the branch had a copy, which was deleted."""

    bucket: str
    table: str
    was_local: bool


@router.post("", status_code=201)
async def create_branch(call: ProjectToBranch, body: NewBranch) -> Branch:
    """Create a dev branch. It shows main as it is now until tables are changed on the branch. Nothing is copied."""
    branches = call.part(Branches)
    return await branches.create_shared(call.project_id, name=body.name, description=body.description, token=call.token)


@router.get("")
def list_branches(call: ProjectToRead) -> BranchList:
    """List the dev branches of a project, oldest first."""
    return BranchList(branches=call.part(Branches).list_all(call.project_id))


@router.get("/{branch_id}")
def get_branch(call: BranchToRead) -> BranchDetail:
    """Return a dev branch and the tables copied to it."""
    branch = call.part(Branches).get(call.project_id, call.branch_id)
    return BranchDetail(**row_of(branch), tables=call.part(Branches).list_copied(call.open()))


@router.delete("/{branch_id}", status_code=204)
def delete_branch(call: BranchToChange) -> None:
    """Delete a dev branch with all changes made on it. Main stays as it is."""
    call.part(Branches).delete(call.project_id, call.branch_id, call.token)


@router.post("/{branch_id}/tables/{bucket}/{table}/pull")
def pull_table(call: BranchToChange, bucket: BucketName, table: TableName) -> Pulled:
    """Make a table of a branch follow main again. The copy of the branch, if it has one, is deleted."""
    # Raises for main, which has no copies to drop.
    call.part(Branches).get(call.project_id, call.branch_id)
    was_local = call.part(Branches).pull(call.open(), TableKey(bucket, table))
    return Pulled(bucket=bucket, table=table, was_local=was_local)
