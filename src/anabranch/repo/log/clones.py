"""The registered clones of a repository, so that its garbage collection keeps the files that they read.

Each clone has a numbered log in the source. A clone is registered before it reads anything, and released when it no
longer needs the source. A process that dies in between leaves a needless registration, but never an unprotected clone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from anabranch.display import to_datetime, to_text
from anabranch.errors import BusyError, CorruptError, NotFoundError
from anabranch.ids import TableKey
from anabranch.repo.log import codec, validation
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.numbered import NumberedLog
from anabranch.storage import documents, in_parallel

__all__ = ["CLONES", "CloneInfo", "CloneKind", "CloneState", "Clones", "HeldCommit"]

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

    def _repr_row_(self) -> Mapping[str, object]:
        return {
            "clone": self.id,
            "target": self.target,
            "kind": self.kind,
            "state": self.state,
            "created": to_text(self.created),
            "created by": self.created_by,
        }

    @property
    def is_held(self) -> bool:
        """Whether the source must keep the files that the clone reads."""
        return self.state is CloneState.REGISTERED


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCommit:
    """The tables of one commit that a clone needs."""

    clone_id: str
    commit_id: str
    keys: frozenset[TableKey]


class Clones:
    """The clones that were made of one repository."""

    def __init__(self, config: RepoConfig) -> None:
        self._config = config

    @property
    def config(self) -> RepoConfig:
        return self._config

    def register(self, *, target: str, kind: CloneKind, commit_id: str, keys: Sequence[TableKey]) -> CloneInfo:
        """Register a clone before it is made. From now on, garbage collection keeps its tables."""
        clone = CloneInfo(
            id=self._config.new_id(),
            target=target,
            kind=kind,
            commit_id=commit_id,
            tables=tuple(sorted(map(str, keys))),
            created_at=self._config.clock(),
            created_by=self._config.actor,
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
        found = log.find_head()
        if found is None:
            return None
        number, data = found
        clone = _decode(data, path=log.path(number))
        codec.check_identity(log.path(number), (clone.id, clone.number), (clone_id, number))
        return clone

    def get(self, clone_id: str) -> CloneInfo:
        # An id becomes a folder name, so other texts must not reach the store.
        clone = self.find(clone_id) if clone_id.isalnum() else None
        if clone is None:
            raise NotFoundError(f"there is no clone {clone_id!r}", hint="list the clones with `clone_list()`")
        return clone

    def list(self) -> tuple[CloneInfo, ...]:
        """Return all clones that were ever registered, oldest first."""
        names = sorted(folder.rpartition("/")[2] for folder in self._config.store.list_folders(CLONES))
        return tuple(clone for clone in in_parallel(self.find, names) if clone is not None)

    def iter_held(self) -> Iterator[HeldCommit]:
        """Yield the commits and tables that registered clones need."""
        for clone in self.list():
            if clone.is_held:
                keys = frozenset(map(TableKey.parse, clone.tables))
                yield HeldCommit(clone_id=clone.id, commit_id=clone.commit_id, keys=keys)

    def _log(self, clone_id: str) -> NumberedLog:
        return NumberedLog(self._config.store, f"{CLONES}/{clone_id}")

    def _append(self, clone: CloneInfo) -> bool:
        data = documents.dump(
            {
                "id": clone.id,
                "target": clone.target,
                "kind": clone.kind,
                "commit_id": clone.commit_id,
                "tables": list(clone.tables),
                "created_at": clone.created_at,
                "created_by": clone.created_by,
                "state": clone.state,
                "number": clone.number,
                # These make each entry unique. put_once would treat two equal entries as one entry that was put twice.
                "at": self._config.clock(),
                "actor": self._config.actor,
                "nonce": self._config.new_id(),
            }
        )
        return self._log(clone.id).append(clone.number, data)


def _decode(data: bytes, *, path: str) -> CloneInfo:
    fields = documents.load(data, path=path)
    with documents.damage_named(path):
        validation.check_held(clone_id=fields["id"], commit_id=fields["commit_id"], tables=fields["tables"])
        return CloneInfo(
            id=fields["id"],
            target=validation.check_root(fields["target"], "target"),
            kind=CloneKind(fields["kind"]),
            commit_id=fields["commit_id"],
            tables=tuple(fields["tables"]),
            created_at=validation.check_time(fields["created_at"], "time"),
            created_by=validation.check_optional_text(fields["created_by"], "actor"),
            state=CloneState(fields["state"]),
            number=validation.check_integer(fields["number"], "number"),
        )
