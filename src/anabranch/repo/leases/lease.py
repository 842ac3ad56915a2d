"""Signs of life: small objects that a process renews while it is at work.

Only a courtesy, which nothing depends on to be right: whoever seems dead may still publish, and meets the log then.
Ages are differences between times that the store itself gave, so that clocks need not agree.
"""

import threading
import weakref
from datetime import UTC, datetime, timedelta

from anabranch.errors import StorageDeniedError, StorageError
from anabranch.ids import BranchName
from anabranch.repo.log.config import Context, as_segment
from anabranch.storage import ObjectInfo

__all__ = ["CLOCK", "LEASES", "Lease", "lease_path", "list_alive", "list_leases", "store_time"]

LEASES = "_leases"
CLOCK = "_clock"


class Lease:
    """A sign of life in the store, renewed by a thread until it is released, or forgotten by whoever holds it."""

    def __init__(self, context: Context, holder: BranchName, name: str) -> None:
        self._context = context
        self._path = lease_path(holder, name)
        self._is_over = threading.Event()
        # A sign under way when the lease is released must not come after that.
        self._signing = threading.Lock()

    def begin(self) -> None:
        """Give the first sign, and let a thread give the others."""
        self._sign()
        seconds = self._context.lease.total_seconds() / 3
        # The thread does not keep its lease alive: when nobody holds it any more, both end.
        weakref.finalize(self, self._is_over.set)
        threading.Thread(
            target=_keep, args=(weakref.ref(self), self._is_over, seconds), name=self._path, daemon=True
        ).start()

    def renew(self) -> None:
        """Give another sign; if the store fails, the next one is in time still."""
        try:
            self._sign()
        except StorageError:
            return

    def _sign(self) -> None:
        with self._signing:
            if not self._is_over.is_set():
                self._context.store.put(self._path, b"alive\n", durable=False)

    def release(self) -> None:
        """End it; if the store fails, it ends by itself a little later."""
        with self._signing:
            self._is_over.set()
        try:
            self._context.store.delete(self._path)
        except StorageError:
            return


def list_alive(context: Context, holder: BranchName) -> tuple[str, ...]:
    """The names of the leases on a branch that were renewed lately."""
    return tuple(
        sorted(info.path.rpartition("/")[2] for info in list_leases(context, holder=holder, within=context.lease))
    )


def list_leases(context: Context, *, within: timedelta, holder: BranchName | None = None) -> tuple[ObjectInfo, ...]:
    """The leases on a branch, or on any, that were renewed within some time, as the store knows them."""
    found = list(context.store.list(LEASES if holder is None else lease_path(holder)))
    if not found:
        return ()
    now = store_time(context)
    # One from the future was given before the store's clock was set back: who is alive has given another since.
    return tuple(info for info in found if abs(now - info.modified) < within)


def lease_path(holder: BranchName, *name: str) -> str:
    return "/".join([LEASES, as_segment(holder), *name])


def store_time(context: Context) -> datetime:
    """The time by the store's clock: that of an object written right now; who may only read has to use its own."""
    try:
        context.store.put(CLOCK, b"now\n", durable=False)
        return context.store.head(CLOCK).modified
    except StorageDeniedError:
        return datetime.now(UTC)


def _keep(lease: "weakref.ref[Lease]", is_over: threading.Event, seconds: float) -> None:
    while not is_over.wait(seconds):
        held = lease()
        if held is None:
            return
        held.renew()
        del held
