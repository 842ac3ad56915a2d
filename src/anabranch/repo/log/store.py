"""Access to the logs and commit objects of a repository."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from anabranch.ids import BranchName, TableKey
from anabranch.repo.leases.lease import Lease
from anabranch.repo.log.commits import Commits
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import TableEntry
from anabranch.repo.log.heads import Heads

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

    def check_lease(self) -> None:
        """Raise BusyError if the lease of the work may have expired."""
        if self.lease is not None:
            self.lease.check()

    def find_table(self, branch: BranchName, key: TableKey) -> TableEntry | None:
        """Return the current state of a table on a branch, or None."""
        entry = self.heads.find(branch)
        return None if entry is None else self.commits.find_table(entry.head, key)
