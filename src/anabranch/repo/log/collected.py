"""Collected commits: the mark on commits whose data gc deletes, and the records of collections.

The object of a collected commit stays, so that the history is complete. The mark in it means that its tables cannot be
read any more. Garbage collection writes the marks, then reads all refs again, and only then deletes. A writer that
makes an old commit reachable puts its ref first and reads the mark afterwards. So of two concurrent operations, at
least one sees the other. Collected commits are also recorded in `_gc/`, so that later collections skip them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from anabranch.errors import CollectedError, DamagedFileError, NotFoundError, StorageError
from anabranch.repo.log import codec, validation
from anabranch.repo.log.commits import commit_path, read_commit_fields
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import CommitRecord
from anabranch.storage import documents, in_parallel

GC = "_gc"
RECORD, COPY = ".json", ".copy"
_MARK = "collected_at"


def mark_collected(config: RepoConfig, commit_id: str, *, at: int) -> None:
    """Mark a commit as collected."""
    _replace_mark(config, commit_id, {_MARK: at})


def unmark_collected(config: RepoConfig, commit_id: str) -> None:
    """Remove the mark from a commit that is needed after all."""
    _replace_mark(config, commit_id, {})


def _replace_mark(config: RepoConfig, commit_id: str, mark: Mapping[str, int]) -> None:
    """Replace a commit object by one that differs only in the mark. Two concurrent calls write the same bytes."""
    fields = read_commit_fields(config, commit_id)
    changed = {**{name: value for name, value in fields.items() if name != _MARK}, **mark}
    if changed != fields:
        config.store.put(commit_path(commit_id), documents.dump(changed))


def list_collected(config: RepoConfig) -> frozenset[str]:
    """Return the commits whose data earlier collections removed."""
    paths = [info.path for info in config.store.list(GC) if info.path.endswith(RECORD)]
    found = in_parallel(lambda path: decode_record(config.store.get(path), path=path).commits, paths)
    return frozenset().union(*found)


def find_record(config: RepoConfig, commit_id: str) -> "CollectionRecord | None":
    """Return the newest record of a collection that removed a commit's data."""
    paths = sorted((info.path for info in config.store.list(GC) if info.path.endswith(RECORD)), reverse=True)
    found = (decode_record(config.store.get(path), path=path) for path in paths)
    return next((record for record in found if commit_id in record.commits), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionRecord:
    """The commits whose data one collection removed, and the time."""

    commits: frozenset[str]
    at: int


def decode_record(data: bytes, *, path: str) -> CollectionRecord:
    """Decode a record of a collection, or the copy of one."""
    fields = documents.load(data, path=path)
    record_id = path.rpartition("/")[2].partition(".")[0]
    with documents.damage_named(path):
        # Records of earlier formats do not contain their id.
        codec.check_identity(path, fields.get("id", record_id), record_id)
        return CollectionRecord(
            commits=validation.check_collected(fields["commits"]), at=validation.check_time(fields["at"], "time")
        )


def record_collected(config: RepoConfig, commits: frozenset[str], *, at: int) -> None:
    """Record collected commits permanently. Call this before the first of their files is deleted."""
    if not commits:
        return
    record_id = config.new_id()
    data = documents.dump({"id": record_id, "commits": sorted(commits), "at": at, "actor": config.actor})
    config.store.put(f"{GC}/{record_id}{RECORD}", data)
    with suppress(StorageError):
        # No other object has this list, so doctor could not repair the record without a copy.
        config.store.put(f"{GC}/{record_id}{COPY}", data)


def require_uncollected(config: RepoConfig, commit_id: str) -> None:
    """Raise CollectedError if a commit is collected or about to be. Call this after the ref to it was put."""
    if _is_marked(config, commit_id):
        raise _collected(commit_id)


def _is_marked(config: RepoConfig, commit_id: str) -> bool:
    return read_commit_fields(config, commit_id).get(_MARK) is not None


def refuse_collected(record: CommitRecord) -> None:
    """Raise CollectedError if the commit is collected."""
    if record.collected_at is not None:
        raise _collected(record.commit.graph_commit_id)


def _collected(commit_id: str) -> CollectedError:
    return CollectedError(
        f"commit {commit_id} was collected: the data of its tables was deleted",
        hint="read a newer commit, or restore a backup",
        details={"commit": commit_id},
    )


@contextmanager
def collected_errors(config: RepoConfig, list_commits: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Convert errors about missing data into CollectedError if one of the commits is collected.

    The commits are read only after such an error, so a successful read costs no extra request.
    """
    try:
        yield
    # This error names its commit already. It is also a NotFoundError, for which the next clause would search again.
    except CollectedError:
        raise
    except (DamagedFileError, NotFoundError) as err:
        for commit_id in list_commits():
            if _is_marked(config, commit_id):
                raise _collected(commit_id) from err
        raise
