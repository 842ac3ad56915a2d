"""Reserved disk space, so that space can be freed on a full disk.

Freeing space starts with writes: a tombstone, marks on commits, a lease. On a full disk they fail. So a local
repository keeps a file that occupies some space, and deletes it when these writes need the space.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from anabranch.errors import StorageError, StorageFullError
from anabranch.repo.log.config import RepoConfig
from anabranch.storage.uris import is_local

__all__ = ["RESERVE", "freeing_space", "keep_reserve"]

RESERVE = "_gc/reserve"
_BYTES = 256 << 10

T = TypeVar("T")


def freeing_space(config: RepoConfig, operation: Callable[[], T]) -> T:
    """Run an operation that frees space. If the disk is full, delete the reserve and run it a second time."""
    try:
        done = operation()
    except StorageFullError:
        if config.store.find_info(RESERVE) is None:
            raise
        config.store.delete(RESERVE)
        done = operation()
    keep_reserve(config)
    return done


def keep_reserve(config: RepoConfig) -> None:
    """Write the reserve if it is missing. If the disk is still full, it is written the next time space is freed."""
    if not is_local(config.root):
        return
    with suppress(StorageError):
        if config.store.find_info(RESERVE) is None:
            config.store.put(RESERVE, bytes(_BYTES), durable=False)
