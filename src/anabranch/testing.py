"""Open a repository with another store, clock or lease, for tests. One store counts requests, one injects a fault.

>>> from anabranch import testing
>>> slow = testing.open(repo, clock=lambda: 1_800_000_000_000_000)   # microseconds since 1970
>>> counted = testing.open(repo, store=CountingStore(testing.store_of(repo)))
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from anabranch.bootstrap import ENGINES, bind_repository
from anabranch.errors import StorageUnavailableError
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.leases import _RENEWER, Lease
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.repository import Repository
from anabranch.repo.transaction import Transaction
from anabranch.storage import ObjectInfo, ObjectStore, PreparedObject

__all__ = [
    "CountingStore",
    "Fault",
    "FaultyStore",
    "abandon",
    "active_leases",
    "age_leases",
    "config_of",
    "open",
    "repo_store_of",
    "store_of",
]

T = TypeVar("T")


def open(  # noqa: A001 - the counterpart of anabranch.open
    repo: Repository | str | os.PathLike[str],
    *,
    branch: str | None = None,
    store: ObjectStore | None = None,
    clock: Callable[[], int] | None = None,
    checks_clock: bool = True,
    lease: timedelta | None = None,
) -> Repository:
    """Open another handle of a repository, which has seen nothing yet. By default it is bound to the same branch.

    `store` replaces the store, for example by one that counts or fails requests. `clock` returns microseconds since
    1970; with `checks_clock=False` it may differ from the clock of the store by any time. A `lease` is the time after
    which work without a heartbeat counts as ended.
    """
    if not isinstance(repo, Repository):
        repo = bind_repository(repo, branch=branch or "main")
    config = repo._config
    config = replace(
        config,
        store=config.store if store is None else store,
        clock=config.clock if clock is None else clock,
        clock_tolerance=config.clock_tolerance if checks_clock else None,
        lease=config.lease if lease is None else lease,
    )
    return Repository(config, engines=ENGINES, branch=branch or repo.branch)


def store_of(repo: Repository) -> ObjectStore:
    """Return the store of a repository: all its objects except the data of its tables."""
    return repo._config.store


def config_of(repo: Repository) -> RepoConfig:
    """Return the settings of a repository: where it is, its store, clock and leases."""
    return repo._config


def repo_store_of(repo: Repository) -> RepoStore:
    """Return the logs and commits of a repository."""
    return repo._repo_store


def active_leases() -> list[Lease]:
    """Return the leases that this process renews."""
    with _RENEWER.changed:
        return list(_RENEWER.leases)


def age_leases(seconds: float) -> None:
    """Make the leases of this process look as if no renewal had succeeded for this time, as on a machine that slept."""
    for lease in active_leases():
        lease._renewed -= seconds


def abandon(tx: Transaction) -> None:
    """End a transaction as the end of its process does: nothing is published, and the staged files stay."""
    tx._close()


class WrappedStore(ObjectStore):
    """Send each request of a store through one method."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(uri=inner.uri, storage_options={})
        self.lists_sorted = inner.lists_sorted
        self._inner = inner

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        raise NotImplementedError

    def get(self, path: str) -> bytes:
        return self._request("get", path, lambda: self._inner.get(path))

    def find(self, path: str) -> bytes | None:
        return self._request("get", path, lambda: self._inner.find(path))

    def head(self, path: str) -> ObjectInfo:
        return self._request("head", path, lambda: self._inner.head(path))

    def find_info(self, path: str) -> ObjectInfo | None:
        return self._request("head", path, lambda: self._inner.find_info(path))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self._request("get", path, lambda: self._inner.get_range(path, start, length))

    def stream(self, path: str) -> Iterator[bytes]:
        return self._request("get", path, lambda: self._inner.stream(path))

    def put(self, path: str, data: bytes, *, durable: bool = True, is_hint: bool = False) -> None:
        self._request("put", path, lambda: self._inner.put(path, data, durable=durable, is_hint=is_hint))

    def put_stream(self, path: str, chunks: Iterator[bytes]) -> None:
        self._request("put", path, lambda: self._inner.put_stream(path, chunks))

    def put_if_absent(self, path: str, data: bytes, *, durable: bool = True, after: Sequence[str] = ()) -> None:
        self._request(
            "put_if_absent", path, lambda: self._inner.put_if_absent(path, data, durable=durable, after=after)
        )

    def prepare(self, path: str, data: bytes) -> PreparedObject:
        return self._inner.prepare(path, data)

    def put_prepared(self, prepared: PreparedObject) -> None:
        self._request("put_if_absent", prepared.path, lambda: self._inner.put_prepared(prepared))

    def discard(self, prepared: PreparedObject) -> None:
        self._inner.discard(prepared)

    def sync(self, paths: Sequence[str], *, names: bool = True) -> None:
        self._inner.sync(paths, names=names)

    def sync_folders(self, prefixes: Sequence[str]) -> None:
        self._inner.sync_folders(prefixes)

    def sync_all(self) -> None:
        self._inner.sync_all()

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._request("list", prefix, lambda: self._inner.list(prefix))

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        return self._request("list_folders", prefix, lambda: self._inner.list_folders(prefix))

    def list_files(self, prefix: str = "") -> tuple[ObjectInfo, ...]:
        return self._request("list_files", prefix, lambda: self._inner.list_files(prefix))

    def list_leftovers(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._inner.list_leftovers(prefix)

    def delete(self, path: str) -> None:
        self._request("delete", path, lambda: self._inner.delete(path))


class CountingStore(WrappedStore):
    """Count the requests by operation and remember their paths."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.requests: list[tuple[str, str]] = []

    @property
    def counts(self) -> Counter[str]:
        return Counter(operation for operation, _ in self.requests)

    @property
    def total(self) -> int:
        return len(self.requests)

    def reset(self) -> None:
        with self._lock:
            self.requests.clear()

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        with self._lock:
            self.requests.append((operation, path))
        return send()


class Fault(StrEnum):
    """The fault of a request."""

    FAIL = "fail"  # the request is never sent
    STALL = "stall"  # the request waits until `release` is called, and is then sent
    LOSE_ANSWER = "lose_answer"  # the request is executed, but the caller gets an error


class FaultyStore(WrappedStore):
    """Inject a fault into the nth request (from 1), of all requests or of one operation."""

    def __init__(self, inner: ObjectStore, *, nth: int, fault: Fault, operation: str | None = None) -> None:
        super().__init__(inner)
        self._nth = nth
        self._fault = fault
        self._operation = operation
        self._lock = threading.Lock()
        self._count = 0
        self._released = threading.Event()
        self.reached = threading.Event()

    def release(self) -> None:
        self._released.set()

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        if self._operation not in {None, operation}:
            return send()
        with self._lock:
            self._count += 1
            is_nth = self._count == self._nth
        if not is_nth:
            return send()
        self.reached.set()
        match self._fault:
            case Fault.FAIL:
                raise self._failure(operation, path)
            case Fault.STALL:
                self._released.wait()
                return send()
            # The case that a retry cannot detect by itself: the object is there, and its writer believes that it is
            # not.
            case Fault.LOSE_ANSWER:
                send()
                raise self._failure(operation, path)

    def _failure(self, operation: str, path: str) -> StorageUnavailableError:
        return StorageUnavailableError(f"an injected fault hit {operation} of {path!r}", hint="try again")
