"""Make what a run did one commit of its target."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace

from anabranch.errors import (
    AnabranchError,
    BranchNotFoundError,
    KeyConflictError,
    StorageError,
    WriteConflictError,
)
from anabranch.format import staging
from anabranch.format.staging import Pin
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.entries import (
    BranchMode,
    Changes,
    CommitKind,
    GraphCommit,
    LogEntry,
    RunPhase,
    TableEntry,
    TableMap,
)
from anabranch.repo.log.making import CommitSpec, Inspect
from anabranch.repo.log.store import RepoStore
from anabranch.repo.merge.combiner import Combiner, Sides
from anabranch.repo.refs.live import shown
from anabranch.repo.runs.runs import (
    RUN_ID,
    close_run,
    fence_off_publishers,
    find_published,
    get_run,
    move_run,
    next_run_entry,
    refuse_over,
    run_state,
)
from anabranch.repo.write.homes import is_home_shared, owns
from anabranch.repo.write.publish import Published, publish
from anabranch.repo.write.staged_table import append_again

__all__ = ["LoadCombiner", "PublishedRun", "publish_run"]

# Makes what merges rows into a branch; few runs need it.
LoadCombiner = Callable[[BranchName], Combiner]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """How a run ended: its commit, if it changed anything, and what this call published, if anything."""

    commit: GraphCommit | None
    published: Published | None = None


class _AlreadyPublishedError(Exception):
    """Somebody else published the same run meanwhile."""

    def __init__(self, commit: GraphCommit) -> None:
        super().__init__(commit.graph_commit_id)
        self.commit = commit


def publish_run(
    records: RepoStore,
    run_id: str,
    *,
    inspect: Inspect | None,
    metadata: Mapping[str, str],
    load_combiner: LoadCombiner,
) -> PublishedRun:
    """Publish a run once, however often and by however many it is tried.

    The run's log says first that it is being published, and after which version of the target; whoever comes later, or
    finds a run whose process died halfway, looks there for its commit before trying again. Who fails lets work go on
    only if nobody else was publishing: theirs may still succeed.
    """
    entry, is_alone = _announce(records, run_id)
    try:
        carrier = _Carrier(records, entry, load_combiner)
        done = _publish(records, carrier, inspect=inspect, metadata=metadata)
    except _AlreadyPublishedError as found:
        done = PublishedRun(commit=found.commit)
    except BaseException as err:
        late = _let_go_on(records, entry, err) if is_alone else None
        if late is None or not isinstance(err, Exception):
            raise
        done = PublishedRun(commit=late)
    _close(records, entry, done.commit)
    return done


def _close(records: RepoStore, entry: LogEntry, commit: GraphCommit | None) -> None:
    """Say that a run was published; where that fails, whoever looks at it finds its commit on the target."""
    try:
        close_run(records, entry, RunPhase.PUBLISHED, commit_id=None if commit is None else commit.graph_commit_id)
    except StorageError:
        if commit is None:
            raise


def _announce(records: RepoStore, run_id: str) -> tuple[LogEntry, bool]:
    """Record that a run is being published; return the entry, and whether no other publisher recorded that before."""
    is_alone = False

    def publishing(entry: LogEntry) -> LogEntry:
        nonlocal is_alone
        refuse_over(entry)
        run = run_state(entry)
        target = _target_of(records, entry)
        after = target.number if run.published_after is None else run.published_after
        is_alone = run.phase is not RunPhase.PUBLISHING
        return next_run_entry(records, entry, replace(run, phase=RunPhase.PUBLISHING, published_after=after))

    entry = move_run(records, run_id, publishing)
    return entry, is_alone


def _let_go_on(records: RepoStore, entry: LogEntry, err: BaseException) -> GraphCommit | None:
    """Let work on a run go on that could not be published, unless somebody else is publishing it by now.

    Where the store failed or the user broke it off, the entry may still be under way: it is stopped first, for whatever
    is added to the run after that would not be in it. The run's commit if it arrived before. Where that fails too, the
    run stays as one that is being published, which can be tried again.
    """
    is_in_doubt = isinstance(err, StorageError) or not isinstance(err, Exception)
    try:
        if is_in_doubt and (late := fence_off_publishers(records, entry)) is not None:
            return late
        running = next_run_entry(records, entry, replace(run_state(entry), phase=RunPhase.RUNNING))
        records.heads.move(entry.branch, lambda _: running, known=entry)
    except AnabranchError:
        return None
    return None


def _target_of(records: RepoStore, entry: LogEntry) -> LogEntry:
    run = run_state(entry)
    target = records.heads.get(run.target)
    if target.state.created_as != run.target_created_as:
        raise BranchNotFoundError(
            f"branch '{run.target}' was deleted and made again since run {entry.branch.run_id} began on it",
            hint="begin another run on the new branch",
        )
    return target


def _publish(
    records: RepoStore, carrier: "_Carrier", *, inspect: Inspect | None, metadata: Mapping[str, str]
) -> PublishedRun:
    entry = carrier.entry
    run = run_state(entry)
    target = _target_of(records, entry)
    changes = carrier.carry(target)
    if not changes:
        return PublishedRun(commit=None)
    spec = CommitSpec(
        message=entry.state.description,
        kind=CommitKind.PUBLISH_RUN,
        metadata={**run.metadata, **metadata, RUN_ID: entry.branch.run_id or ""},
        inspect=inspect,
    )
    published = publish(records, expected=target, changes=changes, spec=spec, rebase=carrier.carry)
    return PublishedRun(commit=published.commit, published=published)


def _is_still(table: TableEntry | None, before: TableEntry | None) -> bool:
    """Whether a table is what it was: renamed and renamed back, say. What was settled meanwhile is no change."""
    return table == before if table is None or before is None else replace(table, head=before.head) == before


class _ToBeMerged:
    """Stands for a table whose rows have to be merged."""


_TO_BE_MERGED = _ToBeMerged()


class _Carrier:
    """Carries the changes of a run over to its target, as often as that moves."""

    def __init__(self, records: RepoStore, entry: LogEntry, load_combiner: LoadCombiner) -> None:
        self._records = records
        self._load_combiner = load_combiner
        self.entry = entry
        run = run_state(entry)
        self._target: BranchName = run.target
        self._saw = None if run.saw is None else records.commits.get(run.saw)
        self._before = records.commits.tables_of(records.commits.get(run.origin))
        mine = records.commits.tables_of(entry.head)
        touched = ((key, mine.get(key)) for key in entry.state.own)
        self._mine = {key: table for key, table in touched if not _is_still(table, self._before.get(key))}
        self.carried: Changes = {}

    def carry(self, head: LogEntry) -> Changes:
        if (commit := find_published(self._records, self.entry, head=head)) is not None:
            raise _AlreadyPublishedError(commit)
        refuse_over(get_run(self._records, self.entry.branch.run_id or ""))
        theirs = self._tables_of(head)
        carried = {key: self._carry_table(key, theirs) for key in self._mine}
        contested = {key for key, table in carried.items() if table is _TO_BE_MERGED}
        if contested:
            # A table that was renamed is there by two names.
            datasets = {place for key in contested for place in self._datasets(key)}
            contested |= {key for key in self._mine if datasets & self._datasets(key)}
        kept = {key: table for key, table in carried.items() if key not in contested}
        plain = {key: table for key, table in kept.items() if not isinstance(table, _ToBeMerged)}
        self.carried = {**plain, **self._merge(contested, theirs)} if contested else plain
        return self.carried

    def _datasets(self, key: TableKey) -> set[str]:
        entries = (self._mine[key], self._before.get(key))
        return {entry.dataset for entry in entries if entry is not None}

    def _merge(self, keys: Set[TableKey], theirs: TableMap) -> Changes:
        """Merge what both the run and others changed since it began, by rows."""
        base = {key: table for key in keys if (table := self._before.get(key)) is not None}
        source = {key: table for key in keys if (table := self._mine[key]) is not None}
        combined = self._load_combiner(self._target).stage(Sides(base=base, source=source, target=theirs))
        combined.conflicts.check_none(f"run {self.entry.branch.run_id} on branch '{self._target}'")
        return combined.changes

    def _tables_of(self, head: LogEntry) -> TableMap:
        """The target's tables; of a live one, those it does not have itself as the run saw them on main."""
        if head.state.mode is BranchMode.LIVE and self._saw is not None:
            head = shown(head, self._saw)
        return self._records.commits.tables_of(head.head)

    def _carry_table(self, key: TableKey, tables: TableMap) -> "TableEntry | _ToBeMerged | None":
        mine, before, theirs = self._mine[key], self._before.get(key), tables.get(key)
        if mine is not None and is_home_shared(mine, tables, besides=self._mine):
            return _TO_BE_MERGED
        if theirs == before:
            return mine
        if mine is None or before is None or theirs is None or mine.primary_key != theirs.primary_key:
            return _TO_BE_MERGED
        if not owns(self._target, theirs.home):
            return _TO_BE_MERGED
        return self._append_again(before, mine, theirs)

    def _append_again(self, before: TableEntry, mine: TableEntry, theirs: TableEntry) -> "TableEntry | _ToBeMerged":
        """What was only appended is staged once more without being read."""
        old, staged, other = self._pin(before), self._pin(mine), self._pin(theirs)
        fragments = staging.find_appended(old, staged)
        if fragments is None:
            return _TO_BE_MERGED
        try:
            pin = append_again(other, fragments, before=old, after=staged, unique_by=mine.primary_key)
        except (KeyConflictError, WriteConflictError):
            return _TO_BE_MERGED
        return replace(theirs, version=pin.version, rows=pin.count_rows())

    def _pin(self, entry: TableEntry) -> Pin:
        return Pin(home=self._records.context.home_of(entry), version=entry.version)
