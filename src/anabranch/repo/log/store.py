"""Access to the logs and commit objects of a repository."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile

from anabranch.ids import BranchName, TableKey
from anabranch.repo.log import codec
from anabranch.repo.log.commits import Commits
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import GraphCommit, LogEntry, TableEntry
from anabranch.repo.log.heads import Heads
from anabranch.repo.log.leases import Lease
from anabranch.storage import documents

__all__ = ["RepoStore"]


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
        """Hold a lease while something is written and published. A lease that is held already is used."""
        if self.lease is not None:
            yield self
            return
        with self.config.leases.working() as lease:
            yield replace(self, lease=lease)

    def check_lease(self, _: object = None) -> None:
        """Raise BusyError if the lease of the work may have expired. It verifies any log entry in the same way."""
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
            named = [entry.head.commit, *codec.iter_summaries(entry.head)]
        # A rebase makes several commits with one entry, perhaps more than the entry names.
        if named[-1].manifest_version == entry.number:
            history = self.commits.iter_history(entry.head)
            named += takewhile(lambda commit: commit.manifest_version == entry.number, history)
        return named
