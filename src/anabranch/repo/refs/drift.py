"""Drift: what main did to the tables of a branch since the branch took its copies."""

from dataclasses import dataclass

from anabranch.errors import BranchNotFoundError
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.entries import TableEntry, owns
from anabranch.repo.log.store import RepoStore

__all__ = ["TableDrift", "branch_drift"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDrift:
    """How main changed a table since the branch copied it. A missing table has None for its rows."""

    table: str
    has_drifted: bool
    branch_rows: int | None
    main_rows: int | None
    forked_version: int | None
    main_version: int | None


def branch_drift(repo_store: RepoStore, branch: BranchName) -> tuple[TableDrift, ...]:
    """Compare each table changed on a branch with the current state of main."""
    entry = repo_store.heads.get(branch)
    if str(branch) == MAIN:
        raise BranchNotFoundError("main cannot drift from itself", hint="name another branch")
    ours = repo_store.commits.map_of(entry.head)
    main = repo_store.commits.map_of(repo_store.heads.get(BranchName(MAIN)).head)
    keys = entry.state.own if entry.state.is_live else tuple(key for key in ours if owns(branch, ours[key].home))
    return tuple(_drift(branch, key, ours.get(key), main.get(key)) for key in sorted(keys))


def _drift(branch: BranchName, key: TableKey, ours: TableEntry | None, main: TableEntry | None) -> TableDrift:
    forked = None if ours is None else ours.forked_from if owns(branch, ours.home) else (ours.home, ours.version)
    current = None if main is None else (main.home, main.version)
    return TableDrift(
        table=str(key),
        has_drifted=forked != current,
        branch_rows=None if ours is None else ours.rows,
        main_rows=None if main is None else main.rows,
        forked_version=None if forked is None else forked[1],
        main_version=None if main is None else main.version,
    )
