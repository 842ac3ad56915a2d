"""One garbage collection: expire branches and runs, find the retained commits, mark the others, check again, sweep.

Also compaction: rewrite small files of tables as larger ones. No row changes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache, partial
from typing import TypeVar

from anabranch.errors import BranchInUseError, BranchProtectedError, BusyError, InvalidInputError, RunEndedError
from anabranch.format.arguments import unknown_table
from anabranch.format.bases import usage_by_reason
from anabranch.format.dead_files import Wanted, find_reach
from anabranch.format.retention import DEFAULT_GRACE, Retention, checked_retention
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.gc.roots import Roots, find_roots
from anabranch.repo.gc.sweep_and_purge import (
    CollectedObject,
    delete_wave,
    find_wanted,
    iter_waves,
    iter_waves_beside_tables,
)
from anabranch.repo.log.collected import list_collected, mark_collected, record_collected, unmark_collected
from anabranch.repo.log.config import TABLES, RepoConfig, store_microseconds
from anabranch.repo.log.entries import CommitRecord, GraphCommit, LogEntry, RunPhase
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.refs.branches import delete_branch, refuse_in_use
from anabranch.repo.refs.protection import refuse_protected
from anabranch.repo.runs.engine_access import table_writes
from anabranch.repo.runs.runs import abort_run, run_state
from anabranch.repo.transaction import Transaction
from anabranch.repo.write.homes import being_removed
from anabranch.repo.write.table_changes import Rewriter
from anabranch.storage import in_parallel, iter_in_parallel
from anabranch.storage.requests import OnProgress, counting, ignore_progress
from anabranch.storage.store import store_time

T = TypeVar("T")


def _delete_expired_branches(repo_store: RepoStore, *, dry_run: bool) -> tuple[str, ...]:
    """Delete the branches whose expiry time has passed, and return their names.

    Branches that are protected or in use stay. A dry run only checks them.
    """
    waiting = _list_expired_branches(repo_store)
    deleted: set[BranchName] = set()
    # A branch can be deleted only after the branches that were made from it, so repeat until no more can be deleted.
    has_deleted = True
    while has_deleted:
        has_deleted = False
        for entry in [entry for entry in waiting if entry.branch not in deleted]:
            try:
                if dry_run:
                    refuse_protected(entry)
                    refuse_in_use(repo_store, entry.branch, without=deleted)
                else:
                    delete_branch(repo_store, entry.branch)
            # The branch stays. The next collection tries again.
            except (BranchInUseError, BranchProtectedError, BusyError):
                continue
            deleted.add(entry.branch)
            has_deleted = True
    return tuple(sorted(map(str, deleted)))


def _list_expired_branches(repo_store: RepoStore) -> list[LogEntry]:
    """Return the branches whose expiry time has passed by the store's clock."""
    now = store_microseconds(repo_store.config)
    expired = []
    for entry in repo_store.heads.list():
        expires_at = entry.state.expires_at
        # main never expires, even if its entry has a time.
        if expires_at is not None and expires_at <= now and not entry.state.is_deleted and str(entry.branch) != MAIN:
            expired.append(entry)
    return expired


def _fail_expired_runs(repo_store: RepoStore, *, horizon: datetime, dry_run: bool) -> tuple[str, ...]:
    """Mark the unfinished runs as failed whose lease expired and whose log has no entry since the horizon.

    These runs can no longer be published. Return their ids. A run that ended concurrently is not reported.
    """
    failed = []
    list_alive = cache(repo_store.config.leases.list_alive)  # many runs have one target
    for entry in repo_store.heads.list_runs():
        run_id = entry.branch.run_id
        if entry.state.is_deleted or run_id is None or run_id in list_alive(run_state(entry).target):
            continue
        written = repo_store.config.store.find_info(repo_store.config.branch_log(entry.branch).path(entry.number))
        # The grace period counts for runs, too: a run whose lease has expired can still continue and be published.
        if written is None or written.modified >= horizon:
            continue
        try:
            if not dry_run:
                abort_run(repo_store, run_id, phase=RunPhase.FAILED, error="the lease of the run expired")
        # The run ended, or another process is publishing it. The next collection decides again.
        except (RunEndedError, BusyError):
            continue
        failed.append(run_id)
    return tuple(sorted(failed))


_LOCK = BranchName("__gc__")


def checked_policy(
    config: RepoConfig, *, keep_newer_than: timedelta | None, keep_last: int | None, grace: timedelta | None
) -> Retention:
    """Return the policy, or raise InvalidInputError if a value is out of range."""
    shortest = config.leases.expiry
    policy = checked_retention(
        keep_newer_than=keep_newer_than,
        keep_last=keep_last,
        grace=max(DEFAULT_GRACE, shortest) if grace is None else grace,
        of="commits",
    )
    if policy.grace < shortest:
        problem = f"a grace period of {grace} is shorter than a lease lasts, so files of active work could be deleted"
        raise InvalidInputError(problem, hint=f"pass a grace period of at least {shortest}")
    return policy


class GcStage(StrEnum):
    """What a garbage collection counts: the two parts of the history that it reads first, then tables."""

    READING = "history"
    SWEEPING = "tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """What a garbage collection deleted, or what it would delete in a dry run.

    `commits` are the collected commits: their tables cannot be read any more. `branches` are the deleted branches past
    their expiry time, `runs` the expired runs that were marked as failed. `damaged` are missing files that retained
    commits need; nothing is deleted in such a table. `waiting_since` is set if active work prevents the deletion of
    younger files: the time when the work began, in microseconds.
    """

    dry_run: bool
    commits: tuple[str, ...]
    branches: tuple[str, ...]
    runs: tuple[str, ...]
    objects: tuple[CollectedObject, ...]
    damaged: tuple[str, ...]
    retained_commits: int
    tables: int
    waiting_since: int | None = None

    @property
    def bytes(self) -> int:
        """The total size of the objects in bytes."""
        return sum(found.bytes for found in self.objects)

    @property
    def by_reason(self) -> dict[str, tuple[int, int]]:
        """The number of objects and their bytes, by reason."""
        found = usage_by_reason((one.reason, one.bytes) for one in self.objects)
        return {reason: (usage.files, usage.bytes) for reason, usage in found.items()}


def collect_garbage(
    repo_store: RepoStore, policy: Retention, *, dry_run: bool, progress: OnProgress = ignore_progress
) -> GcReport:
    """Delete the files that no retained commit needs. A dry run reports them and writes nothing.

    Files that became unreachable within the grace period stay, and so do files younger than the oldest active lease.
    """
    repo_store.config.require_relocated()
    if dry_run:
        return _Collection(repo_store, policy, progress, dry_run=True).run()
    # One collection at a time: a second one with another policy might remove the marks that this one wrote.
    with repo_store.config.leases.working_alone(_LOCK, doing="garbage is being collected") as lease:
        return _Collection(replace(repo_store, lease=lease), policy, progress, dry_run=False).run()


def find_horizon(config: RepoConfig, grace: timedelta) -> tuple[datetime, datetime | None]:
    """Return the horizon and, if active work moves the horizon back, the time when that work began.

    Only objects that were last written before the horizon may be deleted.
    """
    horizon = store_time(config.store) - grace
    begins = [work.began for work in config.leases.iter_work()]
    # Not `list_alive`: a run that is silent for one lease duration is not dead yet.
    for name in config.leases.list_names():
        # The first entry of its log gives the time: while the steps of a run write, they add no entries.
        first = config.store.find_info(config.branch_log(BranchName.of_run(name)).path(1))
        if first is not None:
            begins.append(first.modified)
    oldest = min(begins, default=None)
    if oldest is None or oldest - config.lease >= horizon:
        return horizon, None
    # A lease states its age a moment before the store dates the file, so allow one lease duration of difference.
    return oldest - config.lease, oldest


def iter_swept(sweep: Callable[[str], T], datasets: Collection[str], progress: OnProgress) -> Iterator[T]:
    """Yield what `sweep` returns for each dataset. Several of them are swept at a time."""
    step = counting(progress, GcStage.SWEEPING)
    step(0, len(datasets))
    for done, swept in enumerate(iter_in_parallel(sweep, datasets), start=1):
        yield swept
        step(done, len(datasets))


@dataclass(slots=True)
class _Collection:
    """One run of the collector. With `dry_run`, it computes the same report and writes nothing."""

    repo_store: RepoStore
    policy: Retention
    progress: OnProgress
    dry_run: bool = field(kw_only=True)

    def run(self) -> GcReport:
        config = self.repo_store.config
        # Find the horizon before anything is read: all later writes are younger than it, and stay.
        horizon, waiting_since = find_horizon(config, self.policy.grace)
        branches = _delete_expired_branches(self.repo_store, dry_run=self.dry_run)
        runs = _fail_expired_runs(self.repo_store, horizon=horizon, dry_run=self.dry_run)
        read = counting(self.progress, GcStage.READING)
        read(0, 2)
        roots, collected = self._mark(horizon)
        read(1, 2)
        commits = self._read_retained(roots)
        wanted = find_wanted(self.repo_store, roots, commits)
        read(2, 2)
        objects: list[CollectedObject] = []
        damaged: list[str] = []
        sweep = partial(self._sweep_table, wanted, horizon)
        for freed, missing in iter_swept(sweep, config.list_datasets(), self.progress):
            objects += freed
            damaged += missing
        objects += self._delete(iter_waves_beside_tables(config, roots.published, horizon))
        return GcReport(
            dry_run=self.dry_run,
            commits=tuple(sorted(collected)),
            branches=branches,
            runs=runs,
            objects=tuple(objects),
            damaged=tuple(damaged),
            retained_commits=len(commits),
            tables=len(wanted),
            waiting_since=None if waiting_since is None else int(waiting_since.timestamp() * 1_000_000),
        )

    def _mark(self, horizon: datetime) -> tuple[Roots, frozenset[str]]:
        """Return the retained commits and the newly collected ones, which are marked and recorded first.

        The logs are read again after the marks are written. A writer that makes an old commit reachable puts its ref
        first, then reads the mark, so one of the two sees the other: a commit that became reachable then stays.
        """
        config = self.repo_store.config
        before = list_collected(config)
        roots = find_roots(self.repo_store, self.policy, horizon=horizon).without(before)
        collected = roots.published - roots.retained - before
        if self.dry_run or not collected:
            return roots, collected
        now = config.clock()
        in_parallel(lambda commit_id: mark_collected(config, commit_id, at=now), sorted(collected))
        # Use a new RepoStore: it has empty caches.
        roots = find_roots(RepoStore.of(config), self.policy, horizon=horizon).without(before)
        collected -= roots.retained
        # A collection that was suspended for too long may overlap with another one, and must not record anything.
        self.repo_store.check_lease()
        record_collected(config, collected, at=now)
        return roots, collected

    def _read_retained(self, roots: Roots) -> list[CommitRecord]:
        """Read the retained commits, and remove marks that do not belong on them.

        A mark on a retained commit was left by a collection that died, or a purge of a branch is writing it now.
        The purge records its commits, so recorded commits keep the mark and do not count as retained.
        """
        config = self.repo_store.config
        commits = in_parallel(self.repo_store.commits.get, sorted(roots.retained))
        marked = {record.commit.graph_commit_id for record in commits if record.collected_at is not None}
        if marked and not self.dry_run:
            recorded = list_collected(config)
            in_parallel(lambda commit_id: unmark_collected(config, commit_id), sorted(marked - recorded))
            # A purge may have recorded them in between. It writes its marks again after the record, and this reads
            # the records again after the unmark. So the marks are there in the end, whatever the order.
            late = marked & list_collected(config)
            in_parallel(lambda commit_id: mark_collected(config, commit_id, at=config.clock()), sorted(late - recorded))
            recorded |= late
            commits = [record for record in commits if record.commit.graph_commit_id not in recorded]
        return commits

    def _sweep_table(
        self, wanted: Mapping[str, Wanted], horizon: datetime, dataset: str
    ) -> tuple[list[CollectedObject], list[str]]:
        """Delete the unneeded files of one dataset. Return them and the needed files that are missing."""
        config, folder = self.repo_store.config, f"{TABLES}/{dataset}"
        # The whole folder may be deleted. Because of the notice, a new table of this name gets another folder.
        is_dropped = dataset not in wanted and not self.dry_run
        with being_removed(config, dataset) if is_dropped else nullcontext():
            root = config.dataset_root(dataset)
            reach = find_reach(root, wanted.get(dataset, Wanted()), horizon=horizon)
            freed = self._delete(iter_waves(folder, reach))
            # Cached handles and manifests of deleted versions must not answer later reads of this process.
            root.forget()
        return freed, [f"{folder}/{path}" for path in reach.missing]

    def _delete(self, waves: Iterable[list[CollectedObject]]) -> list[CollectedObject]:
        objects: list[CollectedObject] = []
        for wave in waves:
            if not self.dry_run:
                delete_wave(self.repo_store.config.store, wave)
            objects += wave
        return objects


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedTable:
    """A compacted table, with the number of its fragments before and after."""

    table: str
    rows: int
    fragments_before: int
    fragments_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The result of a compaction. `commit` is None if there was nothing to do."""

    tables: tuple[CompactedTable, ...]
    commit: GraphCommit | None


def compact_tables(
    tx: Transaction,
    keys: Sequence[str],
    *,
    target_rows_per_fragment: int,
    rewriter: Rewriter | None,
    progress: Callable[[int, int], None],
) -> Compaction:
    """Compact tables in one commit. Raise TableNotFoundError before anything is written if one does not exist.

    `progress` gets the number of tables done and the total number of tables.
    """
    done: list[CompactedTable] = []
    with tx:
        for key in keys:
            if key not in tx:
                raise unknown_table(key, f"on branch '{tx.branch}'", tx.tables)
        # A table that is named twice would be compacted twice.
        for key in sorted({str(TableKey.parse(key)) for key in keys}):
            progress(len(done), len(keys))
            before = tx[key].version_ref.count_fragments()
            table_writes(tx).compact(key, target_rows_per_fragment=target_rows_per_fragment, rewriter=rewriter)
            after = tx[key]
            done.append(
                CompactedTable(
                    table=key,
                    rows=after.count_rows(),
                    fragments_before=before,
                    fragments_after=after.version_ref.count_fragments(),
                )
            )
    progress(len(keys), len(keys))
    return Compaction(tables=tuple(done), commit=tx.published)
