"""What raw Lance readers see of the branches as they are now: the published state, or somebody else's."""

from collections import Counter
from collections.abc import Collection, Iterator
from functools import partial

from anabranch.errors import AnabranchError, StorageDeniedError, StorageUnavailableError
from anabranch.format import staging
from anabranch.format.home import Home
from anabranch.format.names import manifest_path
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.doctor.findings import Case, FindingKind, Placement, RepositoryFinding
from anabranch.repo.doctor.seen import Seen
from anabranch.repo.log.entries import LogEntry, TableEntry
from anabranch.repo.log.store import RepoStore
from anabranch.repo.write.homes import owns
from anabranch.repo.write.settle import settle_table
from anabranch.storage import in_parallel

__all__ = ["diagnose_homes"]


def diagnose_homes(records: RepoStore, seen: Seen, damaged: Collection[Placement]) -> Iterator[Case]:
    """Look at the homes in which the branches are written; those in which something is damaged are left out."""
    broken = {(place.dataset, place.home) for place in damaged}
    for head in seen.heads.values():
        if head.state.is_deleted or head.branch.is_internal or head.head.base in seen.broken:
            continue
        written = [
            (key, entry)
            for key, entry in _list_written(records, head)
            if seen.covers(key) and (entry.dataset, entry.home) not in broken
        ]
        found = in_parallel(partial(_diagnose_home, records, head.branch), written)
        cases = [case for case in found if case is not None]
        # Whoever publishes just now has not settled yet, and will.
        if cases and records.heads.find(head.branch) == head:
            yield from cases


def _list_written(records: RepoStore, head: LogEntry) -> Iterator[tuple[TableKey, TableEntry]]:
    tables = records.commits.tables_of(head.head)
    at_first = {} if str(head.branch) == MAIN else _tables_at_first(records, head)
    homes = Counter((entry.dataset, entry.home) for entry in tables.values())
    for key, entry in sorted(tables.items()):
        # What an earlier branch of this name wrote, and this one has not yet, is at home there by name only.
        is_left = at_first.get(key) == entry
        if owns(head.branch, entry.home) and homes[entry.dataset, entry.home] == 1 and not is_left:
            yield key, entry


def _tables_at_first(records: RepoStore, head: LogEntry) -> dict[TableKey, TableEntry]:
    try:
        return records.commits.tables_of(records.heads.get_numbered(head.branch, head.state.created_as).head)
    except AnabranchError:
        return {}


def _diagnose_home(records: RepoStore, branch: BranchName, table: tuple[TableKey, TableEntry]) -> Case | None:
    key, entry = table
    home = records.context.dataset_root(entry.dataset).on(entry.home)
    subject = "/".join(filter(None, ["tables", entry.dataset, home.folder]))

    def mend() -> bool:
        settle_table(records, branch, key)
        return True

    try:
        newest = staging.newest_version(home)
        if staging.is_damaged(home, newest):
            return Case(finding=_damaged(key, subject, newest), mend=mend)
        home.open()
        external = staging.foreign_versions(home, since=entry.head)
        if not external and _is_settled(home, newest, entry.version):
            return None
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        finding = RepositoryFinding(
            kind=FindingKind.DAMAGED_MANIFEST,
            subject=subject,
            explanation=f"its newest version, which raw Lance readers see, cannot be opened: {err.problem}",
            remedy="restore it from a backup; what was published can be read all the same",
            tables=(str(key),),
        )
        return Case(finding=finding)
    if external:
        return Case(finding=_foreign_write(branch, key, subject, external))
    finding = RepositoryFinding(
        kind=FindingKind.UNSETTLED_HOME,
        subject=subject,
        explanation=f"raw Lance readers see another state of '{key}' than branch '{branch}' has published",
        remedy="a repair settles it, as the next writer would",
        tables=(str(key),),
        repairable=True,
    )
    return Case(finding=finding, mend=mend)


def _damaged(key: TableKey, subject: str, version: int) -> RepositoryFinding:
    return RepositoryFinding(
        kind=FindingKind.DAMAGED_MANIFEST,
        subject=f"{subject}/{manifest_path(version)}",
        explanation=f"the newest ordinary version of '{key}', which plain Lance readers see, was cut off",
        remedy="a repair replaces it and settles what was published, as the next writer would",
        tables=(str(key),),
        repairable=True,
    )


def _is_settled(home: Home, newest: int, version: int) -> bool:
    return newest == version or staging.restored_version(home, newest) == version


def _foreign_write(branch: BranchName, key: TableKey, subject: str, strangers: tuple[int, ...]) -> RepositoryFinding:
    versions = ", ".join(map(str, strangers))
    return RepositoryFinding(
        kind=FindingKind.FOREIGN_WRITE,
        subject=subject,
        explanation=f"another Lance tool wrote to '{key}' on branch '{branch}': version {versions}",
        remedy=f"merge it with 'anabranch table adopt {key} --branch {branch}', or set it aside with"
        f" 'anabranch table settle {key} --branch {branch} --force'",
        tables=(str(key),),
    )
