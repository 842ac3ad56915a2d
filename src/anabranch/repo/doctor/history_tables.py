"""Check the history tables: they may be a few commits behind the logs, but must not differ from them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from anabranch.errors import AnabranchError, StorageDeniedError, StorageUnavailableError
from anabranch.format.doctor.findings import Case, Finding, FindingKind
from anabranch.repo.doctor.inventory import Inventory, digest_row
from anabranch.repo.log import history_tables
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.store import RepoStore

__all__ = ["StoredHistory", "diagnose_history", "read_stored_history"]


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
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        return StoredHistory(problem=f"they cannot be read: {err.problem}")
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

    finding = Finding(
        kind=FindingKind.DAMAGED_HISTORY,
        subject=history_tables.HISTORY_TABLES[0],
        explanation=f"the history tables differ from the logs: {problem}",
        remedy="a repair rebuilds them from the logs; no commit depends on them",
        paths=history_tables.HISTORY_TABLES,
        repairable=True,
    )
    yield Case(finding=finding, repair=repair)


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
    return _find_missing(inventory, set(counts), newest)


def _find_missing(inventory: Inventory, recorded: set[str], newest: dict[str, int]) -> str | None:
    """Find a commit that is missing in the history tables though they have a later one of its branch."""
    for commit_id in inventory.published:
        facts = inventory.commits[commit_id]
        if commit_id not in recorded and facts.version <= newest.get(facts.branch, 0):
            return f"commit {commit_id} is missing"
    return None
