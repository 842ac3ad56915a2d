"""The history of one table along the first parents of a commit, and which tables of two states are the same table."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from anabranch.errors import NotFoundError
from anabranch.format.arguments import unknown_table
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log.codec import CommitOutline, iter_outlines
from anabranch.repo.log.commits import commit_path
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import CommitKind, CommitRecord, GraphCommit, TableEntry, TableMap, is_same_state
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.snapshot import Snapshot, Table
from anabranch.storage.documents import damage_named
from anabranch.storage.requests import in_parallel


def match_tables(config: RepoConfig, before: TableMap, after: TableMap) -> dict[TableKey, TableKey]:
    """Return the keys that tables of one state have in another one, as {key before: key after}.

    A table keeps its dataset under each name, so that another table may have its old name now. A copy of a table that a
    merge made may be in another dataset, so that a table is matched by its name if its dataset is not found.
    """
    found = {key: key for key, entry in before.items() if key in after and after[key].dataset == entry.dataset}
    if len(found) == len(before):
        return found
    found |= _match_renamed(config, before, after, found)
    taken = set(found.values())
    return found | {key: key for key in sorted(before.keys() - found.keys()) if key in after and key not in taken}


def _match_renamed(
    config: RepoConfig, before: TableMap, after: TableMap, matched: Mapping[TableKey, TableKey]
) -> dict[TableKey, TableKey]:
    """Return the tables that are in the same dataset under another name, without those that are matched."""
    others: dict[str, list[TableKey]] = {}
    for key in sorted(after.keys() - matched.keys()):
        others.setdefault(after[key].dataset, []).append(key)
    found = {}
    for key in sorted(before.keys() - matched.keys()):
        candidates = others.get(before[key].dataset, [])
        # Tables of one name that were created on two branches share a folder, and are still different tables.
        other = next((one for one in candidates if _is_same_table(config, key, before[key], one, after[one])), None)
        if other is not None:
            candidates.remove(other)
            found[key] = other
    return found


def find_renames(repo_store: RepoStore, commit: GraphCommit) -> dict[TableKey, TableKey]:
    """Return the tables that a commit renamed, as {new key: old key}."""
    # A rename changes two names, so that a commit that lists one table need not be read.
    if commit.parent_commit_id is None or len(commit.tables) < 2:
        return {}
    commits = repo_store.commits
    old, new = (commits.tables_of(commits.get(each)) for each in (commit.parent_commit_id, commit.graph_commit_id))
    return {now: was for was, now in match_tables(repo_store.config, old, new).items() if was != now}


def pair_tables(before: Snapshot, after: Snapshot) -> list[tuple[TableKey | None, TableKey | None]]:
    """Return the keys of each table in both states, sorted by the newer one. None where a state does not have it."""
    matched = match_tables(after._repo_store.config, before.entries, after.entries)
    pairs: list[tuple[TableKey | None, TableKey | None]] = [(key, matched.get(key)) for key in before.entries]
    pairs += ((None, key) for key in after.entries.keys() - matched.values())
    # A removed table comes before the one that has its name now.
    return sorted(pairs, key=lambda pair: (str(pair[0] if pair[1] is None else pair[1]), pair[1] is not None))


def with_other_names(keys: Iterable[TableKey], *states: Mapping[TableKey, TableEntry | None]) -> set[TableKey]:
    """Return keys, with all other keys that the tables of these keys have in the given states."""
    tables = [(key, entry.dataset) for state in states for key, entry in state.items() if entry is not None]
    found: set[TableKey] = set()
    others = set(keys)
    while not others <= found:
        found |= others
        datasets = {dataset for key, dataset in tables if key in found}
        others = {key for key, dataset in tables if dataset in datasets}
    return found


def _is_same_table(
    config: RepoConfig, key: TableKey, entry: TableEntry, other_key: TableKey, other: TableEntry
) -> bool:
    """Return whether two states in one folder are of one table, because they have a column in common."""
    # Not at the top: most comparisons do not need it, and it loads Lance.
    from anabranch.format.staging.schema_notes import read_column_ids

    tables = Table(config, key, entry), Table(config, other_key, other)
    try:
        ids = [read_column_ids(table.version_ref) for table in tables]
    except NotFoundError:
        return True  # Collected: most folders are only used by one table.
    before, after = (frozenset[str]().union(*found.values()) for found in ids)
    return not before.isdisjoint(after)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A column that was added, removed or renamed, or whose type or nullability changed."""

    change: str
    column: str
    before: str | None
    after: str | None


# The number of commits that are read in parallel.
_BATCH_SIZE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitStep:
    """What one commit changed."""

    commit: GraphCommit

    @property
    def changed_at(self) -> int:
        """The time of the commit in microseconds since 1970."""
        return self.commit.created_at

    @property
    def changed(self) -> datetime:
        """The time of the commit, in UTC."""
        return self.commit.created


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """A table before and after one commit. None if the table does not exist."""

    commit: GraphCommit
    before: TableEntry | None
    after: TableEntry | None

    @property
    def keeps_dataset(self) -> bool:
        """Whether the table exists before and after the commit, in the same dataset."""
        return self.before is not None and self.after is not None and self.before.dataset == self.after.dataset


def require_table(repo_store: RepoStore, record: CommitRecord, key: TableKey) -> TableEntry:
    """Return the state of a table at a commit. Raise TableNotFoundError if the commit does not have the table."""
    entry = repo_store.commits.find_table(record, key)
    if entry is not None:
        return entry
    where = f"in commit {record.commit.graph_commit_id}"
    raise unknown_table(key, where, repo_store.commits.tables_of(record), "list the tables of the commit")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step(TableChange):
    """One commit that changed the table, or froze a live branch.

    `main_id` is the commit of main that a live branch was based on. Only on a live branch `before` is set, because main
    may have changed the table between two commits of the branch. Elsewhere it is the state after the older step.
    """

    main_id: str | None


def iter_table_changes(repo_store: RepoStore, record: CommitRecord, key: TableKey) -> Iterator[TableChange]:
    """Yield the changes of a table along the first parents of a commit, newest first.

    Commits that did not change the table are skipped without reading them. While a live branch showed the table of
    main, the changes of main are part of the history of the branch, too.
    """
    seen: set[str] = set()
    for change in _iter_each_met(repo_store, record, key):
        # A commit of main can be met twice: below the live branch, and in the history that the branch shares with main.
        if change.commit.graph_commit_id not in seen:
            seen.add(change.commit.graph_commit_id)
            yield change


def _iter_each_met(repo_store: RepoStore, record: CommitRecord, key: TableKey) -> Iterator[TableChange]:
    steps = _iter_steps(repo_store, record, key)
    state, main_id = repo_store.commits.find_table(record, key), record.main_id
    step = next(steps, None)
    while step is not None:
        if not is_same_state(state, step.after):
            # The branch was live: main changed the table after this step.
            yield from _iter_main(repo_store, key, main_id, newest=state, until=step.after)
        older = next(steps, None)
        is_freeze = step.commit.kind is CommitKind.FREEZE
        # Main may have changed the table between two commits of a live branch: the older step does not show that.
        if step.main_id is not None or is_freeze:
            state, main_id = step.before, step.main_id
        else:
            state, main_id = None if older is None else older.after, None
        # A freeze records tables as they were shown and changes no row, so that it does not appear as a change.
        if not is_freeze:
            yield TableChange(commit=step.commit, before=state, after=step.after)
        step = older
    if state is not None:
        yield from _iter_main(repo_store, key, main_id, newest=state, until=None)


def _iter_main(
    repo_store: RepoStore, key: TableKey, main_id: str | None, *, newest: TableEntry | None, until: TableEntry | None
) -> Iterator[TableChange]:
    """Yield the changes of main from the state `newest` down to the state `until`, newest first."""
    start = repo_store.heads.get(BranchName(MAIN)).head if main_id is None else repo_store.commits.get(main_id)
    steps = _iter_steps(repo_store, start, key)
    # Main may have moved since the branch showed it, so that the walk starts where main had the state that was shown.
    step = next((step for step in steps if is_same_state(step.after, newest)), None)
    while step is not None and not is_same_state(step.after, until):
        older = next(steps, None)
        yield TableChange(commit=step.commit, before=None if older is None else older.after, after=step.after)
        step = older


def _iter_steps(repo_store: RepoStore, record: CommitRecord, key: TableKey) -> Iterator[_Step]:
    name = str(key)
    history = repo_store.commits.iter_history(record)
    relevant = (commit for commit in history if name in commit.tables or commit.kind is CommitKind.FREEZE)
    while batch := list(islice(relevant, _BATCH_SIZE)):
        yield from in_parallel(lambda commit: _read_step(repo_store, commit, key), batch)


def _read_step(repo_store: RepoStore, commit: GraphCommit, key: TableKey) -> _Step:
    record = repo_store.commits.get(commit.graph_commit_id)
    after = repo_store.commits.find_table(record, key)
    # A freeze lists no table, but it may record a state of main that no other commit of the branch has.
    if commit.kind is CommitKind.FREEZE:
        return _Step(commit=commit, after=after, main_id=None, before=after)
    before = None
    if record.main_id is not None:
        # The table right before the commit, as the view of the live branch had it then.
        entry = repo_store.heads.get_numbered(BranchName(commit.branch), commit.manifest_version - 1)
        main = View(head=record).find_main(repo_store.commits)
        before = View.of(entry, main).find_table(repo_store.commits, key)
    return _Step(commit=commit, after=after, main_id=record.main_id, before=before)


# Commits of these kinds are made by a transaction, which stages on the state of its parent. Others may take a state
# from elsewhere: from another branch, from an older commit, or from an external writer.
_STAGED_ON_PARENT = frozenset(
    {CommitKind.LOAD, CommitKind.CHANGE, CommitKind.SCHEMA_APPLY, CommitKind.COMPACT, CommitKind.INDEX}
)


class TableStates:
    """The commits that changed a table, newest first. State n is the table after commit n.

    The summaries of the commits show which of them changed the table. Most of these made their state from the one
    before by staging on it: appending, changing or deleting rows, compacting, or changing columns. In a line of such
    states a data file comes once and goes once, and deleted rows stay deleted. So a property such as "has this file"
    can be searched for by halving, and the states in between need not be read.
    """

    def __init__(self, repo_store: RepoStore, record: CommitRecord, key: TableKey) -> None:
        self._repo_store = repo_store
        self._key = key
        self._name = str(key)
        self._commits: list[CommitOutline] = []
        self._entries: dict[int, TableEntry | None] = {}
        self._manifests: dict[int, bytes] = {}
        self._pages = self._iter_pages(record)

    def has(self, number: int) -> bool:
        """Return whether there is a commit of this number. The summaries are read in pages."""
        while len(self._commits) <= number:
            page = next(self._pages, None)
            if page is None:
                return False
            self._commits += page
        return True

    def is_live(self, number: int) -> bool:
        """Return whether a commit was made on a live branch or froze one, so that states of main came in between."""
        outline = self._commits[number]
        return outline.made_on is not None or outline.kind == CommitKind.FREEZE

    def is_staged_on_parent(self, number: int) -> bool:
        """Return whether state n was made from state n + 1 by staging on it."""
        outline = self._commits[number]
        # A commit of several tables may have renamed one of them, and so bring back an older state.
        is_alone = outline.tables == [self._name] and outline.merged_parent is None and outline.taken_from is None
        return is_alone and not self.is_live(number) and outline.kind in _STAGED_ON_PARENT

    def commit_id(self, number: int) -> str:
        return self._commits[number].commit_id

    def commit(self, number: int) -> GraphCommit:
        return self._repo_store.commits.get(self.commit_id(number)).commit

    def entry(self, number: int) -> TableEntry | None:
        """Return the table after a commit; None if there is no such commit, or if it dropped the table."""
        if number not in self._entries:
            if not self.has(number):
                return None
            self._entries[number] = self._repo_store.commits.read_table(self.commit_id(number), self._key)
        return self._entries[number]

    def manifest(self, number: int) -> bytes:
        """Return the manifest of the version of a state."""
        from anabranch.format.compare.row_by_key import read_manifest_of  # not at the top: it loads Lance

        found = self._manifests.get(number)
        if found is None:
            entry = self.entry(number)
            assert entry is not None  # noqa: S101 - callers ask for the entry first
            found = read_manifest_of(self._repo_store.config.version_ref(entry))
            self._manifests = {number: found}  # Manifests may be large, and the last one is often needed again.
        return found

    def list_read(self) -> list[str]:
        """Return the commits whose states were read."""
        return [self._commits[number].commit_id for number in sorted(self._entries)]

    def last_alike(self, number: int, is_alike: Callable[[int], bool]) -> int:
        """Return the oldest state that is like state n, if all between are like it, too.

        In a line of states that were staged on each other, the states that are like the newest follow each other.
        """
        # In growing steps, then by halving: a check reads a manifest, and one state or thousands may have the same row.
        alike, step = number, 1
        while True:
            other = self._end_of_line(alike, step)
            if other == alike:
                return alike
            if not self._is_alike(other, is_alike):
                break
            alike, step = other, step * 2
        while other - alike > 1:
            middle = (alike + other) // 2
            alike, other = (middle, other) if self._is_alike(middle, is_alike) else (alike, middle)
        return alike

    def _end_of_line(self, start: int, most: int) -> int:
        """Return the oldest state of the line that begins with a state, at most `most` states further."""
        number = start
        while number < start + most and self.has(number + 1) and self.is_staged_on_parent(number):
            number += 1
        return number

    def _is_alike(self, number: int, is_alike: Callable[[int], bool]) -> bool:
        try:
            return self.entry(number) is not None and is_alike(number)
        except NotFoundError:
            return False  # Collected. It is read, and the error raised, only if the caller gets that far.

    def _iter_pages(self, record: CommitRecord | None) -> Iterator[list[CommitOutline]]:
        while record is not None:
            with damage_named(commit_path(record.commit.graph_commit_id)):
                page = [
                    outline
                    for outline in iter_outlines(record)
                    if self._name in outline.tables or outline.kind == CommitKind.FREEZE
                ]
            yield page
            record = None if record.older is None else self._repo_store.commits.get(record.older)
