"""Check a whole repository: everything that a branch, tag, run or commit names. Repair what can be rebuilt.

The current branches are checked here: do plain Lance readers see the published state of their homes, or an external
write, and was a rename of a branch interrupted?
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from anabranch.errors import AnabranchError, BusyError, StorageDeniedError, StorageUnavailableError, TableNotFoundError
from anabranch.format import staging
from anabranch.format.arguments import require_names
from anabranch.format.doctor.findings import (
    Case,
    DoctorReport,
    FindingKind,
    Placement,
    Severity,
    examine,
)
from anabranch.format.layout.listing import manifest_path
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.doctor.commits import diagnose_commits, inspect_remaining
from anabranch.repo.doctor.inventory import CheckedLog, Inventory, Use, list_logs, with_effects
from anabranch.repo.doctor.logs import diagnose_branches, scan_log
from anabranch.repo.doctor.metadata import (
    diagnose_history,
    diagnose_leases,
    diagnose_mark,
    diagnose_names,
    diagnose_records,
    read_stored_history,
)
from anabranch.repo.doctor.tables import DatasetCheck, check_dataset, diagnose_rows
from anabranch.repo.log.config import TABLES, RepoConfig, owns
from anabranch.repo.log.entries import BranchEvent, LogEntry, TableEntry, is_same_state
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.branches import refuse_in_use
from anabranch.repo.write.homes import settle_table
from anabranch.storage import in_parallel
from anabranch.storage.requests import Steps


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
    commits = repo_store.commits
    tables, at_creation = commits.tables_of(head.head), dict[TableKey, TableEntry]()
    if str(head.branch) != MAIN:
        # If its first entry is damaged, that is a finding of its own.
        with suppress(AnabranchError):
            first = repo_store.heads.get_numbered(head.branch, head.state.created_as)
            at_creation = commits.tables_of(first.head)
    homes = Counter((entry.dataset, entry.home) for entry in tables.values())
    for key, entry in sorted(tables.items()):
        # A table that is unchanged since the branch was created may be in a home of an earlier branch of this name.
        is_unchanged = is_same_state(at_creation.get(key), entry)
        if owns(head.branch, entry.home) and homes[entry.dataset, entry.home] == 1 and not is_unchanged:
            yield key, entry


def _diagnose_home(repo_store: RepoStore, branch: BranchName, table: tuple[TableKey, TableEntry]) -> Case | None:
    """Return what is wrong with the newest ordinary version of a home, or None if it is the published state."""
    key, entry = table
    home = repo_store.config.dataset_root(entry.dataset).on(entry.home)
    subject = "/".join(filter(None, ["tables", entry.dataset, home.folder]))
    case = partial(Case, subject=subject, tables=(str(key),))

    def repair() -> bool:
        settle_table(repo_store, branch, key)
        return True

    try:
        newest = staging.newest_version(home)
        if staging.is_damaged(home, newest):
            return case(
                kind=FindingKind.DAMAGED_MANIFEST,
                subject=f"{subject}/{manifest_path(newest)}",
                explanation=f"the newest ordinary version of '{key}', which plain Lance readers see, was cut off",
                remedy="a repair replaces it and settles the published state, as the next writer would",
                repair=repair,
            )
        home.open()
        external = staging.list_external_versions(home, since=entry.head)
        if not external and (newest == entry.version or staging.restored_version(home, newest) == entry.version):
            return None
    # A store that does not answer is not damage of the table: report it to the caller instead of a finding.
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        return case(
            kind=FindingKind.DAMAGED_MANIFEST,
            explanation=f"its newest version, which plain Lance readers see, cannot be opened: {err.problem}",
            remedy="restore it from a backup; Anabranch can still read the published state",
        )
    if external:
        versions = ", ".join(map(str, external))
        return case(
            kind=FindingKind.EXTERNAL_WRITE,
            explanation=f"another Lance tool wrote to '{key}' on branch '{branch}': version {versions}",
            remedy=f"merge it with `adopt('{key}', branch='{branch}')`, or set it aside with"
            f" `settle('{key}', branch='{branch}', force=True)`",
        )
    return case(
        kind=FindingKind.UNSETTLED_HOME,
        explanation=f"plain Lance readers see another state of '{key}' than branch '{branch}' has published",
        remedy="a repair settles it, as the next writer would",
        repair=repair,
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
        yield Case(
            kind=FindingKind.UNFINISHED_RENAME,
            subject=repo_store.config.branch_log(head.branch).path(head.number),
            explanation=f"a rename of branch '{old.branch}' to '{head.branch}' was interrupted, and both exist",
            remedy=f"a repair deletes '{head.branch}', on which nothing was changed; then rename '{old.branch}' again",
            repair=partial(_undo_rename, repo_store, head),
        )


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


# Called with the number of logs and datasets done, and the number known so far.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What to check: all tables or some, and with `rows` also every row, which takes as long as reading them."""

    tables: frozenset[TableKey] | None = None
    rows: bool = False

    @classmethod
    def of(cls, tables: Sequence[str] | None, *, rows: bool) -> "Scope":
        if tables is not None:
            require_names(tables, "tables")
        return cls(tables=None if tables is None else frozenset(map(TableKey.parse, tables)), rows=rows)


def check_repository(config: RepoConfig, scope: Scope, *, repair: bool, progress: Progress) -> DoctorReport:
    """Return the findings of a repository. With `repair`, rebuild what can be rebuilt first.

    A repair never removes published data. After each round of repairs, everything is checked again.
    """
    # A new RepoStore for each scan, so that nothing comes from the caches of a handle.
    return examine(config.root, lambda: _Scan(RepoStore.of(config), scope, Steps(progress)).run(), repair=repair)


class _Scan:
    """One scan of the repository."""

    def __init__(self, repo_store: RepoStore, scope: Scope, steps: Steps) -> None:
        self._repo_store = repo_store
        self._config = repo_store.config
        self._scope = scope
        self._steps = steps
        self._inventory = Inventory(scope.tables)

    def run(self) -> list[Case]:
        """Return everything that is wrong. The order of the steps matters: see the comments."""
        # Read the history tables before the logs: then the logs can only be ahead of them.
        inventory = self._inventory
        stored = read_stored_history(self._config)
        unknown = self._read_logs()
        mark = diagnose_mark(self._config, inventory)
        if mark is not None and mark.kind is FindingKind.NEWER_FORMAT:
            return [mark]
        inspect_remaining(self._repo_store, inventory)
        cases = [
            *diagnose_branches(self._repo_store, inventory, stored),
            *diagnose_commits(self._repo_store, inventory),
            *diagnose_renames(self._repo_store, inventory),
        ]
        are_logs_whole = not any(case.severity is Severity.ERROR for case in cases)
        cases += self._check_tables()
        damaged = {place for case in cases for place in case.placements}
        homes = list(diagnose_homes(self._repo_store, inventory, damaged))
        if are_logs_whole:
            cases += diagnose_history(self._repo_store, inventory, stored)
        cases += diagnose_leases(self._config)
        cases += diagnose_records(self._config)
        cases += diagnose_names(self._config, unknown)
        # Check the homes again: a writer that has just published may have settled them in between.
        still = set(diagnose_homes(self._repo_store, inventory, damaged)) if homes else set()
        cases += [case for case in homes if case in still]
        # Repair the mark of the repository last: its presence means that the repository is complete.
        return with_effects(self._repo_store, inventory, cases if mark is None else [*cases, mark])

    def _read_logs(self) -> list[str]:
        """Read all logs into the inventory. Return the folders among them that are not logs."""
        logs, unknown = list_logs(self._config)
        self._steps.expect(len(logs))

        def scan(checked: CheckedLog) -> None:
            scan_log(self._repo_store, self._inventory, checked)
            self._steps.done()

        in_parallel(scan, logs)
        return unknown

    def _check_tables(self) -> list[Case]:
        """Check every table state in the inventory, one dataset at a time."""
        by_dataset: dict[str, dict[Placement, Use]] = defaultdict(dict)
        for place, use in self._inventory.uses.items():
            by_dataset[place.dataset][place] = use
        # A report without findings would mislead, unless damaged commits may have the table.
        known = {key for use in self._inventory.uses.values() for key in use.tables}
        for key in sorted(self._scope.tables or ()):
            if str(key) not in known and not self._inventory.broken:
                raise TableNotFoundError(f"no commit has a table '{key}'", hint="list the tables with `tables()`")
        self._steps.expect(len(by_dataset))

        def check(dataset: str) -> DatasetCheck:
            found = check_dataset(self._config, dataset, by_dataset[dataset])
            self._steps.done()
            return found

        cases: list[Case] = []
        stale: dict[Placement, str] = {}
        gone: dict[Placement, str] = {}
        for found in in_parallel(check, sorted(by_dataset)):
            cases += found.cases
            stale |= found.stale
            gone |= found.gone
        cases += [*self._stale_bases(stale), *self._gone_bases(gone)]
        if self._scope.rows:
            damaged = {place for case in cases for place in case.placements}
            # Rows of damaged states cannot be read, and the finding about their files is the cause.
            readable = {place: use for place, use in self._inventory.uses.items() if place not in damaged}
            cases += diagnose_rows(self._config, readable)
        return cases

    def _stale_bases(self, stale: dict[Placement, str]) -> list[Case]:
        """Return one finding for all stale bases: they have one cause and one remedy."""
        if not stale:
            return []
        homes = sorted({f"{TABLES}/{place.dataset}/tree/{place.home}" for place in stale})
        case = Case(
            kind=FindingKind.STALE_BASE,
            subject=homes[0],
            explanation=f"{len(homes)} branches of tables read files from another location: {min(stale.values())}",
            remedy=f"if the repository was moved or copied here, run `relocate({self._config.root!r})`",
            paths=tuple(homes),
            placements=frozenset(stale),
        )
        return [case]

    def _gone_bases(self, gone: dict[Placement, str]) -> list[Case]:
        """Return one finding for all missing bases: most likely they belong to one repository."""
        if not gone:
            return []
        bases = tuple(sorted(set(gone.values())))
        case = Case(
            kind=FindingKind.MISSING_BASE,
            subject=bases[0],
            explanation=f"tables read files from {len(bases)} other locations that are empty now",
            remedy=(
                f"if the files moved, run `relocate({self._config.root!r}, mapping={{'OLD': 'NEW'}})`;"
                " otherwise restore them from a backup"
            ),
            paths=bases,
            placements=frozenset(gone),
        )
        return [case]
