"""Which commits somebody can still reach, or could until a while ago."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from anabranch.ids import MAIN, BranchName
from anabranch.repo.gc.lines import Lines
from anabranch.repo.gc.policy import Policy
from anabranch.repo.history.ancestry import Ancestry
from anabranch.repo.log.clones import Clones
from anabranch.repo.log.entries import BranchMode, CommitRecord, GraphCommit, LogEntry
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.live import shown
from anabranch.repo.refs.tags import iter_tagged_since
from anabranch.storage import in_parallel

__all__ = ["Roots", "find_roots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """The commits to keep, each with those who hold it, and all that were ever published.

    `over` are those made on branches that were said to be over. `heads` are the entries of the branches that exist, as
    they show themselves. `created_at` is when commits were made, as far as the logs tell.
    """

    holders: Mapping[str, frozenset[str]]
    published: frozenset[str]
    over: frozenset[str]
    heads: tuple[LogEntry, ...]
    created_at: Mapping[str, int]

    @property
    def retained(self) -> frozenset[str]:
        return frozenset(self.holders)

    def without(self, commit_ids: Container[str]) -> "Roots":
        """The same without commits that are gone, though the history of a branch may still name them."""
        return replace(self, holders={commit: by for commit, by in self.holders.items() if commit not in commit_ids})


def find_roots(
    records: RepoStore, policy: Policy, *, horizon: datetime, is_over: Callable[[LogEntry], bool] = lambda _: False
) -> Roots:
    """Read all logs: what was reachable at any time since the horizon counts.

    But for branches that are deleted and of whose last entry `is_over` says so.
    """
    records.context.require_relocated()
    return _Search(records, policy, horizon, is_over).find()


class _Search:
    def __init__(
        self, records: RepoStore, policy: Policy, horizon: datetime, is_over: Callable[[LogEntry], bool]
    ) -> None:
        self._records = records
        self._policy = policy
        self._horizon = horizon
        self._is_over = is_over
        self._holders: dict[str, set[str]] = {}
        self._published: set[str] = set()
        self._over: set[str] = set()
        self._lines = Lines(records.commits)

    def find(self) -> Roots:
        names = self._records.heads.list_all_names()
        logs = in_parallel(self._read_log, names)
        living = [log.newest for log in logs if log is not None and not log.newest.state.is_deleted]
        for log in filter(None, logs):
            self._published.update(log.made)
            self._over.update(log.over)
            if not is_lock(log.newest.branch):
                self._keep(str(log.newest.branch), log.kept)
        for tag in iter_tagged_since(self._records, self._horizon):
            self._keep(f"tag {tag.name}", [tag.commit_id])
        self._keep("work in flight", self._records.context.leases.list_held_commits())
        self._keep_bases([entry for entry in living if not is_lock(entry.branch)])
        for clone in Clones(self._records.context).iter_held():
            # The whole commit, whatever the clone reads of it: a commit can be read, or it is collected.
            self._keep(f"clone {clone.clone_id}", [clone.commit_id])
        return Roots(
            holders={commit_id: frozenset(by) for commit_id, by in self._holders.items()},
            published=frozenset(self._published),
            over=frozenset(self._over),
            heads=tuple(entry for entry in living if not is_lock(entry.branch)),
            created_at={commit_id: commit.created_at for commit_id, commit in self._lines.known.items()},
        )

    def _keep(self, holder: str, commit_ids: Iterable[str]) -> None:
        for commit_id in commit_ids:
            self._holders.setdefault(commit_id, set()).add(holder)

    def _read_log(self, branch: BranchName) -> "_Log | None":
        return _Log.read(self._records, self._lines, branch, self._find_kept)

    def _find_kept(self, life: "_Life", times: Mapping[int, datetime]) -> set[str] | None:
        """A branch that was deleted a while ago counts no more, nor do those of its name before it."""
        if life.last.state.is_deleted:
            if self._is_over(life.last):
                return None
            if times.get(life.last.number, self._horizon) < self._horizon:
                return set()
        return life.find_kept(self._policy, times, self._horizon)

    def _keep_bases(self, living: list[LogEntry]) -> None:
        """Keep what living branches would be merged on: with main, and with the branch they were made from."""
        ancestry, heads = Ancestry(self._records), {entry.branch: entry for entry in living}
        main = heads[BranchName(MAIN)].head
        for entry in living:
            parent = entry.state.parent
            if parent is None or entry.state.run is not None:
                continue
            holder, head = str(entry.branch), entry.head
            if entry.state.mode is BranchMode.LIVE:
                head = shown(entry, main).head
                for key in entry.state.own:
                    tables = ancestry.find_table_bases(head, main, key)
                    self._keep(holder, (base.commit.graph_commit_id for base in tables))
            self._keep(holder, [parent.commit])
            others = {MAIN: main}
            if parent.branch in heads:
                others[str(parent.branch)] = heads[parent.branch].head
            for other in others.values():
                self._keep(holder, (base.graph_commit_id for base in ancestry.find_bases(head, other)))


def is_lock(branch: BranchName) -> bool:
    return branch.is_internal and branch.run_id is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """One branch's log: its newest entry, all commits ever made on it, and those of them and before them to keep.

    `over` are those made before it was over, if it is.
    """

    newest: LogEntry
    made: frozenset[str]
    over: frozenset[str]
    kept: frozenset[str]

    @classmethod
    def read(cls, records: RepoStore, lines: Lines, branch: BranchName, find_kept: "_FindKept") -> "_Log | None":
        log = records.context.branch_log(branch)
        listed = ((log.number_of(info.path), info.modified) for info in records.context.store.list(log.folder))
        times = {number: modified for number, modified in listed if number is not None}
        newest = records.heads.find(branch)
        if newest is None:
            return None
        made: set[str] = set()
        over: set[str] = set()
        kept: set[str] = set()
        entry: LogEntry | None = newest
        while entry is not None:
            life = _Life(records, lines, entry)
            made.update(life.made)
            found = find_kept(life, times)
            if found is None:
                over.update(life.made)
            else:
                kept.update(found)
            created_as = entry.state.created_as
            entry = records.heads.get_numbered(branch, created_as - 1) if created_as > 1 else None
        return cls(newest=newest, made=frozenset(made), over=frozenset(over), kept=frozenset(kept))


class _Life:
    """One branch from its creation to its end, or until now: a name may be used for several, one after the other."""

    def __init__(self, records: RepoStore, lines: Lines, last: LogEntry) -> None:
        self._records = records
        self._lines = lines
        self._last = last
        self._commits: dict[str, GraphCommit] = {}
        self._heads: dict[int, CommitRecord] = {}
        self._read()

    @property
    def last(self) -> LogEntry:
        return self._last

    @property
    def made(self) -> Iterable[str]:
        return self._commits

    def _read(self) -> None:
        """Find every commit made in this life, and the heads that no commit of its own tells, as after a reset."""
        branch = self._last.branch
        numbers: set[int] = set()
        for number in range(self._last.number, self._last.state.created_as - 1, -1):
            if number in numbers:
                continue
            entry = self._last if number == self._last.number else self._records.heads.get_numbered(branch, number)
            self._heads[number] = entry.head
            for commit in self._lines.iter_line(entry.head):
                if commit.branch != str(branch) or commit.manifest_version < self._last.state.created_as:
                    break
                if commit.graph_commit_id in self._commits:
                    break
                numbers.add(commit.manifest_version)
                self._commits[commit.graph_commit_id] = commit

    def find_kept(self, policy: Policy, times: Mapping[int, datetime], horizon: datetime) -> set[str]:
        run = self._last.state.run
        kept = set() if run is None else set(filter(None, (run.origin, run.saw)))
        if policy.keeps_all:
            kept.update(self._commits)
            for head in self._heads.values():
                self._add_line(head, kept)
            return kept
        since, is_new = self._first_number_since(times, horizon), _newer_than(policy, horizon)
        heads = {number: head.commit.graph_commit_id for number, head in self._heads.items()}
        kept.update(head for number, head in heads.items() if number >= min(since, self._last.number))
        made = self._commits.values()
        kept.update(commit.graph_commit_id for commit in made if commit.manifest_version >= since)
        kept.update(self._iter_last(policy.keep_last or 0, is_new, since))
        return kept | self._find_lines(is_new)

    def _find_lines(self, is_new: Callable[[GraphCommit], bool]) -> set[str]:
        """The young commits that the branch ever showed, be they its own or those of others that it was put on."""
        found: set[str] = set()
        for head in self._heads.values():
            for commit in self._lines.iter_line(head):
                if commit.graph_commit_id in found or not is_new(commit):
                    break  # no commit is younger than one that was made from it
                found.add(commit.graph_commit_id)
        return found

    def _add_line(self, head: CommitRecord, kept: set[str]) -> None:
        """Add what a head goes back to by first parents, as far as that is not there yet."""
        own = self._commits
        for commit in self._lines.iter_line(head):
            commit_id = commit.graph_commit_id
            if commit_id in kept and commit_id not in own:
                return
            kept.add(commit_id)

    def _first_number_since(self, times: Mapping[int, datetime], horizon: datetime) -> int:
        """The number of the entry that was the newest when the horizon passed."""
        older = [number for number, at in times.items() if at < horizon and number <= self._last.number]
        return max(older, default=self._last.state.created_as)

    def _iter_last(self, keep_last: int, is_new: Callable[[GraphCommit], bool], since: int) -> Iterator[str]:
        """The last commits of the branch by first parents, counted from where it was when the horizon passed."""
        counted, name = 0, str(self._last.branch)
        for commit in self._lines.iter_line(self._last.head):
            is_later = commit.branch == name and commit.manifest_version > since
            counted += not is_later
            if counted > keep_last and not is_later and not is_new(commit):
                return
            yield commit.graph_commit_id


# What is to be kept of a life, given when each entry of its log was written; None if it is over.
_FindKept = Callable[[_Life, Mapping[int, datetime]], set[str] | None]


def _newer_than(policy: Policy, horizon: datetime) -> Callable[[GraphCommit], bool]:
    if policy.keep_newer_than is None:
        return lambda _: False
    oldest = int((horizon - policy.keep_newer_than).timestamp() * 1_000_000)
    return lambda commit: commit.created_at >= oldest
