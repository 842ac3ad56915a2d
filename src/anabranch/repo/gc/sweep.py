"""The objects that may be deleted, each with the reason, in the order in which they must be deleted."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby

from anabranch.format.layout.reach import Reach, Wanted, find_reach
from anabranch.ids import BranchName
from anabranch.repo.gc.policy import CollectedObject
from anabranch.repo.leases.leases import LEASES
from anabranch.repo.log.commits import COMMITS
from anabranch.repo.log.config import DECISIONS, RepoConfig
from anabranch.repo.log.heads import Heads
from anabranch.repo.log.history_tables import history_homes
from anabranch.repo.write.homes import REMOVING
from anabranch.storage import ObjectInfo, ObjectStore, in_parallel

__all__ = ["delete_wave", "iter_history_reach", "iter_unreferenced", "iter_waves"]

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
    for info in _older(config.store.list(COMMITS), horizon):
        commit_id = info.path.rpartition("/")[2].removesuffix(".json")
        if commit_id not in published and info.path.endswith(".json"):
            yield CollectedObject(path=info.path, bytes=info.size, reason=_NEVER_PUBLISHED)
    for info in _older(config.store.list_leftovers(), horizon):
        yield CollectedObject(path=info.path, bytes=info.size, reason=_LEFTOVER)
    for info in _older(config.store.list(DECISIONS), horizon):
        *_, into, source = info.path.removesuffix(".json").split("/")
        if not all(_exists(config, segment) for segment in (into, source)):
            yield CollectedObject(path=info.path, bytes=info.size, reason=_OF_DELETED_BRANCH)
    for folder in (LEASES, REMOVING):
        for info in _older(config.store.list(folder), horizon):
            yield CollectedObject(path=info.path, bytes=info.size, reason=_EXPIRED)


def _exists(config: RepoConfig, segment: str) -> bool:
    entry = Heads(config).find(BranchName(segment.replace("%2F", "/")))
    return entry is not None and not entry.state.is_deleted


def _older(objects: Iterable[ObjectInfo], horizon: datetime) -> Iterator[ObjectInfo]:
    return (info for info in objects if info.modified < horizon)
