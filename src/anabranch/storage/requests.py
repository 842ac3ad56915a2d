"""Open stores and send requests to them: exactly once, in parallel, with progress; copies, and the clock of a store."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from anabranch.errors import ObjectExistsError, ObjectNotFoundError, StorageDeniedError, StorageError
from anabranch.storage.local_store import LocalFolderStore
from anabranch.storage.object_store import ObjectStore
from anabranch.storage.uris import is_local, join_uri, normalise_uri


def open_store(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> ObjectStore:
    """Open the store at a URI. No request is sent and nothing is created before the store is used."""
    return open_root(normalise_uri(uri), tuple((storage_options or {}).items()))


@lru_cache(maxsize=256)
def open_root(root: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    """Open the store at a normalised URI.

    One store per root is kept: a remote one takes about 10 ms to build, without other threads, and has connections.
    """
    kind = LocalFolderStore if is_local(root) else ObjectStore
    return kind(uri=root, storage_options=dict(options))


def open_files(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> ObjectStore:
    """Open a folder of files that a user named, such as a file to load: symbolic links in it are followed."""
    store = open_store(uri, storage_options)
    return store.following_links() if isinstance(store, LocalFolderStore) else store


def is_below_file(uri: str) -> bool:
    """Return whether a local path is a file or is below one, so that nothing can be written there."""
    path = Path(uri)
    return is_local(uri) and any(folder.is_file() for folder in (path, *path.parents))


def copy_between(source: ObjectStore, path: str, target: ObjectStore, target_path: str) -> None:
    """Copy one object between stores in chunks. Raise StorageError if the copy has another size."""
    target.put_stream(target_path, source.stream(path))
    _check_size(source, path, target, target_path)


def _check_size(source: ObjectStore, path: str, target: ObjectStore, target_path: str) -> None:
    # A stream that ends early raises no error.
    sent, arrived = source.head(path).size, target.head(target_path).size
    if sent != arrived:
        location = join_uri(target.uri, target_path)
        raise StorageError(f"{arrived} of {sent} bytes arrived at {location!r}", hint="try again")


def copy_verified(source: ObjectStore, path: str, target: ObjectStore, target_path: str) -> None:
    """Copy one object between stores, then read it back. Raise StorageError if the copy is different."""
    sent, arrived = blake2b(), blake2b()

    def read() -> Iterator[bytes]:
        for chunk in source.stream(path):
            sent.update(chunk)
            yield chunk

    target.put_stream(target_path, read())
    _check_size(source, path, target, target_path)
    for chunk in target.stream(target_path):
        arrived.update(chunk)
    if sent.digest() != arrived.digest():
        location = join_uri(target.uri, target_path)
        raise StorageError(f"the copy at {location!r} differs from its source {path!r}", hint="try again")


CLOCK = "_clock"


def store_time(store: ObjectStore) -> datetime:
    """Return the time of the store: that of an object written now. Without write access, return the local time."""
    try:
        # Ages of objects are compared with the store's own clock: that of this machine may be wrong by minutes.
        store.put(CLOCK, b"now\n", durable=False)
        return store.head(CLOCK).modified
    except StorageDeniedError:
        return datetime.now(UTC)


T = TypeVar("T")
R = TypeVar("R")

# Of one call, and of all calls of the process.
_AT_A_TIME = 16
_THREADS = 64


class _Pool:
    """The threads of this process, started when they are first needed. A forked child gets its own."""

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="anabranch")

    def start(self, work: Callable[[], None], times: int) -> list[Future[None]]:
        return [self._threads.submit(work) for _ in range(times)]


_POOL = _Pool()


def put_once(store: ObjectStore, path: str, data: bytes, *, durable: bool = True, after: Sequence[str] = ()) -> bool:
    """Put an object if it does not exist. Return False if another writer has put a different one.

    The answer to a put can get lost, and a retried put then finds the object of its own first try. So after any
    failure, read the object and compare. `durable` and `after` are those of `put_if_absent`.
    """
    try:
        store.put_if_absent(path, data, durable=durable, after=after)
    except (ObjectExistsError, StorageError) as err:
        try:
            return store.get(path) == data
        # The object is not there, so the put failed for the reason that it gave.
        except ObjectNotFoundError:
            raise err from None
    return True


def at_once(root: str) -> int:
    """Return how many requests for one table to send at a time: one on a local disk, which answers at once.

    There, threads cost more than they save, and the tables of a commit are worked on in parallel.
    """
    return 1 if is_local(root) else _AT_A_TIME


def in_parallel(request: Callable[[T], R], items: Iterable[T], *, at_a_time: int = _AT_A_TIME) -> list[R]:
    """Call `request` for each item and return the results in order. Raise the first error."""
    waiting = list(items)
    if len(waiting) == 1:
        return [request(waiting[0])]
    return list(iter_in_parallel(request, waiting, at_a_time=at_a_time))


def iter_in_parallel(request: Callable[[T], R], items: Iterable[T], *, at_a_time: int = _AT_A_TIME) -> Iterator[R]:
    """Like `in_parallel`, but yield each result as soon as it and all results before it are complete.

    The calling thread works too. So a request may itself call `in_parallel`: it never waits for a free thread.
    """
    waiting = list(items)
    # Without threads for a single request: to start one takes longer than the request on a local disk.
    if len(waiting) < 2 or at_a_time < 2:
        yield from map(request, waiting)
        return
    answers: list[Future[R]] = [Future() for _ in waiting]
    todo = deque(zip(waiting, answers, strict=True))

    def work_until(is_done: Callable[[], bool]) -> None:
        while todo and not is_done():
            try:
                item, answer = todo.popleft()
            except IndexError:
                return  # another thread took the last one
            try:
                answer.set_result(request(item))
            except BaseException as err:
                answer.set_exception(err)  # raised by the thread that reads the answer
                if not isinstance(err, Exception):
                    raise  # such as KeyboardInterrupt, at once

    # One fewer than allowed, because the calling thread is the last one.
    helpers = _POOL.start(lambda: work_until(lambda: False), min(len(waiting), at_a_time) - 1)
    try:
        for answer in answers:
            work_until(answer.done)
            yield answer.result()
    finally:
        todo.clear()  # after an error, or if the caller wants no more
        # Requests in flight are awaited: they must not touch files after the caller has cleaned up.
        wait([helper for helper in helpers if not helper.cancel()])


class Steps:
    """Progress of work in several threads: the steps done, and the number of steps known so far."""

    def __init__(self, progress: Callable[[int, int], None], total: int = 0) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._total = total
        self._done = 0

    def expect(self, count: int) -> None:
        """Add to the number of steps."""
        with self._lock:
            self._total += count
            self._progress(self._done, self._total)

    def done(self) -> None:
        """Count one step as done."""
        with self._lock:
            self._done += 1
            self._progress(self._done, self._total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an operation is: `done` of `total`. `stage` names what is counted, such as 'tables' or 'bytes'.

    `rows` is the number of rows that were read or written so far. It is 0 where rows are not counted. An operation that
    has more to report passes a subclass: pipelines pass `anabranch.types.StepProgress` and `BackfillProgress`.
    """

    stage: str
    done: int
    total: int
    rows: int = 0


# Every `progress=` callback is one.
OnProgress = Callable[[Progress], None]


def ignore_progress(_progress: Progress) -> None:
    """Do nothing."""


def counting(progress: OnProgress | None, stage: str) -> Callable[[int, int], None]:
    """Return a function of `done` and `total` that reports the progress of one stage."""

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(Progress(stage=stage, done=done, total=total))

    return report
