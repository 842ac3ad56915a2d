"""Create a repository, and check whether a folder is one. The mark `_repo.json` makes a folder a repository.

A repository on a local disk has a reserve of space, so that garbage collection works on a full disk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from anabranch.errors import (
    CorruptError,
    InvalidPathError,
    ObjectNotFoundError,
    RepositoryExistsError,
    RepositoryNotFoundError,
    StorageError,
    StorageFullError,
)
from anabranch.ids import MAIN, BranchName
from anabranch.repo.log import validation
from anabranch.repo.log.clones import refuse_unfinished
from anabranch.repo.log.commits import Commits
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import (
    BranchEvent,
    BranchMode,
    BranchState,
    CommitKind,
    CommitRecord,
    FrozenDict,
    GraphCommit,
    LogEntry,
)
from anabranch.repo.log.heads import Heads
from anabranch.storage import documents, put_once
from anabranch.storage.uris import is_local

RESERVE = "_gc/reserve"
# Space for the files that a collection writes before it frees space: its lease, its marks and its record.
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


MARK = "_repo.json"
MARK_COPY = "_repo_copy.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The mark of a repository: its id, its root when it was created or last relocated, and its creation time."""

    id: str
    root: str
    created_at: int


def create_repository(config: RepoConfig) -> None:
    """Create main with an empty first commit, then write the mark that makes the folder a repository.

    The mark is written last. An interrupted call leaves no repository, and can be repeated.
    """
    heads = Heads(config)
    if has_mark(config):
        raise _exists(config)
    refuse_inside_repository(config)
    refuse_unfinished(config)
    # A call that was interrupted may have created main. A repeated call then adds only the mark.
    if heads.find(BranchName(MAIN)) is None:
        record = first_record(config, message="Begin the repository", kind=CommitKind.INIT)
        Commits(config).put(record, {})
        heads.create(BranchName(MAIN), lambda _: first_entry(record))
    put_mark(config, Mark(id=config.new_id(), root=config.root, created_at=config.clock()))
    keep_reserve(config)


def refuse_inside_repository(config: RepoConfig) -> None:
    """Raise InvalidPathError if a folder around a new repository is a repository."""
    if outer := next(_iter_repositories(config, Path(config.root).parents), None):
        hint = "choose a folder outside of it"
        raise InvalidPathError(f"{config.root!r} is inside the repository at {outer!r}", hint=hint)


def check_repository(config: RepoConfig) -> Mark:
    """Return the mark of a repository. Raise RepositoryNotFoundError if there is no repository."""
    try:
        return _decode(config.store.get(MARK), path=MARK)
    except ObjectNotFoundError:
        refuse_unfinished(config)
        near = next(_iter_repositories(config, _iter_near(Path(config.root))), None)
        hint = f"open {near!r}" if near else f"check the path, or create one with `init({config.root!r})`"
        raise RepositoryNotFoundError(f"there is no repository at {config.root!r}", hint=hint) from None


def _iter_near(folder: Path) -> Iterator[Path]:
    """Yield the folders in which a user may have meant to find a repository: those inside, then those around."""
    with suppress(OSError):
        yield from sorted(folder.iterdir())
    yield from folder.parents


def _iter_repositories(config: RepoConfig, folders: Iterable[Path]) -> Iterator[str]:
    """Yield the folders that are repositories, if the store is the local disk."""
    if is_local(config.root):
        for folder in folders:
            # A folder that cannot be read is not an error here.
            with suppress(OSError):
                if (folder / MARK).is_file():
                    yield str(folder)


def put_mark(config: RepoConfig, mark: Mark) -> None:
    """Write the mark. Raise RepositoryExistsError if there is another one."""
    if not put_once(config.store, MARK, documents.dump(asdict(mark))):
        raise _exists(config)
    write_mark_copy(config, mark)


def replace_mark(config: RepoConfig, mark: Mark) -> None:
    """Replace the mark in one step. This is the last step of a relocation."""
    # Replaced, not logged: every open reads it, and a numbered log would cost a listing each time. Two relocations at
    # one location put the same bytes.
    config.store.put(MARK, documents.dump(asdict(mark)))
    write_mark_copy(config, mark)


def write_mark_copy(config: RepoConfig, mark: Mark) -> None:
    """Write a copy from which doctor can restore the mark. Only doctor reads it, so a failed write is ignored."""
    with suppress(StorageError):
        config.store.put(MARK_COPY, documents.dump(asdict(mark)))


def find_mark_copy(config: RepoConfig) -> Mark | None:
    """Return the copy of the mark, or None if it is missing or damaged."""
    try:
        return _decode(config.store.get(MARK_COPY), path=MARK_COPY)
    except (CorruptError, ObjectNotFoundError):
        return None


def _decode(data: bytes, *, path: str) -> Mark:
    fields = documents.load(data, path=path)
    with documents.damage_named(path):
        return Mark(
            id=validation.check_commit_id(fields["id"], "repository id"),
            root=validation.check_root(fields["root"], "root"),
            created_at=validation.check_time(fields["created_at"], "time"),
        )


def has_mark(config: RepoConfig) -> bool:
    return config.store.find_info(MARK) is not None


def first_record(
    config: RepoConfig,
    *,
    message: str,
    kind: CommitKind,
    since: int = 0,
    metadata: Mapping[str, str] | None = None,
    tables: tuple[str, ...] = (),
) -> CommitRecord:
    """Return the first commit of main, which has no parent. Its time is not before `since`."""
    commit = GraphCommit(
        graph_commit_id=config.new_id(),
        manifest_branch=None,
        manifest_version=1,
        parent_commit_id=None,
        merged_parent_commit_id=None,
        actor_id=config.actor,
        created_at=max(config.clock(), since),
        message=message,
        kind=kind,
        metadata=FrozenDict(metadata or {}),
        tables=tables,
        generation=0,
    )
    return CommitRecord(commit=commit, base=commit.graph_commit_id, changes={}, recent=(), older=None)


def first_entry(record: CommitRecord) -> LogEntry:
    """Return the first entry of main, given its first commit. Concurrent calls for one clone return equal entries."""
    at, actor = record.commit.created_at, record.commit.actor_id
    state = BranchState(mode=BranchMode.PINNED, parent=None, created_at=at, created_by=actor, created_as=1)
    return LogEntry(
        branch=BranchName(MAIN), number=1, event=BranchEvent.CREATED, at=at, actor=actor, state=state, head=record
    )


def _exists(config: RepoConfig) -> RepositoryExistsError:
    hint = "use it, or choose another folder"
    return RepositoryExistsError(f"a repository already exists at {config.root!r}", hint=hint)
