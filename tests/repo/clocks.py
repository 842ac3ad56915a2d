"""Clocks that are wrong: of a machine, and of a store."""

from collections.abc import Iterator
from datetime import timedelta

import anabranch as ab
from anabranch import testing
from anabranch.repo.log.config import now_in_microseconds
from anabranch.storage import ObjectInfo
from anabranch.testing import CountingStore

TOLERANT = {"clock_tolerance_seconds": "999999999"}


class ShiftedStore(CountingStore):
    """A store whose clock is ahead."""

    shift = timedelta(0)

    def head(self, path: str) -> ObjectInfo:
        return self._shifted(super().head(path))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return map(self._shifted, super().list(prefix))

    def _shifted(self, info: ObjectInfo) -> ObjectInfo:
        return ObjectInfo(path=info.path, size=info.size, modified=info.modified + self.shift)


def at_store_time(repo: ab.Repository, shift: timedelta) -> ab.Repository:
    """A handle on a repository whose store has another time."""
    store = ShiftedStore(testing.store_of(repo))
    store.shift = shift
    return testing.open(repo, store=store)


def with_clock(repo: ab.Repository, shift: timedelta, *, tolerant: bool = False) -> ab.Repository:
    """A handle of a machine whose clock is ahead, or behind; `tolerant` is one that publishes all the same."""
    opened = ab.open(repo.uri, actor="eve", storage_options={**repo.storage_options, **(TOLERANT if tolerant else {})})
    return testing.open(opened, clock=lambda: now_in_microseconds() + shift // timedelta.resolution)
