"""Access to the logs and commit objects of a repository, and to the tables that a ref shows."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Self

from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log import codec
from anabranch.repo.log.commits import Commits, CommitSpec, Once
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import CommitKind, CommitRecord, GraphCommit, LogEntry, TableEntry, TableMap
from anabranch.repo.log.heads import Heads
from anabranch.repo.log.leases import Lease
from anabranch.storage import documents


@dataclass(frozen=True, slots=True)
class RepoStore:
    """The logs and commits of one repository, and its settings (`config`).

    `lease` protects files that are written but not published yet.
    """

    config: RepoConfig
    heads: Heads
    commits: Commits
    lease: Lease | None = None

    @classmethod
    def of(cls, config: RepoConfig) -> "RepoStore":
        return cls(config, Heads(config), Commits(config))

    @contextmanager
    def with_lease(self) -> Iterator["RepoStore"]:
        """Hold a lease during a write and its publish. A lease that is held already is used."""
        if self.lease is not None:
            yield self
            return
        with self.config.leases.working() as lease:
            yield replace(self, lease=lease)

    def check_lease(self) -> None:
        """Raise BusyError if the lease of the work may have expired."""
        if self.lease is not None:
            self.lease.check()

    def find_table(self, branch: BranchName, key: TableKey) -> TableEntry | None:
        """Return the current state of a table on a branch, or None."""
        entry = self.heads.find(branch)
        return None if entry is None else self.commits.find_table(entry.head, key)

    def commits_since(self, head: LogEntry, *, version: int) -> Iterator[GraphCommit]:
        """Return the commits made on a branch after a version of it, given its newest entry.

        An entry names the commits before it, so most entries need not be read. After a reset, no later entry names the
        commits that it removed from the branch, so every number must be covered by some entry.
        """
        numbers: set[int] = set()
        found: dict[str, GraphCommit] = {}
        for number in range(head.number, version, -1):
            if number in numbers:
                continue
            entry = head if number == head.number else self.heads.get_numbered(head.branch, number)
            for commit in self._list_named(entry):
                # The page of a young branch reaches back into the branch that it was made from.
                if commit.branch == str(head.branch):
                    numbers.add(commit.manifest_version)
                    found[commit.graph_commit_id] = commit
        return (commit for commit in found.values() if commit.manifest_version > version)

    def _list_named(self, entry: LogEntry) -> list[GraphCommit]:
        """Return the head commit of an entry and the commits before it that it names, newest first."""
        with documents.damage_named(self.config.branch_log(entry.branch).path(entry.number)):
            named = [entry.head.commit, *(origin.commit for origin in codec.iter_origins(entry.head))]
        # A rebase makes several commits with one entry, perhaps more than the entry names.
        if named[-1].manifest_version == entry.number:
            history = self.commits.iter_history(entry.head)
            named += takewhile(lambda commit: commit.manifest_version == entry.number, history)
        return named

    def find_once(self, once: Once, head: LogEntry) -> GraphCommit | None:
        """Return the commit of an earlier attempt of a change on a branch, given the newest entry of the branch."""
        if once.after is None:
            return once.find(self.commits.iter_history(head.head))
        made = self.commits_since(head, version=once.after)
        # An iterator: the next search continues below a commit that was rolled back, perhaps to an earlier attempt.
        while (commit := once.find(made)) is not None:
            if not self._is_rolled_back(head, commit):
                return commit
        return None

    def _is_rolled_back(self, head: LogEntry, commit: GraphCommit) -> bool:
        """Return whether a commit was removed from its branch because the lease of its writer had expired.

        Its writer reported an error, or died before it could, so the change must be published again. A commit that a
        reset or an undo removed was published. The log distinguishes the two, also if the commit was collected since.
        """
        history = self.commits.iter_history(head.head)
        # Below this generation the history cannot contain the commit, so the search can stop there.
        above = takewhile(lambda other: other.generation >= commit.generation, history)
        if any(other.graph_commit_id == commit.graph_commit_id for other in above):
            return False
        return self.heads.was_rolled_back(head, commit.manifest_version)


@dataclass(eq=False)
class CommitTables(Mapping[TableKey, TableEntry]):
    """The tables of a commit: the full map of its base with its changes. A dropped table is a change to None.

    `read_full_map` is called with the base when a table is needed that has not changed since, or by `read`. An entry is
    decoded when it is read.
    """

    _read_full_map: Callable[[str], TableMap]
    _record: CommitRecord

    @cached_property
    def _base(self) -> TableMap:
        return self._read_full_map(self._record.base)

    def read(self) -> Self:
        """Read the full map now. At most one request."""
        _ = self._base
        return self

    def __getitem__(self, key: TableKey) -> TableEntry:
        if key not in self._record.changes:
            return self._base[key]
        entry = self._record.changes[key]
        if entry is None:
            raise KeyError(key)
        return entry

    def __contains__(self, key: object) -> bool:
        if isinstance(key, TableKey) and key in self._record.changes:
            return self._record.changes[key] is not None
        return key in self._base

    def __iter__(self) -> Iterator[TableKey]:
        yield from (key for key in self._base if key not in self._record.changes)
        yield from (key for key, entry in self._record.changes.items() if entry is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def find_main(repo_store: RepoStore, entry: LogEntry) -> CommitRecord | None:
    """Return the newest state of main, which a live branch builds on, or None for a pinned branch."""
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
        """Return the view of a log entry: its recorded tables or, if the branch is live, these on a state of main."""
        if main is None or not entry.state.is_live:
            return cls(head=entry.head)
        return cls(head=entry.head, main=main, own=entry.state.own)

    @classmethod
    def now(cls, repo_store: RepoStore, entry: LogEntry) -> "View":
        """Return the present view of a branch, given its newest entry."""
        return cls.of(entry, find_main(repo_store, entry))

    @property
    def commit(self) -> GraphCommit:
        """The head commit. It has the tables of the view only if `is_recorded`."""
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
        """Whether the head commit has exactly these tables. It does not if main has moved below a live branch."""
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


def pin_view(repo_store: RepoStore, entry: LogEntry, view: View, *, message: str) -> LogEntry:
    """Return a planned entry with a view as its head.

    If no commit has the tables of the view, because main has moved below a live branch, store such a commit.
    """
    if view.is_recorded:
        return replace(entry, head=replace(view.record, main_id=None))
    # `Commits.make` numbers a commit after the entry that it follows. This one belongs to the planned entry itself.
    before = replace(entry, number=entry.number - 1)
    spec = CommitSpec(message=message, kind=CommitKind.FREEZE, metadata={})
    main = None if view.main is None else view.main.commit
    record, full_map = repo_store.commits.make(before, view.record, {}, spec, main=main)
    repo_store.commits.put(record, full_map)
    return replace(entry, at=record.commit.created_at, head=record)
