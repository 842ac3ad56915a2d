"""Rebuild `metadata.duckdb` from the repositories."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anabranch
from anabranch.errors import AnabranchError, CorruptError
from anabranch.ids import MAIN
from anabranch.repo.log.entries import BranchMode
from anabranch.repo.repository import Repository
from anabranch.server.branches import BranchRows, adopt, moment, note_copies
from anabranch.server.database import Database
from anabranch.server.projects import Project, ProjectRows
from anabranch.server.settings import Settings

__all__ = ["Rebuilt", "rebuild_metadata"]

_PREFIX = "project_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What was found, and the folders that are no repositories."""

    projects: int
    branches: int
    skipped: tuple[str, ...]
    set_aside: Path | None


def rebuild_metadata(settings: Settings) -> Rebuilt:
    """Put the metadata aside and make them anew.

    The repositories know their branches, the tables copied to them, and when and by whom they were made. Tokens, jobs,
    the audit, the names of projects and buckets without tables are known to nobody else.
    """
    set_aside = _set_aside(settings)
    database = Database(settings.metadata_file)
    projects = branches = 0
    skipped = []
    try:
        for folder in sorted(settings.data.glob(f"{_PREFIX}*")):
            try:
                branches += _take_in(database, folder.name.removeprefix(_PREFIX), anabranch.open(folder))
            except AnabranchError:
                skipped.append(folder.name)
            else:
                projects += 1
    finally:
        database.close()
    return Rebuilt(projects=projects, branches=branches, skipped=tuple(skipped), set_aside=set_aside)


def _set_aside(settings: Settings) -> Path | None:
    """Rename the file, unless somebody serves it."""
    file = settings.metadata_file
    if not file.exists():
        return None
    with suppress(CorruptError):
        Database(file).close()
    number = 1
    while (aside := file.with_name(f"{file.name}.before_rebuild_{number}")).exists():
        number += 1
    for ending in ("", ".wal"):
        source = file.with_name(file.name + ending)
        if source.exists():
            source.rename(aside.with_name(aside.name + ending))
    return aside


def _take_in(database: Database, project_id: str, repository: Repository) -> int:
    """Note a project and its dev branches; how many there are."""
    # What cannot be read is left out as a whole: all is read before anything is noted.
    first = repository.list_commits(MAIN, limit=None)[-1]
    found = [info for info in repository.branch_list() if info.mode is BranchMode.LIVE and "/" not in info.name]
    rows = BranchRows(database)
    ProjectRows(database, delete_branches=rows.delete_all).insert(
        Project(
            id=project_id,
            name=project_id,
            description="",
            created_at=moment(first.created_at),
            created_by=first.actor_id,
        )
    )
    for info in sorted(found, key=lambda one: one.created_at):
        adopt(rows, project_id, info)
        with suppress(AnabranchError):  # the start looks again, and tells
            note_copies(rows, repository, info.name)
    return len(found)
