"""Check a whole repository: everything that a branch, tag, run or commit names. Repair what can be rebuilt."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.errors import TableNotFoundError
from anabranch.format.arguments import require_names
from anabranch.format.doctor.findings import (
    Case,
    DoctorReport,
    Finding,
    FindingKind,
    Placement,
    Severity,
    examine,
)
from anabranch.ids import TableKey
from anabranch.repo.doctor.checked_log import CheckedLog, list_logs
from anabranch.repo.doctor.commits import diagnose_commits, inspect_remaining
from anabranch.repo.doctor.heads import diagnose_homes, diagnose_renames
from anabranch.repo.doctor.inventory import Inventory, Use, with_effects
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
from anabranch.repo.log.config import TABLES, RepoConfig
from anabranch.repo.log.store import RepoStore
from anabranch.storage import in_parallel
from anabranch.storage.requests import Steps

__all__ = ["Progress", "Scope", "check_repository"]

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
    return examine(config.root, lambda: _scan(config, scope, progress), repair=repair)


def _scan(config: RepoConfig, scope: Scope, progress: Progress) -> list[Case]:
    # A new RepoStore, so that nothing comes from the caches of a handle.
    return _Scan(RepoStore.of(config), scope, Steps(progress)).run()


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
        if mark is not None and mark.finding.kind is FindingKind.NEWER_FORMAT:
            return [mark]
        inspect_remaining(self._repo_store, inventory)
        cases = [
            *diagnose_branches(self._repo_store, inventory, stored),
            *diagnose_commits(self._repo_store, inventory),
            *diagnose_renames(self._repo_store, inventory),
        ]
        are_logs_whole = not any(case.finding.severity is Severity.ERROR for case in cases)
        cases += self._check_tables()
        damaged = {place for case in cases for place in case.placements}
        homes = list(diagnose_homes(self._repo_store, inventory, damaged))
        if are_logs_whole:
            cases += diagnose_history(self._repo_store, inventory, stored)
        cases += diagnose_leases(self._config)
        cases += diagnose_records(self._config)
        cases += diagnose_names(self._config, unknown)
        # Check the homes again: a writer that has just published may have settled them in between.
        still = {case.finding for case in diagnose_homes(self._repo_store, inventory, damaged)} if homes else set()
        cases += [case for case in homes if case.finding in still]
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
        self._check_requested_tables()
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

    def _check_requested_tables(self) -> None:
        """Raise TableNotFoundError if no commit has a requested table, since a report without findings would mislead.

        If commits are damaged, the table may be in one of them.
        """
        known = {key for use in self._inventory.uses.values() for key in use.tables}
        for key in sorted(self._scope.tables or ()):
            if str(key) not in known and not self._inventory.broken:
                raise TableNotFoundError(f"no commit has a table '{key}'", hint="list the tables with `tables()`")

    def _stale_bases(self, stale: dict[Placement, str]) -> list[Case]:
        """Return one finding for all stale bases: they have one cause and one remedy."""
        if not stale:
            return []
        homes = sorted({f"{TABLES}/{place.dataset}/tree/{place.home}" for place in stale})
        finding = Finding(
            kind=FindingKind.STALE_BASE,
            subject=homes[0],
            explanation=f"{len(homes)} branches of tables read files from another location: {min(stale.values())}",
            remedy=f"if the repository was moved or copied here, run `relocate({self._config.root!r})`",
            paths=tuple(homes),
        )
        return [Case(finding=finding, placements=frozenset(stale))]

    def _gone_bases(self, gone: dict[Placement, str]) -> list[Case]:
        """Return one finding for all missing bases: most likely they belong to one repository."""
        if not gone:
            return []
        bases = tuple(sorted(set(gone.values())))
        finding = Finding(
            kind=FindingKind.MISSING_BASE,
            subject=bases[0],
            explanation=f"tables read files from {len(bases)} other locations that are empty now",
            remedy=(
                f"if the files moved, run `relocate({self._config.root!r}, mapping={{'OLD': 'NEW'}})`;"
                " otherwise restore them from a backup"
            ),
            paths=bases,
        )
        return [Case(finding=finding, placements=frozenset(gone))]
