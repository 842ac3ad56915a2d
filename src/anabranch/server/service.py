"""The parts of the service, put together once and shared by all requests."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TypeVar

from anabranch.server.audit import AuditLog
from anabranch.server.auth import Scope
from anabranch.server.branch_rows import BranchRows
from anabranch.server.branches import Branches
from anabranch.server.buckets import BucketRows, Buckets
from anabranch.server.database import Database
from anabranch.server.exports import Exports
from anabranch.server.files import FileRows, Files
from anabranch.server.idempotency import IdempotencyKeys
from anabranch.server.imports import Imports
from anabranch.server.job_rows import JobRows
from anabranch.server.job_runner import Jobs
from anabranch.server.previews import PreviewPool
from anabranch.server.projects import ProjectRows, Projects
from anabranch.server.settings import Settings
from anabranch.server.status import HealthCheck, Metrics
from anabranch.server.tokens import Tokens

__all__ = ["Service", "create_first_token", "open_service"]


_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The parts of a service, available to routes as `request.app.state.service`."""

    settings: Settings
    clock: Callable[[], datetime]
    database: Database
    tokens: Tokens
    audit: AuditLog
    projects: Projects
    branches: Branches
    buckets: Buckets
    metrics: Metrics
    health: HealthCheck
    previews: PreviewPool
    files: Files
    jobs: Jobs
    imports: Imports
    exports: Exports
    idempotency: IdempotencyKeys

    def part(self, kind: type[_Part]) -> _Part:
        """Return the part of a class."""
        return next(value for field in fields(self) if isinstance(value := getattr(self, field.name), kind))

    def close(self) -> None:
        """Stop the jobs within a bounded time and close the database."""
        self.previews.close()
        self.jobs.close()
        # Last: jobs write their final rows while they stop.
        self.database.close()


def _now() -> datetime:
    return datetime.now(UTC)


def open_service(settings: Settings, *, clock: Callable[[], datetime] = _now) -> Service:
    """Open the data folder, which only one process can do, and repair what a crash left."""
    database = Database(settings.metadata_file)
    try:
        service = _assemble(settings, database, clock)
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


def _assemble(settings: Settings, database: Database, clock: Callable[[], datetime]) -> Service:
    tokens = Tokens(database, clock=clock)
    branch_rows = BranchRows(database)
    projects = Projects(settings, ProjectRows(database, delete_branches=branch_rows.delete_all), tokens, clock=clock)
    audit = AuditLog(database, clock=clock)
    branches = Branches(settings, projects, branch_rows, tokens, audit, clock=clock)
    buckets = Buckets(BucketRows(database), clock=clock)
    files = Files(settings, FileRows(database), clock=clock)
    jobs = Jobs(settings, JobRows(database), clock=clock)
    return Service(
        settings=settings,
        clock=clock,
        database=database,
        tokens=tokens,
        audit=audit,
        projects=projects,
        branches=branches,
        buckets=buckets,
        metrics=Metrics(),
        health=HealthCheck(database),
        previews=PreviewPool(settings.limits),
        files=files,
        jobs=jobs,
        imports=Imports(settings, projects, branches, jobs),
        exports=Exports(projects, branches, files, jobs),
        idempotency=IdempotencyKeys(
            database,
            open_repository=lambda project_id: projects.open(project_id, actor=None),
            record=audit.write,
            clock=clock,
            seconds=settings.limits.idempotency_seconds,
        ),
    )
