"""All that a repository records: its branches' logs and its commit objects."""

from dataclasses import dataclass

from anabranch.ids import BranchName, TableKey
from anabranch.repo.commits import Commits
from anabranch.repo.context import Context
from anabranch.repo.heads import Heads
from anabranch.repo.models import TableEntry

__all__ = ["Records"]


@dataclass(frozen=True, slots=True)
class Records:
    """The logs and commits of one repository, and the context to read and write them in."""

    context: Context
    heads: Heads
    commits: Commits

    @classmethod
    def of(cls, context: Context) -> "Records":
        return cls(context, Heads(context), Commits(context))

    def find_table(self, branch: BranchName, key: TableKey) -> TableEntry | None:
        """A table as it is on a branch right now."""
        entry = self.heads.find(branch)
        return None if entry is None else self.commits.find_table(entry.head, key)
