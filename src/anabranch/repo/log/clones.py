"""The clones that read a repository's files: each a numbered log in the source, so that its garbage collection knows.

A clone is registered before it reads anything, and released when it needs the source no more. Whoever dies between
leaves a registration too many, never a clone unprotected.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from anabranch.errors import BusyError, CorruptError, NotFoundError
from anabranch.ids import TableKey
from anabranch.repo.log import codec, validation
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.numbered import NumberedLog
from anabranch.storage import documents, in_parallel

__all__ = ["CLONES", "CloneInfo", "CloneKind", "CloneState", "Clones", "HeldCommit"]

CLONES = "_clones"


class CloneKind(StrEnum):
    """A shallow clone reads its source's files as long as it lives, a deep one until they are copied."""

    SHALLOW = "shallow"
    DEEP = "deep"


class CloneState(StrEnum):
    """Whether the source keeps what a clone reads."""

    REGISTERED = "registered"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneInfo:
    """A clone as its source knows it: where it was made, and which tables of which commit it reads."""

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
    def is_held(self) -> bool:
        """Whether the source has to keep what the clone reads."""
        return self.state is CloneState.REGISTERED


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCommit:
    """What one clone needs of the source: some tables as one commit has them."""

    clone_id: str
    commit_id: str
    keys: frozenset[TableKey]


class Clones:
    """The clones that were made of one repository."""

    def __init__(self, context: RepoConfig) -> None:
        self._context = context

    @property
    def context(self) -> RepoConfig:
        return self._context

    def register(self, *, target: str, kind: CloneKind, commit_id: str, keys: Sequence[TableKey]) -> CloneInfo:
        """Record a clone that is about to be made; from here on its tables are kept."""
        clone = CloneInfo(
            id=self._context.new_id(),
            target=target,
            kind=kind,
            commit_id=commit_id,
            tables=tuple(sorted(map(str, keys))),
            created_at=self._context.clock(),
            created_by=self._context.actor,
            state=CloneState.REGISTERED,
            number=1,
        )
        if not self._append(clone):
            raise CorruptError(f"there is a clone {clone.id} already", hint="try again: ids are made by chance")
        return clone

    def release(self, clone_id: str) -> CloneInfo:
        """Let the source's garbage collection have what only this clone needed; again, if it was released before."""
        clone = self.get(clone_id)
        if not clone.is_held:
            return clone
        released = replace(clone, state=CloneState.RELEASED, number=clone.number + 1)
        if not self._append(released) and self.get(clone_id).is_held:
            raise BusyError(f"clone {clone_id} was changed meanwhile", hint="look at it and try again")
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
        # An id becomes a folder: what is no id must not become a path.
        clone = self.find(clone_id) if clone_id.isalnum() else None
        if clone is None:
            raise NotFoundError(f"there is no clone {clone_id!r}", hint="list the clones to see which exist")
        return clone

    def list(self) -> tuple[CloneInfo, ...]:
        """All that were ever registered, oldest first."""
        names = sorted(folder.rpartition("/")[2] for folder in self._context.store.list_folders(CLONES))
        return tuple(clone for clone in in_parallel(self.find, names) if clone is not None)

    def iter_held(self) -> Iterator[HeldCommit]:
        """What has to be kept for clones, as of now."""
        for clone in self.list():
            if clone.is_held:
                keys = frozenset(map(TableKey.parse, clone.tables))
                yield HeldCommit(clone_id=clone.id, commit_id=clone.commit_id, keys=keys)

    def _log(self, clone_id: str) -> NumberedLog:
        return NumberedLog(self._context.store, f"{CLONES}/{clone_id}")

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
                # Who puts it and when: two entries that say the same would be taken for one put twice.
                "at": self._context.clock(),
                "actor": self._context.actor,
                "nonce": self._context.new_id(),
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
