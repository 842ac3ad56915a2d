"""The lines of first parents that heads go back to; most branches share most of theirs."""

from collections.abc import Iterator, Mapping

from anabranch.repo.log.commits import Commits
from anabranch.repo.log.entries import CommitRecord, GraphCommit

__all__ = ["Lines"]


class Lines:
    """Each commit is read and taken apart once, however many branches go back to it."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._known: dict[str, GraphCommit] = {}

    @property
    def known(self) -> Mapping[str, GraphCommit]:
        """All commits that were come across, by their ids."""
        return self._known

    def iter_line(self, head: CommitRecord) -> Iterator[GraphCommit]:
        """A commit and its first parents, newest first."""
        commit = head.commit
        if commit.parent_commit_id not in self._known:
            self._take_in(head)
        yield commit
        while (parent := commit.parent_commit_id) is not None:
            if parent not in self._known:
                self._take_in(self._commits.get(parent))
            commit = self._known[parent]
            yield commit

    def _take_in(self, record: CommitRecord) -> None:
        """Remember a commit, and those before it that it repeats."""
        self._known[record.commit.graph_commit_id] = record.commit
        for origin in self._commits.list_page(record):
            self._known[origin.commit.graph_commit_id] = origin.commit
