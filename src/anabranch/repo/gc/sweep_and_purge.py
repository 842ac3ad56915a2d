"""The versions that retained commits need, and the objects that may be deleted, in the order of deletion.

`purge_branch` deletes the files that only a deleted branch needs, without a grace period.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, groupby

from anabranch.format.dead_files import Reach, Wanted, find_reach
from anabranch.format.layout.listing import VersionKey, branch_of_ref_path
from anabranch.format.retention import Retention
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.gc.roots import EARLIEST, Roots, find_roots
from anabranch.repo.log.collected import list_collected, mark_collected, record_collected, unmark_collected
from anabranch.repo.log.commits import COMMITS
from anabranch.repo.log.config import DECISIONS, TABLES, RepoConfig, home_folders, owns
from anabranch.repo.log.entries import CommitRecord, LogEntry, TableEntry
from anabranch.repo.log.heads import Heads
from anabranch.repo.log.history_tables import history_homes
from anabranch.repo.log.leases import LEASES
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.write.homes import REMOVING, being_removed
from anabranch.storage import ObjectInfo, ObjectStore, in_parallel
from anabranch.storage.store import store_time


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedObject:
    """One unneeded object: its path below the repository's root, its size in bytes, and the reason."""

    path: str
    bytes: int
    reason: str


def iter_waves(folder: str, reach: Reach) -> Iterator[list[CollectedObject]]:
    """Yield the unneeded files of a dataset in waves. Delete all of one wave before the first of the next."""
    if reach.missing:
        return  # the dataset is damaged already, and a repair may need files that seem unneeded
    for _, some in groupby(reach.dead, key=lambda file: file.rank):
        yield [CollectedObject(path=f"{folder}/{file.path}", bytes=file.size, reason=file.reason) for file in some]


def delete_wave(store: ObjectStore, wave: Sequence[CollectedObject]) -> None:
    """Delete objects, and make that durable.

    The next wave deletes what these objects refer to. If a power loss undid only this one, manifests would lack files.
    """
    in_parallel(store.delete, (found.path for found in wave))
    store.sync_folders(sorted({found.path.rpartition("/")[0] for found in wave}))


def iter_waves_beside_tables(
    config: RepoConfig, published: frozenset[str], horizon: datetime
) -> Iterator[list[CollectedObject]]:
    """Yield the unneeded objects outside the tables in waves: those of the history tables, then all others."""
    for name, home in history_homes(config):
        # Only the newest version of a history table is needed.
        newest = Wanted(keys=frozenset({(None, home.head_version())}))
        yield from iter_waves(name, find_reach(home, newest, horizon=horizon))
    # A young object may be part of work in flight: a commit object, for example, is put before its log entry.
    yield [
        CollectedObject(path=info.path, bytes=info.size, reason=reason)
        for info, reason in _iter_unreferenced(config, published, horizon)
        if info.modified < horizon
    ]


def _iter_unreferenced(
    config: RepoConfig, published: frozenset[str], horizon: datetime
) -> Iterator[tuple[ObjectInfo, str]]:
    """Yield the unneeded objects outside all tables, young ones too, each with the reason."""
    for info in config.store.list(COMMITS):
        commit_id = info.path.rpartition("/")[2].removesuffix(".json")
        if commit_id not in published and info.path.endswith(".json"):
            yield info, "commit that was never published"
    for info in config.store.list_leftovers():
        yield info, "temporary file of a writer that was killed"
    for info in config.store.list(DECISIONS):
        if info.modified < horizon and _is_of_deleted_branch(config, info.path):
            yield info, "decisions on merges of a deleted branch"
    for info in chain(config.store.list(LEASES), config.store.list(REMOVING)):
        yield info, "expired lease or removal notice"


def _is_of_deleted_branch(config: RepoConfig, decisions: str) -> bool:
    into_and_source = decisions.removesuffix(".json").split("/")[1:3]
    heads = [Heads(config).find(BranchName(name.replace("%2F", "/"))) for name in into_and_source]
    return any(head is None or head.state.is_deleted for head in heads)


def find_wanted(repo_store: RepoStore, roots: Roots, commits: Sequence[CommitRecord]) -> dict[str, Wanted]:
    """Return for each dataset the versions that the commits need."""
    keys: dict[str, set[VersionKey]] = defaultdict(set)
    without_key: dict[str, set[VersionKey]] = defaultdict(set)
    since = _find_since(repo_store, roots)
    for _, entry in _find_held(repo_store, roots, commits):
        key = (entry.home, entry.version)
        keys[entry.dataset].add(key)
        # Rows without a key are matched by row ids, which need the manifests of the steps between two kept states.
        if not entry.primary_key:
            without_key[entry.dataset].add(key)
    return {
        dataset: Wanted(keys=frozenset(found), since=since[dataset], without_key=frozenset(without_key[dataset]))
        for dataset, found in keys.items()
    }


def _find_since(repo_store: RepoStore, roots: Roots) -> dict[str, dict[str | None, int]]:
    """Return, for each home that a branch writes to, the first ordinary version that the next writer checks.

    A writer checks the ordinary versions of a home for external writes. Earlier writers checked the older versions.
    """
    since: dict[str, dict[str | None, int]] = defaultdict(dict)
    for head in (*roots.heads, *roots.recent):
        for entry in repo_store.commits.tables_of(head.head).values():
            if owns(head.home_branch, entry.home):
                lowest = since[entry.dataset]
                # Several branches may show the home, such as a run and its target. The one furthest behind decides.
                lowest[entry.home] = min(entry.head, lowest.get(entry.home, entry.head))
    return since


def _find_held(
    repo_store: RepoStore, roots: Roots, commits: Sequence[CommitRecord]
) -> dict[tuple[TableKey, TableEntry], set[str]]:
    """Return every state of every table of the retained commits, with its holders."""
    by_base: dict[str, list[CommitRecord]] = defaultdict(list)
    for record in commits:
        by_base[record.base].append(record)
    found: dict[tuple[TableKey, TableEntry], set[str]] = defaultdict(set)
    for base, group in by_base.items():
        full_map = repo_store.commits.full_map(base)
        # Most tables of most commits are those of the base. They are added once per set of holders, not per commit.
        untouched: dict[frozenset[str], set[TableKey]] = defaultdict(set)
        for record in group:
            holders = roots.holders[record.commit.graph_commit_id]
            for key, entry in record.changes.items():
                if entry is not None:
                    found[key, entry].update(holders)
            untouched[holders].update(full_map.keys() - record.changes.keys())
        for holders, keys in untouched.items():
            for key in keys:
                found[key, full_map[key]].update(holders)
    return found


@dataclass(slots=True)
class Need:
    """The holders that need one version of a table, and the names of the table in their states."""

    tables: set[str] = field(default_factory=set)
    keepers: set[str] = field(default_factory=set)
    heads: set[str] = field(default_factory=set)

    def add(self, other: "Need") -> None:
        self.tables |= other.tables
        self.keepers |= other.keepers
        self.heads |= other.heads


Needs = Mapping[VersionKey, Need]


def find_needs(
    repo_store: RepoStore, roots: Roots, commits: Sequence[CommitRecord]
) -> dict[str, dict[VersionKey, Need]]:
    """Return the holders of each version of each dataset."""
    found: dict[str, dict[VersionKey, Need]] = defaultdict(lambda: defaultdict(Need))
    for (key, entry), holders in _find_held(repo_store, roots, commits).items():
        need = found[entry.dataset][entry.home, entry.version]
        need.tables.add(str(key))
        need.keepers |= holders
    # One state of main for all live branches, so that the report is consistent with itself.
    main = next(head.head for head in roots.heads if str(head.branch) == MAIN)
    for head in roots.heads:
        for key, entry in View.of(head, main).tables(repo_store.commits).items():
            need = found[entry.dataset][entry.home, entry.version]
            need.tables.add(str(key))
            need.heads.add(head.branch.label)
    return found


def purge_branch(repo_store: RepoStore, tombstone: LogEntry) -> int:
    """Free the space of a deleted branch at once and return the number of bytes. Readers of its tables fail.

    Commits of the branch that a tag, a clone or another branch needs stay, even if that tag or branch is deleted: it
    can be restored. A concurrent publish on the purged branch is refused.
    """
    left = _list_datasets_with_homes(repo_store, tombstone.branch)
    if not left and not any(repo_store.commits_since(tombstone, version=0)):
        return 0  # nothing was written on the branch, so the other logs need not be read
    homes, roots = _collect_commits(repo_store, tombstone)
    for dataset in left:
        homes.setdefault(dataset, set())
    # Commits that are older than the first branch of that name cannot name a home of the branch. A commit whose time
    # was not read counts as late: to keep a file too many does no harm.
    since = repo_store.heads.get_numbered(tombstone.branch, 1).state.created_at
    late = [commit_id for commit_id in roots.retained if roots.created_at.get(commit_id, since) >= since]
    wanted = find_wanted(repo_store, roots, in_parallel(repo_store.commits.get, sorted(late)))
    return sum(
        _purge_table(repo_store, tombstone, dataset, found, wanted.get(dataset, Wanted()))
        for dataset, found in sorted(homes.items())
    )


def _list_datasets_with_homes(repo_store: RepoStore, branch: BranchName) -> list[str]:
    """Return the datasets in which folders for homes of a branch exist.

    Commits name only published homes. A writer that was killed before it published leaves a home that no commit names.
    """
    store = repo_store.config.store

    def has_homes(dataset: str) -> bool:
        return any(store.list_folders(f"{TABLES}/{dataset}/tree/{folder}") for folder in home_folders(branch))

    datasets = repo_store.config.list_datasets()
    found = in_parallel(has_homes, datasets)
    return [dataset for dataset, is_found in zip(datasets, found, strict=True) if is_found]


def _collect_commits(repo_store: RepoStore, tombstone: LogEntry) -> tuple[dict[str, set[str]], Roots]:
    """Mark and record the commits that only the deleted branch needs. Return its homes and the remaining roots."""
    config = repo_store.config
    collected, roots = list_collected(config), _find_other_roots(repo_store, tombstone)
    made = roots.purged
    marked = sorted(made - roots.retained - collected)
    now = config.clock()
    in_parallel(lambda commit_id: mark_collected(config, commit_id, at=now), marked)
    # Read the logs again after the marks: a commit that became reachable in between stays (see gc.collection).
    roots = _find_other_roots(RepoStore.of(config), tombstone).without(collected)
    kept = [commit_id for commit_id in marked if commit_id in roots.retained]
    in_parallel(lambda commit_id: unmark_collected(config, commit_id), kept)
    gone = frozenset(marked) - roots.retained
    record_collected(config, gone, at=now)
    # Mark them again: a garbage collection that read the records before this one was written takes the marks for
    # those of a collection that died, and removes them.
    in_parallel(lambda commit_id: mark_collected(config, commit_id, at=now), sorted(gone))
    homes = _find_homes(repo_store, tombstone.branch, [repo_store.commits.get(commit_id) for commit_id in sorted(made)])
    return homes, roots


def _find_other_roots(repo_store: RepoStore, tombstone: LogEntry) -> Roots:
    """Return the roots without the purged branch. Other deleted branches count until their commits are collected."""

    def is_purged(last: LogEntry) -> bool:
        """Return whether this is the branch, an earlier branch of its name, or a run that targets one of them."""
        run = last.state.run
        target, created_as = (
            (last.branch, last.state.created_as) if run is None else (run.target, run.target_created_as)
        )
        # An earlier branch of the name that was renamed is another branch now, and needs its reflog.
        if target != tombstone.branch or tombstone.state.find_rename(created_as) is not None:
            return False
        # A run stages in the homes of its target, so that its files are among those to delete.
        return last.number <= tombstone.number if run is None else created_as <= tombstone.state.created_as

    # With the earliest horizon, other deleted branches and tags still retain their commits: they can be restored.
    return find_roots(repo_store, Retention(), horizon=EARLIEST, is_purged=is_purged)


def _find_homes(repo_store: RepoStore, branch: BranchName, commits: list[CommitRecord]) -> dict[str, set[str]]:
    """Return the homes of a branch that its commits name, by dataset."""
    found: dict[str, set[str]] = defaultdict(set)
    bases = {record.base for record in commits}
    for record in commits:
        # The tables that a commit changed, and all tables of one that holds a full map.
        has_full_map = record.commit.graph_commit_id in bases
        entries = repo_store.commits.tables_of(record) if has_full_map else record.changes
        for entry in entries.values():
            if entry is not None and entry.home is not None and owns(branch, entry.home):
                found[entry.dataset].add(entry.home)
    return found


def _purge_table(repo_store: RepoStore, tombstone: LogEntry, dataset: str, homes: Iterable[str], wanted: Wanted) -> int:
    """Delete the files of the branch in one dataset and return their bytes. Its commits name `homes` there."""
    config = repo_store.config
    with being_removed(config, dataset):
        # Use a horizon in the future, so that young files of the branch are deleted, too.
        root, future = config.dataset_root(dataset), store_time(config.store) + timedelta(days=1)
        reach = find_reach(root, wanted, horizon=future)
        if reach.missing:
            return 0  # the dataset is damaged already, and a repair may need files that seem unneeded
        files = _DatasetFiles.read(repo_store, tombstone, dataset, homes)
        is_whole_dataset = not reach.is_needed and files.is_dataset_of_branch()
        dead = tuple(file for file in reach.dead if is_whole_dataset or files.is_own(file.path))
        for wave in iter_waves(files.folder, replace(reach, dead=dead)):
            delete_wave(config.store, wave)
        for path in files.list_own_leftovers():
            config.store.delete(path)
        root.forget()
    return sum(file.size for file in dead)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DatasetFiles:
    """The files of a dataset, and which of them belong to the purged branch.

    `leftovers` are temporary files of writers that were killed.

    A new branch of the same name has homes with names of the same form. So a home belongs to the purged branch if a
    commit of that branch names it, or if its newest file is older than the deletion.
    """

    branch: BranchName
    folder: str
    files: tuple[ObjectInfo, ...]
    leftovers: tuple[ObjectInfo, ...]
    homes: frozenset[str]
    created: datetime
    deleted: datetime

    @classmethod
    def read(cls, repo_store: RepoStore, tombstone: LogEntry, dataset: str, homes: Iterable[str]) -> "_DatasetFiles":
        store, log = repo_store.config.store, repo_store.config.branch_log(tombstone.branch)
        folder, branch = f"{TABLES}/{dataset}", tombstone.branch
        files, leftovers = tuple(store.list(folder)), tuple(store.list_leftovers(folder))
        # Use the store's time, not that of the entry, because it is compared with the times of files in the store.
        deleted = store.head(log.path(tombstone.number)).modified
        times: dict[str, datetime] = {}
        for info in (*files, *leftovers):
            if (home := _home_of(branch, info.path.removeprefix(f"{folder}/"))) is not None:
                times[home] = max(info.modified, times.get(home, info.modified))
        return cls(
            branch=branch,
            folder=folder,
            files=files,
            leftovers=leftovers,
            homes=frozenset(homes) | {home for home, newest in times.items() if newest < deleted},
            created=store.head(log.path(tombstone.state.created_as)).modified,
            deleted=deleted,
        )

    def is_own(self, path: str) -> bool:
        """Return whether a file is in a home of the purged branch, or is the ref of one."""
        return _home_of(self.branch, path) in self.homes

    def list_own_leftovers(self) -> list[str]:
        """Return the paths of the leftovers in homes of the purged branch."""
        return [info.path for info in self.leftovers if self.is_own(info.path.removeprefix(f"{self.folder}/"))]

    def is_dataset_of_branch(self) -> bool:
        """Return whether the dataset was created on this branch, and no other writer is creating a table in it."""
        manifests = [info for info in self.files if info.path.endswith(".manifest")]
        others = [info for info in manifests if not self.is_own(info.path.removeprefix(f"{self.folder}/"))]
        if not others:
            # An interrupted purge deleted the manifests. Files younger than the deletion are those of another writer.
            return all(info.modified <= self.deleted for info in self.files)
        # A new table has one ordinary manifest in the root. Older or younger than the branch, it is another writer's.
        return len(others) == 1 and self.created <= others[0].modified <= self.deleted


def _home_of(branch: BranchName, path: str) -> str | None:
    """Return the home of a branch that a file is in or is the ref of, or None."""
    home = branch_of_ref_path(path)
    if home is None:
        # The homes of branch 'dev/x' are below the folder of 'dev', too, but there 'x' is not a ULID.
        folders = "|".join(map(re.escape, home_folders(branch)))
        match = re.match(rf"tree/((?:{folders})/[0-9A-HJKMNP-TV-Z]{{26}})/", path)
        home = None if match is None else match[1]
    return home if home is not None and owns(branch, home) else None
