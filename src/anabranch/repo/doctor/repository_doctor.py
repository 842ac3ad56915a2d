"""Check a whole repository: everything that a branch, tag, run or commit names. Repair what can be rebuilt.

The objects beside logs and tables are checked here: the mark, the records of gc, leases, unknown names, and the history
tables.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import pyarrow as pa

from anabranch.errors import (
    CorruptError,
    ObjectNotFoundError,
    RepositoryNotFoundError,
    TableNotFoundError,
    UnsupportedFormatError,
)
from anabranch.format.arguments import require_names
from anabranch.format.doctor.findings_and_repairs import (
    Case,
    DoctorReport,
    FindingKind,
    Placement,
    Severity,
    examine,
    unknown_file,
)
from anabranch.ids import MAIN, TableKey
from anabranch.repo.doctor.commits import diagnose_commits, inspect_remaining
from anabranch.repo.doctor.inventory import (
    Inventory,
    StoredHistory,
    Use,
    damaged_placements,
    digest_row,
    list_logs,
    read_stored_history,
    with_effects,
)
from anabranch.repo.doctor.logs import diagnose_branches, diagnose_renames, scan_log
from anabranch.repo.doctor.tables import check_dataset, diagnose_homes, diagnose_rows
from anabranch.repo.log import creation, history_tables
from anabranch.repo.log.clones import CLONES, ORIGIN, refuse_unfinished
from anabranch.repo.log.collected import COPY, GC, RECORD, decode_record
from anabranch.repo.log.commits import COMMITS
from anabranch.repo.log.config import TABLES, RepoConfig
from anabranch.repo.log.creation import MARK, MARK_COPY
from anabranch.repo.log.entries import LogEntry
from anabranch.repo.log.leases import LEASES
from anabranch.repo.log.numbered_log import BRANCHES, RUNS, TAGS
from anabranch.repo.log.repo_store import RepoStore
from anabranch.storage import iter_in_parallel
from anabranch.storage.requests import Steps
from anabranch.storage.store import CLOCK, store_time

_OWN = (BRANCHES, CLOCK, CLONES, COMMITS, GC, LEASES, MARK, MARK_COPY, ORIGIN, RUNS, TABLES, TAGS)
# Pipelines write their definitions, and the output of failed steps. The command line remembers the branch of a folder,
# which may be the root of the repository.
_KNOWN = frozenset({*_OWN, *history_tables.HISTORY_TABLES, "_pipelines", "_logs", ".anabranch.json"})


def check_repository(
    config: RepoConfig, *, tables: Sequence[str] | None, rows: bool, repair: bool, progress: Callable[[int, int], None]
) -> DoctorReport:
    """Return the findings of a repository, of all tables or some. With `repair`, rebuild what can be rebuilt first.

    With `rows`, every row is read. A repair never removes published data. After each round of repairs, everything is
    checked again. `progress` gets the number of logs and datasets done, and the number known so far.
    """
    if tables is not None:
        require_names(tables, "tables")
    keys = None if tables is None else frozenset(map(TableKey.parse, tables))
    # A new RepoStore for each scan, so that nothing comes from the caches of a handle.
    return examine(config.root, lambda: _Scan(config, keys, Steps(progress), rows=rows).run(), repair=repair)


class _Scan:
    def __init__(self, config: RepoConfig, tables: frozenset[TableKey] | None, steps: Steps, *, rows: bool) -> None:
        self._repo_store = RepoStore.of(config)
        self._config = config
        self._tables = tables
        self._rows = rows
        self._steps = steps
        self._inventory = Inventory(tables)

    def run(self) -> list[Case]:
        """Return all problems. The order of the steps matters: see the comments."""
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
        damaged = damaged_placements(cases)
        homes = list(diagnose_homes(self._repo_store, inventory, damaged))
        if are_logs_whole:
            cases += diagnose_history(self._repo_store, inventory, stored)
        cases += diagnose_leases(self._config)
        cases += diagnose_records(self._config)
        cases += diagnose_names(self._config, unknown)
        # Check the homes again: a writer may have settled them since its commit was read.
        still = set(diagnose_homes(self._repo_store, inventory, damaged)) if homes else set()
        cases += [case for case in homes if case in still]
        # Repair the mark of the repository last: its presence means that the repository is complete.
        return with_effects(self._repo_store, inventory, cases if mark is None else [*cases, mark])

    def _read_logs(self) -> list[str]:
        """Read all logs into the inventory. Return the folders among them that are not logs."""
        logs, unknown = list_logs(self._config)
        self._steps.expect(len(logs))
        for _ in iter_in_parallel(partial(scan_log, self._repo_store, self._inventory), logs):
            self._steps.done()
        return unknown

    def _check_tables(self) -> list[Case]:
        """Check every table state in the inventory, one dataset at a time."""
        by_dataset: dict[str, dict[Placement, Use]] = defaultdict(dict)
        for placement, use in self._inventory.uses.items():
            by_dataset[placement.dataset][placement] = use
        self._check_known()
        self._steps.expect(len(by_dataset))
        cases: list[Case] = []
        stale: dict[Placement, str] = {}
        gone: dict[Placement, str] = {}
        checked = iter_in_parallel(lambda one: check_dataset(self._config, *one), sorted(by_dataset.items()))
        for found, stale_here, gone_here in checked:
            self._steps.done()
            cases += found
            stale |= stale_here
            gone |= gone_here
        cases += self._lost_bases(stale, gone)
        if self._rows:
            damaged = damaged_placements(cases)
            # Rows of damaged states cannot be read, and the finding about their files is the cause.
            readable = {placement: use for placement, use in self._inventory.uses.items() if placement not in damaged}
            cases += diagnose_rows(self._config, readable)
        return cases

    def _check_known(self) -> None:
        """Raise TableNotFoundError if no commit has a table that the caller named."""
        known = {key for use in self._inventory.uses.values() for key in use.tables}
        for key in sorted(self._tables or ()):
            # A report without findings would mislead, unless damaged commits may have the table.
            if str(key) not in known and not self._inventory.broken:
                raise TableNotFoundError(f"no commit has a table '{key}'", hint="list the tables with `tables()`")

    def _lost_bases(self, stale: dict[Placement, str], gone: dict[Placement, str]) -> Iterator[Case]:
        """Yield one finding for all stale bases and one for all missing ones: each has one cause and one remedy."""
        root = self._config.root
        if stale:
            homes = sorted({f"{TABLES}/{placement.dataset}/tree/{placement.home}" for placement in stale})
            yield Case(
                kind=FindingKind.STALE_BASE,
                subject=homes[0],
                explanation=f"{len(homes)} branches of tables read files from another location: {min(stale.values())}",
                remedy=f"if the repository was moved or copied here, run `relocate({root!r})`",
                paths=tuple(homes),
                placements=frozenset(stale),
            )
        if gone:
            bases = tuple(sorted(set(gone.values())))
            yield Case(
                kind=FindingKind.MISSING_BASE,
                subject=bases[0],
                explanation=f"tables read files from {len(bases)} other locations that are empty now",
                remedy=(
                    f"if the files moved, run `relocate({root!r}, mapping={{'OLD': 'NEW'}})`;"
                    " otherwise restore them from a backup"
                ),
                paths=bases,
                placements=frozenset(gone),
            )


def diagnose_mark(config: RepoConfig, inventory: Inventory) -> Case | None:
    """Check `_repo.json`, the mark that makes a folder a repository.

    Raise RepositoryNotFoundError if it is missing and main has no log either: then there is no repository.
    """
    kind, problem, remedy = FindingKind.DAMAGED_MARK, "", ""
    try:
        mark = creation.check_repository(config)
    except UnsupportedFormatError as err:
        kind, problem, remedy = FindingKind.NEWER_FORMAT, err.problem, "upgrade Anabranch; nothing else was checked"
    except CorruptError as err:
        problem = err.problem
    except RepositoryNotFoundError:
        if MAIN not in inventory.heads:
            raise
        kind, problem = FindingKind.MISSING_MARK, "there are logs, but no object that marks them as a repository"
        remedy = _why_unfinished(config)
    else:
        return _mark_copy(config, mark)
    copy = creation.find_mark_copy(config)
    repair: Callable[[], None] | None = None
    # A remedy is set where a new mark would do harm: for a newer format, and for an unfinished clone.
    if not remedy and MAIN in inventory.heads:
        remedy = "a repair restores it from its copy" if copy else "a repair writes it again, with a new id"
        repair = partial(_restore_mark, config, copy, inventory.heads[MAIN])
    return Case(
        kind=kind,
        subject=MARK,
        explanation=problem,
        remedy=remedy or "restore it from a backup",
        refs=tuple(sorted(inventory.heads)),
        repair=repair,
    )


def _restore_mark(config: RepoConfig, copy: creation.Mark | None, main: LogEntry) -> None:
    # Without a copy the id is lost. Only unfinished clones compare the id, and they start again.
    mark = copy or creation.Mark(id=config.new_id(), root=config.root, created_at=main.state.created_at)
    creation.replace_mark(config, mark)


def _mark_copy(config: RepoConfig, mark: creation.Mark) -> Case | None:
    """Check the copy of the mark. A repository of an earlier release has none, and gets one."""
    if creation.find_mark_copy(config) == mark:
        return None
    is_missing = config.store.find_info(MARK_COPY) is None
    return Case(
        kind=FindingKind.DAMAGED_COPY,
        subject=MARK_COPY,
        explanation=f"the copy of {MARK} is {'missing' if is_missing else 'damaged or out of date'}",
        remedy="a repair writes it again",
        repair=partial(creation.write_mark_copy, config, mark),
    )


def _why_unfinished(config: RepoConfig) -> str:
    """Return how to continue an interrupted clone, which has no mark yet. Empty if this is not such a clone."""
    try:
        refuse_unfinished(config)
    except RepositoryNotFoundError as err:
        return err.hint
    return ""


def diagnose_records(config: RepoConfig) -> Iterator[Case]:
    """Check the records of collected commits. A garbage collection cannot run if one of them is damaged."""
    for info in config.store.list(GC):
        if not info.path.endswith((RECORD, COPY)):
            continue
        problem = _record_problem(config, info.path)
        if problem is None:
            continue
        # Each record has a copy beside it, so that one damaged object never loses the list of collected commits.
        is_copy = info.path.endswith(COPY)
        other = info.path.removesuffix(COPY) + RECORD if is_copy else info.path.removesuffix(RECORD) + COPY
        can_repair = _record_problem(config, other) is None
        yield Case(
            kind=FindingKind.DAMAGED_COPY if is_copy else FindingKind.DAMAGED_RECORD,
            subject=info.path,
            explanation=f"the record of collected commits cannot be read: {problem}",
            remedy="a repair restores it from its copy" if can_repair else "restore it from a backup",
            repair=partial(_copy_record, config, other, info.path) if can_repair else None,
        )


def _record_problem(config: RepoConfig, path: str) -> str | None:
    try:
        decode_record(config.store.get(path), path=path)
    except (CorruptError, ObjectNotFoundError, UnsupportedFormatError) as err:
        return err.problem
    return None


def _copy_record(config: RepoConfig, source: str, target: str) -> None:
    config.store.put(target, config.store.get(source))


def diagnose_leases(config: RepoConfig) -> Iterator[Case]:
    """Find leases that expired long ago."""
    found = list(config.store.list(LEASES))
    if not found:
        return
    oldest = store_time(config.store) - config.leases.expiry
    dead = tuple(sorted(info.path for info in found if info.modified < oldest))
    if not dead:
        return

    def repair() -> None:
        for path in dead:
            there = config.store.find_info(path)
            # Read the time again: its process may have been suspended and have renewed the lease since the scan.
            if there is not None and there.modified < oldest:
                config.store.delete(path)

    yield Case(
        kind=FindingKind.DEAD_LEASE,
        subject=dead[0],
        explanation=f"{len(dead)} expired leases of processes that ended without deleting them",
        remedy="a repair deletes them; they block no other process",
        paths=dead,
        repair=repair,
    )


def diagnose_names(config: RepoConfig, folders: list[str]) -> Iterator[Case]:
    """Report files and folders with unknown names: those in the root, and `folders`, which are among the logs."""
    store = config.store
    top = {*store.list_folders(), *(info.path for info in store.list_files())}
    for path in sorted({*(top - _KNOWN), *folders}):
        yield unknown_file(path)


def diagnose_history(repo_store: RepoStore, inventory: Inventory, stored: StoredHistory) -> Iterator[Case]:
    """Compare the history tables with the inventory. Call this only if the logs are intact."""
    problem = stored.problem
    if stored.commits is not None:
        problem = _compare(stored.commits, stored.actors, inventory)
    if problem is None:
        return
    yield Case(
        kind=FindingKind.DAMAGED_HISTORY,
        subject=history_tables.HISTORY_TABLES[0],
        explanation=f"the history tables differ from the logs: {problem}",
        remedy="a repair rebuilds them from the logs; no commit depends on them",
        paths=history_tables.HISTORY_TABLES,
        repair=partial(history_tables.rebuild_history, repo_store),
    )


def _compare(commits: pa.Table, actors: pa.Table | None, inventory: Inventory) -> str | None:
    """Return the first difference between the history tables and the logs, or None."""
    actor_rows = [] if actors is None else actors.to_pylist()
    actor_of = {row["graph_commit_id"]: row["actor_id"] for row in actor_rows}
    if len(actor_of) < len(actor_rows):
        return "a commit has two actors"
    counts = Counter(commits["graph_commit_id"].to_pylist())
    commit_id, count = counts.most_common(1)[0] if counts else ("", 0)
    if count > 1:
        return f"commit {commit_id} occurs {count} times"
    for row in commits.to_pylist():
        commit_id = row["graph_commit_id"]
        known = inventory.commits.get(commit_id)
        if known is None:
            return f"commit {commit_id} is in no log"
        if digest_row(row, actor_of.get(commit_id)) != known.digest:
            return f"commit {commit_id} differs"
    return _find_missing(counts, inventory)


def _find_missing(stored: Collection[str], inventory: Inventory) -> str | None:
    """Return the problem of the first commit that is missing although the tables have a later one of its branch."""
    newest: dict[str, int] = {}
    for commit_id in stored:
        facts = inventory.commits[commit_id]
        newest[facts.branch] = max(facts.version, newest.get(facts.branch, 0))
    for commit_id in inventory.published:
        facts = inventory.commits[commit_id]
        if commit_id not in stored and facts.version <= newest.get(facts.branch, 0):
            return f"commit {commit_id} is missing"
    return None
