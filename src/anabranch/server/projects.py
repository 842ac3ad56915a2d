"""Projects: each is one repository in a folder of the data."""

import logging
import secrets
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

import anabranch
from anabranch.errors import BusyError, ProjectExistsError, ProjectNotFoundError
from anabranch.format.home import BoundedCache
from anabranch.repo.repository import Repository
from anabranch.server.database import Database, row_of
from anabranch.server.routing import Body, ForAdmin, FreeName, FreeText, ProjectToEnd, ProjectToRead, make_router
from anabranch.server.settings import Settings
from anabranch.server.tokens import Tokens
from anabranch.storage.local_store import forget_folders, sync


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project, which has one repository."""

    id: str
    name: str
    description: str
    created_at: datetime
    created_by: str | None


class IntentKind(StrEnum):
    CREATE_PROJECT = "create_project"
    DELETE_PROJECT = "delete_project"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An operation on a project that has begun. The row is deleted when the operation is done."""

    id: str
    kind: IntentKind
    project_id: str
    begun_at: datetime


class ProjectRows:
    """The rows, and a copy of them in memory: only this class writes them, and every request reads one."""

    def __init__(self, database: Database, *, delete_branches: Callable[[str], None]) -> None:
        self._database = database
        self._delete_branches = delete_branches
        self._known = {row["id"]: Project(**row) for row in database.read("SELECT * FROM projects")}

    def find(self, project_id: str) -> Project | None:
        return self._known.get(project_id)

    def list_all(self) -> list[Project]:
        """Return the projects, oldest first."""
        return sorted(self._known.values(), key=lambda project: (project.created_at, project.id))

    def begin(self, intent: Intent) -> None:
        self._database.insert("intents", row_of(intent))

    def intents(self) -> list[Intent]:
        rows = self._database.read("SELECT * FROM intents ORDER BY begun_at")
        return [Intent(**{**row, "kind": IntentKind(row["kind"])}) for row in rows]

    def end(self, intent_id: str) -> None:
        self._database.write("DELETE FROM intents WHERE id = ?", [intent_id])

    def insert(self, project: Project) -> None:
        with self._database.turn():
            self._database.insert("projects", row_of(project))
            self._known = {**self._known, project.id: project}  # readers hold no lock

    def delete(self, project_id: str) -> None:
        """Delete the row of a project, after all rows that refer to it."""
        with self._database.turn():
            self._delete_branches(project_id)
            for table in ("buckets", "jobs", "files"):
                self._database.write(f"DELETE FROM {table} WHERE project_id = ?", [project_id])  # noqa: S608
            # A new project with the same id must not get answers about this one.
            answers = "DELETE FROM idempotency_keys WHERE starts_with(path, ?)"
            self._database.write(answers, [f"/projects/{project_id}/"])
            self._database.write("DELETE FROM projects WHERE id = ?", [project_id])
            self._known = {name: project for name, project in self._known.items() if name != project_id}


_log = logging.getLogger("anabranch.server")
# Each handle caches what it has read, and there is one for each project and actor.
_HANDLES = 256
_DELETED = ".deleted_"


class Projects:
    """Creates, finds and deletes projects, and keeps their repositories open."""

    def __init__(self, settings: Settings, rows: ProjectRows, tokens: Tokens, *, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._rows = rows
        self._tokens = tokens
        self._clock = clock
        self._changing = threading.Lock()
        self._handles: BoundedCache[tuple[str, datetime, str | None], Repository] = BoundedCache(_HANDLES)
        self._users: Counter[str] = Counter()
        self._ending: set[str] = set()
        self._changed = threading.Condition()

    def create(self, project_id: str | None, *, name: str | None, description: str, actor: str | None) -> Project:
        """Create a project with an empty repository. After a crash, the next start removes a half-created project."""
        made = project_id or secrets.token_hex(6)
        with self._changing:
            folder = self._settings.project_folder(made)
            if self._rows.find(made) is not None:
                raise ProjectExistsError(f"project '{made}' already exists", hint="choose another id")
            if folder.exists():
                raise ProjectExistsError(
                    f"the folder '{folder.name}' exists, but its project is not known",
                    hint="choose another id, or start the service with --rebuild-metadata",
                )
            # A repository has many files. The intent marks a half-created one, which a start may delete.
            intent = self._begin(IntentKind.CREATE_PROJECT, made)
            project = Project(
                id=made, name=name or made, description=description, created_at=self._clock(), created_by=actor
            )
            try:
                anabranch.init(folder, actor=actor)
                self._rows.insert(project)
            except BaseException:
                self._finish_delete(intent)
                raise
            self._rows.end(intent.id)
        return project

    def list_all(self) -> list[Project]:
        return self._rows.list_all()

    def get(self, project_id: str) -> Project:
        project = self._rows.find(project_id)
        if project is None:
            raise _not_found(project_id)
        return project

    @contextmanager
    def in_use(self, project_id: str, *, patiently: bool = False) -> Iterator[None]:
        """Prevent the deletion of a project inside. Raise ProjectNotFoundError if it is being deleted.

        With `patiently`, wait for the end of the deletion instead, which fails if other requests use the project for
        too long.
        """
        with self._changed:
            if patiently:
                self._changed.wait_for(lambda: project_id not in self._ending)
            if project_id in self._ending:
                raise _not_found(project_id)
            self._users[project_id] += 1
        try:
            yield
        finally:
            with self._changed:
                self._users[project_id] -= 1
                # Requests may name projects that do not exist, and the counter must not grow.
                if not self._users[project_id]:
                    del self._users[project_id]
                self._changed.notify_all()

    def delete(self, project_id: str) -> None:
        """Delete a project with its data, when no request uses it any more."""
        with self._changing, self._unused(project_id):
            self.get(project_id)
            self._finish_delete(self._begin(IntentKind.DELETE_PROJECT, project_id))

    @contextmanager
    def _unused(self, project_id: str) -> Iterator[None]:
        """Refuse new requests for a project, and wait for those that use it: they could write into a deleted folder."""
        with self._changed:
            self._ending.add(project_id)
            is_unused = self._changed.wait_for(
                lambda: not self._users[project_id], timeout=self._settings.limits.retry_seconds
            )
        try:
            if not is_unused:
                raise BusyError(f"project '{project_id}' is in use", hint="try again when its requests are done")
            yield
        finally:
            with self._changed:
                self._ending.discard(project_id)
                self._changed.notify_all()

    def open(self, project_id: str, *, actor: str | None) -> Repository:
        """Return the repository of a project, opened for an actor."""
        # The time of creation is part of the key: a project that was deleted and created again is another one.
        key = (project_id, self.get(project_id).created_at, actor)
        found = self._handles.find(key)
        if found is None:
            # Without a lock, so that requests for other projects do not wait. Two handles of one project do no harm.
            found = anabranch.open(self._settings.project_folder(project_id), actor=actor)
        self._handles.keep(key, found)  # again, so that a handle in use is the last to be dropped
        return found

    def recover(self) -> None:
        """Finish the deletions that a crash interrupted, and remove projects that were not completely created."""
        for intent in self._rows.intents():
            # The row is written last, so this project is complete and only the end of its intent is missing.
            if intent.kind is IntentKind.CREATE_PROJECT and self._rows.find(intent.project_id) is not None:
                self._rows.end(intent.id)
            else:
                self._finish_delete(intent)
        for left in self._settings.data.glob(f"{_DELETED}*"):
            _remove(left)

    def _begin(self, kind: IntentKind, project_id: str) -> Intent:
        intent = Intent(id=secrets.token_hex(8), kind=kind, project_id=project_id, begun_at=self._clock())
        self._rows.begin(intent)
        return intent

    def _finish_delete(self, intent: Intent) -> None:
        """Delete a project: rename its folder, which is one step, then delete the rows, then the files."""
        folder = self._settings.project_folder(intent.project_id)
        left = folder.with_name(f"{_DELETED}{folder.name}_{intent.id}")
        if folder.exists():
            folder.rename(left)
            # The rows are deleted on disk, and a folder without a row would keep its id from being used again.
            sync(folders=[str(self._settings.data)])
        self._handles.forget(lambda key: key[0] == intent.project_id)
        # Before the id can be used again: the tokens would be valid for the new project.
        self._tokens.revoke_all(project_id=intent.project_id)
        shutil.rmtree(self._settings.files_folder / intent.project_id, ignore_errors=True)
        self._rows.delete(intent.project_id)
        self._rows.end(intent.id)
        if left.exists():
            _remove(left)


def _remove(left: Path) -> None:
    """Delete the folder of a deleted project. If that fails, the next start tries again."""
    try:
        shutil.rmtree(left)
    except OSError:
        _log.exception("%s could not be deleted", left.name)
    forget_folders()


def _not_found(project_id: str) -> ProjectNotFoundError:
    return ProjectNotFoundError(f"there is no project '{project_id}'", hint="list the projects to see which exist")


router = make_router("projects")


class NewProject(Body):
    """A project to create. By default, the service chooses an id."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$", max_length=64, examples=["123"])] | None = None
    name: FreeName | None = None
    description: FreeText = ""


class ProjectList(BaseModel):
    projects: list[Project]


@router.post("/projects", status_code=201)
def create_project(call: ForAdmin, body: NewProject) -> Project:
    """Create a project with an empty repository."""
    return call.part(Projects).create(body.id, name=body.name, description=body.description, actor=call.token.name)


@router.get("/projects")
def list_projects(call: ForAdmin) -> ProjectList:
    """List all projects."""
    return ProjectList(projects=call.part(Projects).list_all())


@router.get("/projects/{project_id}")
def get_project(call: ProjectToRead) -> Project:
    """Return a project."""
    return call.part(Projects).get(call.project_id)


@router.delete("/projects/{project_id}", status_code=204)
def delete_project(call: ProjectToEnd) -> None:
    """Delete a project with all of its data. This cannot be undone."""
    call.part(Projects).delete(call.project_id)
