"""Find external writes: what other Lance tools wrote to the tables of a branch."""

from anabranch.format import staging
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.entries import TableEntry
from anabranch.repo.log.store import RepoStore
from anabranch.repo.write.homes import owns
from anabranch.repo.write.settle import ExternalWrite
from anabranch.storage import in_parallel

__all__ = ["list_external_writes"]


def list_external_writes(repo_store: RepoStore, branch: BranchName) -> tuple[ExternalWrite, ...]:
    """List the external writes that were not adopted or set aside, by table. Each table of the branch is opened."""
    tables = repo_store.commits.tables_of(repo_store.heads.get(branch).head)
    owned = [key for key in sorted(tables) if owns(branch, tables[key].home)]
    found = in_parallel(lambda key: _find(repo_store, branch, key, tables[key]), owned)
    return tuple(write for write in found if write is not None)


def _find(repo_store: RepoStore, branch: BranchName, key: TableKey, entry: TableEntry) -> ExternalWrite | None:
    home = repo_store.config.home_of(entry)
    external = staging.foreign_versions(home, since=entry.head)
    if not external:
        return None
    versions = ", ".join(map(str, external))
    problem = f"an external writer changed {home.uri!r}: version {versions}"
    return ExternalWrite(table=str(key), home=str(branch), problem=problem)
