"""After publishing: let every Lance tool see the published state too.

A courtesy. Readers of the repository never need it, a failure changes nothing that was published, and the next writer
makes up for it.
"""

from dataclasses import dataclass

from anabranch.errors import AnabranchError, ForeignWriteError
from anabranch.format import staging
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.entries import Changes, TableEntry, TableMap
from anabranch.repo.log.store import RepoStore
from anabranch.repo.write.homes import owns
from anabranch.warnings import warn_of_external_write

__all__ = ["ForeignWrite", "settle_table", "try_to_settle", "warn_of_external_writes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignWrite:
    """Somebody wrote to a managed table with another tool; it was kept and waits for a decision."""

    table: str
    home: str
    problem: str


def warn_of_external_writes(writes: tuple[ForeignWrite, ...]) -> None:
    """Warn of external writes that a commit met; the commit is published, and plain Lance readers do not see it."""
    for write in writes:
        called = f"'{write.table}', branch='{write.home}'"
        typed = f"{write.table} --branch {write.home}"
        warn_of_external_write(
            f"the commit is published, but another Lance tool wrote to '{write.table}' on branch '{write.home}', and "
            f"plain Lance readers see its version: merge it with adopt({called}) or 'anabranch table adopt {typed}', "
            f"or set it aside with settle({called}, force=True) or 'anabranch table settle {typed} --force'"
        )


def try_to_settle(records: RepoStore, branch: BranchName, changes: Changes) -> tuple[ForeignWrite, ...]:
    """Settle what was just published; report external writes, and leave every other failure to the next writer."""
    found = []
    # A table taken from another branch lies in that branch's home, which this one does not write to.
    pending = {key: entry for key, entry in changes.items() if entry is not None and owns(branch, entry.home)}
    while pending:
        settled = {}
        for key, entry in pending.items():
            try:
                # A durable commit settles its tables itself.
                if not staging.is_newest(records.context.home_of(entry), entry.version):
                    _settle(records, branch, key, entry)
            except ForeignWriteError as err:
                found.append(ForeignWrite(table=str(key), home=str(branch), problem=err.problem))
            except AnabranchError:
                continue
            else:
                settled[key] = entry
        try:
            pending = _find_newer(records, branch, settled)
        except AnabranchError:
            break
    return tuple(found)


def settle_table(records: RepoStore, branch: BranchName, key: TableKey, *, force: bool = False) -> None:
    """Make the newest published version of a table its home's newest ordinary one."""
    entry = records.find_table(branch, key)
    while entry is not None and owns(branch, entry.home):
        if force:
            staging.settle_by_force(records.context.home_of(entry), entry.version)
        else:
            _settle(records, branch, key, entry)
        entry = _find_newer(records, branch, {key: entry}).get(key)


def _settle(records: RepoStore, branch: BranchName, key: TableKey, entry: TableEntry) -> None:
    home = records.context.home_of(entry)
    prepared = staging.prepare_settle(home, entry.version, expected_head=entry.head)
    staging.link(prepared, is_current=lambda: not _find_newer(records, branch, {key: entry}))


def _find_newer(records: RepoStore, branch: BranchName, settled: TableMap) -> dict[TableKey, TableEntry]:
    """Return what was published since of the tables that were just settled.

    A slow writer may have settled an older version after a newer one, so each reads the branch again afterwards.
    """
    head = records.heads.find(branch) if settled else None
    if head is None:
        return {}
    tables = {key: records.commits.find_table(head.head, key) for key in settled}
    return {
        key: entry
        for key, entry in tables.items()
        if entry is not None and owns(branch, entry.home) and _place(entry) != _place(settled[key])
    }


def _place(entry: TableEntry) -> tuple[str, str | None, int]:
    return entry.dataset, entry.home, entry.version
