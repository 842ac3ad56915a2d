"""The settings that all parts of a repository share: its location, the actor, and the sources of time and ids.

The names of its folders are here, too, and those of the homes of a branch.

The clock of this machine is compared with that of the store, which is the same for all writers. Commits and log entries
have the time of the machine that made them, and no entry is older than the one before it. So after one entry from a
clock that is ahead, all entries get the same time until that time is reached.
"""

import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache

from anabranch.display import to_datetime, to_microseconds
from anabranch.errors import ClockSkewError, ObjectNotFoundError, StaleBaseError, StorageError
from anabranch.format.home import BoundedCache, Home
from anabranch.format.staging import VersionRef
from anabranch.ids import MAIN, BranchName, new_ulid
from anabranch.repo.log.entries import TableEntry
from anabranch.repo.log.leases import Leases, steady_seconds
from anabranch.repo.log.numbered_log import BRANCHES, RUNS, NumberedLog
from anabranch.storage import ObjectStore, in_parallel
from anabranch.storage.local_store import refuse_links
from anabranch.storage.options import CLOCK_TOLERANCE, Durability, durability_of
from anabranch.storage.store import store_time
from anabranch.storage.uris import follow_links, is_local, join_uri, relative_to, split_uri

DECISIONS = "_decisions"
TABLES = "tables"
_MAIN_HOMES = "__main__"  # no graph branch can have this name
_LONGEST_PAUSE_SECONDS = 2.0
_RELOCATE = "run `relocate({!r})` to adapt it to its new location"
# The store's time is read again after this many seconds. By then, two clocks may differ by some milliseconds more.
_CLOCK_INTERVAL = 3600.0
# For each store, its time at 0 of the steady clock, and when that was measured.
_measured: dict[str, tuple[float, float]] = {}


def now_in_microseconds() -> int:
    return time.time_ns() // 1000


def give_way(losses: int, took: int) -> None:
    """Sleep before repeating an attempt that failed because of another writer and took `took` microseconds.

    The first retry follows at once. Later ones wait for a random time with a growing maximum: writers that all prepare
    again at the same time would only waste their work.
    """
    if losses > 1:
        # Scale by the time of one attempt: a much shorter pause would not separate the writers.
        longest = min(_LONGEST_PAUSE_SECONDS, max(took, 0) / 1e6 * 2.0 ** min(losses - 1, 8))
        time.sleep(secrets.SystemRandom().uniform(0, longest))


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoConfig:
    """The settings that all parts of a repository share.

    `made_at` is the root that the repository has recorded, None if it was not read. A moved or copied repository has
    another `root`. `clock_tolerance` is the maximum difference between the clocks of this machine and of the store
    when something is published, None for any.
    """

    root: str
    store: ObjectStore
    actor: str | None = None
    made_at: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    clock: Callable[[], int] = now_in_microseconds
    clock_tolerance: timedelta | None = timedelta(minutes=5)
    new_id: Callable[[], str] = new_ulid
    give_way: Callable[[int, int], None] = give_way
    lease: timedelta = timedelta(minutes=1)
    read_root: Callable[[], str] | None = None
    # Whether commits wait for the disk. Object stores are durable by themselves.
    is_durable: bool = field(init=False, compare=False, repr=False)
    # How many tables to write at a time. On a local disk few, because more would only compete for the processor.
    # Behind an object store most of the time is waiting for answers.
    tables_at_a_time: int = field(init=False, compare=False, repr=False)
    leases: Leases = field(init=False, compare=False, repr=False)
    # The homes of tables by their dataset and Lance branch.
    homes: "BoundedCache[tuple[str, str | None], Home]" = field(
        default_factory=lambda: BoundedCache(limit=1024), init=False, compare=False, repr=False
    )
    restore: "Callable[[str, Mapping[str, str], str | None, str | None], RepoConfig] | None" = None

    def __post_init__(self) -> None:
        local = is_local(self.root)
        object.__setattr__(self, "leases", Leases(store=self.store, duration=self.lease))
        object.__setattr__(self, "is_durable", local and durability_of(self.storage_options) is Durability.FULL)
        object.__setattr__(self, "tables_at_a_time", min(4, os.cpu_count() or 1) if local else 16)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the values that `restore` needs to open the repository in another process.

        They include the storage options, and so any credentials in them.
        """
        if self.restore is None:
            raise TypeError("this object cannot be pickled; pickle the Repository or a Snapshot")
        return self.restore, (self.root, dict(self.storage_options), self.actor, self.made_at)

    def branch_log(self, branch: BranchName) -> NumberedLog:
        if branch.run_id is not None:
            # Runs have their own folder, so that the cost of listing branches does not grow with the number of runs.
            return NumberedLog(self.store, f"{RUNS}/{branch.run_id}")
        return NumberedLog(self.store, f"{BRANCHES}/{branch.segment}")

    def list_datasets(self) -> list[str]:
        """Return all table folders, named as in table entries. Includes folders of tables that no commit names."""
        folders = in_parallel(self.store.list_folders, self.store.list_folders(TABLES))
        return sorted(folder.removeprefix(f"{TABLES}/") for found in folders for folder in found)

    def dataset_root(self, dataset: str) -> Home:
        """Return the root home of a dataset, named as in table entries: 'bucket/table.lance'.

        Raise LinkError if a folder on the path is a symbolic link.
        """
        return self.home_at(f"{TABLES}/{dataset}")

    def home_at(self, path: str) -> Home:
        """Return the root home of the dataset at a path below the repository's root."""
        refuse_links(self.root, path)
        return Home(root=join_uri(self.root, path), storage_options=self.storage_options, recorded_root=self.made_at)

    def version_ref(self, entry: TableEntry) -> VersionRef:
        """Return the Lance version of a table, without opening it."""
        return VersionRef(home=self.home_of(entry), version=entry.version)

    def home_of(self, entry: TableEntry) -> Home:
        """Return the home of a table. Raise StaleBaseError if it reads the former location of the repository."""
        home = self.homes.find((entry.dataset, entry.home))
        if home is None:
            home = self.dataset_root(entry.dataset).on(entry.home)
            self.homes.keep((entry.dataset, entry.home), home)
        else:
            # The folder may have been replaced by a link since the home was cached.
            refuse_links(self.root, f"{TABLES}/{entry.dataset}")
        if self.made_at is not None and self.made_at != self.root:
            try:
                self._check_relocated(home, entry.version, former=self.made_at)
            except StaleBaseError:
                # Another process may have relocated the repository since this handle was opened: read it again.
                home.forget()
                self._check_relocated(home, entry.version, former=self.made_at)
        return home

    def require_relocated(self) -> None:
        """Raise StaleBaseError if the repository was moved or copied and not relocated.

        Tables may still name files by their former location, so those files would seem unused.
        """
        recorded = self.made_at
        if recorded is not None and recorded != self.root and self.read_root is not None:
            recorded = self.read_root()  # it may have been relocated since this handle was opened
        if recorded is not None and follow_links(recorded) != follow_links(self.root):
            raise StaleBaseError(
                f"the repository at {self.root!r} was made at {recorded!r}, and branches may still read that location",
                hint=_RELOCATE.format(self.root),
            )

    def _check_relocated(self, home: Home, version: int, *, former: str) -> None:
        """Raise StaleBaseError if a version reads the former location of the repository.

        Lance branches store their root as an absolute path, so those of a copied repository would silently read the
        original. An interrupted relocation has changed only some versions, so each version is checked by itself.
        """
        from anabranch.format.bases import bases_of, check_bases

        bases = bases_of(home.open(version))
        try:
            check_bases(home, bases)
        except StaleBaseError as err:
            raise self._not_relocated(home, former) from err
        if any(self._is_former(base.path, former) for base in bases):
            raise self._not_relocated(home, former)

    def _is_former(self, path: str, former: str) -> bool:
        target = follow_links(path)
        is_below_former = relative_to(target, follow_links(former)) is not None
        # A repository that was moved to a folder below its former root has its own files below both.
        return is_below_former and relative_to(target, follow_links(self.root)) is None

    def _not_relocated(self, home: Home, former: str) -> StaleBaseError:
        problem = f"the repository at {self.root!r} was made at {former!r}, and {home.uri!r} still reads that location"
        return StaleBaseError(problem, hint=_RELOCATE.format(self.root))


def owns(branch: BranchName, home: str | None) -> bool:
    """Return whether this graph branch writes to a home: `{branch}/{ulid}`, and for main at first the root."""
    if home is None:
        return branch.value == MAIN
    # Only the last segment is the ULID. A prefix would also match homes of branch 'dev/x' for branch 'dev'.
    return home.rpartition("/")[0] in home_folders(branch)


def home_folders(branch: BranchName) -> tuple[str, ...]:
    """Return the folders that may contain homes of a graph branch."""
    return tuple(dict.fromkeys((branch.value, homes_folder(branch))))


def homes_folder(branch: BranchName) -> str:
    """Return the folder of new homes of a graph branch.

    Not below `main/`: Lance removes the whole dataset with the last branch there. Older versions of Anabranch put the
    homes of main there, which are still its homes.
    """
    first, separator, rest = str(branch).partition("/")
    return f"{_MAIN_HOMES}{separator}{rest}" if first == MAIN else str(branch)


def store_microseconds(config: RepoConfig) -> int:
    """Return the time of the store's clock in microseconds. This takes two requests."""
    return to_microseconds(store_time(config.store))


def check_clock(config: RepoConfig, written: str) -> None:
    """Raise ClockSkewError, and delete a commit that was just put, if this machine's clock differs from the store's.

    The store's time was measured within the last hour, and a steady clock has measured how much time has passed since.
    So a wrong change of the machine's clock is detected without a request. Otherwise the time of the commit is read.
    """
    if config.clock_tolerance is None:
        return
    found, tolerance = _measured.get(_clock_key(config.root)), config.clock_tolerance.total_seconds()
    now = steady_seconds()
    # An old measurement is not trusted in either direction.
    is_recent = found is not None and now - found[1] <= _CLOCK_INTERVAL
    if found is not None and is_recent and abs(config.clock() / 1e6 - found[0] - now) <= tolerance:
        return
    by_store, own = _measure(config, written), config.clock()
    # The measurement was made a moment ago, so that a refusal never rests on an old one.
    if by_store is None or abs(own - by_store) / 1e6 <= tolerance:
        return
    # No log names it.
    config.store.delete(written)
    ahead = "ahead of" if own > by_store else "behind"
    raise ClockSkewError(
        f"the clock of this machine ({as_text(own)}) is {abs(own - by_store) / 1e6:.0f} s {ahead} that of the store"
        f" ({as_text(by_store)}); at most {tolerance:.0f} s are accepted",
        hint=f"correct the clock and try again; if the store's clock is wrong, raise the option '{CLOCK_TOLERANCE}'",
    )


def _measure(config: RepoConfig, written: str) -> int | None:
    try:
        modified = config.store.head(written).modified.timestamp()
    except (ObjectNotFoundError, StorageError):
        return None  # if the time cannot be read, writers continue without the check
    now = steady_seconds()
    _measured[_clock_key(config.root)] = (modified - now, now)
    return int(modified * 1_000_000)


@lru_cache(maxsize=256)
def _clock_key(root: str) -> str:
    """Return a name of the unit with one clock: a bucket, or a mounted disk."""
    if not is_local(root):
        return "://".join(split_uri(root)[:2])
    try:
        # Repositories on one disk share the measurement, so that each of them does not pay for its own.
        return str(os.stat(root).st_dev)
    except OSError:
        return root


def as_text(microseconds: int) -> str:
    """Return a time as ISO 8601 text in UTC."""
    return to_datetime(microseconds).isoformat(timespec="seconds").replace("+00:00", "Z")
