"""Rebuild `metadata.duckdb` from the repositories."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anabranch
from anabranch.display import to_datetime
from anabranch.errors import AnabranchError, CorruptError
from anabranch.ids import MAIN
from anabranch.repo.log.entries import BranchMode
from anabranch.repo.repository import Repository
from anabranch.server.branch_rows import BranchRows
from anabranch.server.branches import adopt, note_copies
from anabranch.server.database import Database
from anabranch.server.projects import Project, ProjectRows
from anabranch.server.settings import Settings

__all__ = ["Rebuilt", "rebuild_metadata"]

_PREFIX = "project_"


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
        for folder in sorted(settings.data.glob(f"{_PREFIX}*")):
            try:
                branches += _add_project(database, folder.name.removeprefix(_PREFIX), anabranch.open(folder))
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
