"""Check the current branches: do plain Lance readers see the published state of their homes, or an external write?

And was a rename of a branch interrupted?
"""

from collections import Counter
from collections.abc import Collection, Iterator
from functools import partial

from anabranch.errors import AnabranchError, BusyError, StorageDeniedError, StorageUnavailableError
from anabranch.format import staging
from anabranch.format.doctor.findings import Case, Finding, FindingKind, Placement
from anabranch.format.home import Home
from anabranch.format.layout.names import manifest_path
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.doctor.inventory import Inventory
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import BranchEvent, LogEntry, TableEntry, is_same_state
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.branches import refuse_in_use
from anabranch.repo.write.settle import settle_table
from anabranch.storage import in_parallel

__all__ = ["diagnose_homes", "diagnose_renames"]


def diagnose_homes(repo_store: RepoStore, inventory: Inventory, damaged: Collection[Placement]) -> Iterator[Case]:
    """Check the homes that the branches write to, except those with damaged table states."""
    broken = {(place.dataset, place.home) for place in damaged}
    for head in inventory.heads.values():
        # A run has no homes of its own: it writes to those of its target.
        if head.state.is_deleted or head.branch.is_internal or head.head.base in inventory.broken:
            continue
        tables = [
            (key, entry)
            for key, entry in _iter_written(repo_store, head)
            if inventory.covers(key) and (entry.dataset, entry.home) not in broken
        ]
        cases = list(filter(None, in_parallel(partial(_diagnose_home, repo_store, head.branch), tables)))
        # If the branch moved, a writer has just published and has not settled yet. It will.
        if cases and repo_store.heads.find(head.branch) == head:
            yield from cases


def _iter_written(repo_store: RepoStore, head: LogEntry) -> Iterator[tuple[TableKey, TableEntry]]:
    """Yield the tables that a branch has written in homes of its own, each of which has one table."""
    tables = repo_store.commits.tables_of(head.head)
    at_creation = {} if str(head.branch) == MAIN else _tables_at_creation(repo_store, head)
    homes = Counter((entry.dataset, entry.home) for entry in tables.values())
    for key, entry in sorted(tables.items()):
        # A table that is unchanged since the branch was created may be in a home of an earlier branch of this name.
        is_unchanged = is_same_state(at_creation.get(key), entry)
        if owns(head.branch, entry.home) and homes[entry.dataset, entry.home] == 1 and not is_unchanged:
            yield key, entry


def _tables_at_creation(repo_store: RepoStore, head: LogEntry) -> dict[TableKey, TableEntry]:
    try:
        return repo_store.commits.tables_of(repo_store.heads.get_numbered(head.branch, head.state.created_as).head)
    except AnabranchError:
        return {}


def _diagnose_home(repo_store: RepoStore, branch: BranchName, table: tuple[TableKey, TableEntry]) -> Case | None:
    """Return what is wrong with the newest ordinary version of a home, or None if it is the published state."""
    key, entry = table
    home = repo_store.config.dataset_root(entry.dataset).on(entry.home)
    subject = "/".join(filter(None, ["tables", entry.dataset, home.folder]))

    def repair() -> bool:
        settle_table(repo_store, branch, key)
        return True

    try:
        newest = staging.newest_version(home)
        if staging.is_damaged(home, newest):
            return Case(finding=_damaged(key, subject, newest), repair=repair)
        home.open()
        external = staging.list_external_versions(home, since=entry.head)
        if not external and _is_settled(home, newest, entry.version):
            return None
    # A store that does not answer is not damage of the table: report it to the caller instead of a finding.
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        finding = Finding(
            kind=FindingKind.DAMAGED_MANIFEST,
            subject=subject,
            explanation=f"its newest version, which plain Lance readers see, cannot be opened: {err.problem}",
            remedy="restore it from a backup; Anabranch can still read the published state",
            tables=(str(key),),
        )
        return Case(finding=finding)
    if external:
        return Case(finding=_external_write(branch, key, subject, external))
    finding = Finding(
        kind=FindingKind.UNSETTLED_HOME,
        subject=subject,
        explanation=f"plain Lance readers see another state of '{key}' than branch '{branch}' has published",
        remedy="a repair settles it, as the next writer would",
        tables=(str(key),),
        repairable=True,
    )
    return Case(finding=finding, repair=repair)


def _damaged(key: TableKey, subject: str, version: int) -> Finding:
    return Finding(
        kind=FindingKind.DAMAGED_MANIFEST,
        subject=f"{subject}/{manifest_path(version)}",
        explanation=f"the newest ordinary version of '{key}', which plain Lance readers see, was cut off",
        remedy="a repair replaces it and settles the published state, as the next writer would",
        tables=(str(key),),
        repairable=True,
    )


def _is_settled(home: Home, newest: int, version: int) -> bool:
    return newest == version or staging.restored_version(home, newest) == version


def _external_write(branch: BranchName, key: TableKey, subject: str, versions: tuple[int, ...]) -> Finding:
    named = ", ".join(map(str, versions))
    return Finding(
        kind=FindingKind.EXTERNAL_WRITE,
        subject=subject,
        explanation=f"another Lance tool wrote to '{key}' on branch '{branch}': version {named}",
        remedy=f"merge it with `adopt('{key}', branch='{branch}')`, or set it aside with"
        f" `settle('{key}', branch='{branch}', force=True)`",
        tables=(str(key),),
    )


def diagnose_renames(repo_store: RepoStore, inventory: Inventory) -> Iterator[Case]:
    """Yield the renames that were interrupted: the new name exists, and the old one has no tombstone."""
    for head in inventory.heads.values():
        if head.state.is_deleted or head.renamed_from is None:
            continue  # after the first change under its name it is a branch like others
        former = head.state.former_names[-1]
        old = inventory.heads.get(str(former.branch))
        if old is None or old.state.is_deleted or old.state.created_as != former.created_as:
            continue
        finding = Finding(
            kind=FindingKind.UNFINISHED_RENAME,
            subject=repo_store.config.branch_log(head.branch).path(head.number),
            explanation=f"a rename of branch '{old.branch}' to '{head.branch}' was interrupted, and both exist",
            remedy=f"a repair deletes '{head.branch}', on which nothing was changed; then rename '{old.branch}' again",
            repairable=True,
        )
        yield Case(finding=finding, repair=partial(_undo_rename, repo_store, head))


def _undo_rename(repo_store: RepoStore, head: LogEntry) -> bool:
    """Delete the new name, unless it was changed or the rename has finished since the scan."""
    former = head.state.former_names[-1]

    def is_finished() -> bool:
        old = repo_store.heads.find(former.branch)
        return old is None or old.state.find_rename(former.created_as) is not None

    def tombstone(newest: LogEntry) -> LogEntry | None:
        if newest != head or is_finished():
            return None
        refuse_in_use(repo_store, head.branch)
        return repo_store.heads.next_entry(newest, BranchEvent.DELETED, is_deleted=True)

    def verify(_: LogEntry) -> None:
        # The rename may still be in progress. It puts the tombstone of the old name first, and reads the new name
        # then. This does it the other way round, so that at least one of the two sees the other and rolls back.
        if is_finished():
            raise BusyError(f"the rename to '{head.branch}' has just finished", hint="nothing is left to repair")
        refuse_in_use(repo_store, head.branch)

    return repo_store.heads.move(head.branch, tombstone, verify=verify).state.is_deleted
