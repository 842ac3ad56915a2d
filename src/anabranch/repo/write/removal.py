"""The notice that garbage collection removes the folder of a dropped table, so that no new table uses the folder."""

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.repo.log.config import RepoConfig

__all__ = ["REMOVING", "being_removed", "is_being_removed"]

REMOVING = "_gc/removing"


@contextmanager
def being_removed(config: RepoConfig, dataset: str) -> Iterator[None]:
    """Announce the removal of a folder before it is checked, so that one of the two sides sees the other.

    If the process dies here, the notice stays, and new tables of that name use another folder until it is collected.
    """
    config.store.put(_path(dataset), b"\n")
    yield
    config.store.delete(_path(dataset))


def is_being_removed(config: RepoConfig, dataset: str) -> bool:
    """Whether a folder may be removed now; to be called after something was written into it."""
    return config.store.find_info(_path(dataset)) is not None


def _path(dataset: str) -> str:
    return f"{REMOVING}/{dataset}"
