"""The parts of the service, put together once and shared by all requests, and the rebuild of its metadata."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import anabranch
from anabranch.display import to_datetime
from anabranch.errors import AnabranchError, CorruptError
from anabranch.ids import MAIN
from anabranch.repo.log.entries import BranchMode
from anabranch.repo.repository import Repository
from anabranch.server.audit import AuditLog
from anabranch.server.auth import Scope
from anabranch.server.branch_access import BranchRows, adopt, note_copies
from anabranch.server.branches import Branches
from anabranch.server.buckets import Buckets
from anabranch.server.database import Database
from anabranch.server.exports import Exports
from anabranch.server.files import Files
from anabranch.server.idempotency import IdempotencyKeys
from anabranch.server.imports import Imports
from anabranch.server.jobs import Jobs
from anabranch.server.projects import Project, ProjectRows, Projects
from anabranch.server.request_limits import SharedThreads
from anabranch.server.settings import Settings
from anabranch.server.status import HealthCheck, Metrics
from anabranch.server.tokens import Tokens

_Part = TypeVar("_Part")


class Service:
    """The parts of a service, available to routes as `request.app.state.service`."""

    def __init__(self, settings: Settings, database: Database, *, clock: Callable[[], datetime]) -> None:
        self.settings = settings
        self.clock = clock
        self.database = database
        self.tokens = Tokens(database, clock=clock)
        self.audit = AuditLog(database, clock=clock)
        branch_rows = BranchRows(database)
        project_rows = ProjectRows(database, delete_branches=branch_rows.delete_all)
        self.projects = Projects(settings, project_rows, self.tokens, clock=clock)
        self.branches = Branches(settings, self.projects, branch_rows, self.tokens, self.audit, clock=clock)
        self.buckets = Buckets(database, clock=clock)
        self.metrics = Metrics()
        self.health = HealthCheck(database)
        self.previews = SharedThreads("previews", settings.limits)
        self.comparisons = SharedThreads("comparisons", settings.limits)
        self.files = Files(settings, database, clock=clock)
        self.jobs = Jobs(settings, database, clock=clock)
        self.imports = Imports(settings, self.projects, self.branches, self.jobs)
        self.exports = Exports(self.branches, self.files, self.jobs)
        self.idempotency = IdempotencyKeys(
            database,
            open_repository=lambda project_id: self.projects.open(project_id, actor=None),
            record=self.audit.write,
            clock=clock,
            seconds=settings.limits.idempotency_seconds,
        )
        self._parts = {type(part): part for part in vars(self).values()}

    def part(self, kind: type[_Part]) -> _Part:
        """Return the part of a class."""
        part: _Part = self._parts[kind]
        return part

    def close(self) -> None:
        """Stop the jobs within a bounded time and close the database."""
        self.previews.close()
        self.comparisons.close()
        self.jobs.close()
        # Last: jobs write their final rows while they stop.
        self.database.close()


def open_service(settings: Settings, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Service:
    """Open the data folder, which only one process can do, and repair what a crash left."""
    database = Database(settings.metadata_file)
    try:
        service = Service(settings, database, clock=clock)
        # Each step relies on the one before: branches need their project, a job is ended by a commit of its branch,
        # and files are kept for the exports that remain.
        service.projects.recover()
        service.branches.recover()
        service.jobs.recover(service.imports.find_result)
        service.exports.forget_old()
        service.files.recover(others=service.exports.ids())
    except BaseException:
        database.close()
        raise
    return service


def create_first_token(service: Service) -> str:
    """Create a token with the scope admin and return its secret."""
    return service.tokens.create("admin", Scope.ADMIN)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """The number of projects and branches found, the folders that could not be read, and the old file."""

    projects: int
    branches: int
    skipped: tuple[str, ...]
    set_aside: Path | None


def rebuild_metadata(settings: Settings) -> Rebuilt:
    """Rename the metadata file and create a new one from the repositories.

    The repositories contain the branches, the tables copied to them, and when and by whom they were created. Tokens,
    jobs, the audit, the names of projects and buckets without tables are only in the metadata, and are lost.
    """
    set_aside = _set_aside(settings)
    database = Database(settings.metadata_file)
    projects = branches = 0
    skipped = []
    try:
        for folder in sorted(settings.data.glob("project_*")):
            try:
                branches += _add_project(database, folder.name.removeprefix("project_"), anabranch.open(folder))
            except AnabranchError:
                # One damaged repository must not prevent the rebuild of the other projects.
                skipped.append(folder.name)
            else:
                projects += 1
    finally:
        database.close()
    return Rebuilt(projects=projects, branches=branches, skipped=tuple(skipped), set_aside=set_aside)


def _set_aside(settings: Settings) -> Path | None:
    """Rename the metadata file, unless a process serves it."""
    file = settings.metadata_file
    if not file.exists():
        return None
    # Opening takes the lock of DuckDB, so a file that another process serves raises DataInUseError. A damaged file is
    # renamed like any other.
    with suppress(CorruptError):
        Database(file).close()
    number = 1
    while (aside := file.with_name(f"{file.name}.before_rebuild_{number}")).exists():
        number += 1
    # The write-ahead log belongs to the old file. If it stayed, DuckDB would read it with the new one.
    for ending in ("", ".wal"):
        source = file.with_name(file.name + ending)
        if source.exists():
            source.rename(aside.with_name(aside.name + ending))
    return aside


def _add_project(database: Database, project_id: str, repository: Repository) -> int:
    """Add the rows of a project and its dev branches. Return the number of branches."""
    # Read everything before the first row is written, so that a damaged repository adds no rows.
    first = repository.list_commits(MAIN, limit=None)[-1]
    # The id of a dev branch is one part of a URL path, so a name with a slash is a branch of another tool.
    found = [info for info in repository.branch_list() if info.mode is BranchMode.LIVE and "/" not in info.name]
    rows = BranchRows(database)
    ProjectRows(database, delete_branches=rows.delete_all).insert(
        Project(
            id=project_id,
            name=project_id,
            description="",
            created_at=to_datetime(first.created_at),
            created_by=first.actor_id,
        )
    )
    # Oldest first: of two branches with the same free name, `adopt` gives the name to the first.
    for info in sorted(found, key=lambda one: one.created_at):
        adopt(rows, project_id, info)
        with suppress(AnabranchError):  # a start reads the copies again and logs the error
            note_copies(rows, repository, info.name)
    return len(found)
