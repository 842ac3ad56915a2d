"""Pull a table from the parent, and freeze a live branch."""

from anabranch.errors import InvalidInputError, TableNotFoundError, WriteConflictError
from anabranch.hints import suggest
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.commits import CommitSpec
from anabranch.repo.log.entries import Changes, CommitKind, CommitRecord, LogEntry, is_same_state
from anabranch.repo.log.store import RepoStore, View
from anabranch.repo.write.publish import Published, publish


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
    # The parent has dropped the table, and the pull drops it here, too, if it is here.
    if theirs is None:
        _require(repo_store, entry, key)
    if is_same_state(repo_store.commits.find_table(entry.head, key), theirs):
        return None
    spec = CommitSpec(message=f"Pull {key}", kind=CommitKind.PULL, metadata={}, taken_from=source.commit)
    changes: Changes = {key: theirs}
    # A pull replaces the table as a whole, so that it means the same on any head.
    return publish(repo_store, expected=entry, changes=changes, spec=spec, rebase=lambda _: changes)


def _require(repo_store: RepoStore, entry: LogEntry, key: TableKey) -> None:
    shown = View.now(repo_store, entry)
    if shown.find_table(repo_store.commits, key) is None:
        known = map(str, shown.tables(repo_store.commits))
        raise TableNotFoundError(
            f"there is no table '{key}' on branch '{entry.branch}' nor where it would be pulled from",
            hint=suggest(str(key), known, "list the tables with `tables()`", by_parts=True),
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
    source = repo_store.heads.get(repo_store.heads.follow(parent) or parent.branch)
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
