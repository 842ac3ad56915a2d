"""The commits that changed one table, in the order in which a branch saw them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.entries import BranchMode, CommitKind, CommitRecord, GraphCommit, TableEntry
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.live import shown
from anabranch.storage.parallel import in_parallel

__all__ = ["TableChange", "iter_table_changes"]

# So many commits are read together.
_AT_A_TIME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """A table before and after one commit; None where there was no such table."""

    commit: GraphCommit
    before: TableEntry | None
    after: TableEntry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One commit of the line that has to do with the table.

    `saw` is the commit of main under a live branch; only there `before` is given, as main may have moved between two
    commits of the branch. Elsewhere it is what the step before left.
    """

    commit: GraphCommit
    after: TableEntry | None
    saw: str | None
    before: TableEntry | None


def iter_table_changes(records: RepoStore, record: CommitRecord, key: TableKey) -> Iterator[TableChange]:
    """The changes of a table along the first parents of a commit, newest first.

    Commits that did not touch the table are passed over without reading them. Where a live branch showed main's table,
    what main did to it in that time belongs to the line, too.
    """
    told: set[str] = set()
    steps = _iter_steps(records, record, key)
    state, saw = records.commits.find_table(record, key), record.saw
    step = next(steps, None)
    while step is not None:
        if state != step.after:
            yield from _iter_untold(_iter_main(records, key, saw, newest=state, until=step.after), told)
        older = next(steps, None)
        if _is_live(step) or _is_freeze(step):
            state, saw = step.before, step.saw
        else:
            state, saw = None if older is None else older.after, None
        if not _is_freeze(step):
            change = TableChange(commit=step.commit, before=state, after=step.after)
            yield from _iter_untold(iter((change,)), told)
        step = older
    if state is not None:
        yield from _iter_untold(_iter_main(records, key, saw, newest=state, until=None), told)


def _iter_untold(changes: Iterator[TableChange], told: set[str]) -> Iterator[TableChange]:
    for change in changes:
        if change.commit.graph_commit_id not in told:
            told.add(change.commit.graph_commit_id)
            yield change


def _iter_main(
    records: RepoStore, key: TableKey, saw: str | None, *, newest: TableEntry | None, until: TableEntry | None
) -> Iterator[TableChange]:
    """What main did to a table from one state of it to another, newest first."""
    start = records.heads.get(BranchName(MAIN)).head if saw is None else records.commits.get(saw)
    steps = _iter_steps(records, start, key)
    step = next((step for step in steps if step.after == newest), None)
    while step is not None and step.after != until:
        older = next(steps, None)
        yield TableChange(commit=step.commit, before=None if older is None else older.after, after=step.after)
        step = older


def _is_live(step: _Step) -> bool:
    return step.saw is not None


def _is_freeze(step: _Step) -> bool:
    return step.commit.kind is CommitKind.FREEZE


def _iter_steps(records: RepoStore, record: CommitRecord, key: TableKey) -> Iterator[_Step]:
    name = str(key)
    history = records.commits.iter_history(record)
    touching = (commit for commit in history if name in commit.tables or commit.kind is CommitKind.FREEZE)
    while some := list(islice(touching, _AT_A_TIME)):
        yield from in_parallel(lambda commit: _read_step(records, commit, key), some)


def _read_step(records: RepoStore, commit: GraphCommit, key: TableKey) -> _Step:
    record = records.commits.get(commit.graph_commit_id)
    after = records.commits.find_table(record, key)
    if commit.kind is CommitKind.FREEZE:
        return _Step(commit=commit, after=after, saw=None, before=after)
    before = None if record.saw is None else _before_on_main(records, record, key)
    return _Step(commit=commit, after=after, saw=record.saw, before=before)


def _before_on_main(records: RepoStore, record: CommitRecord, key: TableKey) -> TableEntry | None:
    """The table right before a commit that was made with main under it: as the branch then showed it."""
    commit = record.commit
    entry = records.heads.get_numbered(BranchName(commit.branch), commit.manifest_version - 1)
    if entry.state.mode is BranchMode.LIVE and record.saw is not None:
        entry = shown(entry, records.commits.get(record.saw))
    return records.commits.find_table(entry.head, key)
