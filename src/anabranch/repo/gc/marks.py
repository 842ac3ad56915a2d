"""The mark on commits whose data garbage collection lets go.

A commit's object stays, so that the history can be told; the mark in it says that its tables cannot be read any more.
It is put before the logs are read a last time and before anything is deleted. Whoever makes an old commit reachable
again puts its ref first, and looks for the mark then: one of two that come together always notices. What goes for good
is recorded besides, so that nobody judges it again.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from anabranch.errors import CollectedError, DamagedFileError, NotFoundError
from anabranch.repo import codec
from anabranch.repo.commits import commit_path
from anabranch.repo.context import Context
from anabranch.repo.models import CommitRecord
from anabranch.storage import in_parallel

__all__ = [
    "GC",
    "list_collected",
    "mark_collected",
    "record_collected",
    "refuse_collected",
    "require_uncollected",
    "telling_collected",
    "unmark_collected",
]

GC = "_gc"
_MARK = "collected_at"


def mark_collected(context: Context, commit_id: str, *, at: int) -> None:
    _rewrite(context, commit_id, lambda fields: {**fields, _MARK: at})


def unmark_collected(context: Context, commit_id: str) -> None:
    _rewrite(context, commit_id, lambda fields: {name: value for name, value in fields.items() if name != _MARK})


def _rewrite(context: Context, commit_id: str, change: Any) -> None:
    """Put a commit's object anew: nothing that others look at differs, and of two who do so each puts the same."""
    path = commit_path(commit_id)
    fields = codec.load(context.store.get(path), path=path)
    changed = change(fields)
    if changed != fields:
        context.store.put(path, codec.dump(changed))


def list_collected(context: Context) -> frozenset[str]:
    """The commits whose tables earlier collections let go."""
    paths = [info.path for info in context.store.list(GC) if info.path.endswith(".json")]
    found = in_parallel(lambda path: codec.load(context.store.get(path), path=path)["commits"], paths)
    return frozenset().union(*found)


def record_collected(context: Context, commits: frozenset[str], *, at: int) -> None:
    """Say for good which commits are collected; to be done before the first of their files goes."""
    if commits:
        fields = {"commits": sorted(commits), "at": at, "actor": context.actor}
        context.store.put(f"{GC}/{context.new_id()}.json", codec.dump(fields))


def require_uncollected(context: Context, commit_id: str) -> None:
    """Refuse a commit that is collected, or is about to be; to be called after the ref on it was put."""
    if _is_marked(context, commit_id):
        raise collected(commit_id)


def _is_marked(context: Context, commit_id: str) -> bool:
    path = commit_path(commit_id)
    return codec.load(context.store.get(path), path=path).get(_MARK) is not None


def refuse_collected(record: CommitRecord) -> None:
    if record.collected_at is not None:
        raise collected(record.commit.graph_commit_id)


def collected(commit_id: str) -> CollectedError:
    return CollectedError(
        f"commit {commit_id} was collected: its tables were let go", hint="read a newer commit, or restore a backup"
    )


@contextmanager
def telling_collected(context: Context, list_commits: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Where something is not there because one of some commits was collected, say so.

    Nobody is asked before something is missing: what is read from a log alone costs no request more.
    """
    try:
        yield
    except CollectedError:
        raise
    except (DamagedFileError, NotFoundError) as err:
        for commit_id in list_commits():
            if _is_marked(context, commit_id):
                raise collected(commit_id) from err
        raise
