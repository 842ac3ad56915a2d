"""Publish the changes of a run as one commit of its target."""

from collections.abc import Callable, Mapping, Set
from dataclasses import replace

from anabranch.errors import AnabranchError, BranchNotFoundError, KeyConflictError, StorageError, WriteConflictError
from anabranch.format import staging
from anabranch.ids import BranchName, TableKey
from anabranch.repo.history.table_history import with_other_names
from anabranch.repo.log.commits import CommitSpec, Inspect
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import (
    Changes,
    CheckOutcome,
    CommitKind,
    GraphCommit,
    LogEntry,
    RunPhase,
    TableEntry,
    TableMap,
    is_same_state,
)
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.merge.combiner import Combiner, Sides
from anabranch.repo.runs import runs
from anabranch.repo.write.homes import taken_homes
from anabranch.repo.write.publish import Published, publish
from anabranch.repo.write.staged_table import append_again

# Returns the combiner for a branch. It is loaded only if rows must be merged, which few runs need.
LoadCombiner = Callable[[BranchName], Combiner]


# The commit of a run, if it changed anything, and the commit that this call published, if any.
PublishedRun = tuple[GraphCommit | None, Published | None]


def publish_run(
    repo_store: RepoStore,
    run_id: str,
    *,
    inspect: Inspect | None,
    metadata: Mapping[str, str],
    load_combiner: LoadCombiner,
    outcomes: Callable[[], tuple[CheckOutcome, ...]],
) -> PublishedRun:
    """Publish a run exactly once, even if several processes try, or one process tries again.

    First the log of the run records that it is being published, and after which version of the target. A later
    publisher, also after a crash, searches the target from that version for the commit of the run before it tries
    itself. If publishing fails, the run is set back to running only if no other process was publishing it: that one may
    still succeed.
    """
    entry, is_alone = _announce(repo_store, run_id)
    try:
        carrier = _Carrier(repo_store, entry, load_combiner)
        commit, published = _publish(repo_store, carrier, inspect=inspect, metadata=metadata)
    except BaseException as err:
        late = _resume_run(repo_store, entry, err) if is_alone else None
        # An interrupt is raised even if the commit turned out to be published: the user wants to stop.
        if late is None or not isinstance(err, Exception):
            raise
        commit, published = late, None
    _close(repo_store, entry, commit, outcomes())
    return commit, published


def _close(
    repo_store: RepoStore, entry: LogEntry, commit: GraphCommit | None, outcomes: tuple[CheckOutcome, ...]
) -> None:
    """Record that a run was published. If that fails, readers of the run find its commit on the target."""
    try:
        commit_id = None if commit is None else commit.graph_commit_id
        runs.close_run(repo_store, entry, RunPhase.PUBLISHED, commit_id=commit_id, outcomes=outcomes)
    except StorageError:
        # Without a commit on the target nothing else shows that the run has ended.
        if commit is None:
            raise


def _announce(repo_store: RepoStore, run_id: str) -> tuple[LogEntry, bool]:
    """Record that a run is being published; return the entry, and whether no other publisher recorded that before."""
    is_alone = False

    def publishing(entry: LogEntry) -> LogEntry:
        nonlocal is_alone
        runs.refuse_over(entry)
        run = runs.run_state(entry)
        target = _target_of(repo_store, entry)
        # The version of the first attempt stays: its commit may be anywhere after that.
        after = target.number if run.published_after is None else run.published_after
        is_alone = run.phase is not RunPhase.PUBLISHING
        return runs.next_run_entry(repo_store, entry, replace(run, phase=RunPhase.PUBLISHING, published_after=after))

    entry = runs.move_run(repo_store, run_id, publishing)
    return entry, is_alone


def _resume_run(repo_store: RepoStore, entry: LogEntry, err: BaseException) -> GraphCommit | None:
    """Set a run that could not be published back to running, unless another process is publishing it.

    After an error of the store or an interrupt, the request that writes the log entry may still be in flight. It is
    fenced off first, because changes added to the run after that would be missing in its commit. Return the commit of
    the run if the request arrived before. If this fails, too, the run stays in the phase PUBLISHING, and can be
    published again.
    """
    is_in_doubt = isinstance(err, StorageError) or not isinstance(err, Exception)
    try:
        if is_in_doubt and (late := runs.fence_off_publishers(repo_store, entry)) is not None:
            return late
        running = runs.next_run_entry(repo_store, entry, replace(runs.run_state(entry), phase=RunPhase.RUNNING))
        repo_store.heads.move(entry.branch, lambda _: running, known=entry)
    except AnabranchError:
        return None
    return None


def _target_of(repo_store: RepoStore, entry: LogEntry) -> LogEntry:
    run = runs.run_state(entry)
    target = repo_store.heads.get(run.target)
    if target.state.created_as != run.target_created_as:
        raise BranchNotFoundError(
            f"branch '{run.target}' was deleted and created again after run {entry.branch.run_id} had started on it",
            hint="start another run on the new branch",
        )
    return target


def _publish(
    repo_store: RepoStore, carrier: "_Carrier", *, inspect: Inspect | None, metadata: Mapping[str, str]
) -> PublishedRun:
    entry = carrier.entry
    target = _target_of(repo_store, entry)
    # An earlier publisher, perhaps one that died, may have put the commit without recording it in the run.
    if (earlier := runs.find_published(repo_store, entry, head=target)) is not None:
        return earlier, None
    changes = carrier.carry(target)
    if not changes:
        return None, None
    spec = CommitSpec(
        message=entry.state.description,
        kind=CommitKind.PUBLISH_RUN,
        metadata={**runs.run_state(entry).metadata, **metadata},
        inspect=inspect,
        once=runs.once_of(entry),
    )
    published = publish(repo_store, expected=target, changes=changes, spec=spec, rebase=carrier.carry)
    return published.commit, None if published.is_earlier else published


class _Carrier:
    """Applies the changes of a run to the head of its target, again each time the target moves."""

    def __init__(self, repo_store: RepoStore, entry: LogEntry, load_combiner: LoadCombiner) -> None:
        self._repo_store = repo_store
        self._load_combiner = load_combiner
        self.entry = entry
        run = runs.run_state(entry)
        self._target: BranchName = run.target
        self._main = None if run.main_id is None else repo_store.commits.get(run.main_id)
        self._before = repo_store.commits.tables_of(repo_store.commits.get(run.origin))
        mine = repo_store.commits.tables_of(entry.head)
        touched = ((key, mine.get(key)) for key in entry.state.own)
        self._mine = {key: table for key, table in touched if not is_same_state(table, self._before.get(key))}

    def carry(self, head: LogEntry) -> Changes:
        """Return the changes of the run on top of a head of the target."""
        # Read again on each head: the entry that moved the target may be the fence of an abort.
        runs.refuse_over(runs.get_run(self._repo_store, self.entry.branch.run_id or ""))
        # For a live target, tables of main are those that the run was based on.
        theirs = View.of(head, self._main).tables(self._repo_store.commits)
        taken = taken_homes(theirs, besides=self._mine)
        carried: dict[TableKey, TableEntry | None] = {}
        for key in self._mine:
            carried |= self._carry_table(key, theirs, taken)
        before = {key: self._before.get(key) for key in self._mine}
        # Merge both names of a renamed table together.
        contested = with_other_names((key for key in self._mine if key not in carried), before, self._mine)
        plain = {key: table for key, table in carried.items() if key not in contested}
        if not contested:
            return plain
        # Both the run and another writer changed these tables since it started.
        sides = Sides.of(contested, base=self._before, source=self._mine, target=theirs)
        combiner, what = self._load_combiner(self._target), f"run {self.entry.branch.run_id} on branch '{self._target}'"
        return {**plain, **combiner.merge(sides, what, hint="start a new run on the new head")}

    def _carry_table(self, key: TableKey, tables: TableMap, taken: Set[tuple[str, str | None]]) -> Changes:
        """Return the entry of a table on top of those of the target, or no change if its rows must be merged."""
        mine, before, theirs = self._mine[key], self._before.get(key), tables.get(key)
        if mine is not None and (mine.dataset, mine.home) in taken:
            return {}
        # The target still has the state that the run started on, so that the staged version is published as it is.
        if is_same_state(theirs, before):
            return {key: mine}
        if mine is None or before is None or theirs is None or mine.primary_key != theirs.primary_key:
            return {}
        appended = self._append_again(before, mine, theirs)
        return {} if appended is None else {key: appended}

    def _append_again(self, before: TableEntry, mine: TableEntry, theirs: TableEntry) -> TableEntry | None:
        """Stage appended data files again on the new version, without reading them. None if that is not possible."""
        # Files can only be staged again in a home of the target. A merge forks one first.
        if not owns(self._target, theirs.home):
            return None
        old, staged, other = map(self._repo_store.config.version_ref, (before, mine, theirs))
        fragments = staging.find_appended(old, staged)
        if fragments is None:
            return None
        try:
            version_ref = append_again(other, fragments, before=old, after=staged, unique_by=mine.primary_key)
        # The same keys, or other columns. The merge then finds and reports the conflicts row by row.
        except (KeyConflictError, WriteConflictError):
            return None
        return replace(theirs, version=version_ref.version, rows=version_ref.count_rows())
