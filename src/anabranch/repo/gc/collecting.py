"""Garbage collection as a whole: read the roots, mark what goes, read them again, sweep."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from anabranch.format.reach import Reach, Wanted, find_reach
from anabranch.ids import BranchName
from anabranch.repo.gc.dead import delete_wave, iter_history_reach, iter_loose, iter_waves
from anabranch.repo.gc.ending import end_dead_runs, end_expired_branches, list_dead_runs, list_expired_branches
from anabranch.repo.gc.policy import Policy
from anabranch.repo.gc.report import CollectedObject, GcReport, GcStage
from anabranch.repo.gc.roots import Roots, find_roots
from anabranch.repo.gc.wanted import find_wanted
from anabranch.repo.log.collected import list_collected, mark_collected, record_collected, unmark_collected
from anabranch.repo.log.config import TABLES, RepoConfig
from anabranch.repo.log.entries import CommitRecord
from anabranch.repo.log.store import RepoStore
from anabranch.repo.write.removal import being_removed
from anabranch.storage import find_object, in_parallel, iter_in_parallel
from anabranch.storage.clock import store_time

__all__ = ["Progress", "collect_garbage", "find_horizon", "list_datasets"]

_LOCK = BranchName("__gc__")
Progress = Callable[[GcStage, int, int], None]


def collect_garbage(
    records: RepoStore, policy: Policy, *, dry_run: bool, progress: Progress = lambda *_: None
) -> GcReport:
    """Delete what no retained commit needs. A dry run only reports it, and writes nothing.

    Whatever became unreachable less than the grace period ago is left alone, and so is everything younger than the
    oldest work that is alive.
    """
    records.context.require_relocated()
    if dry_run:
        return _Collection(records, policy, progress, dry_run=True).run()
    # A second collection with another policy might remove the marks of this one.
    with records.context.leases.working_alone(_LOCK, doing="garbage is being collected") as lease:
        return _Collection(replace(records, lease=lease), policy, progress, dry_run=False).run()


def find_horizon(context: RepoConfig, grace: timedelta) -> tuple[datetime, datetime | None]:
    """Before when an object must have been written to be collected, and since when work holds that back, if it does."""
    horizon = store_time(context.store) - grace
    oldest = min([*context.leases.list_begins(), *_iter_begins_of_runs(context)], default=None)
    if oldest is None or oldest - context.lease >= horizon:
        return horizon, None
    # What it says was written a moment before the store saw it.
    return oldest - context.lease, oldest


def _iter_begins_of_runs(context: RepoConfig) -> Iterator[datetime]:
    """Return when each run began that may still be alive. While its steps write, its log does not show it."""
    for name in context.leases.list_names():
        log = context.branch_log(BranchName.of_run(name))
        if (first := find_object(context.store, log.path(1))) is not None:
            yield first.modified


def list_datasets(context: RepoConfig) -> list[str]:
    """All table folders, also of tables that no commit has, named as entries name them."""
    buckets = context.store.list_folders(TABLES)
    folders = in_parallel(context.store.list_folders, buckets)
    return sorted(folder.removeprefix(f"{TABLES}/") for found in folders for folder in found)


@dataclass(slots=True)
class _Collection:
    records: RepoStore
    policy: Policy
    progress: Progress
    dry_run: bool = field(kw_only=True)

    def run(self) -> GcReport:
        context = self.records.context
        horizon, waiting_since = find_horizon(context, self.policy.grace)
        branches, runs = self._end(horizon)
        self.progress(GcStage.READING, 0, 2)
        roots, doomed = self._judge(horizon)
        self.progress(GcStage.READING, 1, 2)
        commits = self._read_retained(roots)
        wanted = find_wanted(self.records, roots, commits)
        self.progress(GcStage.READING, 2, 2)
        objects, damaged = self._sweep_tables(wanted, horizon)
        objects += self._delete(iter_loose(context, roots.published, horizon))
        return GcReport(
            dry_run=self.dry_run,
            commits=tuple(sorted(doomed)),
            branches=branches,
            runs=runs,
            objects=tuple(objects),
            damaged=tuple(damaged),
            retained_commits=len(commits),
            tables=len(wanted),
            waiting_since=None if waiting_since is None else int(waiting_since.timestamp() * 1_000_000),
        )

    def _judge(self, horizon: datetime) -> tuple[Roots, frozenset[str]]:
        """The commits to keep, and those to let go, which are marked and recorded before anything else happens.

        What was marked is looked at once more: who took a commit up meanwhile keeps it.
        """
        context = self.records.context
        before = list_collected(context)
        roots = find_roots(self.records, self.policy, horizon=horizon).without(before)
        doomed = roots.published - roots.retained - before
        if self.dry_run or not doomed:
            return roots, doomed
        now = context.clock()
        in_parallel(lambda commit_id: mark_collected(context, commit_id, at=now), sorted(doomed))
        roots = find_roots(RepoStore.of(context), self.policy, horizon=horizon).without(before)
        doomed -= roots.retained
        self.records.check_lease()
        record_collected(context, doomed, at=now)
        return roots, doomed

    def _read_retained(self, roots: Roots) -> list[CommitRecord]:
        """Read the commits that stay, and take back marks on them: who put those died before going on.

        Or is just purging a branch, which is recorded then.
        """
        context = self.records.context
        commits = in_parallel(self.records.commits.get, sorted(roots.retained))
        marked = {record.commit.graph_commit_id for record in commits if record.collected_at is not None}
        if marked and not self.dry_run:
            gone = list_collected(context)
            in_parallel(lambda commit_id: unmark_collected(context, commit_id), sorted(marked - gone))
            # Who records them meanwhile marks them once more after that, and this looks once more after its part.
            late = marked & list_collected(context)
            in_parallel(lambda commit_id: mark_collected(context, commit_id, at=context.clock()), sorted(late - gone))
            gone |= late
            commits = [record for record in commits if record.commit.graph_commit_id not in gone]
        return commits

    def _end(self, horizon: datetime) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self.dry_run:
            expired = tuple(str(entry.branch) for entry in list_expired_branches(self.records))
            return expired, list_dead_runs(self.records, horizon=horizon)
        return end_expired_branches(self.records), end_dead_runs(self.records, horizon=horizon)

    def _sweep_tables(self, wanted: Mapping[str, Wanted], horizon: datetime) -> tuple[list[CollectedObject], list[str]]:
        context = self.records.context
        objects: list[CollectedObject] = []
        damaged: list[str] = []

        def sweep(dataset: str) -> tuple[list[CollectedObject], list[str]]:
            return self._sweep_table(dataset, wanted.get(dataset), horizon)

        datasets = list_datasets(context)
        self.progress(GcStage.SWEEPING, 0, len(datasets))
        for done, (freed, missing) in enumerate(iter_in_parallel(sweep, datasets), start=1):
            objects += freed
            damaged += missing
            self.progress(GcStage.SWEEPING, done, len(datasets))
        for name, reach in iter_history_reach(context, horizon):
            objects += self._sweep(name, reach)
        return objects, damaged

    def _sweep_table(
        self, dataset: str, wanted: Wanted | None, horizon: datetime
    ) -> tuple[list[CollectedObject], list[str]]:
        """Delete what nobody needs of a table, and tell what is missing."""
        context, folder = self.records.context, f"{TABLES}/{dataset}"
        is_dropped = wanted is None and not self.dry_run
        with being_removed(context, dataset) if is_dropped else nullcontext():
            root = context.dataset_root(dataset)
            reach = find_reach(root, wanted or Wanted(), horizon=horizon)
            freed = self._sweep(folder, reach)
            root.forget()
        return freed, [f"{folder}/{path}" for path in reach.missing]

    def _sweep(self, folder: str, reach: Reach) -> list[CollectedObject]:
        return [found for wave in iter_waves(folder, reach) for found in self._delete(wave)]

    def _delete(self, found: Iterable[CollectedObject]) -> list[CollectedObject]:
        objects = list(found)
        if not self.dry_run:
            delete_wave(self.records.context.store, objects)
        return objects
