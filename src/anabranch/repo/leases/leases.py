"""The leases of a repository: who is at work, since when, and which commits that work needs.

What work writes is not published yet and looks like garbage. Garbage collection spares files that are younger than its
grace period, and files that are younger than the oldest lease.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from anabranch.errors import BusyError, CorruptError, ObjectNotFoundError
from anabranch.ids import BranchName, new_ulid
from anabranch.repo.leases.lease import EXPIRED_AFTER, Lease
from anabranch.storage import ObjectInfo, ObjectStore
from anabranch.storage.documents import damage_named, load
from anabranch.storage.store import store_time

__all__ = ["LEASES", "Leases", "lease_path"]

LEASES = "_leases"
_WORK = BranchName("__work__")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The content of a lease: when its work began by the store's clock, and which commits it needs."""

    began: datetime
    held: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leases:
    """The lease files of one repository. `duration` is how long a lease lasts without renewal."""

    store: ObjectStore
    duration: timedelta

    def new(self, holder: BranchName, name: str) -> Lease:
        """Return a lease of a run or a lock, which is not started yet."""
        return Lease(self.store, lease_path(holder, name), duration=self.duration)

    def start_work(self, *, held: Iterable[str] = (), since: float | None = None) -> Lease:
        """Start a lease for work that writes now and publishes later.

        `held` are commits that the work needs though no ref may name them. `since` is when the work began, in seconds
        of the wall clock, if that was before now.
        """
        held = tuple(held)
        lease = Lease(self.store, lease_path(_WORK, new_ulid()), duration=self.duration, held=held, since=since)
        if held or since is not None:
            lease.start()
        else:
            lease.start_later()
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

        Both write first and list then, so of two that start at once, at least one is refused.
        """
        lease = self.new(lock, new_ulid())
        lease.start()
        try:
            if any(info.path != lease.path for info in self._list_unexpired(lock)):
                raise BusyError(
                    f"{doing}, or was until a moment ago by a process that died",
                    hint=f"try again when it is done, or in {self._expiry_seconds:.0f} s",
                )
            yield lease
        finally:
            lease.release()

    def list_alive(self, holder: BranchName) -> tuple[str, ...]:
        """Return the names of the leases of a branch or lock that were renewed within their duration."""
        return _names(self._list(within=self.duration, holder=holder))

    def list_names(self) -> tuple[str, ...]:
        """Return the names of all leases that may still be held, runs and work alike."""
        return _names(self._list_unexpired())

    def list_begins(self) -> tuple[datetime, ...]:
        """Return when each piece of work began that holds a lease, by the store's clock."""
        return tuple(work.began for work in self._iter_work())

    def list_held_commits(self) -> tuple[str, ...]:
        """Return the commits that work in progress needs though no ref may name them."""
        return tuple(commit_id for work in self._iter_work() for commit_id in work.held)

    def _iter_work(self) -> Iterator[_Work]:
        for info in self._list_unexpired(_WORK):
            try:
                yield self._read(info)
            except ObjectNotFoundError:
                continue  # the work has ended
            except CorruptError as err:
                hint = f"try again in {self._expiry_seconds:.0f} s: by then it is renewed or expired"
                raise CorruptError(err.problem, hint=hint) from err

    def _read(self, info: ObjectInfo) -> _Work:
        data = self.store.get(info.path)
        with damage_named(info.path):
            if data.startswith(b"{"):
                fields = load(data, path=info.path)
                age, held = fields["age"], fields["held"]
            else:
                age, *held = data.decode().split(" ")  # written by an earlier release
            return _Work(began=info.modified - timedelta(seconds=float(age)), held=tuple(map(_checked_id, held)))

    @property
    def _expiry_seconds(self) -> float:
        return self.duration.total_seconds() * EXPIRED_AFTER

    def _list_unexpired(self, holder: BranchName | None = None) -> tuple[ObjectInfo, ...]:
        return self._list(within=self.duration * EXPIRED_AFTER, holder=holder)

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


def _checked_id(value: object) -> str:
    """Accept letters and digits only: an id becomes a file name."""
    if not isinstance(value, str) or not (value.isascii() and value.isalnum()):
        raise ValueError(f"{value!r:.100} is not a commit id")
    return value


def _names(found: Iterable[ObjectInfo]) -> tuple[str, ...]:
    return tuple(sorted({info.path.rpartition("/")[2] for info in found}))
