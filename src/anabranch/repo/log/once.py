"""Publish exactly once: a commit names its change in its metadata, so that every later attempt finds it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from anabranch.repo.log.entries import GraphCommit, LogEntry
from anabranch.repo.log.store import RepoStore

__all__ = ["Once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A change that is published once, even if several processes try it, or one tries again after a crash.

    The commit has `value` under `key` in its metadata. A publish that finds such a commit on the branch returns it and
    changes nothing. With `is_ordered` the values are increasing numbers: the newest commit with the key decides, and
    its value includes all lower ones. `is_relevant` leaves out commits that have the key for another reason.

    At least one bound keeps the cost independent of the length of the history. `after` is the version of the branch at
    the first attempt; with it, commits that a reset has removed since count, too. `since` is the time of the first
    attempt, in microseconds. `until` is a commit that was searched already, with all commits before it. Ordered values
    end the search by themselves.
    """

    key: str
    value: str
    is_ordered: bool = False
    is_relevant: Callable[[GraphCommit], bool] = lambda _: True
    after: int | None = None
    since: int | None = None
    until: str | None = None

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata by which the commit is found."""
        return {self.key: self.value}

    def find(self, commits: Iterable[GraphCommit]) -> GraphCommit | None:
        """Return the commit of an earlier attempt, given the commits of a branch, newest first."""
        for commit in commits:
            # Times never decrease along a branch, so that the search can stop at the first commit that is too old.
            is_too_old = self.since is not None and commit.created_at < self.since
            if is_too_old or commit.graph_commit_id == self.until:
                return None
            found = commit.metadata.get(self.key)
            if found is None or not self.is_relevant(commit):
                continue
            if found == self.value or (self.is_ordered and int(found) > int(self.value)):
                return commit
            # The newest commit with the key has a lower number, so that this change was not published.
            if self.is_ordered:
                return None
        return None

    def find_on(self, repo_store: RepoStore, head: LogEntry) -> GraphCommit | None:
        """Return the commit of an earlier attempt on a branch, given its newest entry."""
        if self.after is None:
            return self.find(repo_store.commits.iter_history(head.head))
        made = repo_store.commits_since(head, version=self.after)
        # `made` is an iterator: the next search continues below a commit that was rolled back, perhaps to an earlier
        # attempt that was not.
        while (commit := self.find(made)) is not None:
            if not _is_rolled_back(repo_store, head, commit):
                return commit
        return None


def _is_rolled_back(repo_store: RepoStore, head: LogEntry, commit: GraphCommit) -> bool:
    """Return whether a commit was removed from its branch because the lease of its writer had expired.

    Its writer reported an error, or died before it could, so the change must be published again. A commit that a reset
    or an undo removed was published. The log distinguishes the two, whether or not the commit was collected since.
    """
    history = repo_store.commits.iter_history(head.head)
    # Below this generation the history cannot contain the commit. So the cost does not depend on the length of the
    # history.
    above = takewhile(lambda other: other.generation >= commit.generation, history)
    if any(other.graph_commit_id == commit.graph_commit_id for other in above):
        return False
    return repo_store.heads.was_rolled_back(head, commit.manifest_version)
