"""Which commits others were made from: where two lines of the commit graph parted, for all tables or for one."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import chain

from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.entries import BranchState, CommitKind, CommitRecord, GraphCommit, Origin, TableEntry
from anabranch.repo.log.store import RepoStore

__all__ = ["Ancestry", "TableBase", "find_merge_bases", "is_ancestor"]

# From which of two commits another one was reached; what lies below a base is reached by both and is none itself.
_OURS, _THEIRS = 1, 2
_BOTH = _OURS | _THEIRS
_BELOW = 4

ParentsOf = Callable[[Origin], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBase:
    """A table as a common ancestor has it; None if there was no such table."""

    commit: GraphCommit
    entry: TableEntry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tip:
    """Where a walk begins; of a commit to be read, its generation is the highest it can have."""

    commit_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The bases of two commits; `is_plain` if on the way each table was made from the parents' only."""

    bases: tuple[GraphCommit, ...]
    is_plain: bool


def find_merge_bases(records: RepoStore, ours: CommitRecord, theirs: CommitRecord) -> tuple[GraphCommit, ...]:
    """The lowest common ancestors of two commits; see `Ancestry.find_bases`."""
    return Ancestry(records).find_bases(ours, theirs)


def is_ancestor(records: RepoStore, older: CommitRecord, newer: CommitRecord) -> bool:
    """Whether a commit is among those that led to another, or is that one."""
    return Ancestry(records).is_ancestor(older, newer)


class Ancestry:
    """The commit graph as far as somebody asked; what was read is kept, since commits never change.

    Commits are visited by falling generation, so each after all that were made from it, and only down to the commits
    looked for. They come from the pages that commits carry of those before them: a line of n commits costs n/64 gets.
    """

    def __init__(self, records: RepoStore) -> None:
        self._records = records
        self._origins: dict[str, Origin] = {}
        self._read_before: dict[str, CommitRecord] = {}
        self._found: dict[tuple[str, str], _Found] = {}
        self._states: dict[tuple[str, int], BranchState] = {}
        self._owned: set[tuple[str, TableKey]] = set()

    def is_ancestor(self, older: CommitRecord, newer: CommitRecord) -> bool:
        """Whether a commit is among those that led to another, or is that one."""
        wanted = older.commit.graph_commit_id
        if newer.commit.graph_commit_id == wanted:
            return True
        return any(wanted in _parents(origin) for origin in self._iter_above(older.commit, newer))

    def has_merged_live(self, live: CommitRecord, main: CommitRecord, newer: CommitRecord) -> bool:
        """Whether a commit goes back to a merge of a live branch as it was on a state of main, or on a later one."""
        return any(
            origin.commit.merged_parent_commit_id == live.commit.graph_commit_id
            and origin.taken_from is not None
            and self.is_ancestor(main, self._read(origin.taken_from))
            for origin in self._iter_above(live.commit, newer)
        )

    def _iter_above(self, oldest: GraphCommit, newer: CommitRecord) -> Iterator[Origin]:
        """The commits that led to one, itself too, of a higher generation than another, by falling generation."""
        queue = _Queue()
        queue.add(self._tip(newer), _OURS)
        while queue.peek() is not None:
            if queue.generation <= oldest.generation:
                queue.drop()
            elif (origin := self._pop(queue)) is not None:
                yield origin
                for parent in _parents(origin):
                    queue.add(_Tip(commit_id=parent, generation=origin.commit.generation - 1), _OURS)

    def find_bases(self, ours: CommitRecord, theirs: CommitRecord) -> tuple[GraphCommit, ...]:
        """The lowest common ancestors of two commits: those that no other common ancestor was made from.

        There are several where each side was merged into the other before; by falling generation, then by id.
        """
        return self._bases(self._tip(ours), self._tip(theirs)).bases

    def find_table_bases(self, ours: CommitRecord, theirs: CommitRecord, key: TableKey) -> tuple[TableBase, ...]:
        """The states of one table from which two commits went on; a live branch may be given as it shows itself.

        A table need not come from its commit's parents. On a live branch it comes from the state of main that it was
        forked from, or follows; where such a branch was frozen, branched from or merged, from main as it was then,
        unless it was the branch's own; and where it was pulled, from the commit it was pulled from. A merge leads on to
        both sides, so that the next one begins there.

        Of several lowest common ancestors those are left out that did nothing to the table since they parted: the
        others came after them. Mostly one is left. Where several are, they differ and need a merge of their own, and
        its bases are those of each two of them.
        """
        plain = self._bases(self._tip(ours), self._tip(theirs))
        tips = self._table_tip(ours, key), self._table_tip(theirs, key)
        is_plain = plain.is_plain and tips == (self._tip(ours), self._tip(theirs))
        found = plain if is_plain else self._search(*tips, self._parents_of_table(key))
        bases = [self._table_base(commit, key) for commit in found.bases]
        return tuple(self._iter_undominated(bases, key))

    def _iter_undominated(self, bases: list[TableBase], key: TableKey) -> Iterator[TableBase]:
        """The bases with a state of their own: the first of each, and none that another one went on from."""
        kept: list[TableBase] = []
        for base in bases:
            if all(not _is_same(base.entry, other.entry) for other in kept):
                kept.append(base)
        for base in kept:
            others = [other for other in kept if other is not base]
            if not any(self._is_before(base, other, key) for other in others):
                yield base

    def _is_before(self, base: TableBase, other: TableBase, key: TableKey) -> bool:
        ours, theirs = (self._read(each.commit.graph_commit_id) for each in (base, other))
        lower = self.find_table_bases(ours, theirs, key)
        return len(lower) == 1 and _is_same(lower[0].entry, base.entry)

    def _table_base(self, commit: GraphCommit, key: TableKey) -> TableBase:
        return TableBase(commit=commit, entry=self._entry(commit.graph_commit_id, key))

    def _entry(self, commit_id: str, key: TableKey) -> TableEntry | None:
        return self._records.commits.find_table(self._read(commit_id), key)

    # Walking

    def _bases(self, ours: _Tip, theirs: _Tip) -> _Found:
        pair = ours.commit_id, theirs.commit_id
        if pair not in self._found:
            self._found[pair] = self._search(ours, theirs, _parents)
        return self._found[pair]

    def _search(self, ours: _Tip, theirs: _Tip, parents_of: ParentsOf) -> _Found:
        queue = _Queue()
        queue.add(ours, _OURS)
        queue.add(theirs, _THEIRS)
        bases: list[GraphCommit] = []
        is_plain = True
        while queue.can_meet():
            origin = self._pop(queue)
            if origin is None:
                continue
            commit, reached = origin.commit, queue.reached[origin.commit.graph_commit_id]
            if reached == _BOTH:
                bases.append(commit)
                reached |= _BELOW
            is_plain = is_plain and origin.made_on is None and origin.taken_from is None
            for parent in parents_of(origin):
                queue.add(_Tip(commit_id=parent, generation=commit.generation - 1), reached)
        return _Found(bases=tuple(bases), is_plain=is_plain)

    def _pop(self, queue: "_Queue") -> Origin | None:
        """The next commit; None if it had to be read and turned out to be older than others that wait."""
        commit_id = queue.peek()
        if commit_id is None:
            return None
        origin = self._get(commit_id)
        if origin.commit.generation < queue.generation:
            queue.put_back(origin.commit.generation)
            return None
        queue.drop()
        return origin

    def _get(self, commit_id: str) -> Origin:
        if commit_id not in self._origins:
            record = self._read(commit_id)
            self._learn(record)
        return self._origins[commit_id]

    def _read(self, commit_id: str) -> CommitRecord:
        if commit_id not in self._read_before:
            self._read_before[commit_id] = self._records.commits.get(commit_id)
        return self._read_before[commit_id]

    def _learn(self, record: CommitRecord) -> None:
        for origin in (record.origin, *self._records.commits.list_page(record)):
            self._origins[origin.commit.graph_commit_id] = origin

    def _tip(self, record: CommitRecord) -> _Tip:
        commit = record.commit
        if commit.graph_commit_id not in self._origins:
            self._learn(record)
        return _Tip(commit_id=commit.graph_commit_id, generation=commit.generation)

    # One table

    def _table_tip(self, record: CommitRecord, key: TableKey) -> _Tip:
        if record.saw is None or self._owns(record.commit, key):
            return self._tip(record)
        return _Tip(commit_id=record.saw, generation=self._get(record.saw).commit.generation)

    def _parents_of_table(self, key: TableKey) -> ParentsOf:
        return lambda origin: tuple(dict.fromkeys(self._iter_table_parents(origin, key)))

    def _iter_table_parents(self, origin: Origin, key: TableKey) -> Iterator[str]:
        """The commits that a commit has a table from."""
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
        elif is_named and key not in self._state(commit, entries_before=1).own:
            yield from (self._forked_at(commit, main, key), *merged)
        else:
            self._owned.add((parent, key))
            yield from (parent, *merged)

    def _merged(self, origin: Origin, key: TableKey) -> tuple[str, ...]:
        merged = origin.commit.merged_parent_commit_id
        if merged is None:
            return ()
        is_of_main = origin.taken_from is not None and not self._owns(self._get(merged).commit, key)
        return (origin.taken_from or merged,) if is_of_main else (merged,)

    def _owns(self, commit: GraphCommit, key: TableKey) -> bool:
        """Whether a table was a live branch's own when it made a commit; elsewhere nothing is."""
        return (commit.graph_commit_id, key) in self._owned or key in self._state(commit).own

    def _state(self, commit: GraphCommit, *, entries_before: int = 0) -> BranchState:
        place = commit.branch, commit.manifest_version - entries_before
        if place not in self._states:
            self._states[place] = self._records.heads.get_numbered(BranchName(place[0]), place[1]).state
        return self._states[place]

    def _forked_at(self, commit: GraphCommit, saw: str, key: TableKey) -> str:
        """The newest commit of main that has a table as a live branch forked it.

        That is the one that the branch's commit saw, unless a run had begun before on an older one.
        """
        mine = self._entry(commit.graph_commit_id, key)
        if mine is None or mine.forked_from is None:
            return saw
        history = self._records.commits.iter_history(self._read(saw))
        before = (older.parent_commit_id for older in history if str(key) in older.tables)
        for commit_id in chain([saw], filter(None, before)):
            found = self._entry(commit_id, key)
            if found is not None and (found.home, found.version) == mine.forked_from:
                return commit_id
        return saw


class _Queue:
    """Commits to be visited by falling generation, each once, with the sides they were reached from."""

    def __init__(self) -> None:
        self.reached: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        # How many wait of those that were reached from the same sides.
        self._waiting: Counter[int] = Counter()

    @property
    def generation(self) -> int:
        """The highest generation that the next commit can have."""
        return -self._heap[0][0]

    def peek(self) -> str | None:
        return self._heap[0][1] if self._heap else None

    def add(self, tip: _Tip, reached: int) -> None:
        before = self.reached.get(tip.commit_id)
        if before is None:
            heappush(self._heap, (-tip.generation, tip.commit_id))
        else:
            self._waiting[before] -= 1
        self.reached[tip.commit_id] = now = reached | (before or 0)
        self._waiting[now] += 1

    def put_back(self, generation: int) -> None:
        """Let the next commit wait for others, since its generation is lower than it could have been."""
        heapreplace(self._heap, (-generation, self._heap[0][1]))

    def drop(self) -> None:
        _, commit_id = heappop(self._heap)
        self._waiting[self.reached[commit_id]] -= 1

    def can_meet(self) -> bool:
        """Whether a common ancestor can be found that is not below another one."""
        is_open = self._waiting[_OURS] > 0 and self._waiting[_THEIRS] > 0
        return bool(self._heap) and (self._waiting[_BOTH] > 0 or is_open)


def _parents(origin: Origin) -> tuple[str, ...]:
    parents = (origin.commit.parent_commit_id, origin.commit.merged_parent_commit_id)
    return tuple(parent for parent in parents if parent is not None)


def _is_same(one: TableEntry | None, other: TableEntry | None) -> bool:
    """Whether two entries are the same state of a table; what was settled meanwhile is no change."""
    if one is None or other is None:
        return one is other
    return (one.dataset, one.home, one.version) == (other.dataset, other.home, other.version)
