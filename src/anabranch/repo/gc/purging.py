"""Delete at once what a deleted branch alone had."""

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from anabranch.format.names import branch_of_ref_path
from anabranch.format.reach import Wanted, find_reach
from anabranch.ids import BranchName
from anabranch.repo.gc.dead import delete_wave, iter_waves
from anabranch.repo.gc.policy import Policy
from anabranch.repo.gc.roots import Roots, find_roots
from anabranch.repo.gc.wanted import find_wanted
from anabranch.repo.log.collected import list_collected, mark_collected, record_collected, unmark_collected
from anabranch.repo.log.config import TABLES
from anabranch.repo.log.entries import CommitRecord, LogEntry
from anabranch.repo.log.history_tables import commits_since
from anabranch.repo.log.store import RepoStore
from anabranch.repo.write.homes import owns
from anabranch.repo.write.removal import being_removed
from anabranch.storage import ObjectInfo, in_parallel
from anabranch.storage.clock import store_time

__all__ = ["purge_branch"]


def purge_branch(records: RepoStore, tombstone: LogEntry) -> int:
    """Free the space of a deleted branch without any grace: whoever reads it now fails. The bytes freed.

    What a tag, a clone or another branch took from it is kept, though they may be deleted: those can come back. Work
    that was about to publish on it is refused there.
    """
    branch, context = tombstone.branch, records.context
    if not any(commits_since(records, tombstone, version=0)):
        return 0  # nobody wrote to it, and there is no need to ask who else has what
    collected, roots = list_collected(context), _roots(records, tombstone)
    made = roots.over
    doomed = sorted(made - roots.retained - collected)
    now = context.clock()
    in_parallel(lambda commit_id: mark_collected(context, commit_id, at=now), doomed)
    roots = _roots(RepoStore.of(context), tombstone).without(collected)  # who took one up meanwhile keeps it
    taken_up = [commit_id for commit_id in doomed if commit_id in roots.retained]
    in_parallel(lambda commit_id: unmark_collected(context, commit_id), taken_up)
    gone = frozenset(doomed) - roots.retained
    record_collected(context, gone, at=now)
    # A garbage collection that did not know of the record yet may have taken the marks for those of one that died.
    in_parallel(lambda commit_id: mark_collected(context, commit_id, at=now), sorted(gone))
    homes = _own_homes(records, branch, [records.commits.get(commit_id) for commit_id in sorted(made)])
    first = records.heads.get_numbered(branch, 1)
    wanted = find_wanted(records, roots, _commits_since(records, roots, first.state.created_at))
    return sum(
        _purge_table(records, tombstone, _Place(dataset=name, homes=frozenset(found)), wanted.get(name, Wanted()))
        for name, found in sorted(homes.items())
    )


def _roots(records: RepoStore, tombstone: LogEntry) -> Roots:
    """What anybody else may reach: a branch that was deleted, however long ago, until its commits are collected."""

    def is_over(last: LogEntry) -> bool:
        """Whether this is the branch, or one of its name before it, or a run that worked for one of them."""
        if (run := last.state.run) is not None:
            return run.target == tombstone.branch and run.target_created_as <= tombstone.state.created_as
        return last.branch == tombstone.branch and last.number <= tombstone.number

    return find_roots(records, Policy(), horizon=datetime.min.replace(tzinfo=UTC), is_over=is_over)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A dataset, and the homes in it that commits of the branch name."""

    dataset: str
    homes: frozenset[str]


def _own_homes(records: RepoStore, branch: BranchName, commits: list[CommitRecord]) -> dict[str, set[str]]:
    """The homes that a branch has had, by the dataset in which they lie."""
    entries = [entry for record in commits for entry in record.changes.values() if entry is not None]
    bases = {record.base for record in commits} & {record.commit.graph_commit_id for record in commits}
    for record in commits:
        if record.commit.graph_commit_id in bases:
            entries += records.commits.tables_of(record).values()
    found: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        if entry.home is not None and owns(branch, entry.home):
            found[entry.dataset].add(entry.home)
    return found


def _commits_since(records: RepoStore, roots: Roots, created_at: int) -> list[CommitRecord]:
    """The retained commits that may name a home of a branch: none that was made before the first of that name."""
    late = [found for found in roots.retained if roots.created_at.get(found, created_at) >= created_at]
    return in_parallel(records.commits.get, sorted(late))


def _purge_table(records: RepoStore, tombstone: LogEntry, place: _Place, wanted: Wanted) -> int:
    context = records.context
    with being_removed(context, place.dataset):
        root, far = context.dataset_root(place.dataset), store_time(context.store) + timedelta(days=1)
        reach = find_reach(root, wanted, horizon=far)
        if reach.missing:
            return 0  # something is wrong already, and what seems dead may be what it takes to mend it
        look = _Look.at(records, tombstone, place)
        is_gone = not reach.is_needed and look.is_made_here()
        dead = tuple(file for file in reach.dead if is_gone or look.is_own(file.path))
        for wave in iter_waves(look.folder, replace(reach, dead=dead)):
            delete_wave(context.store, wave)
        root.forget()
    return sum(file.size for file in dead)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What lies in a dataset when a branch is purged, and when that began and ended.

    Homes are told by their names and their times: a branch that is made anew has homes of the same kind.
    """

    branch: BranchName
    folder: str
    there: tuple[ObjectInfo, ...]
    homes: frozenset[str]
    began: datetime
    ended: datetime

    @classmethod
    def at(cls, records: RepoStore, tombstone: LogEntry, place: _Place) -> "_Look":
        store, log = records.context.store, records.context.branch_log(tombstone.branch)
        folder, branch = f"{TABLES}/{place.dataset}", tombstone.branch
        there = tuple(store.list(folder))
        ended = store.head(log.path(tombstone.number)).modified
        times: dict[str, datetime] = {}
        for info in there:
            if (home := _home_of(branch, info.path.removeprefix(f"{folder}/"))) is not None:
                times[home] = max(info.modified, times.get(home, info.modified))
        return cls(
            branch=branch,
            folder=folder,
            there=there,
            homes=place.homes | {home for home, newest in times.items() if newest < ended},
            began=store.head(log.path(tombstone.state.created_as)).modified,
            ended=ended,
        )

    def is_own(self, path: str) -> bool:
        """Whether a file lies in a home that the branch had until it was deleted, or is the ref of one."""
        return _home_of(self.branch, path) in self.homes

    def is_made_here(self) -> bool:
        """Whether a dataset was made for a table of this branch, and nobody else is just making one there."""
        manifests = [info for info in self.there if info.path.endswith(".manifest")]
        others = [info for info in manifests if not self.is_own(info.path.removeprefix(f"{self.folder}/"))]
        if not others:
            # A purge that was cut off took them; what came since the end of the branch is somebody else's.
            return all(info.modified <= self.ended for info in self.there)
        return len(others) == 1 and self.began <= others[0].modified <= self.ended


def _home_of(branch: BranchName, path: str) -> str | None:
    """The home of a branch that a file lies in, or is the ref of."""
    home = branch_of_ref_path(path)
    if home is None:
        # The homes of branch 'dev/x' lie below those of 'dev', but are not named by a ULID there.
        match = re.match(rf"tree/({re.escape(str(branch))}/[0-9A-HJKMNP-TV-Z]{{26}})/", path)
        home = None if match is None else match[1]
    return home if home is not None and owns(branch, home) else None
