"""The versions that retained commits need, and the objects that may be deleted, in the order of deletion."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from anabranch.format.layout.dead_files import Reach, VersionKey, Wanted, find_reach
from anabranch.ids import BranchName, TableKey
from anabranch.repo.gc.policy import CollectedObject
from anabranch.repo.gc.roots import Roots
from anabranch.repo.log.commits import COMMITS
from anabranch.repo.log.config import DECISIONS, RepoConfig, owns
from anabranch.repo.log.entries import CommitRecord, TableEntry
from anabranch.repo.log.heads import Heads
from anabranch.repo.log.history_tables import history_homes
from anabranch.repo.log.leases import LEASES
from anabranch.repo.log.store import RepoStore
from anabranch.repo.write.homes import REMOVING
from anabranch.storage import ObjectInfo, ObjectStore, in_parallel

__all__ = [
    "HeldEntry",
    "delete_wave",
    "find_wanted",
    "iter_held_entries",
    "iter_history_reach",
    "iter_unreferenced",
    "iter_waves",
]


_NEVER_PUBLISHED = "commit that was never published"
_LEFTOVER = "temporary file of a writer that was killed"
_OF_DELETED_BRANCH = "decisions on merges of a deleted branch"
_EXPIRED = "expired lease or removal notice"


def iter_waves(folder: str, reach: Reach) -> Iterator[list[CollectedObject]]:
    """Yield the unneeded files of a dataset in waves. Delete all of one wave before the first of the next."""
    if reach.missing:
        return  # the dataset is damaged already, and a repair may need files that seem unneeded
    for _, some in groupby(reach.dead, key=lambda file: file.rank):
        yield [CollectedObject(path=f"{folder}/{file.path}", bytes=file.size, reason=file.reason) for file in some]


def delete_wave(store: ObjectStore, wave: Sequence[CollectedObject]) -> None:
    """Delete objects, and make that durable.

    The next wave deletes what these objects refer to. If a power loss undid this wave and not the next one, a manifest
    would come back without its files.
    """
    in_parallel(store.delete, (found.path for found in wave))
    store.sync_folders(sorted({found.path.rpartition("/")[0] for found in wave}))


def iter_history_reach(config: RepoConfig, horizon: datetime) -> Iterator[tuple[str, Reach]]:
    """Yield the folder and the reach of each history table. Only the newest version of those is needed."""
    for name, home in history_homes(config):
        newest = Wanted(places=frozenset({(None, home.head_version())}))
        yield name, find_reach(home, newest, horizon=horizon)


def iter_unreferenced(config: RepoConfig, published: frozenset[str], horizon: datetime) -> Iterator[CollectedObject]:
    """Yield the unneeded objects outside the tables.

    These are commit objects that no log names, temporary files, decisions on merges of deleted branches, expired
    leases, and removal notices of a process that died.
    """
    # A commit object is put before its log entry, so that a young one may still be published.
    for info in _older(config.store.list(COMMITS), horizon):
        commit_id = info.path.rpartition("/")[2].removesuffix(".json")
        if commit_id not in published and info.path.endswith(".json"):
            yield CollectedObject(path=info.path, bytes=info.size, reason=_NEVER_PUBLISHED)
    for info in _older(config.store.list_leftovers(), horizon):
        yield CollectedObject(path=info.path, bytes=info.size, reason=_LEFTOVER)
    for info in _older(config.store.list(DECISIONS), horizon):
        into_and_source = info.path.removesuffix(".json").split("/")[1:3]
        if not all(_exists(config, segment) for segment in into_and_source):
            yield CollectedObject(path=info.path, bytes=info.size, reason=_OF_DELETED_BRANCH)
    for folder in (LEASES, REMOVING):
        for info in _older(config.store.list(folder), horizon):
            yield CollectedObject(path=info.path, bytes=info.size, reason=_EXPIRED)


def _exists(config: RepoConfig, segment: str) -> bool:
    entry = Heads(config).find(BranchName(segment.replace("%2F", "/")))
    return entry is not None and not entry.state.is_deleted


def _older(objects: Iterable[ObjectInfo], horizon: datetime) -> Iterator[ObjectInfo]:
    return (info for info in objects if info.modified < horizon)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEntry:
    """One state of a table in the retained commits. `holders` are the branches, tags and so on that retain them."""

    key: TableKey
    entry: TableEntry
    holders: frozenset[str]


def find_wanted(repo_store: RepoStore, roots: Roots, commits: Sequence[CommitRecord]) -> dict[str, Wanted]:
    """Return for each dataset what must stay so that the commits remain readable."""
    places: dict[str, set[VersionKey]] = defaultdict(set)
    without_key: dict[str, set[VersionKey]] = defaultdict(set)
    since = _find_since(repo_store, roots)
    for held in iter_held_entries(repo_store, roots, commits):
        entry = held.entry
        place = (entry.home, entry.version)
        places[entry.dataset].add(place)
        # Rows without a key are matched by row ids, which need the manifests of the steps between two kept states.
        if not entry.primary_key:
            without_key[entry.dataset].add(place)
    return {
        dataset: Wanted(places=frozenset(found), since=since[dataset], without_key=frozenset(without_key[dataset]))
        for dataset, found in places.items()
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
                # Several branches may show the home, for example a run and its target. The one that is furthest behind
                # decides.
                lowest[entry.home] = min(entry.head, lowest.get(entry.home, entry.head))
    return since


def iter_held_entries(repo_store: RepoStore, roots: Roots, commits: Sequence[CommitRecord]) -> Iterator[HeldEntry]:
    """Yield every table of the retained commits, each state of it once."""
    by_base: dict[str, list[CommitRecord]] = defaultdict(list)
    for record in commits:
        by_base[record.base].append(record)
    found: dict[tuple[TableKey, TableEntry], set[str]] = defaultdict(set)
    for group in by_base.values():
        for key, entry, holders in _iter_group(repo_store, roots, group):
            found[key, entry].update(holders)
    for (key, entry), by in found.items():
        yield HeldEntry(key=key, entry=entry, holders=frozenset(by))


def _iter_group(
    repo_store: RepoStore, roots: Roots, group: list[CommitRecord]
) -> Iterator[tuple[TableKey, TableEntry, frozenset[str]]]:
    """Yield the tables of commits that share a base.

    Most tables of most commits are those of the base. They are yielded once per set of holders, not once per commit.
    """
    base = repo_store.commits.tables_of(replace(group[0], changes={}))
    untouched: dict[frozenset[str], set[TableKey]] = {}
    for record in group:
        holders = roots.holders[record.commit.graph_commit_id]
        for key, entry in record.changes.items():
            if entry is not None:
                yield key, entry, holders
        untouched.setdefault(holders, set()).update(base.keys() - record.changes.keys())
    for holders, keys in untouched.items():
        yield from ((key, base[key], holders) for key in keys)
