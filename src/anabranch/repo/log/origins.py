"""The origin of a clone: a numbered log of the attempts to make it, of which one can finish.

An attempt begins with one entry and finishes with the next one. A new attempt takes the number that the attempt before
would finish with. So of two concurrent attempts, only one can finish, however long the other was suspended.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from anabranch.errors import BusyError, RepositoryNotFoundError
from anabranch.repo.log import codec, validation
from anabranch.repo.log.clones import CloneKind
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.numbered import NumberedLog
from anabranch.storage import documents

__all__ = [
    "ORIGIN",
    "Attempt",
    "AttemptState",
    "Registration",
    "begin",
    "find_origin",
    "finish",
    "follow_source",
    "refuse_overtaken",
    "refuse_unfinished",
]

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
    log = _log(config)
    # Most repositories are not clones, and for those this is the only request.
    if log.find(1) is None:
        return None
    found = log.find_head()
    if found is None:
        return None
    number, data = found
    attempt = _decode(documents.load(data, path=log.path(number)), path=log.path(number))
    codec.check_identity(log.path(number), attempt.number, number)
    return attempt


def refuse_unfinished(config: RepoConfig) -> None:
    """Raise RepositoryNotFoundError if the root contains an unfinished clone."""
    origin = find_origin(config)
    if origin is not None:
        raise RepositoryNotFoundError(
            f"there is only an unfinished clone of {origin.source!r} at {config.root!r}, not a repository",
            hint="run the clone again, or delete the folder",
        )


def refuse_overtaken(config: RepoConfig, attempt: Attempt) -> None:
    """Raise BusyError if another attempt has begun since this one: it deletes the files of this one."""
    newest = find_origin(config)
    if newest is not None and newest.number > attempt.number:
        raise _overtaken(config)


def begin(config: RepoConfig, attempt: Attempt) -> None:
    """Begin an attempt. Earlier attempts can no longer finish."""
    _append(config, attempt)


def finish(config: RepoConfig, attempt: Attempt, *, first_commit_id: str) -> Attempt:
    """Finish an attempt. Raise BusyError if another one has begun since."""
    finished = replace(attempt, number=attempt.number + 1, state=AttemptState.FINISHED, first_commit_id=first_commit_id)
    _append(config, finished)
    return finished


def follow_source(config: RepoConfig, moved: Callable[[str], str]) -> None:
    """Record the new location of the source of a clone, and of the repositories that the source reads."""
    origin = find_origin(config)
    if origin is None or origin.state is not AttemptState.FINISHED:
        return
    registrations = tuple(replace(each, repository=moved(each.repository)) for each in origin.registrations)
    relocated = replace(origin, source=moved(origin.source), registrations=registrations)
    if relocated != origin:
        _append(config, replace(relocated, number=origin.number + 1))


def _append(config: RepoConfig, attempt: Attempt) -> None:
    data = documents.dump(
        {
            "number": attempt.number,
            "state": attempt.state,
            "source": attempt.source,
            "source_id": attempt.source_id,
            "commit_id": attempt.commit_id,
            "kind": attempt.kind,
            "tables": list(attempt.tables),
            "registrations": [[each.repository, each.clone_id] for each in attempt.registrations],
            "repository_id": attempt.repository_id,
            "first_commit_id": attempt.first_commit_id,
            "at": config.clock(),
            "actor": config.actor,
        }
    )
    # The number of each entry is fixed when its attempt begins. A taken number means that a later attempt has begun.
    if not _log(config).append(attempt.number, data):
        raise _overtaken(config)


def _overtaken(config: RepoConfig) -> BusyError:
    return BusyError(
        f"another process began to clone to {config.root!r}",
        hint="wait until it has finished, or use another folder",
    )


def _log(config: RepoConfig) -> NumberedLog:
    return NumberedLog(config.store, ORIGIN)


def _decode(fields: Mapping[str, Any], *, path: str) -> Attempt:
    with documents.damage_named(path):
        validation.check_tables(fields["tables"])
        return Attempt(
            number=validation.check_integer(fields["number"], "number"),
            state=AttemptState(fields["state"]),
            source=validation.check_root(fields["source"], "source"),
            source_id=validation.check_commit_id(fields["source_id"], "repository id"),
            commit_id=validation.check_commit_id(fields["commit_id"]),
            kind=CloneKind(fields["kind"]),
            tables=tuple(fields["tables"]),
            registrations=tuple(
                Registration(
                    repository=validation.check_root(repository, "repository"),
                    clone_id=validation.check_commit_id(clone_id, "clone id"),
                )
                for repository, clone_id in fields["registrations"]
            ),
            repository_id=validation.check_commit_id(fields["repository_id"], "repository id"),
            first_commit_id=validation.check_optional_id(fields["first_commit_id"], "first commit"),
        )
