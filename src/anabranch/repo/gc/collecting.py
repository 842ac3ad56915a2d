"""Garbage collection as a whole: read the roots, mark what goes, read them again, sweep."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby

from anabranch.errors import BusyError
from anabranch.format.reach import Reach, Wanted, find_reach
from anabranch.ids import BranchName
from anabranch.repo import codec
from anabranch.repo.commits import COMMITS
from anabranch.repo.context import TABLES, Context
from anabranch.repo.gc.ending import end_dead_runs, end_expired_branches, list_dead_runs, list_expired_branches
from anabranch.repo.gc.marks import mark_collected, unmark_collected
from anabranch.repo.gc.policy import Policy
from anabranch.repo.gc.removing import REMOVING, being_removed
from anabranch.repo.gc.report import CollectedObject, GcReport, GcStage
from anabranch.repo.gc.roots import Roots, find_roots
from anabranch.repo.gc.wanted import find_wanted
from anabranch.repo.history import history_homes
from anabranch.repo.leases import LEASES, Lease, list_alive, store_time
from anabranch.repo.models import CommitRecord
from anabranch.repo.records import Records
from anabranch.repo.working import begin_of_oldest_work
from anabranch.storage import ObjectInfo, in_parallel

__all__ = ["GC", "Progress", "collect_garbage", "find_horizon", "list_collected", "list_datasets", "record_collected"]

GC = "_gc"
_LOCK = BranchName("__gc__")
Progress = Callable[[GcStage, int, int], None]

_NEVER_PUBLISHED = "commit that was never published"
_OLD_SIGN = "sign of life of work that is over"


def collect_garbage(
    records: Records, policy: Policy, *, dry_run: bool, progress: Progress = lambda *_: None
) -> GcReport:
    """Delete what no retained commit needs, or in a dry run only tell.

    Whatever became unreachable less than the grace period ago is left alone, and so is everything younger than the
    oldest work that is alive.
    """
    records.context.require_relocated()
    with _one_at_a_time(records.context):
        return _Collection(records, policy, progress, dry_run=dry_run).run()


@contextmanager
def _one_at_a_time(context: Context) -> Iterator[None]:
    """Refuse a second collection: with another policy it might unmark what this one lets go."""
    mine = context.new_id()
    lease = Lease(context, _LOCK, mine)
    lease.begin()
    try:
        if any(other != mine for other in list_alive(context, _LOCK)):
            raise BusyError(
                "garbage is being collected, or was until a moment ago by a process that died",
                hint=f"try again when it is done, or in {context.lease.total_seconds():.0f} s",
            )
        yield
    finally:
        lease.release()


def find_horizon(context: Context, grace: timedelta) -> tuple[datetime, datetime | None]:
    """Before when an object must have been written to be collected, and since when work holds that back, if it does."""
    horizon = store_time(context) - grace
    oldest = begin_of_oldest_work(context)
    if oldest is None or oldest - context.lease >= horizon:
        return horizon, None
    # What it says was written a moment before the store saw it.
    return oldest - context.lease, oldest


def list_collected(context: Context) -> frozenset[str]:
    """The commits whose tables earlier collections let go."""
    paths = [info.path for info in context.store.list(GC) if info.path.endswith(".json")]
    found = in_parallel(lambda path: codec.load(context.store.get(path), path=path)["commits"], paths)
    return frozenset().union(*found)


def record_collected(context: Context, commits: frozenset[str], *, at: int) -> None:
    """Say for good which commits are collected; to be done before the first of their files goes."""
    if commits:
        fields = {"commits": sorted(commits), "at": at, "actor": context.actor}
        context.store.put(f"{GC}/{context.new_id()}.json", codec.dump(fields))


def list_datasets(context: Context) -> list[str]:
    """All table folders, also of tables that no commit has, named as entries name them."""
    buckets = context.store.list_folders(TABLES)
    folders = in_parallel(context.store.list_folders, buckets)
    return sorted(folder.removeprefix(f"{TABLES}/") for found in folders for folder in found)


@dataclass(slots=True)
class _Collection:
    records: Records
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
        objects += self._delete(self._iter_loose(roots.published, horizon))
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
        roots = find_roots(Records.of(context), self.policy, horizon=horizon).without(before)
        doomed -= roots.retained
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
        datasets = list_datasets(context)
        for done, dataset in enumerate(datasets):
            self.progress(GcStage.SWEEPING, done, len(datasets))
            is_dropped = dataset not in wanted and not self.dry_run
            with being_removed(context, dataset) if is_dropped else nullcontext():
                root = context.dataset_root(dataset)
                reach = find_reach(root, wanted.get(dataset, Wanted()), horizon=horizon)
                objects += self._sweep(f"{TABLES}/{dataset}", reach)
                root.forget()
            damaged += [f"{TABLES}/{dataset}/{path}" for path in reach.missing]
        self.progress(GcStage.SWEEPING, len(datasets), len(datasets))
        for name, home in history_homes(context):
            newest = Wanted(places=frozenset({(None, home.head_version())}))
            objects += self._sweep(name, find_reach(home, newest, horizon=horizon))
        return objects, damaged

    def _sweep(self, folder: str, reach: Reach) -> list[CollectedObject]:
        if reach.missing:
            return []  # something is wrong already, and what seems dead may be what it takes to mend it
        found: list[CollectedObject] = []
        for _, some in groupby(reach.dead, key=lambda file: file.rank):
            found += self._delete(
                CollectedObject(path=f"{folder}/{file.path}", bytes=file.size, reason=file.reason) for file in some
            )
        return found

    def _iter_loose(self, published: frozenset[str], horizon: datetime) -> Iterator[CollectedObject]:
        """Commit objects that no log knows, signs of life that nobody renews, and marks of removals that are over."""
        store = self.records.context.store
        for info in _older(store.list(COMMITS), horizon):
            commit_id = info.path.rpartition("/")[2].removesuffix(".json")
            if commit_id not in published and info.path.endswith(".json"):
                yield CollectedObject(path=info.path, bytes=info.size, reason=_NEVER_PUBLISHED)
        for folder in (LEASES, REMOVING):
            for info in _older(store.list(folder), horizon):
                yield CollectedObject(path=info.path, bytes=info.size, reason=_OLD_SIGN)

    def _delete(self, found: Iterable[CollectedObject]) -> list[CollectedObject]:
        objects = list(found)
        if not self.dry_run:
            in_parallel(self.records.context.store.delete, (each.path for each in objects))
        return objects


def _older(objects: Iterable[ObjectInfo], horizon: datetime) -> Iterator[ObjectInfo]:
    return (info for info in objects if info.modified < horizon)
