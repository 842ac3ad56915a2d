"""Make the nth request of this process go wrong, whichever of its stores it goes to."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

import anabranch.storage.store
from anabranch.errors import AnabranchError, StorageUnavailableError
from anabranch.storage import ObjectStore
from anabranch.storage.store import open_root
from anabranch.testing import WrappedStore

T = TypeVar("T")

_WRITES = frozenset({"put", "put_if_absent", "delete", "copy"})


def changes_something(request: str) -> bool:
    """Whether a request, as it is written down here, is one that writes."""
    return request.partition(" ")[0] in _WRITES


class Kind(StrEnum):
    """What happens to a request."""

    ERROR = "error"  # it is never sent
    TIME_OUT = "time_out"  # the caller gives up; it is carried out after the caller's next request
    LOST_ANSWER = "lost_answer"  # it is carried out, and the caller hears of a failure
    LATENCY = "latency"  # it takes so long that another writer comes before it


class FaultInjection:
    """Counts requests from when it is armed, and lets the nth meet its fault; without an nth it only counts."""

    def __init__(self, nth: int = 0, kind: Kind = Kind.ERROR, *, rival: Callable[[], object] | None = None) -> None:
        self._nth = nth
        self._kind = kind
        self._rival = rival
        self._lock = threading.Lock()
        self._late: Callable[[], object] | None = None
        self._is_armed = False
        self.requests: list[str] = []
        self.is_reached = False

    def arm(self) -> None:
        self._is_armed = True

    def end(self) -> None:
        """Let no more requests count, and carry out what is still under way."""
        self._is_armed = False
        self._carry_out_late()

    def request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        if not self._is_armed:
            return send()
        with self._lock:
            self.requests.append(f"{operation} {path}")
            is_hit = len(self.requests) == self._nth
        if is_hit:
            self.is_reached = True
            return self._hit(operation, path, send)
        try:
            return send()
        finally:
            self._carry_out_late()

    def _hit(self, operation: str, path: str, send: Callable[[], T]) -> T:
        match self._kind:
            case Kind.LATENCY:
                if self._rival is not None:
                    self._rival()
                return send()
            case Kind.LOST_ANSWER:
                send()
            case Kind.TIME_OUT if operation in _WRITES:
                self._late = send
            case _:
                pass
        raise StorageUnavailableError(f"an injected {self._kind} hit {operation} of {path!r}", hint="try again")

    def _carry_out_late(self) -> None:
        with self._lock:
            late, self._late = self._late, None
        if late is not None:
            try:
                late()
            except AnabranchError:
                return  # not reported


class FaultInjectingStore(WrappedStore):
    """A store whose requests one injection counts together with those of others."""

    def __init__(self, inner: ObjectStore, injection: FaultInjection) -> None:
        super().__init__(inner)
        self._injection = injection

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        return self._injection.request(operation, path, send)


@contextmanager
def all_stores_through(injection: FaultInjection) -> Iterator[None]:
    """Count the requests of every store that is opened inside, of repositories and of tables."""

    def open_troubled(*args: Any, **kwargs: Any) -> ObjectStore:
        return FaultInjectingStore(open_root(*args, **kwargs), injection)

    modules = [module for name, module in list(sys.modules.items()) if name.startswith("anabranch.")]
    users = [module for module in modules if getattr(module, "open_root", None) is open_root]
    assert anabranch.storage.store in users
    for module in users:
        module.open_root = open_troubled  # type: ignore[attr-defined]
    try:
        yield
    finally:
        injection.end()
        for module in users:
            module.open_root = open_root  # type: ignore[attr-defined]
