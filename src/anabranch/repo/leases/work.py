"""Signs of life of work that takes long, so that garbage collection waits for it.

What work writes is not published yet, and looks like garbage. Objects younger than the grace period are never touched,
which is enough for work that is over soon. Whatever takes longer says how old it is, again and again, and nothing that
is younger than the oldest work alive is touched either. Short work costs no request.
"""

import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from anabranch.errors import BusyError, CorruptError, ObjectNotFoundError, StorageError
from anabranch.ids import BranchName
from anabranch.repo.leases.lease import lease_path, list_leases
from anabranch.repo.log import codec
from anabranch.repo.log.config import Context, new_ulid
from anabranch.repo.log.validation import check_commit_id
from anabranch.storage import ObjectInfo, find_object

__all__ = ["Work", "begin_of_oldest_work", "list_held_commits", "working", "working_alone"]

_WORK = BranchName("__work__")
# Signs are given three times while one lease lasts.
_SIGNS = 3
# After so many leases of silence work must not publish; others take it for dead one lease later.
_SILENT_LEASES = 2


class Work:
    """Something that writes now and publishes later; `held` are commits that it needs besides, by their ids.

    `since` is given, in seconds of the wall clock, where it was begun earlier, perhaps by another process. `lock` is
    given for work that there may be only one of at a time.
    """

    def __init__(
        self,
        context: Context,
        *,
        held: Iterable[str] = (),
        since: float | None = None,
        lock: BranchName | None = None,
    ) -> None:
        self._context = context
        self._held = tuple(held)
        self._path = lease_path(lock or _WORK, new_ulid())
        self._began = self._signed = _clock()
        self._longest_silence = 0.0
        if since is not None:
            self._began -= max(0.0, time.time() - since)
        self._has_signed = False
        self._lock = threading.Lock()
        self._is_over = False
        if self._held or since is not None or lock is not None:
            self.sign()
        _KEEPER.add(self)

    def is_alone(self, lock: BranchName) -> bool:
        """Whether nobody else has the lock, or may have; of two who begin at once, one at least notices."""
        return all(info.path == self._path for info in _list_recent(self._context, lock))

    @property
    def pause(self) -> float:
        """How many seconds may pass between two signs."""
        return self._context.lease.total_seconds() / _SIGNS

    def sign(self) -> None:
        """Say how old the work is, and what it holds."""
        with self._lock:
            if self._is_over:
                return
            now = _clock()
            # Whoever was silent for long stays so, though it may be this thread that wakes first.
            self._longest_silence = max(self._longest_silence, now - self._signed)
            fields = {"age": f"{now - self._began:.3f}", "held": self._held}
            self._context.store.put(self._path, codec.dump(fields), durable=False)
            self._has_signed, self._signed = True, now

    def hold(self, commit_ids: Iterable[str]) -> None:
        """Keep more commits out of garbage collection; whether they are collected already is to be asked after."""
        with self._lock:
            self._held = tuple(dict.fromkeys([*self._held, *commit_ids]))
        self.sign()

    def sign_if_due(self) -> None:
        """Give another sign, unless the last one is fresh; if the store fails, the next one is in time still."""
        if _clock() - self._signed >= self.pause * 0.9:
            try:
                self.sign()
            except StorageError:
                return

    def require_awake(self) -> None:
        """Refuse to publish after a silence in which the work may have been taken for dead, and its files deleted."""
        silent = max(self._longest_silence, _clock() - self._signed)
        if silent > self._context.lease.total_seconds() * _SILENT_LEASES:
            raise BusyError(
                f"this work gave no sign of life for {silent:.0f} s, and what it wrote may have been collected",
                hint="do it again",
            )

    def end(self) -> None:
        """Give no more signs; if the store fails, the last one loses its meaning a little later."""
        _KEEPER.remove(self)
        with self._lock:
            self._is_over = True
        if self._has_signed:
            try:
                self._context.store.delete(self._path)
            except StorageError:
                return


@contextmanager
def working(context: Context, *, held: Iterable[str] = (), since: float | None = None) -> Iterator[Work]:
    work = Work(context, held=held, since=since)
    try:
        yield work
    finally:
        work.end()


@contextmanager
def working_alone(context: Context, lock: BranchName, *, doing: str) -> Iterator[Work]:
    """Work that is refused beside other work of the same lock; `doing` says what that is at."""
    work = Work(context, lock=lock)
    try:
        if not work.is_alone(lock):
            seconds = context.lease.total_seconds() * (_SILENT_LEASES + 1)
            raise BusyError(
                f"{doing}, or was until a moment ago by a process that died",
                hint=f"try again when it is done, or in {seconds:.0f} s",
            )
        yield work
    finally:
        work.end()


class _Keeper:
    """One thread for all the work of this process, while there is any."""

    def __init__(self) -> None:
        # Who forgets a transaction without closing it shall not keep it alive here.
        self._works: weakref.WeakSet[Work] = weakref.WeakSet()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pause = 0.0

    def add(self, work: Work) -> None:
        with self._changed:
            self._works.add(work)
            if work.pause < self._pause:
                self._changed.notify()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._keep, name="anabranch-signs-of-life", daemon=True)
                self._thread.start()

    def remove(self, work: Work) -> None:
        with self._changed:
            self._works.discard(work)

    def _keep(self) -> None:
        while True:
            with self._changed:
                # Between two transactions of a busy process the thread stays; an idle process soon has none.
                self._pause = min((work.pause for work in self._works), default=1.0)
                self._changed.wait(self._pause)
                works = list(self._works)
                if not works:
                    self._thread = None
                    return
            for work in works:
                work.sign_if_due()
            del works


_KEEPER = _Keeper()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sign:
    """What a sign of life said: since when the work goes on, by the store's clock, and what it holds."""

    began: datetime
    held: tuple[str, ...]


def begin_of_oldest_work(context: Context) -> datetime | None:
    """Since when the oldest work that is alive goes on, runs among it, by the store's clock."""
    return min([*(sign.began for sign in _list_signs(context)), *_iter_begins_of_runs(context)], default=None)


def _iter_begins_of_runs(context: Context) -> Iterator[datetime]:
    """When each run that is alive began: while its steps write, nothing of that is in its log."""
    for name in {info.path.rpartition("/")[2] for info in _list_recent(context)}:
        log = context.branch_log(BranchName.of_run(name))
        if (first := find_object(context.store, log.path(1))) is not None:
            yield first.modified


def list_held_commits(context: Context) -> tuple[str, ...]:
    """The commits that work alive needs though no ref may name them."""
    return tuple(commit_id for sign in _list_signs(context) for commit_id in sign.held)


def _list_signs(context: Context) -> Iterator[_Sign]:
    for info in _list_recent(context, _WORK):
        try:
            yield _decode_sign(context, info)
        except ObjectNotFoundError:
            continue  # the work has ended
        except CorruptError as err:
            seconds = context.lease.total_seconds() * (_SILENT_LEASES + 1)
            hint = f"try again in {seconds:.0f} s: by then it is renewed, or its work counts as dead"
            raise CorruptError(err.problem, hint=hint) from err


def _decode_sign(context: Context, info: ObjectInfo) -> _Sign:
    data = context.store.get(info.path)
    with codec.damage_named(info.path):
        if data.startswith(b"{"):
            fields = codec.load(data, path=info.path)
            age, held = fields["age"], fields["held"]
        else:
            age, *held = data.decode().split(" ")  # written by an earlier release
        held = tuple(map(check_commit_id, held))
        return _Sign(began=info.modified - timedelta(seconds=float(age)), held=held)


def _list_recent(context: Context, holder: BranchName | None = None) -> tuple[ObjectInfo, ...]:
    """The signs of those who are not dead for sure."""
    return list_leases(context, holder=holder, within=context.lease * (_SILENT_LEASES + 1))


def _clock() -> float:
    """Seconds that also pass while the machine sleeps, and that nobody sets back."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()
