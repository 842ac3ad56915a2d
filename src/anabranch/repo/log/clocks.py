"""The clock of this machine compared with that of the store, which is the same for all writers.

Commits and log entries have the time of the machine that made them, and no entry is older than the one before it. So
after one entry from a clock that is ahead, all entries get the same time until that time is reached.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from anabranch.display import to_datetime, to_microseconds
from anabranch.errors import ClockSkewError, CommitNotFoundError, ObjectNotFoundError, StorageError
from anabranch.ids import BranchName
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import LogEntry
from anabranch.repo.log.leases import steady_seconds
from anabranch.storage.options import CLOCK_TOLERANCE
from anabranch.storage.store import store_time
from anabranch.storage.uris import is_local, split_uri

__all__ = ["StampedAhead", "as_text", "check_clock", "find_stamped_ahead", "is_clock_right", "store_microseconds"]

# The store's time is read again after this many seconds. By then, two clocks may differ by some milliseconds more.
_INTERVAL = 3600.0
# For each store, its time at 0 of the steady clock, and when that was measured.
_measured: dict[str, tuple[float, float]] = {}


def store_microseconds(config: RepoConfig) -> int:
    """Return the time of the store's clock in microseconds. This takes two requests."""
    return to_microseconds(store_time(config.store))


def is_clock_right(config: RepoConfig) -> bool:
    """Return whether this machine's clock agrees with the store's time as it was measured within the last hour.

    Since then, a steady clock has measured how much time has passed, so a wrong change of the machine's clock is
    noticed as well. No request is made.
    """
    if config.clock_tolerance is None:
        return True
    found, now = _measured.get(_key(config.root)), steady_seconds()
    # An old measurement is not trusted in either direction. The caller then measures again by an object that it puts
    # anyway.
    if found is None or now - found[1] > _INTERVAL:
        return False
    return abs(config.clock() / 1e6 - found[0] - now) <= config.clock_tolerance.total_seconds()


def check_clock(config: RepoConfig, written: str) -> None:
    """Raise ClockSkewError if this machine's clock differs too much from the store's.

    `written` is an object that was just put. Its time is read.
    """
    tolerance = config.clock_tolerance
    by_store = None if tolerance is None else _measure(config, written)
    own = config.clock()
    # The measurement was made a moment ago, so that a refusal never rests on an old one.
    if tolerance is None or by_store is None or abs(own - by_store) / 1e6 <= tolerance.total_seconds():
        return
    ahead = "ahead of" if own > by_store else "behind"
    raise ClockSkewError(
        f"the clock of this machine ({as_text(own)}) is {abs(own - by_store) / 1e6:.0f} s {ahead} that of the store"
        f" ({as_text(by_store)}); at most {tolerance.total_seconds():.0f} s are accepted",
        hint=f"correct the clock and try again; if the store's clock is wrong, raise the option '{CLOCK_TOLERANCE}'",
    )


def _measure(config: RepoConfig, written: str) -> int | None:
    try:
        modified = config.store.head(written).modified.timestamp()
    except (ObjectNotFoundError, StorageError):
        return None  # if the time cannot be read, writers continue without the check
    now = steady_seconds()
    _measured[_key(config.root)] = (modified - now, now)
    return int(modified * 1_000_000)


@lru_cache(maxsize=256)
def _key(root: str) -> str:
    """Return a name of the thing that has one clock: a bucket, or a mounted disk."""
    if not is_local(root):
        return "://".join(split_uri(root)[:2])
    try:
        # Repositories on one disk share the measurement, so that each of them does not pay for its own.
        return str(os.stat(root).st_dev)
    except OSError:
        return root


@dataclass(frozen=True, slots=True, kw_only=True)
class StampedAhead:
    """Entries of a branch that all have the same time, from a clock that was ahead of the store's."""

    config: RepoConfig
    branch: BranchName
    at: int

    def is_made_by(self, entry: LogEntry, wanted: int) -> bool:
        """Return whether an entry existed at a time. For these entries, the store's time of the file decides."""
        if entry.at != self.at:
            return entry.at <= wanted
        written = _written_at(self.config, entry)
        return written is not None and written <= wanted


def find_stamped_ahead(
    config: RepoConfig, before: LogEntry, first: LogEntry, find: Callable[[int], LogEntry | None]
) -> StampedAhead | None:
    """Return the entries from `first` on that have a time from a clock that was ahead. None if its time is right.

    The store's times alone are not enough: they change when a repository is copied. So only an entry is checked whose
    time is in the future, or is also the time of the next entry.
    """
    tolerance = int((config.clock_tolerance or timedelta(minutes=5)) / timedelta(microseconds=1))
    is_future = first.at > config.clock() + tolerance
    if not is_future:
        # A clock that was ahead gives its time to all entries after it until that time is reached. Two equal times are
        # the only trace that is left once it has passed.
        following = find(first.number + 1)
        if following is None or following.at != first.at:
            return None
    written = _written_at(config, first)
    if written is None or written + tolerance >= first.at:
        return None
    if _is_copied(config, before, tolerance):
        raise CommitNotFoundError(
            f"the time of version {first.number} of branch '{first.branch}' is unknown: a clock that was ahead has"
            f" dated it {as_text(first.at)}, and the store's times were changed when the repository was copied",
            hint=f"use a version number instead of a time, such as {first.branch}@v{first.number}",
        )
    return StampedAhead(config=config, branch=first.branch, at=first.at)


def _is_copied(config: RepoConfig, entry: LogEntry, tolerance: int) -> bool:
    """Return whether the repository was copied: the file of an entry with a right time is much younger than that."""
    written = _written_at(config, entry)
    return written is not None and written > entry.at + tolerance


def _written_at(config: RepoConfig, entry: LogEntry) -> int | None:
    found = config.store.find_info(config.branch_log(entry.branch).path(entry.number))
    return None if found is None else to_microseconds(found.modified)


def as_text(microseconds: int) -> str:
    """Return a time as ISO 8601 text in UTC."""
    return to_datetime(microseconds).isoformat(timespec="seconds").replace("+00:00", "Z")
