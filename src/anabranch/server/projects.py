"""Projects: each is one repository in a folder of the data."""

import logging
import secrets
import shutil
import threading
from collections import Counter, OrderedDict
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
from anabranch.repo.repository import Repository
from anabranch.server.database import Database
from anabranch.server.routing import Body, ForAdmin, FreeName, FreeText, ProjectToEnd, ProjectToRead, make_router
from anabranch.server.settings import Settings
from anabranch.server.tokens import Tokens

__all__ = ["Intent", "IntentKind", "Project", "ProjectRows", "Projects", "router"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One project: one repository."""

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
    """What was begun; it is gone once that is done."""

    id: str
    kind: IntentKind
    project_id: str
    begun_at: datetime


class ProjectRows:
    """The rows, and the same in memory: nobody else writes them, and every request asks for one."""

    def __init__(self, database: Database, *, delete_branches: Callable[[str], None]) -> None:
        self._database = database
        self._delete_branches = delete_branches
        self._known = {row["id"]: Project(**row) for row in database.read("SELECT * FROM projects")}

    def find(self, project_id: str) -> Project | None:
        return self._known.get(project_id)

    def list_all(self) -> list[Project]:
        """Oldest first."""
        return sorted(self._known.values(), key=lambda project: (project.created_at, project.id))

    def begin(self, intent: Intent) -> None:
        self._database.write(
            "INSERT INTO intents VALUES (?, ?, ?, ?)",
            [intent.id, str(intent.kind), intent.project_id, intent.begun_at],
        )

    def intents(self) -> list[Intent]:
        rows = self._database.read("SELECT * FROM intents ORDER BY begun_at")
        return [Intent(**{**row, "kind": IntentKind(row["kind"])}) for row in rows]

    def end(self, intent_id: str) -> None:
        self._database.write("DELETE FROM intents WHERE id = ?", [intent_id])

    def insert(self, project: Project) -> None:
        with self._database.turn():
            self._database.write(
                "INSERT INTO projects (id, name, description, created_at, created_by) VALUES (?, ?, ?, ?, ?)",
                [project.id, project.name, project.description, project.created_at, project.created_by],
            )
            self._known = {**self._known, project.id: project}  # readers hold no lock

    def delete(self, project_id: str) -> None:
        """Forget a project and all that names it, the latter first."""
        with self._database.turn():
            self._delete_branches(project_id)
            for table in ("buckets", "jobs", "files"):
                self._database.write(f"DELETE FROM {table} WHERE project_id = ?", [project_id])  # noqa: S608
            # What was answered about this one is nothing to say about another one of its name.
            self._database.write(
                "DELETE FROM idempotency_keys WHERE starts_with(path, ?)", [f"/projects/{project_id}/"]
            )
            self._database.write("DELETE FROM projects WHERE id = ?", [project_id])
            self._known = {name: project for name, project in self._known.items() if name != project_id}


_log = logging.getLogger("anabranch.server")
_HANDLES = 256
_LEFT = ".deleted_"


class Projects:
    """Makes, finds and deletes projects, and keeps their repositories open."""

    def __init__(self, settings: Settings, rows: ProjectRows, tokens: Tokens, *, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._rows = rows
        self._tokens = tokens
        self._clock = clock
        self._changing = threading.Lock()
        self._handles: OrderedDict[tuple[str, datetime, str | None], Repository] = OrderedDict()
        self._opening = threading.Lock()
        self._users: Counter[str] = Counter()
        self._ending: set[str] = set()
        self._changed = threading.Condition()

    def create(self, project_id: str | None, *, name: str | None, description: str, actor: str | None) -> Project:
        """Make a project with an empty repository, or, if a crash comes between, none."""
        made = project_id or secrets.token_hex(6)
        with self._changing:
            folder = self._settings.project_folder(made)
            if self._rows.find(made) is not None:
                raise ProjectExistsError(f"there is a project '{made}' already", hint="choose another id")
            if folder.exists():
                raise ProjectExistsError(
                    f"the folder '{folder.name}' is there, and no project of it is known",
                    hint="choose another id, or start the service with --rebuild-metadata",
                )
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
        """Let nobody delete a project while something is done with it; refuse one that is being deleted.

        Who is asked to be patient waits whether it is deleted after all: others may use it for too long.
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
                if not self._users[project_id]:
                    del self._users[project_id]  # whoever asks may name projects that are not there
                self._changed.notify_all()

    def delete(self, project_id: str) -> None:
        """Delete a project with its data, once all who use it have left."""
        with self._changing, self._left_by_all(project_id):
            self.get(project_id)
            self._finish_delete(self._begin(IntentKind.DELETE_PROJECT, project_id))

    @contextmanager
    def _left_by_all(self, project_id: str) -> Iterator[None]:
        """Keep others out, who would write into what is being deleted."""
        with self._changed:
            self._ending.add(project_id)
            is_left = self._changed.wait_for(
                lambda: not self._users[project_id], timeout=self._settings.limits.retry_seconds
            )
        try:
            if not is_left:
                raise BusyError(f"project '{project_id}' is in use", hint="try again when its requests are done")
            yield
        finally:
            with self._changed:
                self._ending.discard(project_id)
                self._changed.notify_all()

    def open(self, project_id: str, *, actor: str | None) -> Repository:
        """The repository of a project, with commits by an actor."""
        # A project that was deleted and made again is another one.
        key = (project_id, self.get(project_id).created_at, actor)
        with self._opening:
            found = self._handles.get(key)
            if found is not None:
                self._handles.move_to_end(key)
                return found
        opened = anabranch.open(self._settings.project_folder(project_id), actor=actor)
        with self._opening:
            self._handles[key] = opened
            if len(self._handles) > _HANDLES:
                self._handles.popitem(last=False)
        return opened

    def recover(self) -> None:
        """Finish what a crash left: a project half made is none, and one half deleted is gone."""
        for intent in self._rows.intents():
            if intent.kind is IntentKind.CREATE_PROJECT and self._rows.find(intent.project_id) is not None:
                self._rows.end(intent.id)
            else:
                self._finish_delete(intent)
        for left in self._settings.data.glob(f"{_LEFT}*"):
            _remove(left)

    def _begin(self, kind: IntentKind, project_id: str) -> Intent:
        intent = Intent(id=secrets.token_hex(8), kind=kind, project_id=project_id, begun_at=self._clock())
        self._rows.begin(intent)
        return intent

    def _finish_delete(self, intent: Intent) -> None:
        """Take the folder away in one step, then the rows, then the files."""
        folder = self._settings.project_folder(intent.project_id)
        left = folder.with_name(f"{_LEFT}{folder.name}_{intent.id}")
        if folder.exists():
            folder.rename(left)
        with self._opening:
            for key in [key for key in self._handles if key[0] == intent.project_id]:
                del self._handles[key]
        # Before somebody can make another project of this name, which they would open.
        self._tokens.revoke_all(project_id=intent.project_id)
        shutil.rmtree(self._settings.files_folder / intent.project_id, ignore_errors=True)
        self._rows.delete(intent.project_id)
        self._rows.end(intent.id)
        if left.exists():
            _remove(left)


def _remove(left: Path) -> None:
    """Delete the folder of a project that is gone; what resists is for the next start."""
    try:
        shutil.rmtree(left)
    except OSError:
        _log.exception("%s could not be deleted", left.name)


def _not_found(project_id: str) -> ProjectNotFoundError:
    return ProjectNotFoundError(f"there is no project '{project_id}'", hint="list the projects to see which exist")


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
    return call.part(Projects).create(body.id, name=body.name, description=body.description, actor=call.token.name)


@router.get("/projects")
def list_projects(call: ForAdmin) -> ProjectList:
    """All projects."""
    return ProjectList(projects=call.part(Projects).list_all())


@router.get("/projects/{project_id}")
def get_project(call: ProjectToRead) -> Project:
    """One project."""
    return call.part(Projects).get(call.project_id)


@router.delete("/projects/{project_id}", status_code=204)
def delete_project(call: ProjectToEnd) -> None:
    """Delete a project with all of its data, for good."""
    call.part(Projects).delete(call.project_id)
