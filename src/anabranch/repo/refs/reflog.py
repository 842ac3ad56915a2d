"""The reflog of a branch: every movement of it, newest first, and the tables that a movement changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from anabranch.display import to_datetime, to_text
from anabranch.format.arguments import checked_limit
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.entries import BranchEvent, LogEntry, TableEntry, is_same_state
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.branches import newest_entry

__all__ = ["Movement", "changed_tables", "list_movements"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """One entry of a branch's log: the event, its time and actor, and the commit of the branch after it.

    `is_deleted` is true if the branch was deleted after it. `restores` is the number of the movement that an undo or a
    redo went back to, or 0 if the creation of the branch was undone. `renamed_from` is set in the first movement of a
    branch that was renamed, and `renamed_to` in the last one of its old name.
    """

    number: int
    event: BranchEvent
    moved_at: int
    actor: str | None
    commit_id: str
    message: str
    is_deleted: bool
    restores: int | None = None
    renamed_from: str | None = None
    renamed_to: str | None = None

    @classmethod
    def of(cls, entry: LogEntry) -> "Movement":
        return cls(
            number=entry.number,
            event=entry.event,
            moved_at=entry.at,
            actor=entry.actor,
            commit_id=entry.head.commit.graph_commit_id,
            message=entry.head.commit.message,
            is_deleted=entry.state.is_deleted,
            restores=entry.restores,
            renamed_from=None if entry.renamed_from is None else str(entry.renamed_from),
            renamed_to=None if entry.state.renamed_to is None else str(entry.state.renamed_to),
        )

    @property
    def change(self) -> str:
        """The event in words."""
        if self.renamed_to is not None:
            return f"renamed to {self.renamed_to}"
        return self.event.value if self.renamed_from is None else f"renamed from {self.renamed_from}"

    @property
    def moved(self) -> datetime:
        """The time of the movement, in UTC."""
        return to_datetime(self.moved_at)

    def _repr_row_(self) -> Mapping[str, object]:
        return {
            "version": self.number,
            "event": self.event,
            "moved": to_text(self.moved),
            "actor": self.actor,
            "commit": self.commit_id,
            "message": self.message,
        }


def list_movements(
    repo_store: RepoStore, branch: BranchName, *, limit: int | None, after: int | None = None
) -> list[Movement]:
    """List the movements of a branch, newest first, also those of earlier branches of the same name.

    `after` continues after the last one of another page, which has this number.
    """
    limit, after = checked_limit(limit, "movements"), checked_limit(after, "movements", name="after")
    newest = newest_entry(repo_store, branch).number
    start = newest if after is None else min(newest, after - 1)
    first = 0 if limit is None else max(0, start - limit)
    entries = (repo_store.heads.get_numbered(branch, number) for number in range(start, first, -1))
    return [Movement.of(entry) for entry in entries]


def changed_tables(repo_store: RepoStore, before: LogEntry, after: LogEntry) -> dict[TableKey, TableEntry | None]:
    """Return the tables that a movement changed, as they are after it."""
    old, new = repo_store.commits.tables_of(before.head), repo_store.commits.tables_of(after.head)
    return {key: new.get(key) for key in old.keys() | new.keys() if not is_same_state(old.get(key), new.get(key))}
