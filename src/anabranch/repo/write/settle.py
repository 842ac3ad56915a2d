"""Settle: make a published version the newest ordinary version of its home, so that plain Lance readers see it.

Readers of the repository do not need it, and a failure does not change what is published: the next writer settles.
Where commits wait for the disk, `publish` prepares the settled manifests, and links them right after the commit.
`anabranch status` loads this module, which therefore loads neither Lance nor Arrow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from anabranch.errors import AnabranchError, ExternalWriteError
from anabranch.format import staging
from anabranch.format.home import Home
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import Changes, LogEntry, TableEntry
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.refs.reset_and_undo import changed_tables
from anabranch.storage import in_parallel
from anabranch.warnings import warn_of_external_write


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalWrite:
    """A write to a managed table by another tool. It is kept and waits for a decision."""

    table: str
    home: str
    problem: str


def warn_of_external_writes(writes: Sequence[ExternalWrite]) -> None:
    """Warn of external writes that a commit found. The commit is published, but plain Lance readers do not see it."""
    for write in writes:
        called = f"'{write.table}', branch='{write.home}'"
        warn_of_external_write(
            f"the commit is published, but another Lance tool wrote to '{write.table}' on branch '{write.home}', and "
            f"plain Lance readers see its version: merge it with `adopt({called})`, "
            f"or set it aside with `settle({called}, force=True)`"
        )


def settle_published(repo_store: RepoStore, branch: BranchName, changes: Changes) -> tuple[ExternalWrite, ...]:
    """Settle the tables of a commit. Return the external writes that were found.

    Every other failure is left to the next writer: the commit is published, and readers of the repository see it.
    """
    found: list[ExternalWrite] = []
    # A table taken from another branch is in that branch's home, which this one does not write to.
    pending = {key: entry for key, entry in changes.items() if entry is not None and owns(branch, entry.home)}
    # Repeat until the branch has no newer version of these tables: a later writer may have settled first, and its
    # version would stay below an older one.
    while pending:
        settle = partial(_try_to_settle, repo_store, branch)
        answers = in_parallel(settle, pending.items(), at_a_time=repo_store.config.tables_at_a_time)
        settled: dict[TableKey, TableEntry] = {}
        for (key, entry), answer in zip(pending.items(), answers, strict=True):
            if isinstance(answer, ExternalWrite):
                found.append(answer)
            elif answer:
                settled[key] = entry
        try:
            pending = find_newer(repo_store, branch, settled)
        except AnabranchError:
            break
    return tuple(found)


def _try_to_settle(
    repo_store: RepoStore, branch: BranchName, table: tuple[TableKey, TableEntry]
) -> bool | ExternalWrite:
    """Settle one table. Return whether that succeeded, or the external write that prevents it."""
    key, entry = table
    try:
        home = repo_store.config.home_of(entry)
        # The writer of a later commit may have settled it.
        if not staging.is_newest(home, entry.version):
            _settle(repo_store, branch, key, entry, home)
    except ExternalWriteError as err:
        return ExternalWrite(table=str(key), home=str(branch), problem=err.problem)
    except AnabranchError:
        return False
    return True


def settle_movement(repo_store: RepoStore, after: LogEntry) -> tuple[ExternalWrite, ...]:
    """Settle the tables that a reset, undo, redo, cherry-pick, revert or rebase changed.

    Another writer may have moved the branch between the caller's last read and this entry, so the change is computed
    from the entry before it.
    """
    try:
        before = repo_store.heads.get_numbered(after.branch, after.number - 1)
        changes = changed_tables(repo_store, before, after)
    except AnabranchError:
        return ()  # the branch has moved; the next writer settles its tables
    return settle_published(repo_store, after.branch, changes)


def settle_head(repo_store: RepoStore, branch: BranchName) -> tuple[ExternalWrite, ...]:
    """Settle the tables of the newest commit, whose writer may have been killed right after it."""
    head = repo_store.heads.get(branch).head
    keys = [TableKey.parse(key) for key in head.commit.tables]
    return settle_published(repo_store, branch, {key: repo_store.commits.find_table(head, key) for key in keys})


def settle_table(repo_store: RepoStore, branch: BranchName, key: TableKey, *, force: bool = False) -> None:
    """Make the newest published version of a table its home's newest ordinary one."""
    entry = repo_store.find_table(branch, key)
    while entry is not None and owns(branch, entry.home):
        if force:
            staging.settle_by_force(repo_store.config.home_of(entry), entry.version)
        else:
            _settle(repo_store, branch, key, entry, repo_store.config.home_of(entry))
        entry = find_newer(repo_store, branch, {key: entry}).get(key)


def _settle(repo_store: RepoStore, branch: BranchName, key: TableKey, entry: TableEntry, home: Home) -> None:
    prepared = staging.prepare_settle(home, entry.version, expected_head=entry.head)
    staging.link(prepared, is_current=lambda: not find_newer(repo_store, branch, {key: entry}))


def find_newer(repo_store: RepoStore, branch: BranchName, settled: Changes) -> dict[TableKey, TableEntry]:
    """Return newer published versions of the tables that were just settled.

    A slow writer may have settled an older version after a newer one, so each reads the branch again afterwards.
    """
    head = repo_store.heads.find(branch) if settled else None
    if head is None:
        return {}
    tables = {key: repo_store.commits.find_table(head.head, key) for key in settled}
    return {
        key: entry
        for key, entry in tables.items()
        if entry is not None and entry != settled[key] and owns(branch, entry.home)
    }


def list_external_writes(repo_store: RepoStore, branch: BranchName) -> tuple[ExternalWrite, ...]:
    """List the external writes that were not adopted or set aside, by table. Each table of the branch is opened."""
    tables = repo_store.commits.tables_of(repo_store.heads.get(branch).head)
    owned = [key for key in sorted(tables) if owns(branch, tables[key].home)]
    found = in_parallel(lambda key: _find(repo_store, branch, key, tables[key]), owned)
    return tuple(write for write in found if write is not None)


def _find(repo_store: RepoStore, branch: BranchName, key: TableKey, entry: TableEntry) -> ExternalWrite | None:
    home = repo_store.config.home_of(entry)
    external = staging.list_external_versions(home, since=entry.head)
    if not external:
        return None
    versions = ", ".join(map(str, external))
    problem = f"an external writer changed {home.uri!r}: version {versions}"
    return ExternalWrite(table=str(key), home=str(branch), problem=problem)
