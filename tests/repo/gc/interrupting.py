"""Let something happen right before a request to the store."""

import threading
from collections.abc import Callable
from typing import TypeVar

from anabranch import testing
from anabranch.repo.repository import Repository
from anabranch.storage import ObjectStore
from anabranch.testing import WrappedStore

T = TypeVar("T")


class InterruptedStore(WrappedStore):
    """Do something right before the first request of a kind."""

    def __init__(self, inner: ObjectStore, is_moment: Callable[[str, str], bool], act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._is_moment = is_moment
        self._pending: list[Callable[[], object]] = [act]
        self._lock = threading.Lock()

    def _request(self, operation: str, path: str, send: Callable[[], T]) -> T:
        with self._lock:
            act = self._pending.pop() if self._pending and self._is_moment(operation, path) else None
            if act is not None:
                act()
        return send()


def interrupted(repo: Repository, is_moment: Callable[[str, str], bool], act: Callable[[], object]) -> Repository:
    store = InterruptedStore(testing.store_of(repo), is_moment, act)
    return testing.open(repo, store=store, branch=repo.branch)
