"""Open a repository with another store, clock or lease, for tests.

>>> from anabranch import testing
>>> slow = testing.open(repo, clock=lambda: 1_800_000_000_000_000)   # microseconds since 1970
>>> counted = testing.open(repo, store=CountingStore(testing.store_of(repo)))
"""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from anabranch.bootstrap import ENGINES, bind_repository
from anabranch.repo.repository import Repository
from anabranch.storage import ObjectStore

__all__ = ["open", "store_of"]


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
