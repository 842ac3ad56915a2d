"""Mistakes that a repository must not make, for one process and those it forks, to see whether the judge finds them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from anabranch import storage
from anabranch.errors import WriteConflictError
from anabranch.repo import transaction
from anabranch.repo.log import numbered_log as numbered_log
from anabranch.repo.log.entries import LogEntry
from anabranch.repo.log.heads import Heads
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Snapshot

PUBLISH = "publish"  # as a transaction calls it


def read_what_was_seen() -> None:
    """Show what a handle has read before, whatever happened since."""
    original = Repository.snapshot_of
    seen: dict[tuple[int, str], Snapshot] = {}

    def snapshot_of(handle: Repository, ref: str) -> Snapshot:
        return seen.setdefault((id(handle), ref), original(handle, ref))

    _replace(Repository, "snapshot_of", snapshot_of)


def win_every_race() -> None:
    """Treat an entry of another writer as one's own."""

    def put_once(store: Any, path: str, data: bytes, *, after: Sequence[str] = ()) -> bool:
        storage.put_once(store, path, data, after=after)
        return True

    _replace(numbered_log, "put_once", put_once)


def publish_half() -> None:
    """Leave a table out of a commit."""
    original = getattr(transaction, PUBLISH)

    def publish(*args: Any, **reported: Any) -> Any:
        return original(*args, **{**reported, "changes": dict(list(reported["changes"].items())[1:])})

    _replace(transaction, PUBLISH, publish)


def publish_twice() -> None:
    """Put each entry of a commit twice."""
    original = Heads._append

    def append(heads: Heads, entry: LogEntry, *, after: Sequence[str] = ()) -> bool:
        is_put = original(heads, entry, after=after)
        if is_put and entry.event == "committed":
            original(heads, replace(entry, number=entry.number + 1))
        return is_put

    _replace(Heads, "_append", append)


def refuse_what_was_done() -> None:
    """Raise a conflict after the commit."""
    original = getattr(transaction, PUBLISH)

    def publish(*args: Any, **reported: Any) -> Any:
        original(*args, **reported)
        raise WriteConflictError("somebody was faster", hint="try again")

    _replace(transaction, PUBLISH, publish)


PLANTS: dict[str, Callable[[], None]] = {
    plant.__name__: plant
    for plant in (read_what_was_seen, win_every_race, publish_half, publish_twice, refuse_what_was_done)
}


def _replace(owner: Any, name: str, value: Any) -> None:
    assert hasattr(owner, name)
    setattr(owner, name, value)
