"""The leases of a repository: the work in progress, its start, and the commits that it needs.

A lease is a small file that a process renews while it works, so that other processes wait for it. It is a hint. Nothing
is lost if it expires too early: the writer finds out before it publishes (`Lease.check`), and two writers meet in the
log. Ages are differences between times of the store's own clock, so clocks need not agree.

Files of work in progress are not published yet and look like garbage. Garbage collection keeps files that are younger
than its grace period, and files that are younger than the oldest lease.
"""

import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from anabranch.errors import BusyError, CorruptError, ObjectNotFoundError, StorageError
from anabranch.ids import BranchName, new_ulid
from anabranch.repo.log.validation import check_commit_id
from anabranch.storage import ObjectInfo, ObjectStore, in_parallel
from anabranch.storage.documents import damage_named, dump, load
from anabranch.storage.store import store_time

LEASES = "_leases"
_WORK = BranchName("__work__")
_WORK_PATH = f"{LEASES}/{_WORK.segment}"
# A lease is renewed three times while it lasts.
_RENEWALS = 3
# A writer whose lease was not renewed for two durations must not publish. For others it expires one duration later, so
# that the writer always finds out first, also if the store is slow.
_SILENT_DURATIONS = 2
_EXPIRED_AFTER = _SILENT_DURATIONS + 1
# An idle process keeps its renewal thread this long, so that a busy one does not start a thread for each transaction.
_IDLE = timedelta(seconds=1) * _RENEWALS


# Seconds that also pass while the machine sleeps, and that do not go back. On macOS the second clock is such a one.
steady_seconds = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(eq=False, repr=False)
class Lease:
    """One heartbeat file at `path`. It records how long the work has been running and which commits it needs."""

    store: ObjectStore
    path: str
    duration: timedelta
    held: tuple[str, ...] = ()
    _began: float = field(default_factory=steady_seconds)
    _renewed: float = field(default_factory=steady_seconds)
    _longest_silence: float = 0.0
    _may_exist: bool = True
    _is_released: bool = False
    # A write in progress when the lease is released must not recreate the file.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, *, at_once: bool = True) -> None:
        """Write the file, and renew it in the background until the lease is released or dropped.

        Without `at_once`, write it only when the first renewal is due: short work costs no request. Garbage collection
        does not touch files younger than its grace period, which covers the time until then.
        """
        if at_once:
            self._write()
        # The release of a lease that was never written needs no request.
        self._may_exist = at_once
        with _RENEWER.changed:
            _RENEWER.leases.add(self)
            # The thread sleeps for the shortest pause that it has read. A shorter lease would expire before it wakes.
            if self.duration < _RENEWER.shortest:
                _RENEWER.changed.notify()
            if _RENEWER.thread is None or not _RENEWER.thread.is_alive():
                _RENEWER.thread = threading.Thread(target=_RENEWER.run, name="anabranch-leases", daemon=True)
                _RENEWER.thread.start()

    def hold(self, commit_ids: Iterable[str]) -> None:
        """Protect more commits from garbage collection. The caller checks afterwards that they still exist."""
        with self._lock:
            self.held = tuple(dict.fromkeys([*self.held, *commit_ids]))
        self._write()

    def renew(self) -> None:
        """Write the file again. If the store fails, the next renewal is still in time."""
        with suppress(StorageError):
            self._write()

    def renew_if_due(self) -> None:
        # The thread wakes by the shortest pause of all leases, and a wait may end a little early. Without the margin a
        # lease that is almost due would wait for one more pause.
        if steady_seconds() - self._renewed >= self.duration.total_seconds() / _RENEWALS * 0.9:
            self.renew()

    def check(self, _: object = None) -> None:
        """Raise BusyError if the lease may have expired, so that files of the work may have been collected.

        It verifies any log entry in the same way.
        """
        silent = max(self._longest_silence, steady_seconds() - self._renewed)
        if silent > self.duration.total_seconds() * _SILENT_DURATIONS:
            raise BusyError(
                f"the lease of this work was not renewed for {silent:.0f} s, and its files may have been collected",
                hint="do it again",
            )

    def release(self) -> None:
        """Delete the file. If the store fails, the lease expires."""
        with _RENEWER.changed:
            _RENEWER.leases.discard(self)
        with self._lock:
            self._is_released = True
        if self._may_exist:
            with suppress(StorageError):
                self.store.delete(self.path)

    def _write(self) -> None:
        with self._lock:
            if self._is_released:
                return
            now = steady_seconds()
            # A late renewal must not hide the time without renewals: other processes may have acted on it.
            self._longest_silence = max(self._longest_silence, now - self._renewed)
            fields = {"age": f"{now - self._began:.3f}", "held": self.held}
            self._may_exist = True
            self.store.put(self.path, dump(fields), durable=False)
            self._renewed = now


class _Renewer:
    """One thread that renews all leases of this process, while there are any."""

    def __init__(self) -> None:
        # A transaction or run that is dropped without being closed must not be renewed forever.
        self.leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.changed = threading.Condition()
        self.thread: threading.Thread | None = None
        # The shortest duration of a lease that the thread has read before it went to sleep.
        self.shortest = timedelta()

    def run(self) -> None:
        while True:
            with self.changed:
                self.shortest = min((lease.duration for lease in self.leases), default=_IDLE)
                self.changed.wait(self.shortest.total_seconds() / _RENEWALS)
                leases = list(self.leases)
                if not leases:
                    self.thread = None
                    return
            # In parallel, so that a slow store does not delay the leases in others by its own time for each of them.
            in_parallel(Lease.renew_if_due, leases)
            # A list that exists during the next wait would keep dropped leases in the weak set.
            del leases


_RENEWER = _Renewer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Work in progress: its start by the store's clock, and the commits that it needs even if no ref names them."""

    began: datetime
    held: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """The lease files of one repository. `duration` is how long a lease lasts without renewal."""

    store: ObjectStore
    duration: timedelta

    def new(self, holder: BranchName, name: str) -> Lease:
        """Return a lease of a run or a lock, which is not started yet."""
        return Lease(self.store, lease_path(holder, name), self.duration)

    def start_work(self, *, held: Iterable[str] = (), since: float | None = None) -> Lease:
        """Start a lease for work that writes now and publishes later.

        `held` are commits that the work needs even if no ref names them. `since` is the start of the work, in seconds
        of the wall clock, if that was before now.
        """
        lease = Lease(self.store, f"{_WORK_PATH}/{new_ulid()}", self.duration, tuple(held))
        if since is not None:
            # Files of this work are older than this process. Garbage collection must keep them from the first on.
            lease._began -= max(0.0, time.time() - since)
        lease.start(at_once=bool(lease.held) or since is not None)
        return lease

    @contextmanager
    def working(self, *, held: Iterable[str] = (), since: float | None = None) -> Iterator[Lease]:
        """Hold a lease as `start_work` starts it."""
        lease = self.start_work(held=held, since=since)
        try:
            yield lease
        finally:
            lease.release()

    @contextmanager
    def working_alone(self, lock: BranchName, *, doing: str) -> Iterator[Lease]:
        """Hold a lease that only one process may hold; `doing` names the work in the error.

        Each process writes its lease first and then lists all, so of two concurrent starts at least one is refused.
        """
        lease = self.new(lock, new_ulid())
        lease.start()
        try:
            # Three durations, not one: a holder that has not renewed its lease for one duration may still continue.
            if any(info.path != lease.path for info in self._list_unexpired(lock)):
                hint = f"try again when it is done, or in {self.expiry.total_seconds():.0f} s"
                raise BusyError(f"{doing}, or was until a moment ago by a process that died", hint=hint)
            yield lease
        finally:
            lease.release()

    def list_alive(self, holder: BranchName) -> tuple[str, ...]:
        """Return the names of the leases of a branch or lock that were renewed within their duration."""
        return _names(self._list(within=self.duration, holder=holder))

    def list_names(self) -> tuple[str, ...]:
        """Return the names of all leases that may still be held, runs and work alike."""
        return _names(self._list_unexpired())

    def iter_work(self) -> Iterator[Work]:
        """Yield each piece of work that holds a lease."""
        for info in self._list_unexpired(_WORK):
            try:
                yield self._read(info)
            except ObjectNotFoundError:
                continue  # the work has ended
            except CorruptError as err:
                hint = f"try again in {self.expiry.total_seconds():.0f} s: by then it is renewed or expired"
                raise CorruptError(err.problem, hint=hint) from err

    def _read(self, info: ObjectInfo) -> Work:
        data = self.store.get(info.path)
        with damage_named(info.path):
            if data.startswith(b"{"):
                fields = load(data, path=info.path)
                age, held = fields["age"], fields["held"]
            else:
                age, *held = data.decode().split(" ")  # written by an earlier release
            return Work(began=info.modified - timedelta(seconds=float(age)), held=tuple(map(check_commit_id, held)))

    @property
    def expiry(self) -> timedelta:
        """Return the time after its last renewal at which a lease expires. Its work can no longer publish then."""
        return self.duration * _EXPIRED_AFTER

    def _list_unexpired(self, holder: BranchName | None = None) -> tuple[ObjectInfo, ...]:
        return self._list(within=self.expiry, holder=holder)

    def _list(self, *, within: timedelta, holder: BranchName | None = None) -> tuple[ObjectInfo, ...]:
        """Return the leases of a branch or lock, or all, that were renewed within some time."""
        found = list(self.store.list(LEASES if holder is None else lease_path(holder)))
        if not found:
            return ()
        now = store_time(self.store)
        # A time in the future is from before the store's clock was set back. A lease that is held was renewed since.
        return tuple(info for info in found if abs(now - info.modified) < within)


def lease_path(holder: BranchName, *name: str) -> str:
    return "/".join([LEASES, holder.segment, *name])


def _names(found: Iterable[ObjectInfo]) -> tuple[str, ...]:
    return tuple(sorted({info.path.rpartition("/")[2] for info in found}))
