"""Common ancestors of two commits, for the whole commit graph or for one table."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import chain
from typing import NamedTuple

from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.entries import (
    BranchState,
    CommitKind,
    CommitRecord,
    GraphCommit,
    Origin,
    TableEntry,
    is_same_state,
)
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.snapshot import Snapshot

# From which of the two commits a commit was reached. A commit below a base is reached from both, but is not a base.
OURS, THEIRS = 1, 2
BOTH = OURS | THEIRS
BELOW = 4


class Tip(NamedTuple):
    """A commit to visit. If it is not read yet, `generation` is an upper bound."""

    commit_id: str
    generation: int


class CommitQueue:
    """Commits to visit by descending generation, each once, with the sides they were reached from."""

    def __init__(self, ours: Tip, theirs: Tip | None = None) -> None:
        self.reached: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        # The number of queued commits for each combination of sides.
        self._queued: Counter[int] = Counter()
        self.add(ours, OURS)
        if theirs is not None:
            self.add(theirs, THEIRS)

    @property
    def generation(self) -> int:
        """The highest generation that the next commit can have; -1 if there is none."""
        return -self._heap[0][0] if self._heap else -1

    def peek(self) -> str:
        return self._heap[0][1]

    def add(self, tip: Tip, reached: int) -> None:
        before = self.reached.get(tip.commit_id)
        if before is None:
            heappush(self._heap, (-tip.generation, tip.commit_id))
        else:
            # It is still queued, because a commit is visited only after all of its descendants.
            self._queued[before] -= 1
        self.reached[tip.commit_id] = now = reached | (before or 0)
        self._queued[now] += 1

    def put_back(self, generation: int) -> None:
        """Queue the next commit again with its real generation, which is lower than the bound."""
        heapreplace(self._heap, (-generation, self._heap[0][1]))

    def drop(self) -> None:
        _, commit_id = heappop(self._heap)
        self._queued[self.reached[commit_id]] -= 1

    def has_one_sided(self) -> bool:
        """Return whether a commit is queued that only one side has reached so far."""
        return self._queued[OURS] > 0 or self._queued[THEIRS] > 0

    def can_meet(self) -> bool:
        """Return whether a common ancestor that is not below another one can still be found."""
        is_open = self._queued[OURS] > 0 and self._queued[THEIRS] > 0
        return bool(self._heap) and (self._queued[BOTH] > 0 or is_open)


# The merge bases of two commits, and whether each table has the same ones: no visited commit has tables from elsewhere
# than its parents.
_Found = tuple[tuple[GraphCommit, ...], bool]
ParentsOf = Callable[[Origin], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBase:
    """A table in a common ancestor. The entry is None if the table does not exist there."""

    commit: GraphCommit
    entry: TableEntry | None


def base_snapshot(repo_store: RepoStore, ours: CommitRecord, theirs: CommitRecord) -> Snapshot:
    """Return the tables of the merge base of two commits.

    A table of a live branch, or one that was pulled, has a base of its own. See `Ancestry.find_table_bases`.
    """
    ancestry, commits = Ancestry(repo_store), repo_store.commits
    base = commits.get(ancestry.find_merge_bases(ours, theirs)[0].graph_commit_id)
    tables: dict[TableKey, TableEntry] = {}
    for key in {*commits.tables_of(base), *commits.tables_of(ours), *commits.tables_of(theirs)}:
        found = ancestry.find_table_bases(ours, theirs, key)
        if found and found[0].entry is not None:
            tables[key] = found[0].entry
    return Snapshot(repo_store, base, tables, version=base.commit.manifest_version)


def iter_ancestors(snapshot: Snapshot) -> Iterator[GraphCommit]:
    """Yield all commits that led to a state, newest first, including those of merged branches."""
    return Ancestry(snapshot._repo_store).iter_newest_first([snapshot._record.origin])


def _parents(origin: Origin) -> tuple[str, ...]:
    return origin.commit.parents


class Ancestry:
    """The part of the commit graph that was read so far. It is cached, because commits never change.

    Commits are visited by descending generation, so each commit after all of its descendants, and only down to the
    generation that is searched. A commit carries a page of up to 64 ancestors, so n commits in a line cost n/64 gets.
    """

    def __init__(self, repo_store: RepoStore) -> None:
        self._repo_store = repo_store
        self._origins: dict[str, Origin] = {}
        self._commits: dict[str, CommitRecord] = {}
        self._found: dict[tuple[Tip, Tip], _Found] = {}
        self._states: dict[tuple[str, int], BranchState] = {}
        self._owned: set[tuple[str, TableKey]] = set()

    def is_ancestor(self, older: CommitRecord, newer: CommitRecord) -> bool:
        """Return whether a commit is an ancestor of another one, or the same commit."""
        older_id = older.commit.graph_commit_id
        if newer.commit.graph_commit_id == older_id:
            return True
        return any(older_id in _parents(origin) for origin in self._iter_above(older.commit, newer))

    def has_merged_live(self, live: CommitRecord, main: CommitRecord, newer: CommitRecord) -> bool:
        """Return whether `newer` descends from a merge of a live branch based on `main`, or on a later state."""
        return any(
            origin.commit.merged_parent_commit_id == live.commit.graph_commit_id
            and origin.taken_from is not None
            and self.is_ancestor(main, self._read(origin.taken_from))
            for origin in self._iter_above(live.commit, newer)
        )

    def iter_newest_first(self, tips: Iterable[Origin]) -> Iterator[GraphCommit]:
        """Yield commits and all of their ancestors, newest first. They are read in pages, as they are requested.

        A commit comes before its parents unless the clocks of two writers differ by more than the time between them.
        """
        queued: set[str] = set()
        heap: list[tuple[int, int, str]] = []

        def add(commit: GraphCommit) -> None:
            if commit.graph_commit_id not in queued:
                queued.add(commit.graph_commit_id)
                heappush(heap, (-commit.created_at, -commit.generation, commit.graph_commit_id))

        for tip in tips:
            # The commit alone: its page is needed only if the walk reaches it.
            self._origins.setdefault(tip.commit.graph_commit_id, tip)
            add(tip.commit)
        while heap:
            origin = self._get(heappop(heap)[2])
            yield origin.commit
            for parent in _parents(origin):
                add(self._get(parent).commit)

    def count_apart(self, ours: CommitRecord, theirs: CommitRecord, *, most: int) -> tuple[int, int]:
        """Return how many commits each of two commits has that the other has not. Stop after `most` commits."""
        queue = CommitQueue(self._tip(ours), self._tip(theirs))
        counts: Counter[int] = Counter()
        # Once all queued commits are reached from both sides, so are all older ones.
        for origin in self._walk(queue, lambda: queue.has_one_sided() and counts.total() < most):
            # All descendants of this commit were visited before it, so that the sides that have reached it are final.
            reached = queue.reached[origin.commit.graph_commit_id]
            if reached != BOTH:
                counts[reached] += 1
        return counts[OURS], counts[THEIRS]

    def _iter_above(self, oldest: GraphCommit, newer: CommitRecord) -> Iterator[Origin]:
        """Yield `newer` and its ancestors with a higher generation than `oldest`, by descending generation."""
        queue = CommitQueue(self._tip(newer))
        # An ancestor has a lower generation than its descendants, so that none from there down is above `oldest`.
        return self._walk(queue, lambda: queue.generation > oldest.generation)

    def find_merge_bases(self, ours: CommitRecord, theirs: CommitRecord) -> tuple[GraphCommit, ...]:
        """Return the lowest common ancestors of two commits: those without a descendant that is a common ancestor.

        There are several if each side was merged into the other. They are sorted by descending generation, then id.
        """
        return self._bases(self._tip(ours), self._tip(theirs))[0]

    def find_table_bases(
        self,
        ours: CommitRecord,
        theirs: CommitRecord,
        key: TableKey,
        *,
        names: tuple[TableKey | None, TableKey | None] = (None, None),
    ) -> tuple[TableBase, ...]:
        """Return the common base states of one table for two commits. A live branch may be passed as its view.

        `names` are its keys in the two commits if it was renamed: a live branch may have changed it under one of them.

        A table does not always come from the parents of its commit:
        - On a live branch it comes from the state of main that it was forked from, or that the branch follows.
        - If a live branch was frozen, branched from or merged, tables it had not changed come from main as of then.
        - A pulled table comes from the commit it was pulled from.
        - A merged table comes from both sides, so that the next merge starts there.

        If there are several lowest common ancestors, those that another one includes for this table are left out.
        Usually one is left. Several differ, and the caller must merge them first, on the bases of each pair.
        """
        bases, is_plain = self._bases(self._tip(ours), self._tip(theirs))
        tips = self._table_tip(ours, names[0] or key), self._table_tip(theirs, names[1] or key)
        if not is_plain or tips != (self._tip(ours), self._tip(theirs)):
            bases, _ = self._search(*tips, lambda origin: self._iter_table_parents(origin, key))
        return self._lowest_states(bases, key)

    def _lowest_states(self, commits: Iterable[GraphCommit], key: TableKey) -> tuple[TableBase, ...]:
        """Return the states of a table at common ancestors, without those that another one includes."""
        kept: list[TableBase] = []
        for commit in commits:
            base = TableBase(commit=commit, entry=self._entry(commit.graph_commit_id, key))
            # Two commits may hold the same state. As two bases, the caller would merge the state with itself.
            if all(not is_same_state(base.entry, other.entry) for other in kept):
                kept.append(base)
        return tuple(base for base in kept if not any(self._is_before(base, other, key) for other in kept))

    def _is_before(self, base: TableBase, other: TableBase, key: TableKey) -> bool:
        """Return whether the state of another base was made from the state of this one."""
        if base is other:
            return False
        ours, theirs = (self._read(each.commit.graph_commit_id) for each in (base, other))
        lower = self.find_table_bases(ours, theirs, key)
        # The only common base of two states is one of them, so that the other one was made from it.
        return len(lower) == 1 and is_same_state(lower[0].entry, base.entry)

    def _entry(self, commit_id: str, key: TableKey) -> TableEntry | None:
        return self._repo_store.commits.find_table(self._read(commit_id), key)

    # Walking

    def _bases(self, ours: Tip, theirs: Tip) -> _Found:
        if (ours, theirs) not in self._found:
            self._found[ours, theirs] = self._search(ours, theirs, _parents)
        return self._found[ours, theirs]

    def _search(self, ours: Tip, theirs: Tip, parents_of: ParentsOf) -> _Found:
        queue = CommitQueue(ours, theirs)
        bases: list[GraphCommit] = []
        is_plain = True
        for origin in self._walk(queue, queue.can_meet, parents_of):
            if queue.reached[origin.commit.graph_commit_id] == BOTH:
                bases.append(origin.commit)
                # Its ancestors are common ancestors, too, but not the lowest ones.
                queue.reached[origin.commit.graph_commit_id] |= BELOW
            # A visited commit with tables from elsewhere means that a table may have other bases than the commits.
            is_plain = is_plain and origin.made_on is None and origin.taken_from is None
        return tuple(bases), is_plain

    def _walk(
        self, queue: CommitQueue, is_wanted: Callable[[], bool], parents_of: ParentsOf = _parents
    ) -> Iterator[Origin]:
        """Yield the queued commits and their parents by descending generation, as long as `is_wanted` returns True."""
        while is_wanted():
            origin = self._get(queue.peek())
            commit = origin.commit
            # The generation of a parent is not known before it is read. If it is lower than the bound below, the parent
            # is queued again, so that most commits are not read before they are needed.
            if commit.generation < queue.generation:
                queue.put_back(commit.generation)
                continue
            queue.drop()
            yield origin
            for parent in parents_of(origin):
                queue.add(Tip(parent, commit.generation - 1), queue.reached[commit.graph_commit_id])

    def _get(self, commit_id: str) -> Origin:
        found = self._origins.get(commit_id)
        if found is None:
            found = self._origins[commit_id] = self._repo_store.commits.get_origin(commit_id)
        return found

    def _read(self, commit_id: str) -> CommitRecord:
        if commit_id not in self._commits:
            self._commits[commit_id] = self._repo_store.commits.get(commit_id)
        return self._commits[commit_id]

    def _tip(self, record: CommitRecord) -> Tip:
        commit = record.commit
        if commit.graph_commit_id not in self._origins:
            self._origins[commit.graph_commit_id] = record.origin
            self._repo_store.commits.keep_origins(record)
        return Tip(commit.graph_commit_id, commit.generation)

    # One table

    def _table_tip(self, record: CommitRecord, key: TableKey) -> Tip:
        # Where a live branch has no state of its own, it shows that of main, and the search starts there.
        if record.main_id is None or self._owns(record.commit, key):
            return self._tip(record)
        return Tip(record.main_id, self._get(record.main_id).commit.generation)

    def _iter_table_parents(self, origin: Origin, key: TableKey) -> Iterator[str]:
        """Yield the commits that a commit has a table from. See `find_table_bases`."""
        commit, main, parent = origin.commit, origin.made_on, origin.commit.parent_commit_id
        is_named = str(key) in commit.tables
        merged = self._merged(origin, key)
        if parent is None:
            return
        if commit.kind is CommitKind.PULL and origin.taken_from is not None and is_named:
            yield origin.taken_from
        elif main is None:
            yield from (parent, *merged)
        elif commit.kind is CommitKind.FREEZE:
            yield parent if self._owns(self._get(parent).commit, key) else main
        elif not self._owns(commit, key):
            yield main
        else:
            yield from (self._parent_of_own(commit, main, parent, key), *merged)

    def _parent_of_own(self, commit: GraphCommit, main: str, parent: str, key: TableKey) -> str:
        """Return the commit before this one in the history of a table that its live branch has changed."""
        if str(key) in commit.tables and key not in self._state(commit, entries_before=1).own:
            # The commit is the first one of the branch that changed the table: until then it was main's.
            return self._forked_at(commit, main, key)
        # The parent had changed the table, too. Remember it, so that its log entry need not be read.
        self._owned.add((parent, key))
        return parent

    def _merged(self, origin: Origin, key: TableKey) -> tuple[str, ...]:
        merged = origin.commit.merged_parent_commit_id
        if merged is None:
            return ()
        # A live branch shows tables of main that it never changed. A merge of it took those from main.
        is_of_main = origin.taken_from is not None and not self._owns(self._get(merged).commit, key)
        return (origin.taken_from or merged,) if is_of_main else (merged,)

    def _owns(self, commit: GraphCommit, key: TableKey) -> bool:
        """Return whether a live branch had changed a table itself at a commit. Always False on other branches."""
        return (commit.graph_commit_id, key) in self._owned or key in self._state(commit).own

    def _state(self, commit: GraphCommit, *, entries_before: int = 0) -> BranchState:
        position = commit.branch, commit.manifest_version - entries_before
        if position not in self._states:
            self._states[position] = self._repo_store.heads.get_numbered(BranchName(position[0]), position[1]).state
        return self._states[position]

    def _forked_at(self, commit: GraphCommit, main_id: str, key: TableKey) -> str:
        """Return the newest commit of main with the table version that a live branch forked or continued.

        This is the commit of main that the branch's commit was made on, unless a run had started on an older one.
        """
        mine = self._entry(commit.graph_commit_id, key)
        # A table that the commit dropped or created was not forked.
        if mine is None or mine.forked_from is None:
            return main_id
        continued: list[str] = []
        for commit_id, found in self._iter_states(main_id, key):
            if found.home == mine.home:
                # Main took a commit of the branch itself, by a rebase or reset, and the branch continued from there
                # without a fork. What the home was once forked from is older.
                if self._is_made_from(mine, found):
                    return commit_id
                continued.append(commit_id)
            elif (found.home, found.version) == mine.forked_from:
                return next(iter(continued), commit_id)
        # If the versions between were collected, the newest state in the home is the most probable one.
        return next(iter(continued), main_id)

    def _iter_states(self, main_id: str, key: TableKey) -> Iterator[tuple[str, TableEntry]]:
        """Yield the states of a table in the history of main, each with the newest commit that has it."""
        history = self._repo_store.commits.iter_history(self._read(main_id))
        # The table changes only in commits that list it. The parent of such a commit is the newest with the old state.
        earlier = (older.parent_commit_id for older in history if str(key) in older.tables)
        for commit_id in chain([main_id], filter(None, earlier)):
            found = self._entry(commit_id, key)
            if found is not None:
                yield commit_id, found

    def _is_made_from(self, later: TableEntry, earlier: TableEntry) -> bool:
        from anabranch.format.compare.difference import descends_from  # not at the top: it loads Lance

        return descends_from(*map(self._repo_store.config.version_ref, (later, earlier)))
