"""The notice that a dropped table's folder is about to go, for whoever would take the folder over."""

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.repo.log.config import RepoConfig
from anabranch.storage import find_object

__all__ = ["REMOVING", "being_removed", "is_being_removed"]

REMOVING = "_gc/removing"


@contextmanager
def being_removed(context: RepoConfig, dataset: str) -> Iterator[None]:
    """Say that a folder goes before it is looked at, so that either side notices the other.

    Whoever dies here leaves the notice, and new tables of that name are put elsewhere until it is collected too.
    """
    context.store.put(_path(dataset), b"\n")
    yield
    context.store.delete(_path(dataset))


def is_being_removed(context: RepoConfig, dataset: str) -> bool:
    """Whether a folder may go; to be asked after something was written into it."""
    return find_object(context.store, _path(dataset)) is not None


def _path(dataset: str) -> str:
    return f"{REMOVING}/{dataset}"
