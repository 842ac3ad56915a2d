"""The roots of garbage collection: the commits that are reachable now or were reachable since the horizon."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from anabranch.ids import MAIN, BranchName
from anabranch.repo.gc.lifetimes import BranchLog, FirstParents, Lifetime
from anabranch.repo.gc.policy import Policy
from anabranch.repo.history.ancestry import Ancestry
from anabranch.repo.log.clones import Clones
from anabranch.repo.log.entries import CommitRecord, LogEntry, Parent
from anabranch.repo.log.store import RepoStore
from anabranch.repo.log.view import View
from anabranch.repo.refs.tags import iter_tagged_since
from anabranch.storage import in_parallel

__all__ = ["EARLIEST", "Roots", "find_roots"]

# With this horizon, deleted branches and tags retain all of their commits, however long ago they were deleted.
EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """The retained commits with their holders, and all commits that were ever published.

    A holder is the name of a branch, tag, run or clone that retains the commit. `purged` are the commits that were made
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
    repo_store: RepoStore, policy: Policy, *, horizon: datetime, is_purged: Callable[[LogEntry], bool] = lambda _: False
) -> Roots:
    """Read all logs and return what was reachable at any time since the horizon.

    Branches that are deleted and whose last entry satisfies `is_purged` retain nothing.
    """
    repo_store.config.require_relocated()
    return _Search(repo_store, policy, horizon, is_purged).find()


class _Search:
    """One search for the roots. It collects the holders of each commit while it reads the logs."""

    def __init__(
        self, repo_store: RepoStore, policy: Policy, horizon: datetime, is_purged: Callable[[LogEntry], bool]
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
        names = self._repo_store.heads.names.list_all()
        logs = [log for log in in_parallel(self._read_log, names) if log is not None]
        heads: list[LogEntry] = []
        recent: list[LogEntry] = []
        for log in logs:
            self._add_log(log)
            if is_lock(log.newest.branch):
                continue
            if not log.newest.state.is_deleted:
                heads.append(log.newest)
            elif self._can_return(log):
                recent.append(log.newest)
        for tag in iter_tagged_since(self._repo_store, self._horizon):
            self._keep(f"tag {tag.name}", [tag.commit_id])
        self._keep("work in flight", self._repo_store.config.leases.list_held_commits())
        self._keep_bases(heads, recent)
        for clone in Clones(self._repo_store.config).iter_held():
            # Keep the whole commit, even if the clone has only some of its tables: a commit is either readable or
            # collected.
            self._keep(f"clone {clone.clone_id}", [clone.commit_id])
        return Roots(
            holders={commit_id: frozenset(by) for commit_id, by in self._holders.items()},
            published=frozenset(self._published),
            purged=frozenset(self._purged),
            heads=tuple(heads),
            recent=tuple(recent),
            created_at={commit_id: commit.created_at for commit_id, commit in self._parents.known.items()},
        )

    def _can_return(self, log: BranchLog) -> bool:
        """Return whether a branch was deleted since the horizon, so that it can be restored and merged.

        It may also have been renamed after the names were listed. Then the log of its new name was not read.
        """
        # With the earliest horizon no commit of a deleted branch is missing, and there may be many of these branches.
        if self._horizon == EARLIEST or log.newest.state.run is not None:
            return False
        return log.written is None or log.written >= self._horizon

    def _add_log(self, log: BranchLog) -> None:
        self._published.update(log.made)
        self._purged.update(log.purged)
        if not is_lock(log.newest.branch):
            self._keep(str(log.newest.branch), log.kept)

    def _keep(self, holder: str, commit_ids: Iterable[str]) -> None:
        for commit_id in commit_ids:
            self._holders.setdefault(commit_id, set()).add(holder)

    def _read_log(self, branch: BranchName) -> BranchLog | None:
        return BranchLog.read(self._repo_store, self._parents, branch, self._find_kept)

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

        The log of the new name retains the history of its heads. This adds the positions in the reflog before the
        rename, which only the log of the old name has.
        """
        last = lifetime.last
        if last.state.renamed_to is None:
            return set()
        parent = Parent(branch=last.branch, commit="", created_as=last.state.created_as)
        newest = self._repo_store.heads.find_followed(parent)
        if newest is None or (newest.state.is_deleted and self._is_old(newest)):
            return set()
        return lifetime.find_kept_before(self._policy, times, self._horizon)

    def _is_old(self, entry: LogEntry) -> bool:
        """Return whether an entry was put before the horizon. A branch that was deleted since can be restored."""
        path = self._repo_store.config.branch_log(entry.branch).path(entry.number)
        return self._repo_store.config.store.head(path).modified < self._horizon

    def _keep_bases(self, living: Sequence[LogEntry], recent: Sequence[LogEntry]) -> None:
        """Keep the merge bases of branches, also of those deleted since the horizon.

        These are the bases with main, and with the branch that they were made from.
        """
        ancestry, heads = Ancestry(self._repo_store), {entry.branch: entry for entry in (*living, *recent)}
        main = heads[BranchName(MAIN)].head
        for entry in heads.values():
            parent = entry.state.parent
            if parent is None or entry.state.run is not None:
                continue
            holder, view = str(entry.branch), View.of(entry, main)
            self._keep_table_bases(ancestry, holder, view, main)
            self._keep(holder, [parent.commit])
            others = {MAIN: main}
            # The parent may be deleted. Then nothing is merged with it any more.
            if (name := self._repo_store.heads.follow(parent)) in heads:
                others[str(name)] = heads[name].head
            for other in others.values():
                self._keep(holder, (base.graph_commit_id for base in ancestry.find_bases(view.head, other)))

    def _keep_table_bases(self, ancestry: Ancestry, holder: str, view: View, main: CommitRecord) -> None:
        """Keep the merge bases of the tables that a live branch has changed. Each table has bases of its own."""
        record = view.record
        for key in view.own:
            bases = ancestry.find_table_bases(record, main, key)
            self._keep(holder, (base.commit.graph_commit_id for base in bases))


def is_lock(branch: BranchName) -> bool:
    """Return whether this is an internal log that is not a run, such as the schema lock."""
    return branch.is_internal and branch.run_id is None
