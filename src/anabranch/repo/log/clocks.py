"""The clock of this machine beside that of the store, which is the same for all writers.

Commits and log entries carry the time of the machine that made them, and no entry is older than the one before it. So
one entry from a clock that is ahead gives its time to all entries after it, until that time has come.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from anabranch.errors import ClockSkewError, CommitNotFoundError, ObjectNotFoundError, StorageError
from anabranch.ids import BranchName
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import LogEntry
from anabranch.storage import find_object
from anabranch.storage.clock import store_time
from anabranch.storage.options import CLOCK_TOLERANCE
from anabranch.storage.uris import is_local, split_uri

__all__ = ["StampedAhead", "as_text", "check_clock", "find_stamped_ahead", "store_microseconds"]

# After this many seconds the store is asked again; by then two clocks may have drifted apart by some milliseconds.
_INTERVAL = 3600.0
_EPOCH = datetime.fromtimestamp(0, UTC)
# By store, the time that it had when a clock that is never set showed 0, and when that was measured.
_measured: dict[str, tuple[float, float]] = {}
_lock = threading.Lock()


def store_microseconds(context: RepoConfig) -> int:
    """Return the time by the store's clock, as commits record times; two requests."""
    return _microseconds(store_time(context.store))


def check_clock(context: RepoConfig, written: str) -> None:
    """Raise ClockSkewError if this machine's clock is too far from the store's.

    `written` is an object that was put a moment ago. It is asked for at most once per hour, process and store; in
    between, a clock that is never set says how much time has passed. So a clock that is set wrongly is noticed, too.
    """
    if context.clock_tolerance is None:
        return
    by_store = _known_time(context)
    if by_store is None or _is_apart(context, by_store):
        by_store = _measure(context, written)
    if by_store is None or not _is_apart(context, by_store):
        return
    own = context.clock()
    ahead = "ahead of" if own > by_store else "behind"
    raise ClockSkewError(
        f"the clock of this machine ({as_text(own)}) is {abs(own - by_store) / 1e6:.0f} s {ahead} that of the store"
        f" ({as_text(by_store)}); at most {context.clock_tolerance.total_seconds():.0f} s are accepted",
        hint=f"correct the clock and try again; if the store's clock is wrong, raise the option '{CLOCK_TOLERANCE}'",
    )


def _is_apart(context: RepoConfig, by_store: int) -> bool:
    tolerance = context.clock_tolerance or timedelta(0)
    return abs(context.clock() - by_store) > tolerance / timedelta(microseconds=1)


def _known_time(context: RepoConfig) -> int | None:
    with _lock:
        found = _measured.get(_key(context.root))
    now = _steady()
    if found is None or now - found[1] > _INTERVAL:
        return None
    return int((found[0] + now) * 1_000_000)


def _measure(context: RepoConfig, written: str) -> int | None:
    try:
        modified = context.store.head(written).modified.timestamp()
    except (ObjectNotFoundError, StorageError):
        return None  # a check that cannot be made stops no writer
    now = _steady()
    with _lock:
        _measured[_key(context.root)] = (modified - now, now)
    return int(modified * 1_000_000)


def _key(root: str) -> str:
    """What has one clock: a bucket, or a mounted disk."""
    if not is_local(root):
        return "://".join(split_uri(root)[:2])
    try:
        return str(os.stat(root).st_dev)
    except OSError:
        return root


def _steady() -> float:
    """Seconds that also pass while the machine sleeps, of a clock that is never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class StampedAhead:
    """Entries of a branch that all carry the same time, from a clock that was ahead of the store."""

    context: RepoConfig
    branch: BranchName
    at: int

    def is_made_by(self, entry: LogEntry, wanted: int) -> bool:
        """Whether an entry was there at a time; for one of these entries the store's time decides."""
        if entry.at != self.at:
            return entry.at <= wanted
        written = _written_at(self.context, entry)
        return written is not None and written <= wanted


def find_stamped_ahead(
    context: RepoConfig, before: LogEntry, first: LogEntry, find: Callable[[int], LogEntry | None]
) -> StampedAhead | None:
    """Return the entries from `first` on that were stamped ahead, if it is such a one; None if its time is right.

    The store's times alone do not decide: they change when a repository is copied. Only an entry is suspected whose
    time is still to come, or has been given to the next entry, too.
    """
    tolerance = int((context.clock_tolerance or timedelta(minutes=5)) / timedelta(microseconds=1))
    is_future = first.at > context.clock() + tolerance
    if not is_future:
        following = find(first.number + 1)
        if following is None or following.at != first.at:
            return None
    written = _written_at(context, first)
    if written is None or written + tolerance >= first.at:
        return None
    if _is_copied(context, before, tolerance):
        raise CommitNotFoundError(
            f"when version {first.number} of branch '{first.branch}' was made is not known: a clock that was ahead has"
            f" dated it {as_text(first.at)}, and a copy of the repository has changed the store's times",
            hint=f"name a version, such as {first.branch}@v{first.number}",
        )
    return StampedAhead(context=context, branch=first.branch, at=first.at)


def _is_copied(context: RepoConfig, entry: LogEntry, tolerance: int) -> bool:
    """Whether the store's times are those of a copy: an entry with a right time was written long after it."""
    written = _written_at(context, entry)
    return written is not None and written > entry.at + tolerance


def _written_at(context: RepoConfig, entry: LogEntry) -> int | None:
    found = find_object(context.store, context.branch_log(entry.branch).path(entry.number))
    return None if found is None else _microseconds(found.modified)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def as_text(microseconds: int) -> str:
    """Write a time as people read it, in UTC."""
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
