"""All that a repository records: its branches' logs and its commit objects."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from anabranch.ids import BranchName, TableKey
from anabranch.repo.leases.work import Work, working
from anabranch.repo.log.commits import Commits
from anabranch.repo.log.config import Context
from anabranch.repo.log.entries import TableEntry
from anabranch.repo.log.heads import Heads

__all__ = ["Records"]


@dataclass(frozen=True, slots=True)
class Records:
    """The logs and commits of one repository, and the context to read and write them in.

    `work` is what they are written for, where that may take long.
    """

    context: Context
    heads: Heads
    commits: Commits
    work: Work | None = None

    @classmethod
    def of(cls, context: Context) -> "Records":
        return cls(context, Heads(context), Commits(context))

    @contextmanager
    def at_work(self) -> Iterator["Records"]:
        """The same for something that writes now and publishes later."""
        if self.work is not None:
            yield self
            return
        with working(self.context) as work:
            yield replace(self, work=work)

    def require_awake(self) -> None:
        """Refuse to publish for work that may have been taken for dead."""
        if self.work is not None:
            self.work.require_awake()

    def find_table(self, branch: BranchName, key: TableKey) -> TableEntry | None:
        """A table as it is on a branch right now."""
        entry = self.heads.find(branch)
        return None if entry is None else self.commits.find_table(entry.head, key)
