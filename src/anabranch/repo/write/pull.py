"""Pull a table from the parent, freeze a live branch, and report drift from main."""

from dataclasses import dataclass

from anabranch.errors import BranchNotFoundError, InvalidInputError, TableNotFoundError, WriteConflictError
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.entries import Changes, CommitKind, CommitRecord, LogEntry, TableEntry, is_same_state
from anabranch.repo.log.making import CommitSpec
from anabranch.repo.log.store import RepoStore
from anabranch.repo.log.view import View
from anabranch.repo.write.homes import owns
from anabranch.repo.write.publish import Published, publish
from anabranch.suggestions import suggest

__all__ = ["TableDrift", "branch_drift", "freeze_branch", "pull_table"]


def pull_table(repo_store: RepoStore, branch: BranchName, key: TableKey) -> Published | None:
    """Make a table follow its source again; return None if the branch has no copy of its own.

    A live branch drops its copy and shows main's. A pinned one takes the table as its parent has it now.
    """
    entry = repo_store.heads.get(branch)
    if entry.state.is_live:
        if entry.state.follows_main(key):
            _require(repo_store, entry, key)
            return None
        spec = CommitSpec(message=f"Pull {key}", kind=CommitKind.PULL, metadata={}, released=frozenset({key}))
        return publish(repo_store, expected=entry, changes={}, spec=spec, rebase=_require_live)
    source = _pulled_from(repo_store, entry, key)
    theirs = repo_store.commits.find_table(source, key)
    if theirs is None:
        _require(repo_store, entry, key)
    if is_same_state(repo_store.commits.find_table(entry.head, key), theirs):
        return None
    spec = CommitSpec(message=f"Pull {key}", kind=CommitKind.PULL, metadata={}, taken_from=source.commit)
    changes: Changes = {key: theirs}
    return publish(repo_store, expected=entry, changes=changes, spec=spec, rebase=lambda _: changes)


def _require(repo_store: RepoStore, entry: LogEntry, key: TableKey) -> None:
    shown = View.now(repo_store, entry)
    if shown.find_table(repo_store.commits, key) is None:
        known = map(str, shown.tables(repo_store.commits))
        raise TableNotFoundError(
            f"there is no table '{key}' on branch '{entry.branch}' nor where it would be pulled from",
            hint=suggest(str(key), known, "list the tables to see which exist"),
        )


def _require_live(entry: LogEntry) -> Changes:
    """Return no changes for a head that another writer put first; refuse it if the branch is not live any more."""
    if not entry.state.is_live:
        raise WriteConflictError(f"branch '{entry.branch}' was frozen at the same time", hint="read it again and retry")
    return {}


def _pulled_from(repo_store: RepoStore, entry: LogEntry, key: TableKey) -> CommitRecord:
    """Return the commit with a table as the branch's parent shows it now; of a live parent, that may be one of main."""
    parent = entry.state.parent
    if parent is None or parent.branch is None:
        raise InvalidInputError(
            f"branch '{entry.branch}' was not made from a branch, so there is nothing to pull from",
            hint="reset the table's branch to a commit instead",
        )
    source = repo_store.heads.get(parent.branch)
    if source.state.follows_main(key):
        return repo_store.heads.get(BranchName(MAIN)).head
    return source.head


def freeze_branch(repo_store: RepoStore, branch: BranchName) -> Published:
    """Make a live branch pinned: from now on it shows what it shows now."""
    entry = repo_store.heads.get(branch)
    if not entry.state.is_live:
        raise InvalidInputError(f"branch '{branch}' is pinned already", hint="there is nothing to freeze")
    spec = CommitSpec(message=f"Freeze {branch}", kind=CommitKind.FREEZE, metadata={}, freezes=True)
    return publish(repo_store, expected=entry, changes={}, spec=spec, rebase=_require_live)


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
    ours = repo_store.commits.tables_of(entry.head)
    main = repo_store.commits.tables_of(repo_store.heads.get(BranchName(MAIN)).head)
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
