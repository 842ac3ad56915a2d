"""The registered clones of a repository, so that its garbage collection keeps the files that they read.

Each clone has a numbered log in the source. A clone is registered before it reads anything, and released when it no
longer needs the source. A process that dies in between leaves a needless registration, but never an unprotected clone.

Also the origin of a clone: a numbered log in the clone with the attempts to make it. Only one can finish. An attempt
begins with one entry and finishes with the next one. A new attempt takes the number with which the attempt before would
finish. So of two concurrent attempts, only one can finish, however long the other was suspended.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum

from anabranch.display import row_of, to_datetime
from anabranch.errors import BusyError, CorruptError, NotFoundError, RepositoryNotFoundError
from anabranch.ids import TableKey
from anabranch.repo.log import codec, validation
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.numbered_log import NumberedLog, list_names
from anabranch.storage import documents, in_parallel

CLONES = "_clones"


class CloneKind(StrEnum):
    """A shallow clone reads files of its source as long as it exists, a deep clone only until they are copied."""

    SHALLOW = "shallow"
    DEEP = "deep"


class CloneState(StrEnum):
    """Whether the source keeps the files that a clone reads."""

    REGISTERED = "registered"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneInfo:
    """A clone as registered in its source: its location, and the commit and tables that it reads."""

    id: str
    target: str
    kind: CloneKind
    commit_id: str
    tables: tuple[str, ...]
    created_at: int
    created_by: str | None
    state: CloneState
    number: int

    @property
    def created(self) -> datetime:
        """The time at which the clone was made, in UTC."""
        return to_datetime(self.created_at)

    @property
    def is_held(self) -> bool:
        """Whether the source must keep the files that the clone reads."""
        return self.state is CloneState.REGISTERED

    def _repr_row_(self) -> Mapping[str, object]:
        return row_of(self, "clone=id target kind state created created_by")


@dataclass(frozen=True, slots=True)
class Clones:
    """The clones that were made of one repository."""

    config: RepoConfig

    def register(self, *, target: str, kind: CloneKind, commit_id: str, keys: Sequence[TableKey]) -> CloneInfo:
        """Register a clone before it is made. From now on, garbage collection keeps its tables."""
        clone = CloneInfo(
            id=self.config.new_id(),
            target=target,
            kind=kind,
            commit_id=commit_id,
            tables=tuple(sorted(map(str, keys))),
            created_at=self.config.clock(),
            created_by=self.config.actor,
            state=CloneState.REGISTERED,
            number=1,
        )
        if not self._append(clone):
            raise CorruptError(f"clone id {clone.id} already exists", hint="try again: ids are random")
        return clone

    def release(self, clone_id: str) -> CloneInfo:
        """Allow garbage collection to delete what only this clone needs. Do nothing if it is released already."""
        clone = self.get(clone_id)
        if not clone.is_held:
            return clone
        released = replace(clone, state=CloneState.RELEASED, number=clone.number + 1)
        # The number may be taken by a concurrent release, which has the same result.
        if not self._append(released) and self.get(clone_id).is_held:
            raise BusyError(f"clone {clone_id} was changed concurrently", hint="list the clones and try again")
        return released

    def find(self, clone_id: str) -> CloneInfo | None:
        log = self._log(clone_id)
        if (found := log.find_head()) is None:
            return None
        number, data = found
        clone = _decode(data, path=log.path(number))
        codec.check_identity(log.path(number), (clone.id, clone.number), (clone_id, number))
        return clone

    def get(self, clone_id: str) -> CloneInfo:
        # The id becomes a folder name, so refuse other texts.
        clone = self.find(clone_id) if clone_id.isalnum() else None
        if clone is None:
            raise NotFoundError(f"there is no clone {clone_id!r}", hint="list the clones with `clone_list()`")
        return clone

    def list(self) -> tuple[CloneInfo, ...]:
        """Return all clones that were ever registered, oldest first."""
        found = in_parallel(self.find, list_names(self.config.store, CLONES))
        return tuple(clone for clone in found if clone is not None)

    def _log(self, clone_id: str) -> NumberedLog:
        return NumberedLog(self.config.store, f"{CLONES}/{clone_id}")

    def _append(self, clone: CloneInfo) -> bool:
        # These make each entry unique. put_once would treat two equal entries as one entry that was put twice.
        unique = {"at": self.config.clock(), "actor": self.config.actor, "nonce": self.config.new_id()}
        return self._log(clone.id).append(clone.number, documents.dump({**asdict(clone), **unique}))


def _decode(data: bytes, *, path: str) -> CloneInfo:
    fields = documents.load(data, path=path)
    with documents.damage_named(path):
        return CloneInfo(
            id=validation.check_commit_id(fields["id"], "clone id"),
            target=validation.check_root(fields["target"], "target"),
            kind=CloneKind(fields["kind"]),
            commit_id=validation.check_commit_id(fields["commit_id"]),
            tables=validation.check_tables(fields["tables"]),
            created_at=validation.check_time(fields["created_at"], "time"),
            created_by=validation.check_optional(validation.check_text, fields["created_by"], "actor"),
            state=CloneState(fields["state"]),
            number=validation.check_integer(fields["number"], "number"),
        )


ORIGIN = "_origin"


class AttemptState(StrEnum):
    BEGUN = "begun"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One registration of a clone: in its source, or in a repository that the source itself reads."""

    repository: str
    clone_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt to clone a repository. `first_commit_id` is the first commit of the clone, once it has finished."""

    number: int
    state: AttemptState
    source: str
    source_id: str
    commit_id: str
    kind: CloneKind
    tables: tuple[str, ...]
    registrations: tuple[Registration, ...]
    repository_id: str
    first_commit_id: str | None = None

    @property
    def clone_id(self) -> str:
        """The id of the clone in its source. A clone of a read-only source is not registered, and uses its own id."""
        return self.registrations[0].clone_id if self.registrations else self.repository_id

    def has_same_result(self, other: "Attempt") -> bool:
        """Return whether both attempts clone the same tables of the same commit in the same way."""
        mine, theirs = ((each.source_id, each.commit_id, each.kind, each.tables) for each in (self, other))
        return mine == theirs


def find_origin(config: RepoConfig) -> Attempt | None:
    """Return the newest attempt to clone a repository to this root, or None if it is not a clone."""
    log = _origin_log(config)
    # Most repositories are not clones, and for those the first request is the only one.
    if log.find(1) is None or (found := log.find_head()) is None:
        return None
    number, data = found
    attempt = _decode_attempt(data, path=log.path(number))
    codec.check_identity(log.path(number), attempt.number, number)
    return attempt


def refuse_unfinished(config: RepoConfig) -> None:
    """Raise RepositoryNotFoundError if the root contains an unfinished clone."""
    origin = find_origin(config)
    if origin is not None:
        problem = f"there is only an unfinished clone of {origin.source!r} at {config.root!r}, not a repository"
        raise RepositoryNotFoundError(problem, hint="run the clone again, or delete the folder")


def refuse_overtaken(config: RepoConfig, attempt: Attempt) -> None:
    """Raise BusyError if another attempt has begun since this one: it deletes the files of this one."""
    newest = find_origin(config)
    if newest is not None and newest.number > attempt.number:
        raise _overtaken(config)


def finish(config: RepoConfig, attempt: Attempt, *, first_commit_id: str) -> Attempt:
    """Finish an attempt. Raise BusyError if another one has begun since."""
    finished = replace(attempt, number=attempt.number + 1, state=AttemptState.FINISHED, first_commit_id=first_commit_id)
    put_attempt(config, finished)
    return finished


def follow_source(config: RepoConfig, moved: Callable[[str], str]) -> None:
    """Record the new location of the source of a clone, and of the repositories that the source reads."""
    origin = find_origin(config)
    if origin is None or origin.state is not AttemptState.FINISHED:
        return
    registrations = tuple(replace(each, repository=moved(each.repository)) for each in origin.registrations)
    relocated = replace(origin, source=moved(origin.source), registrations=registrations)
    if relocated != origin:
        put_attempt(config, replace(relocated, number=origin.number + 1))


def put_attempt(config: RepoConfig, attempt: Attempt) -> None:
    """Put the next entry of the log of attempts. Raise BusyError if another attempt has begun since.

    After the first entry of an attempt, earlier attempts can no longer finish.
    """
    registrations = [[each.repository, each.clone_id] for each in attempt.registrations]
    written = {"at": config.clock(), "actor": config.actor}
    data = documents.dump({**asdict(attempt), "registrations": registrations, **written})
    # The number of each entry is fixed when its attempt begins. A taken number means that a later attempt has begun.
    if not _origin_log(config).append(attempt.number, data):
        raise _overtaken(config)


def _overtaken(config: RepoConfig) -> BusyError:
    hint = "wait until it has finished, or use another folder"
    return BusyError(f"another process began to clone to {config.root!r}", hint=hint)


def _origin_log(config: RepoConfig) -> NumberedLog:
    return NumberedLog(config.store, ORIGIN)


def _decode_attempt(data: bytes, *, path: str) -> Attempt:
    fields = documents.load(data, path=path)
    with documents.damage_named(path):
        return Attempt(
            number=validation.check_integer(fields["number"], "number"),
            state=AttemptState(fields["state"]),
            source=validation.check_root(fields["source"], "source"),
            source_id=validation.check_commit_id(fields["source_id"], "repository id"),
            commit_id=validation.check_commit_id(fields["commit_id"]),
            kind=CloneKind(fields["kind"]),
            tables=validation.check_tables(fields["tables"]),
            registrations=tuple(
                Registration(
                    repository=validation.check_root(repository, "repository"),
                    clone_id=validation.check_commit_id(clone_id, "clone id"),
                )
                for repository, clone_id in fields["registrations"]
            ),
            repository_id=validation.check_commit_id(fields["repository_id"], "repository id"),
            first_commit_id=validation.check_optional(
                validation.check_commit_id, fields["first_commit_id"], "first commit"
            ),
        )
