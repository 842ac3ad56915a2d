"""The parts of the service, put together once and shared by all requests."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from anabranch.server.access import Scope
from anabranch.server.branches import Branches
from anabranch.server.buckets import Buckets
from anabranch.server.changing import Changing
from anabranch.server.files import Files
from anabranch.server.health import HealthCheck
from anabranch.server.idempotency import IdempotencyKeys
from anabranch.server.jobs.exporting import Exports
from anabranch.server.jobs.importing import Imports
from anabranch.server.jobs.jobs import Jobs
from anabranch.server.jobs.rows import JobRows
from anabranch.server.metadata.audit import AuditLog
from anabranch.server.metadata.branches import BranchRows
from anabranch.server.metadata.buckets import BucketRows
from anabranch.server.metadata.database import Database
from anabranch.server.metadata.files import FileRows
from anabranch.server.metadata.projects import ProjectRows
from anabranch.server.metadata.tokens import Tokens
from anabranch.server.metrics import Metrics
from anabranch.server.preview_pool import PreviewPool
from anabranch.server.projects import Projects
from anabranch.server.rows import Rows
from anabranch.server.settings import Settings
from anabranch.server.tables import Tables

__all__ = ["Service", "create_first_token", "open_service"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What routes work with, as `request.app.state.service`."""

    settings: Settings
    clock: Callable[[], datetime]
    database: Database
    tokens: Tokens
    audit: AuditLog
    projects: Projects
    branches: Branches
    buckets: Buckets
    tables: Tables
    rows: Rows
    changing: Changing
    metrics: Metrics
    health: HealthCheck
    previews: PreviewPool
    files: Files
    jobs: Jobs
    imports: Imports
    exports: Exports
    idempotency: IdempotencyKeys

    def close(self) -> None:
        """Stop the jobs within a bounded time and close the database."""
        self.previews.close()
        self.jobs.close()
        self.database.close()


def _now() -> datetime:
    return datetime.now(UTC)


def open_service(settings: Settings, *, clock: Callable[[], datetime] = _now) -> Service:
    """Open the data, which one process at a time may do, and finish what a crash left."""
    database = Database(settings.metadata_file)
    try:
        service = _assemble(settings, database, clock)
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
    """A token that may do everything; its secret is told only here."""
    return service.tokens.create("admin", Scope.ADMIN)[1]


def _assemble(settings: Settings, database: Database, clock: Callable[[], datetime]) -> Service:
    tokens = Tokens(database, clock=clock)
    branch_rows = BranchRows(database)
    projects = Projects(settings, ProjectRows(database, branch_rows), tokens, clock=clock)
    audit = AuditLog(database)
    branches = Branches(settings, projects, branch_rows, tokens, audit, clock=clock)
    changing = Changing(settings, branches)
    buckets = Buckets(BucketRows(database), changing, clock=clock)
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
        tables=Tables(buckets, changing),
        rows=Rows(changing),
        changing=changing,
        metrics=Metrics(),
        health=HealthCheck(database),
        previews=PreviewPool(settings.limits),
        files=files,
        jobs=jobs,
        imports=Imports(settings, projects, branches, jobs),
        exports=Exports(projects, branches, files, jobs),
        idempotency=IdempotencyKeys(
            database, projects, audit, clock=clock, seconds=settings.limits.idempotency_seconds
        ),
    )
