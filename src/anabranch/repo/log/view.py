"""What a ref shows: the tables of one commit, or main with the tables of a live branch over it."""

from dataclasses import dataclass, replace

from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.commits import Commits
from anabranch.repo.log.entries import CommitRecord, GraphCommit, LogEntry, TableEntry
from anabranch.repo.log.store import RepoStore

__all__ = ["View", "find_main"]


def find_main(repo_store: RepoStore, entry: LogEntry) -> CommitRecord | None:
    """Return the newest state of main, which is below a live branch, or None for a pinned branch."""
    return repo_store.heads.get(BranchName(MAIN)).head if entry.state.is_live else None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The tables that a commit or a branch shows.

    Without `main` these are the tables that the commit `head` recorded. With `main` they are those of a live branch:
    the tables of that state of main, except for the tables that the branch has changed or dropped (`own`).
    """

    head: CommitRecord
    main: CommitRecord | None = None
    own: tuple[TableKey, ...] = ()

    @classmethod
    def of(cls, entry: LogEntry, main: CommitRecord | None = None) -> "View":
        """Return what a log entry shows: what it recorded, or, if the branch is live, that on a state of main."""
        if main is None or not entry.state.is_live:
            return cls(head=entry.head)
        return cls(head=entry.head, main=main, own=entry.state.own)

    @classmethod
    def now(cls, repo_store: RepoStore, entry: LogEntry) -> "View":
        """Return what a branch shows now, given its newest entry."""
        return cls.of(entry, find_main(repo_store, entry))

    @property
    def commit(self) -> GraphCommit:
        """The head commit. It does not hold the tables of the view unless `is_recorded`."""
        return self.head.commit

    @property
    def record(self) -> CommitRecord:
        """The head commit with the tables of the view and the commit of main below them."""
        if self.main is None:
            return self.head
        # The tables that a live branch has changed are always among the changes of its head.
        own = {key: self.head.changes.get(key) for key in self.own}
        main_id = self.main.commit.graph_commit_id
        return replace(self.head, base=self.main.base, changes={**self.main.changes, **own}, main_id=main_id)

    @property
    def main_id(self) -> str | None:
        """The commit of main below a live branch; None for other states."""
        return self.head.main_id if self.main is None else self.main.commit.graph_commit_id

    @property
    def is_recorded(self) -> bool:
        """Whether the head commit holds exactly these tables. It does not if main has moved below a live branch."""
        # A live branch without a commit of its own has a commit of main as its head, which is not above another one.
        return self.main is None or self.main_id == (self.head.main_id or self.commit.graph_commit_id)

    @property
    def commit_ids(self) -> tuple[str, ...]:
        """The commits whose data the view shows."""
        found = (self.commit.graph_commit_id, None if self.is_recorded else self.main_id)
        return tuple(commit_id for commit_id in found if commit_id is not None)

    def tables(self, commits: Commits) -> dict[TableKey, TableEntry]:
        return commits.tables_of(self.record)

    def find_table(self, commits: Commits, key: TableKey) -> TableEntry | None:
        return commits.find_table(self.record, key)

    def find_main(self, commits: Commits) -> CommitRecord | None:
        """Return the state of main below a live branch, also below one of its earlier commits."""
        if self.main is not None or self.main_id is None:
            return self.main
        return commits.get(self.main_id)

    def without(self, released: frozenset[TableKey]) -> "View":
        """Return the view after some of the branch's own tables follow main again."""
        return replace(self, own=tuple(key for key in self.own if key not in released))
