"""The roots of garbage collection: the commits that are reachable now or were reachable since the horizon.

Each log of a branch may hold several lives of its name. Each of them retains commits by the policy.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from anabranch.format.retention import Retention
from anabranch.ids import MAIN, BranchName
from anabranch.repo.history.ancestry import Ancestry
from anabranch.repo.log.clones import Clones
from anabranch.repo.log.commits import Commits
from anabranch.repo.log.entries import BranchEvent, CommitRecord, GraphCommit, LogEntry, Parent
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.refs.tags import iter_tagged_since
from anabranch.storage import in_parallel


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
        for origin in (record.origin, *self._commits.list_page(record)):
            self._known[origin.commit.graph_commit_id] = origin.commit


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchLog:
    """The log of one branch name: its newest entry, all commits made on it, and the commits that it retains.

    `written` is when the newest entry was put, None if after the listing. `purged` are commits of purged lifetimes.
    """

    newest: LogEntry
    written: datetime | None
    made: set[str] = field(default_factory=set)
    purged: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)


class Lifetime:
    """The entries of a branch from its creation to its deletion, or until now.

    A name can be used again after its branch was deleted, so one log may hold several lifetimes.
    """

    def __init__(self, repo_store: RepoStore, parents: FirstParents, last: LogEntry) -> None:
        self._repo_store = repo_store
        self._parents = parents
        self.last = last
        # The commits that were made in this lifetime, by id.
        self.made: dict[str, GraphCommit] = {}
        self._heads: dict[int, CommitRecord] = {}
        self._rolled_back: set[int] = set()
        # A commit names the number of its entry (`manifest_version`), so most entries need not be read: the walk from
        # the newest head covers them. The others are read from the log, such as those of a reset.
        numbers: set[int] = set()
        after: LogEntry | None = None
        for number in range(last.number, last.state.created_as - 1, -1):
            if number in numbers:
                continue
            entry = last if number == last.number else repo_store.heads.get_numbered(last.branch, number)
            self._heads[number] = entry.head
            if after is not None and after.event is BranchEvent.ROLLED_BACK:
                self._find_rolled_back(entry)
            after = entry
            for commit in self._parents.iter_from(entry.head):
                # The walk has reached the branch that this one was made from, or an earlier branch of the same name:
                # their logs decide about these commits. Or a walk from a later entry has visited this commit.
                if not self._has_made(commit) or commit.graph_commit_id in self.made:
                    break
                numbers.add(commit.manifest_version)
                self.made[commit.graph_commit_id] = commit

    def _has_made(self, commit: GraphCommit) -> bool:
        """Return whether a commit was made on this branch in this lifetime."""
        return commit.branch == str(self.last.branch) and commit.manifest_version >= self.last.state.created_as

    def _find_rolled_back(self, entry: LogEntry) -> None:
        """Note the number of a commit that its writer rolled back, given the last entry that has it as its head.

        Its files may be gone. The writer marks it as collected, unless it was killed before; then this collection does.
        """
        commit = entry.head.commit
        if not self._has_made(commit):
            return  # a reset was rolled back, and the commit belongs to another branch
        is_known = commit.graph_commit_id in self.made  # a later entry builds on it: the branch was reset to it
        if not is_known and self._repo_store.heads.was_rolled_back(self.last, commit.manifest_version):
            self._rolled_back.add(commit.manifest_version)

    def find_kept(self, policy: Retention, times: Mapping[int, datetime], horizon: datetime) -> set[str]:
        """Return the commits that the policy retains, and those that were a head since the horizon.

        `times` is when each entry of the log was written. Commits that were rolled back are not retained.
        """
        return self._find_retained(policy, times, horizon) - self._list_rolled_back()

    def find_kept_before(self, policy: Retention, times: Mapping[int, datetime], horizon: datetime) -> set[str]:
        """Return the commits that the policy retains in the reflog of a branch that has another name now."""
        if policy.keeps_all:
            return self.find_kept(policy, times, horizon)
        return self._find_young(_newer_than(policy, horizon)) - self._list_rolled_back()

    def _list_rolled_back(self) -> set[str]:
        return {made.graph_commit_id for made in self.made.values() if made.manifest_version in self._rolled_back}

    def _find_retained(self, policy: Retention, times: Mapping[int, datetime], horizon: datetime) -> set[str]:
        run = self.last.state.run
        # A run is compared with the commits that it started on when it is published, however old they are.
        kept = set() if run is None else set(run.started_on)
        if policy.keeps_all:
            return self._add_histories(kept)
        since, is_new = self._number_at(horizon, times), _newer_than(policy, horizon)
        # The head at the horizon counts as well: a reader that opened the branch then may still read it.
        first = min(since, self.last.number)
        kept.update(head.commit.graph_commit_id for number, head in self._heads.items() if number >= first)
        kept.update(commit.graph_commit_id for commit in self.made.values() if commit.manifest_version >= since)
        kept.update(self._iter_last(policy.keep_last or 0, is_new, since))
        return kept | self._find_young(is_new)

    def _add_histories(self, kept: set[str]) -> set[str]:
        """Return these commits, those that were made on the branch, and the history of each of its heads."""
        kept = kept | self.made.keys()
        for head in self._heads.values():
            for commit in self._parents.iter_from(head):
                # The rest was added by another head: it is the history of another branch.
                if commit.graph_commit_id in kept and commit.graph_commit_id not in self.made:
                    break
                kept.add(commit.graph_commit_id)
        return kept

    def _number_at(self, horizon: datetime, times: Mapping[int, datetime]) -> int:
        """Return the number of the entry that was the newest at the horizon, or of the first one if none is older."""
        older = (number for number, at in times.items() if at < horizon and number <= self.last.number)
        return max(older, default=self.last.state.created_as)

    def _find_young(self, is_new: Callable[[GraphCommit], bool]) -> set[str]:
        """Return the commits in the history of any head of the branch for which `is_new` holds."""
        found: set[str] = set()
        for head in self._heads.values():
            for commit in self._parents.iter_from(head):
                if commit.graph_commit_id in found or not is_new(commit):
                    break  # no commit is younger than its children, so the older ones are not new either
                found.add(commit.graph_commit_id)
        return found

    def _iter_last(self, keep_last: int, is_new: Callable[[GraphCommit], bool], since: int) -> Iterator[str]:
        """Yield the last commits of the branch along first parents.

        `keep_last` counts from the entry that was the newest at the horizon. Later commits are kept in any case.
        """
        counted, name = 0, str(self.last.branch)
        for commit in self._parents.iter_from(self.last.head):
            is_later = commit.branch == name and commit.manifest_version > since
            counted += not is_later
            if counted > keep_last and not is_later and not is_new(commit):
                return
            yield commit.graph_commit_id


def _newer_than(policy: Retention, horizon: datetime) -> Callable[[GraphCommit], bool]:
    """Return the test for `keep_newer_than`, measured from the horizon."""
    if policy.keep_newer_than is None:
        return lambda _: False
    # What the policy retained at any time since the horizon stays, so that the policy is applied as of the horizon.
    oldest = int((horizon - policy.keep_newer_than).timestamp() * 1_000_000)
    return lambda commit: commit.created_at >= oldest


# With this horizon, deleted branches and tags retain all of their commits, however long ago they were deleted.
EARLIEST = datetime.min.replace(tzinfo=UTC)


class HolderKind(StrEnum):
    """The kind of a holder: something that keeps files from being collected."""

    BRANCH = "branch"
    TAG = "tag"
    RUN = "run"
    CLONE = "clone"
    DELETED = "deleted branch"  # until its grace period ends
    WORK = "work in flight"
    LANCE = "lance branches and tags"  # made with Lance on single tables, outside Anabranch


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """The retained commits with their holders, and all commits that were ever published.

    A holder is a branch, tag, run or clone that retains the commit. `purged` are the commits that were made
    on purged branches. `heads` are the newest entries of the existing branches. `recent` are those of the branches that
    were deleted since the horizon and can be restored. `created_at` is the creation time of the commits that were read.
    """

    holders: Mapping[str, frozenset[str]]
    published: frozenset[str]
    purged: frozenset[str]
    heads: tuple[LogEntry, ...]
    recent: tuple[LogEntry, ...]
    created_at: Mapping[str, int]

    @property
    def retained(self) -> frozenset[str]:
        return frozenset(self.holders)

    def without(self, commit_ids: Container[str]) -> "Roots":
        """Return the roots without collected commits, which the history of a branch may still name."""
        return replace(self, holders={commit: by for commit, by in self.holders.items() if commit not in commit_ids})


def find_roots(
    repo_store: RepoStore,
    policy: Retention,
    *,
    horizon: datetime,
    is_purged: Callable[[LogEntry], bool] = lambda _: False,
) -> Roots:
    """Read all logs and return what was reachable at any time since the horizon.

    Branches that are deleted and whose last entry satisfies `is_purged` retain nothing.
    """
    repo_store.config.require_relocated()
    return _Search(repo_store, policy, horizon, is_purged).find()


class _Search:
    """One search for the roots. It collects the holders of each commit while it reads the logs."""

    def __init__(
        self, repo_store: RepoStore, policy: Retention, horizon: datetime, is_purged: Callable[[LogEntry], bool]
    ) -> None:
        self._repo_store = repo_store
        self._policy = policy
        self._horizon = horizon
        self._is_purged = is_purged
        self._holders: dict[str, set[str]] = {}
        self._published: set[str] = set()
        self._purged: set[str] = set()
        self._parents = FirstParents(repo_store.commits)

    def find(self) -> Roots:
        heads, recent = self._read_logs()
        for tag in iter_tagged_since(self._repo_store, self._horizon):
            self._keep(f"{HolderKind.TAG} {tag.name}", [tag.commit_id])
        for work in self._repo_store.config.leases.iter_work():
            self._keep(HolderKind.WORK, work.held)
        self._keep_bases({entry.branch: entry for entry in (*heads, *recent)})
        for clone in Clones(self._repo_store.config).list():
            # Keep the whole commit, even if the clone has only some tables: a commit is either readable or collected.
            if clone.is_held:
                self._keep(f"{HolderKind.CLONE} {clone.id}", [clone.commit_id])
        return Roots(
            holders={commit_id: frozenset(by) for commit_id, by in self._holders.items()},
            published=frozenset(self._published),
            purged=frozenset(self._purged),
            heads=tuple(heads),
            recent=tuple(recent),
            created_at={commit_id: commit.created_at for commit_id, commit in self._parents.known.items()},
        )

    def _read_logs(self) -> tuple[list[LogEntry], list[LogEntry]]:
        """Keep what logs retain. Return the newest entries of the existing branches and of those that can return."""
        heads: list[LogEntry] = []
        recent: list[LogEntry] = []
        for log in filter(None, in_parallel(self._read_log, self._repo_store.heads.names.list_all())):
            self._published.update(log.made)
            self._purged.update(log.purged)
            branch = log.newest.branch
            # An internal log that is not a run, such as the schema lock.
            if branch.is_internal and branch.run_id is None:
                continue
            self._keep(branch.label, log.kept)
            if not log.newest.state.is_deleted:
                heads.append(log.newest)
            elif self._can_return(log):
                recent.append(log.newest)
        return heads, recent

    def _can_return(self, log: BranchLog) -> bool:
        """Return whether a branch was deleted since the horizon, so that it can be restored and merged.

        It may also have been renamed after the names were listed. Then the log of its new name was not read.
        """
        # With the earliest horizon no commit of a deleted branch is missing, and there may be many of these branches.
        if self._horizon == EARLIEST or log.newest.state.run is not None:
            return False
        return log.written is None or log.written >= self._horizon

    def _keep(self, holder: str, commit_ids: Iterable[str]) -> None:
        for commit_id in commit_ids:
            self._holders.setdefault(commit_id, set()).add(holder)

    def _read_log(self, branch: BranchName) -> BranchLog | None:
        """Read all lifetimes of a branch name. Return None if the log has no entry."""
        heads = self._repo_store.heads
        # List before the newest entry is read. An entry that is put in between then has no time and counts as young.
        times = self._repo_store.config.branch_log(branch).list_times()
        newest = heads.find(branch)
        if newest is None:
            return None
        read = BranchLog(newest=newest, written=times.get(newest.number))
        entry: LogEntry | None = newest
        while entry is not None:
            lifetime = Lifetime(self._repo_store, self._parents, entry)
            read.made.update(lifetime.made)
            found = self._find_kept(lifetime, times)
            if found is None:
                read.purged.update(lifetime.made)
            else:
                read.kept.update(found)
            created_as = entry.state.created_as
            # The entry before a creation is the tombstone of the earlier branch of this name.
            entry = heads.get_numbered(branch, created_as - 1) if created_as > 1 else None
        return read

    def _find_kept(self, lifetime: Lifetime, times: Mapping[int, datetime]) -> set[str] | None:
        """Return the commits that a lifetime of a branch retains, or None if the branch is purged.

        A branch that was deleted before the horizon retains nothing.
        """
        if lifetime.last.state.is_deleted:
            if self._is_purged(lifetime.last):
                return None
            # A tombstone without a time was put after the listing.
            if times.get(lifetime.last.number, self._horizon) < self._horizon:
                return self._find_kept_of_renamed(lifetime, times)
        return lifetime.find_kept(self._policy, times, self._horizon)

    def _find_kept_of_renamed(self, lifetime: Lifetime, times: Mapping[int, datetime]) -> set[str]:
        """Return the commits that a branch retains under its old name: none, unless it exists under another one.

        The log of the new name retains the history of its heads. This adds what only the reflog of the old name has.
        """
        last = lifetime.last
        if last.state.renamed_to is None:
            return set()
        parent = Parent(branch=last.branch, commit="", created_as=last.state.created_as)
        newest = self._repo_store.heads.find_followed(parent)
        if newest is None:
            return set()
        if newest.state.is_deleted:
            # A branch that was deleted since the horizon can be restored.
            path = self._repo_store.config.branch_log(newest.branch).path(newest.number)
            if self._repo_store.config.store.head(path).modified < self._horizon:
                return set()
        return lifetime.find_kept_before(self._policy, times, self._horizon)

    def _keep_bases(self, heads: dict[BranchName, LogEntry]) -> None:
        """Keep the merge bases of branches, also of those deleted since the horizon.

        These are the bases with main, and with the branch that they were made from.
        """
        ancestry, main = Ancestry(self._repo_store), heads[BranchName(MAIN)].head
        for entry in heads.values():
            parent = entry.state.parent
            if parent is None or entry.state.run is not None:
                continue
            holder, view = str(entry.branch), View.of(entry, main)
            record = view.record
            # Each table that a live branch has changed has merge bases of its own.
            for key in view.own:
                bases = ancestry.find_table_bases(record, main, key)
                self._keep(holder, (base.commit.graph_commit_id for base in bases))
            self._keep(holder, [parent.commit])
            others = {MAIN: main}
            # The parent may be deleted. Then no merge needs its base.
            if (name := self._repo_store.heads.follow(parent)) in heads:
                others[str(name)] = heads[name].head
            for other in others.values():
                self._keep(holder, (base.graph_commit_id for base in ancestry.find_merge_bases(view.head, other)))
