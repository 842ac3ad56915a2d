"""The commits that changed one table, in the order in which they reached a branch."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.entries import CommitKind, CommitRecord, GraphCommit, TableEntry, is_same_state
from anabranch.repo.log.store import RepoStore
from anabranch.repo.log.view import View
from anabranch.storage.requests import in_parallel

# The number of commits that are read in parallel.
_BATCH_SIZE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """A table before and after one commit. None if the table does not exist."""

    commit: GraphCommit
    before: TableEntry | None
    after: TableEntry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One commit that changed the table, or froze a live branch.

    `main_id` is the commit of main that a live branch was based on. Only on a live branch `before` is set, because main
    may have changed the table between two commits of the branch. Elsewhere it is the state after the older step.
    """

    commit: GraphCommit
    after: TableEntry | None
    main_id: str | None
    before: TableEntry | None


def iter_table_changes(repo_store: RepoStore, record: CommitRecord, key: TableKey) -> Iterator[TableChange]:
    """Yield the changes of a table along the first parents of a commit, newest first.

    Commits that did not change the table are skipped without reading them. While a live branch showed the table of
    main, the changes of main are part of the history of the branch, too.
    """
    # A commit of main can be met twice: below the live branch, and in the history that the branch shares with main.
    seen: set[str] = set()
    steps = _iter_steps(repo_store, record, key)
    state, main_id = repo_store.commits.find_table(record, key), record.main_id
    step = next(steps, None)
    while step is not None:
        if not is_same_state(state, step.after):
            # The branch was live: main changed the table after this step.
            yield from _iter_unseen(_iter_main(repo_store, key, main_id, newest=state, until=step.after), seen)
        older = next(steps, None)
        # Main may have changed the table between two commits of a live branch, so that the older step does not show
        # the state before this one.
        if _is_live(step) or _is_freeze(step):
            state, main_id = step.before, step.main_id
        else:
            state, main_id = None if older is None else older.after, None
        # A freeze records tables as they were shown and changes no row, so that it does not appear as a change.
        if not _is_freeze(step):
            change = TableChange(commit=step.commit, before=state, after=step.after)
            yield from _iter_unseen(iter((change,)), seen)
        step = older
    if state is not None:
        yield from _iter_unseen(_iter_main(repo_store, key, main_id, newest=state, until=None), seen)


def _iter_unseen(changes: Iterator[TableChange], seen: set[str]) -> Iterator[TableChange]:
    """Yield the changes of commits that are not in `seen`, and add them to it."""
    for change in changes:
        if change.commit.graph_commit_id not in seen:
            seen.add(change.commit.graph_commit_id)
            yield change


def _iter_main(
    repo_store: RepoStore, key: TableKey, main_id: str | None, *, newest: TableEntry | None, until: TableEntry | None
) -> Iterator[TableChange]:
    """Yield the changes of main from the state `newest` down to the state `until`, newest first."""
    start = repo_store.heads.get(BranchName(MAIN)).head if main_id is None else repo_store.commits.get(main_id)
    steps = _iter_steps(repo_store, start, key)
    # Main may have moved since the branch showed it, so that the walk starts where main had the state that was shown.
    step = next((step for step in steps if is_same_state(step.after, newest)), None)
    while step is not None and not is_same_state(step.after, until):
        older = next(steps, None)
        yield TableChange(commit=step.commit, before=None if older is None else older.after, after=step.after)
        step = older


def _is_live(step: _Step) -> bool:
    return step.main_id is not None


def _is_freeze(step: _Step) -> bool:
    return step.commit.kind is CommitKind.FREEZE


def _iter_steps(repo_store: RepoStore, record: CommitRecord, key: TableKey) -> Iterator[_Step]:
    name = str(key)
    history = repo_store.commits.iter_history(record)
    relevant = (commit for commit in history if name in commit.tables or commit.kind is CommitKind.FREEZE)
    while batch := list(islice(relevant, _BATCH_SIZE)):
        yield from in_parallel(lambda commit: _read_step(repo_store, commit, key), batch)


def _read_step(repo_store: RepoStore, commit: GraphCommit, key: TableKey) -> _Step:
    record = repo_store.commits.get(commit.graph_commit_id)
    after = repo_store.commits.find_table(record, key)
    # A freeze lists no table, but it may record a state of main that no other commit of the branch has.
    if commit.kind is CommitKind.FREEZE:
        return _Step(commit=commit, after=after, main_id=None, before=after)
    before = None if record.main_id is None else _state_before(repo_store, record, key)
    return _Step(commit=commit, after=after, main_id=record.main_id, before=before)


def _state_before(repo_store: RepoStore, record: CommitRecord, key: TableKey) -> TableEntry | None:
    """Return the table right before a commit of a live branch, as the view of the branch had it then."""
    commit = record.commit
    entry = repo_store.heads.get_numbered(BranchName(commit.branch), commit.manifest_version - 1)
    view = View.of(entry, View(head=record).find_main(repo_store.commits))
    return view.find_table(repo_store.commits, key)
