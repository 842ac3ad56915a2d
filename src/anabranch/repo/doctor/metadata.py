"""Check the objects beside logs and tables: mark, records of gc, leases, unknown names, and the history tables."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from anabranch.errors import (
    AnabranchError,
    CorruptError,
    ObjectNotFoundError,
    RepositoryNotFoundError,
    StorageDeniedError,
    StorageUnavailableError,
    UnsupportedFormatError,
)
from anabranch.format.doctor.findings import Case, FindingKind, unknown_file
from anabranch.ids import MAIN
from anabranch.repo.doctor.inventory import Inventory, digest_row
from anabranch.repo.log import history_tables
from anabranch.repo.log.clones import CLONES, ORIGIN, refuse_unfinished
from anabranch.repo.log.collected import COPY, GC, RECORD, decode_record
from anabranch.repo.log.commits import COMMITS
from anabranch.repo.log.config import TABLES, RepoConfig
from anabranch.repo.log.creation import (
    MARK,
    MARK_COPY,
    Mark,
    check_repository,
    find_mark_copy,
    replace_mark,
    write_mark_copy,
)
from anabranch.repo.log.leases import LEASES
from anabranch.repo.log.numbered import BRANCHES, RUNS, TAGS
from anabranch.repo.log.store import RepoStore
from anabranch.storage.requests import CLOCK, store_time

# Folders of pipelines: their definitions, and the output of failed steps.
_OF_PIPELINES = ("_logs", "_pipelines")
_OWN = (BRANCHES, CLOCK, CLONES, COMMITS, GC, LEASES, MARK, MARK_COPY, ORIGIN, RUNS, TABLES, TAGS)
# The command line remembers the branch of a folder in it, and that folder may be the root of the repository.
_OF_COMMAND_LINE = frozenset({".anabranch.json"})
_KNOWN = frozenset({*_OWN, *history_tables.HISTORY_TABLES, *_OF_PIPELINES, *_OF_COMMAND_LINE})
# A lease that was not renewed for one duration has expired. The others are a margin for slow stores.
_EXPIRED_LEASES = 3


def diagnose_mark(config: RepoConfig, inventory: Inventory) -> Case | None:
    """Check `_repo.json`, the mark that makes a folder a repository.

    Raise RepositoryNotFoundError if it is missing and main has no log either: then there is no repository.
    """
    kind, problem, remedy = FindingKind.DAMAGED_MARK, "", ""
    try:
        mark = check_repository(config)
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
    copy = find_mark_copy(config)

    def write() -> bool:
        created_at = inventory.heads[MAIN].state.created_at
        # Without a copy the id is lost. Only unfinished clones compare the id, and they start again.
        replace_mark(config, copy or Mark(id=config.new_id(), root=config.root, created_at=created_at))
        return True

    # A remedy is set where a new mark would do harm: for a newer format, and for an unfinished clone.
    can_repair = not remedy and MAIN in inventory.heads
    if can_repair:
        remedy = "a repair restores it from its copy" if copy else "a repair writes it again, with a new id"
    return Case(
        kind=kind,
        subject=MARK,
        explanation=problem,
        remedy=remedy or "restore it from a backup",
        refs=tuple(sorted(inventory.heads)),
        repair=write if can_repair else None,
    )


def _mark_copy(config: RepoConfig, mark: Mark) -> Case | None:
    """Check the copy of the mark. A repository of an earlier release has none, and gets one."""
    if find_mark_copy(config) == mark:
        return None

    def write() -> bool:
        write_mark_copy(config, mark)
        return True

    is_missing = config.store.find_info(MARK_COPY) is None
    return Case(
        kind=FindingKind.DAMAGED_COPY,
        subject=MARK_COPY,
        explanation=f"the copy of {MARK} is {'missing' if is_missing else 'damaged or out of date'}",
        remedy="a repair writes it again",
        repair=write,
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


def _copy_record(config: RepoConfig, source: str, target: str) -> bool:
    config.store.put(target, config.store.get(source))
    return True


def diagnose_leases(config: RepoConfig) -> Iterator[Case]:
    """Find leases that expired long ago."""
    found = list(config.store.list(LEASES))
    if not found:
        return
    oldest = store_time(config.store) - config.lease * _EXPIRED_LEASES
    dead = tuple(sorted(info.path for info in found if info.modified < oldest))
    if not dead:
        return

    def repair() -> bool:
        for path in dead:
            there = config.store.find_info(path)
            # Read the time again: its process may have been suspended and have renewed the lease since the scan.
            if there is not None and there.modified < oldest:
                config.store.delete(path)
        return True

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHistory:
    """The contents of the history tables, or the reason why they cannot be read."""

    commits: pa.Table | None = None
    actors: pa.Table | None = None
    problem: str | None = None


def read_stored_history(config: RepoConfig) -> StoredHistory:
    """Read the history tables. Call this before the logs are read: then the logs can only have more commits."""
    try:
        commits, actors = history_tables.read_history(config)
    # A store that does not answer is not a damage of the tables.
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        return StoredHistory(problem=f"they cannot be read: {err.problem}")
    # Another tool may have written the tables, and the comparison reads these columns by name.
    for table, names in ((commits, history_tables.COMMIT_COLUMNS), (actors, history_tables.ACTOR_COLUMNS)):
        if table is not None and not set(names) <= set(table.column_names):
            return StoredHistory(problem="they have other columns")
    return StoredHistory(commits=commits, actors=actors)


def diagnose_history(repo_store: RepoStore, inventory: Inventory, stored: StoredHistory) -> Iterator[Case]:
    """Compare the history tables with the inventory. Call this only if the logs are intact."""
    problem = stored.problem
    if stored.commits is not None:
        problem = _compare(stored.commits, stored.actors, inventory)
    if problem is None:
        return

    def repair() -> bool:
        history_tables.rebuild_history(repo_store)
        return True

    yield Case(
        kind=FindingKind.DAMAGED_HISTORY,
        subject=history_tables.HISTORY_TABLES[0],
        explanation=f"the history tables differ from the logs: {problem}",
        remedy="a repair rebuilds them from the logs; no commit depends on them",
        paths=history_tables.HISTORY_TABLES,
        repair=repair,
    )


def _compare(commits: pa.Table, actors: pa.Table | None, inventory: Inventory) -> str | None:
    """Return the first difference between the history tables and the logs, or None."""
    actor_rows = [] if actors is None else actors.to_pylist()
    actor_of = {row["graph_commit_id"]: row["actor_id"] for row in actor_rows}
    if len(actor_of) < len(actor_rows):
        return "a commit has two actors"
    rows = commits.to_pylist()
    counts = Counter(row["graph_commit_id"] for row in rows)
    commit_id, count = counts.most_common(1)[0] if rows else ("", 0)
    if count > 1:
        return f"commit {commit_id} occurs {count} times"
    newest: dict[str, int] = {}
    for row in rows:
        commit_id = row["graph_commit_id"]
        known = inventory.commits.get(commit_id)
        if known is None:
            return f"commit {commit_id} is in no log"
        if digest_row(row, actor_of.get(commit_id)) != known.digest:
            return f"commit {commit_id} differs"
        newest[known.branch] = max(known.version, newest.get(known.branch, 0))
    # A commit is missing if the history tables have a later one of its branch.
    for commit_id in inventory.published:
        facts = inventory.commits[commit_id]
        if commit_id not in counts and facts.version <= newest.get(facts.branch, 0):
            return f"commit {commit_id} is missing"
    return None
