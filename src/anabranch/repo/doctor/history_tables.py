"""The history as tables: a few commits behind the logs, but never another history."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from anabranch.errors import AnabranchError, StorageDeniedError, StorageUnavailableError
from anabranch.repo.doctor.findings import Case, FindingKind, RepositoryFinding
from anabranch.repo.doctor.seen import Seen, digest_row
from anabranch.repo.log import history_tables
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.store import RepoStore

__all__ = ["ToldHistory", "diagnose_history", "read_told_history"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldHistory:
    """What the tables say, or why they cannot be read."""

    commits: pa.Table | None = None
    actors: pa.Table | None = None
    problem: str | None = None


def read_told_history(context: RepoConfig) -> ToldHistory:
    """Read the tables; to be done before the logs are read, as those may only know more."""
    try:
        commits, actors = history_tables.read_history(context)
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        return ToldHistory(problem=f"they cannot be read: {err.problem}")
    for table, names in ((commits, history_tables.COMMIT_COLUMNS), (actors, history_tables.ACTOR_COLUMNS)):
        if table is not None and not set(names) <= set(table.column_names):
            return ToldHistory(problem="they have other columns")
    return ToldHistory(commits=commits, actors=actors)


def diagnose_history(records: RepoStore, seen: Seen, told: ToldHistory) -> Iterator[Case]:
    """Compare the tables with the commits that were seen; to be asked only where the logs are whole."""
    problem = told.problem
    if told.commits is not None:
        problem = _compare(told.commits, told.actors, seen)
    if problem is None:
        return

    def mend() -> bool:
        history_tables.rebuild_history(records)
        return True

    finding = RepositoryFinding(
        kind=FindingKind.DAMAGED_HISTORY,
        subject=history_tables.HISTORY_TABLES[0],
        explanation=f"the tables of the history do not say what the logs say: {problem}",
        remedy="a repair makes them anew from the logs; no commit depends on them",
        paths=history_tables.HISTORY_TABLES,
        repairable=True,
    )
    yield Case(finding=finding, mend=mend)


def _compare(commits: pa.Table, actors: pa.Table | None, seen: Seen) -> str | None:
    named = [] if actors is None else actors.to_pylist()
    by_commit = {row["graph_commit_id"]: row["actor_id"] for row in named}
    if len(by_commit) < len(named):
        return "an actor is there twice"
    rows = commits.to_pylist()
    twice = [commit_id for commit_id, times in Counter(row["graph_commit_id"] for row in rows).items() if times > 1]
    if twice:
        return f"commit {twice[0]} is there twice"
    newest: dict[str, int] = {}
    for row in rows:
        commit_id = row["graph_commit_id"]
        known = seen.commits.get(commit_id)
        if known is None:
            return f"commit {commit_id} is in no log"
        if digest_row(row, by_commit.get(commit_id)) != known.digest:
            return f"commit {commit_id} is another one there"
        newest[known.branch] = max(known.version, newest.get(known.branch, 0))
    return _find_left_out(seen, {row["graph_commit_id"] for row in rows}, newest)


def _find_left_out(seen: Seen, recorded: set[str], newest: dict[str, int]) -> str | None:
    """A commit that is missing though later ones of its branch are there."""
    for commit_id in seen.published:
        facts = seen.commits[commit_id]
        if commit_id not in recorded and facts.version <= newest.get(facts.branch, 0):
            return f"commit {commit_id} is missing"
    return None
