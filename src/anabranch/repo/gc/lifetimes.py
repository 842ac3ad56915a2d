"""The logs of branches as garbage collection reads them: the lives of a name, and the commits of each to keep."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from anabranch.ids import BranchName
from anabranch.repo.gc.policy import Policy
from anabranch.repo.log.commits import Commits
from anabranch.repo.log.entries import BranchEvent, CommitRecord, GraphCommit, LogEntry
from anabranch.repo.log.store import RepoStore

__all__ = ["BranchLog", "FirstParents", "Lifetime"]


class FirstParents:
    """Walks along first parents. Most branches share most of their history, so each commit is read once."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._known: dict[str, GraphCommit] = {}

    @property
    def known(self) -> Mapping[str, GraphCommit]:
        """All commits that were read, by id."""
        return self._known

    def iter_from(self, head: CommitRecord) -> Iterator[GraphCommit]:
        """Yield a commit and its first parents, newest first."""
        commit = head.commit
        if commit.parent_commit_id not in self._known:
            self._add_page(head)
        yield commit
        while (parent := commit.parent_commit_id) is not None:
            if parent not in self._known:
                self._add_page(self._commits.get(parent))
            commit = self._known[parent]
            yield commit

    def _add_page(self, record: CommitRecord) -> None:
        """Remember a commit and the earlier commits whose summaries its object repeats."""
        self._known[record.commit.graph_commit_id] = record.commit
        for origin in self._commits.list_page(record):
            self._known[origin.commit.graph_commit_id] = origin.commit


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchLog:
    """The log of one branch name: its newest entry, all commits made on it, and the commits that it retains.

    `written` is when the newest entry was put, None if it was put after the listing. `purged` are the commits of its
    purged lifetimes.
    """

    newest: LogEntry
    written: datetime | None
    made: frozenset[str]
    purged: frozenset[str]
    kept: frozenset[str]

    @classmethod
    def read(
        cls, repo_store: RepoStore, parents: FirstParents, branch: BranchName, find_kept: "_FindKept"
    ) -> "BranchLog | None":
        """Read all lifetimes of a branch name. Return None if the log has no entry."""
        log = repo_store.config.branch_log(branch)
        # List before the newest entry is read. An entry that is put in between then has no time and counts as young.
        listed = ((log.number_of(info.path), info.modified) for info in repo_store.config.store.list(log.folder))
        times = {number: modified for number, modified in listed if number is not None}
        newest = repo_store.heads.find(branch)
        if newest is None:
            return None
        made: set[str] = set()
        purged: set[str] = set()
        kept: set[str] = set()
        entry: LogEntry | None = newest
        while entry is not None:
            lifetime = Lifetime(repo_store, parents, entry)
            made.update(lifetime.made)
            found = find_kept(lifetime, times)
            if found is None:
                purged.update(lifetime.made)
            else:
                kept.update(found)
            created_as = entry.state.created_as
            # The entry before a creation is the tombstone of the earlier branch of this name.
            entry = repo_store.heads.get_numbered(branch, created_as - 1) if created_as > 1 else None
        return cls(
            newest=newest,
            written=times.get(newest.number),
            made=frozenset(made),
            purged=frozenset(purged),
            kept=frozenset(kept),
        )


class Lifetime:
    """The entries of a branch from its creation to its deletion, or until now.

    A name can be used again after its branch was deleted, so one log may hold several lifetimes.
    """

    def __init__(self, repo_store: RepoStore, parents: FirstParents, last: LogEntry) -> None:
        self._repo_store = repo_store
        self._parents = parents
        self._last = last
        self._commits: dict[str, GraphCommit] = {}
        self._heads: dict[int, CommitRecord] = {}
        self._rolled_back: set[int] = set()
        self._read()

    @property
    def last(self) -> LogEntry:
        return self._last

    @property
    def made(self) -> Iterable[str]:
        return self._commits

    def _read(self) -> None:
        """Find every commit made in this lifetime, and the heads that are not such a commit, as after a reset.

        A commit names the number of its entry (`manifest_version`), so most entries need not be read: the walk from
        the newest head covers them. Only numbers that no walk has covered are read from the log.
        """
        branch = self._last.branch
        numbers: set[int] = set()
        after: LogEntry | None = None
        for number in range(self._last.number, self._last.state.created_as - 1, -1):
            if number in numbers:
                continue
            entry = self._last if number == self._last.number else self._repo_store.heads.get_numbered(branch, number)
            self._heads[number] = entry.head
            if after is not None and after.event is BranchEvent.ROLLED_BACK:
                self._find_rolled_back(entry)
            after = entry
            for commit in self._parents.iter_from(entry.head):
                # The walk has reached the branch that this one was made from, or an earlier branch of the same name.
                # Their own logs decide about those commits.
                if commit.branch != str(branch) or commit.manifest_version < self._last.state.created_as:
                    break
                # A walk from a later entry has been here.
                if commit.graph_commit_id in self._commits:
                    break
                numbers.add(commit.manifest_version)
                self._commits[commit.graph_commit_id] = commit

    def _find_rolled_back(self, entry: LogEntry) -> None:
        """Note the number of a commit that its writer rolled back, given the last entry that has it as its head.

        Its files may be gone. The writer marks it as collected, unless it was killed before; then this collection does.
        """
        commit = entry.head.commit
        if commit.branch != str(self._last.branch) or commit.manifest_version < self._last.state.created_as:
            return  # a reset was rolled back, and the commit belongs to another branch
        is_known = commit.graph_commit_id in self._commits  # by a later entry: the branch was reset to it
        if not is_known and self._repo_store.heads.was_rolled_back(self._last, commit.manifest_version):
            self._rolled_back.add(commit.manifest_version)

    def find_kept(self, policy: Policy, times: Mapping[int, datetime], horizon: datetime) -> set[str]:
        """Return the commits that the policy retains, and those that were a head since the horizon.

        `times` is when each entry of the log was written. Commits that were rolled back are not retained.
        """
        return self._find_retained(policy, times, horizon) - self._list_rolled_back()

    def find_kept_before(self, policy: Policy, times: Mapping[int, datetime], horizon: datetime) -> set[str]:
        """Return the commits that the policy retains in the reflog of a branch that has another name now."""
        if policy.keeps_all:
            return self.find_kept(policy, times, horizon)
        return self._find_young(_newer_than(policy, horizon)) - self._list_rolled_back()

    def _list_rolled_back(self) -> set[str]:
        made = self._commits.values()
        return {commit.graph_commit_id for commit in made if commit.manifest_version in self._rolled_back}

    def _find_retained(self, policy: Policy, times: Mapping[int, datetime], horizon: datetime) -> set[str]:
        run = self._last.state.run
        # A run is compared with the commits that it started on when it is published, however old they are.
        kept = set() if run is None else set(run.started_on)
        if policy.keeps_all:
            kept.update(self._commits)
            for head in self._heads.values():
                self._add_ancestors(head, kept)
            return kept
        since, is_new = self._first_number_since(times, horizon), _newer_than(policy, horizon)
        heads = {number: head.commit.graph_commit_id for number, head in self._heads.items()}
        # The head at the horizon counts as well: a reader that opened the branch then may still read it.
        kept.update(head for number, head in heads.items() if number >= min(since, self._last.number))
        made = self._commits.values()
        kept.update(commit.graph_commit_id for commit in made if commit.manifest_version >= since)
        kept.update(self._iter_last(policy.keep_last or 0, is_new, since))
        return kept | self._find_young(is_new)

    def _find_young(self, is_new: Callable[[GraphCommit], bool]) -> set[str]:
        """Return the commits in the history of any head of the branch for which `is_new` holds."""
        found: set[str] = set()
        for head in self._heads.values():
            for commit in self._parents.iter_from(head):
                if commit.graph_commit_id in found or not is_new(commit):
                    break  # no commit is younger than its children, so the older ones are not new either
                found.add(commit.graph_commit_id)
        return found

    def _add_ancestors(self, head: CommitRecord, kept: set[str]) -> None:
        """Add a commit and its first parents. Stop at the first commit of another branch that is added already."""
        own = self._commits
        for commit in self._parents.iter_from(head):
            commit_id = commit.graph_commit_id
            if commit_id in kept and commit_id not in own:
                return
            kept.add(commit_id)

    def _first_number_since(self, times: Mapping[int, datetime], horizon: datetime) -> int:
        """Return the number of the entry that was the newest at the horizon."""
        older = [number for number, at in times.items() if at < horizon and number <= self._last.number]
        # Without an older entry, the branch was created after the horizon, and all of its entries count.
        return max(older, default=self._last.state.created_as)

    def _iter_last(self, keep_last: int, is_new: Callable[[GraphCommit], bool], since: int) -> Iterator[str]:
        """Yield the last commits of the branch along first parents.

        `keep_last` counts from the entry that was the newest at the horizon. Later commits are kept in any case.
        """
        counted, name = 0, str(self._last.branch)
        for commit in self._parents.iter_from(self._last.head):
            is_later = commit.branch == name and commit.manifest_version > since
            counted += not is_later
            if counted > keep_last and not is_later and not is_new(commit):
                return
            yield commit.graph_commit_id


# Returns the commits to keep of a lifetime, given when each entry of its log was written. None if it is purged.
_FindKept = Callable[[Lifetime, Mapping[int, datetime]], set[str] | None]


def _newer_than(policy: Policy, horizon: datetime) -> Callable[[GraphCommit], bool]:
    """Return the test for `keep_newer_than`, measured from the horizon."""
    if policy.keep_newer_than is None:
        return lambda _: False
    # What the policy retained at any time since the horizon stays, so that the policy is applied as of the horizon.
    oldest = int((horizon - policy.keep_newer_than).timestamp() * 1_000_000)
    return lambda commit: commit.created_at >= oldest
