"""A lease: a small file that a process renews while it works, so that others wait for it.

A lease is a hint. Nothing is lost if it expires too early: the writer finds out before it publishes (`Lease.check`),
and two writers meet in the log. Ages are differences between times of the store's own clock, so clocks need not agree.
"""

import threading
import time
import weakref
from collections.abc import Iterable
from datetime import timedelta

from anabranch.errors import BusyError, StorageError
from anabranch.storage import ObjectStore, in_parallel
from anabranch.storage.documents import dump

__all__ = ["EXPIRED_AFTER", "Lease", "active_leases"]

# A lease is renewed three times while it lasts.
_RENEWALS = 3
# A writer whose lease was not renewed for two durations must not publish. Others treat it as dead one duration later,
# so that the writer always finds out first.
_SILENT_DURATIONS = 2
EXPIRED_AFTER = _SILENT_DURATIONS + 1
# An idle process keeps its renewal thread this long, so that a busy one does not start a thread for each transaction.
_IDLE_SECONDS = 1.0


class Lease:
    """One heartbeat file. It records how long the work has been running and which commits it needs.

    `since` is the start of the work in seconds of the wall clock, if another process began it.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        *,
        duration: timedelta,
        held: Iterable[str] = (),
        since: float | None = None,
    ) -> None:
        self._store = store
        self._path = path
        self._duration = duration
        self._held = tuple(held)
        self._began = self._renewed = _clock()
        if since is not None:
            self._began -= max(0.0, time.time() - since)
        self._longest_silence = 0.0
        self._may_exist = True
        self._is_released = False
        # A write in progress when the lease is released must not recreate the file.
        self._lock = threading.Lock()

    @property
    def path(self) -> str:
        return self._path

    @property
    def pause(self) -> float:
        """Seconds between two renewals."""
        return self._duration.total_seconds() / _RENEWALS

    def start(self) -> None:
        """Write the file, and renew it in the background until the lease is released or dropped."""
        self._write()
        _RENEWER.add(self)

    def start_later(self) -> None:
        """Like `start`, but write the file only when the first renewal is due: short work costs no request.

        Garbage collection does not touch files younger than its grace period, which covers the time until then.
        """
        self._may_exist = False
        _RENEWER.add(self)

    def hold(self, commit_ids: Iterable[str]) -> None:
        """Protect more commits from garbage collection. The caller checks afterwards that they still exist."""
        with self._lock:
            self._held = tuple(dict.fromkeys([*self._held, *commit_ids]))
        self._write()

    def renew(self) -> None:
        """Write the file again. If the store fails, the next renewal is still in time."""
        try:
            self._write()
        except StorageError:
            return

    def renew_if_due(self) -> None:
        if _clock() - self._renewed >= self.pause * 0.9:
            self.renew()

    def check(self) -> None:
        """Raise BusyError if the lease may have expired, so that files of the work may have been collected."""
        silent = max(self._longest_silence, _clock() - self._renewed)
        if silent > self._duration.total_seconds() * _SILENT_DURATIONS:
            raise BusyError(
                f"the lease of this work was not renewed for {silent:.0f} s, and its files may have been collected",
                hint="do it again",
            )

    def release(self) -> None:
        """Delete the file. If the store fails, the lease expires."""
        _RENEWER.remove(self)
        with self._lock:
            self._is_released = True
        if self._may_exist:
            try:
                self._store.delete(self._path)
            except StorageError:
                return

    def _write(self) -> None:
        with self._lock:
            if self._is_released:
                return
            now = _clock()
            # A renewal after a long silence must not hide the silence: others may have acted on it.
            self._longest_silence = max(self._longest_silence, now - self._renewed)
            fields = {"age": f"{now - self._began:.3f}", "held": self._held}
            self._may_exist = True
            self._store.put(self._path, dump(fields), durable=False)
            self._renewed = now


class _Renewer:
    """One thread that renews all leases of this process, while there are any."""

    def __init__(self) -> None:
        # A transaction or run that is dropped without being closed must not be renewed forever.
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pause = 0.0

    def add(self, lease: Lease) -> None:
        with self._changed:
            self._leases.add(lease)
            if lease.pause < self._pause:
                self._changed.notify()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="anabranch-leases", daemon=True)
                self._thread.start()

    def remove(self, lease: Lease) -> None:
        with self._changed:
            self._leases.discard(lease)

    def list(self) -> "list[Lease]":
        with self._changed:
            return list(self._leases)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._pause = min((lease.pause for lease in self._leases), default=_IDLE_SECONDS)
                self._changed.wait(self._pause)
                leases = list(self._leases)
                if not leases:
                    self._thread = None
                    return
            # In parallel, so that a slow store does not delay the leases in others by its own time for each of them.
            in_parallel(Lease.renew_if_due, leases)
            del leases


_RENEWER = _Renewer()


def active_leases() -> list[Lease]:
    """Return the leases that this process renews."""
    return _RENEWER.list()


def _clock() -> float:
    """Return seconds that also pass while the machine sleeps, and that do not go back."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()
