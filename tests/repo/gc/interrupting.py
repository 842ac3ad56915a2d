"""Let something happen right before a request to the store."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from anabranch.repo.repository import Repository
from anabranch.storage import ObjectStore
from anabranch.storage.wrappers import _WrappedStore
from tests.handles import open_with

T = TypeVar("T")


class InterruptedStore(_WrappedStore):
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
    store = InterruptedStore(repo._config.store, is_moment, act)
    return open_with(replace(repo._config, store=store), branch=repo.branch)
