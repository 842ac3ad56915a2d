"""The numbered logs that doctor reads, and the inventory of a scan.

The inventory has the facts about logs, commits and table states that the checks compare. It keeps a few values of each
commit, not the commits themselves, so its size does not grow with the number of tables in each commit.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from anabranch.errors import AnabranchError, CorruptError, InvalidNameError, StorageDeniedError, StorageUnavailableError
from anabranch.format.doctor.findings_and_repairs import Case, FindingKind, Placement
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.log import codec, history_tables
from anabranch.repo.log.clones import CLONES, ORIGIN
from anabranch.repo.log.config import RepoConfig
from anabranch.repo.log.entries import CommitRecord, LogEntry, TableEntry, TableMap
from anabranch.repo.log.numbered_log import BRANCHES, RUNS, TAGS, NumberedLog
from anabranch.repo.log.repo_store import RepoStore, View
from anabranch.repo.refs.tags import TagInfo, decode_tag
from anabranch.storage import documents, in_parallel

# In entries of other logs, doctor reads only the number.
Entry = LogEntry | TagInfo | int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLog:
    """One log with its name for the report (`label`).

    `branch` is set for the log of a branch or of a run, which has a hidden branch. `is_tag` marks the log of a tag. Of
    the other logs, doctor reads only the numbers of the entries.
    """

    log: NumberedLog
    label: str
    name: str
    branch: BranchName | None = None
    is_tag: bool = False

    def decode(self, data: bytes, number: int) -> Entry:
        path = self.log.path(number)
        if self.is_tag:
            return decode_tag(data, path=path)
        if self.branch is not None:
            return codec.decode_entry(data, path=path)
        fields = documents.load(data, path=path)
        with documents.damage_named(path):
            return int(fields["number"])

    def is_own(self, entry: Entry, number: int) -> bool:
        """Return whether an entry belongs to this log and has this number, by its own fields."""
        match entry:
            case LogEntry():
                return (entry.branch, entry.number) == (self.branch, number)
            case TagInfo():
                return (entry.name, entry.number) == (self.name, number)
            case int():
                return entry == number

    def decode_own(self, data: bytes, number: int) -> Entry | None:
        """Return an entry if it is intact and belongs to this log, else None."""
        try:
            entry = self.decode(data, number)
        except CorruptError:
            return None
        return entry if self.is_own(entry, number) else None

    def find_copy(self, number: int) -> bytes | None:
        """Return the copy of an entry in the hint of the log, if the hint is of this entry and intact.

        The hint is written after the entry itself, so it is evidence that the entry was there.
        """
        # Stores that list in order have no hints.
        hint = None if self.log.store.lists_sorted else self.log.find_hint()
        if hint is None or hint[0] != number or self.decode_own(hint[1], number) is None:
            return None
        return hint[1]

    def refs(self, number: int, newest: int) -> tuple[str, ...]:
        """Return the refs that cannot be read without an entry."""
        if self.branch is None and not self.is_tag:
            return ()
        # Without its newest entry the branch or tag cannot be read. Without an older one, refs to that version fail.
        if number == newest:
            return (self.name,)
        is_public = self.branch is not None and not self.branch.is_internal
        return (f"{self.name}@v{number}",) if is_public else ()


def list_logs(config: RepoConfig) -> tuple[list[CheckedLog], list[str]]:
    """Return the logs, and the folders among them whose names are not valid names of logs."""
    logs, unknown = [], []
    for folder in (BRANCHES, RUNS, TAGS, CLONES):
        for path in sorted(config.store.list_folders(folder)):
            try:
                logs.append(_checked_log(NumberedLog(config.store, path), folder, path.rpartition("/")[2]))
            except InvalidNameError:
                unknown.append(path)
    origin = NumberedLog(config.store, ORIGIN)
    return [*logs, CheckedLog(log=origin, label="the origin of this clone", name=ORIGIN)], unknown


def _checked_log(log: NumberedLog, folder: str, name: str) -> CheckedLog:
    if folder == BRANCHES:
        name = unquote(name)
        return CheckedLog(log=log, label=f"branch '{name}'", name=name, branch=BranchName(name))
    if folder == RUNS:
        return CheckedLog(log=log, label=f"run {name}", name=f"run {name}", branch=BranchName.of_run(name))
    if folder == TAGS:
        return CheckedLog(log=log, label=f"tag '{name}'", name=name, is_tag=True)
    return CheckedLog(log=log, label=f"clone {name}", name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenCommit:
    """The problem of a commit object."""

    kind: FindingKind
    problem: str


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """The facts about a commit that the checks of other objects need."""

    branch: str
    version: int
    generation: int
    created_at: int
    base: str
    made_from: tuple[str, ...]
    digest: bytes

    @classmethod
    def of(cls, record: CommitRecord) -> "CommitFacts":
        commit = record.commit
        return cls(
            branch=commit.branch,
            version=commit.manifest_version,
            generation=commit.generation,
            created_at=commit.created_at,
            base=record.base,
            made_from=record.sources,
            digest=digest_row(history_tables.history_row(commit), commit.actor_id),
        )


@dataclass(slots=True)
class Use:
    """The table names, row counts and primary keys that table entries give for one table state."""

    tables: set[str] = field(default_factory=set)
    rows: set[int] = field(default_factory=set)
    keys: set[tuple[str, ...]] = field(default_factory=set)


class DamagedNewest(NamedTuple):
    """The newest entry of a log, which cannot be read and is not rebuilt from other entries, and its bytes."""

    case: Case
    checked: CheckedLog
    number: int
    data: bytes


class Inventory:
    """The facts that a scan has found. Several threads fill it concurrently."""

    def __init__(self, tables: frozenset[TableKey] | None) -> None:
        self._lock = threading.Lock()
        self._tables = tables
        self.cases: list[Case] = []
        self.damaged_newest: list[DamagedNewest] = []
        # The newest entry of each branch and run, and of each existing tag, by name.
        self.heads: dict[str, LogEntry] = {}
        self.tags: dict[str, TagInfo] = {}
        self.commits: dict[str, CommitFacts] = {}
        # The log entry that published each commit: its branch and number.
        self.published: dict[str, tuple[str, int]] = {}
        # The commits that logs or other commits name. Those that only tags name are not here.
        self.named: set[str] = set()
        self.broken: dict[str, BrokenCommit] = {}
        self.uses: dict[Placement, Use] = defaultdict(Use)
        # For each base, the tables that every commit on it has in another state, or not at all. No commit needs the
        # base's state of these tables, so it may have been collected.
        self._hidden: dict[str, set[TableKey]] = {}

    def add_damaged_newest(self, entry: DamagedNewest) -> None:
        """Add a damaged newest entry. Its remedy is chosen after all commits have been read."""
        with self._lock:
            self.damaged_newest.append(entry)

    def report(self, cases: Iterable[Case]) -> None:
        with self._lock:
            self.cases.extend(cases)

    def covers(self, key: TableKey) -> bool:
        """Return whether a table is in the scope of the scan."""
        return self._tables is None or key in self._tables

    @property
    def inspected(self) -> set[str]:
        """The commits that were read."""
        return {*self.commits, *self.broken}

    def shown(self, head: LogEntry) -> CommitRecord:
        """Return what a branch shows: a live one on top of main, if that can be read."""
        main = self.heads.get(MAIN)
        return View.of(head, None if main is None else main.head).record

    def add_entry(self, entry: Entry, *, is_newest: bool) -> None:
        """Add an entry and the commits that it names."""
        if isinstance(entry, TagInfo) and is_newest and not entry.is_deleted:
            with self._lock:
                self.tags[entry.name] = entry
        if not isinstance(entry, LogEntry):
            return
        head, state = entry.head, entry.state
        named = [head.commit.graph_commit_id, head.base, head.main_id]
        if state.parent is not None:
            named.append(state.parent.commit)
        if state.run is not None:
            named += [*state.run.started_on, state.run.commit_id]
        with self._lock:
            self.named.update(filter(None, named))
            if publishes(entry):
                self.published[head.commit.graph_commit_id] = (str(entry.branch), entry.number)
            if is_newest:
                self.heads[str(entry.branch)] = entry

    def add_broken(self, commit_id: str, broken: BrokenCommit) -> None:
        with self._lock:
            self.broken[commit_id] = broken

    def add_commit(self, record: CommitRecord) -> None:
        """Add a commit and, unless it was collected, the tables that it changed since its base."""
        facts = CommitFacts.of(record)
        named = (*record.sources, record.main_id, record.older, record.base)
        with self._lock:
            self.commits[record.commit.graph_commit_id] = facts
            self.named.update(filter(None, named))
            if record.collected_at is None:
                self._add_tables(record.changes.items())
                self._hidden.setdefault(record.base, set(record.changes)).intersection_update(record.changes)

    def add_full_maps(self, full_map_of: Callable[[str], TableMap]) -> None:
        """Add the tables of each base that at least one commit on it has unchanged."""
        for base, hidden in sorted(self._hidden.items()):
            # A broken base is a finding of its own, with the commits that build on it.
            if base not in self.broken:
                full_map = full_map_of(base)
                self._add_tables((key, entry) for key, entry in full_map.items() if key not in hidden)

    def _add_tables(self, tables: Iterable[tuple[TableKey, TableEntry | None]]) -> None:
        for key, entry in tables:
            if entry is not None and self.covers(key):
                use = self.uses[placement_of(entry)]
                use.tables.add(str(key))
                use.rows.add(entry.rows)
                use.keys.add(entry.primary_key)


def publishes(entry: LogEntry) -> bool:
    """Return whether an entry published its head.

    Entries such as a protection or a reset repeat a commit that an earlier entry, or another branch, published.
    """
    commit = entry.head.commit
    return (commit.branch, commit.manifest_version) == (str(entry.branch), entry.number)


def placement_of(entry: TableEntry) -> Placement:
    return Placement(dataset=entry.dataset, home=entry.home, version=entry.version)


def digest_row(row: Mapping[str, Any], actor: str | None) -> bytes:
    """Return a digest of the row of a commit in the history tables."""
    return blake2b(repr((*row.values(), actor)).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHistory:
    """The contents of the history tables, or the reason why they cannot be read."""

    commits: pa.Table | None = None
    actors: pa.Table | None = None
    problem: str | None = None


def read_stored_history(config: RepoConfig) -> StoredHistory:
    """Read the history tables. Call this before the logs are read: then the logs can only have more commits."""
    try:
        commits, actors = history_tables.read_history(config)
    # A store that does not answer is not a damage of the tables.
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        return StoredHistory(problem=f"they cannot be read: {err.problem}")
    # Another tool may have written the tables, and the comparison reads these columns by name.
    for table, names in ((commits, history_tables.COMMIT_COLUMNS), (actors, history_tables.ACTOR_COLUMNS)):
        if table is not None and not set(names) <= set(table.column_names):
            return StoredHistory(problem="they have other columns")
    return StoredHistory(commits=commits, actors=actors)


def with_effects(repo_store: RepoStore, inventory: Inventory, cases: list[Case]) -> list[Case]:
    """Add to each case the tables, refs and commits that it affects.

    The commits are read again only if a table is damaged.
    """
    damaged = damaged_placements(cases)
    # The usual case. Otherwise every commit must be read again, to find the refs and commits of table states.
    if not damaged:
        return cases
    tables = {placement: inventory.uses[placement].tables for placement in damaged}
    keys = frozenset(map(TableKey.parse, _names_of(damaged, tables)))
    refs = _by_placement(
        (name, _placements(repo_store, record, keys) & damaged) for name, record in _iter_refs(repo_store, inventory)
    )
    commits = _find_commits(repo_store, sorted(inventory.commits), keys, damaged)
    affected = []
    for case in cases:
        names, ids = _names_of(case.placements, refs), _names_of(case.placements, commits)
        if not case.placements:
            affected.append(case)
        # A table state that no ref and no commit has was collected after the logs were read.
        elif inventory.broken or names or ids:
            affected.append(replace(case, tables=_names_of(case.placements, tables), refs=names, commits=ids))
    return affected


def damaged_placements(cases: Iterable[Case]) -> frozenset[Placement]:
    """Return the table states that cannot be read because of some cases."""
    return frozenset[Placement]().union(*(case.placements for case in cases))


def _names_of(placements: Iterable[Placement], names: Mapping[Placement, set[str]]) -> tuple[str, ...]:
    """Return the names of all these table states together, sorted."""
    return tuple(sorted(set[str]().union(*(names[placement] for placement in placements))))


def _by_placement(named: Iterable[tuple[str, frozenset[Placement]]]) -> defaultdict[Placement, set[str]]:
    """Return the names of the refs or commits that have each table state."""
    found: defaultdict[Placement, set[str]] = defaultdict(set)
    for name, placements in named:
        for placement in placements:
            found[placement].add(name)
    return found


def _find_commits(
    repo_store: RepoStore, commit_ids: list[str], keys: frozenset[TableKey], damaged: frozenset[Placement]
) -> defaultdict[Placement, set[str]]:
    """Return the commits that have each damaged table state, without collected commits."""

    def find_damaged(commit_id: str) -> frozenset[Placement]:
        record = find_readable(repo_store, commit_id)
        if record is None or record.collected_at is not None:
            return frozenset()
        return _placements(repo_store, record, keys) & damaged

    return _by_placement(zip(commit_ids, in_parallel(find_damaged, commit_ids), strict=True))


def _placements(repo_store: RepoStore, record: CommitRecord, keys: frozenset[TableKey]) -> frozenset[Placement]:
    """Return the locations of some tables of a commit."""
    found = set()
    for key in keys:
        try:
            entry = repo_store.commits.find_table(record, key)
        except AnabranchError:
            continue  # the base of the commit is damaged, which is a finding of its own
        if entry is not None:
            found.add(placement_of(entry))
    return frozenset(found)


def _iter_refs(repo_store: RepoStore, inventory: Inventory) -> Iterator[tuple[str, CommitRecord]]:
    """Yield the name and the current commit of every branch, run and tag."""
    for head in inventory.heads.values():
        if not head.state.is_deleted and (head.branch.run_id is not None or not head.branch.is_internal):
            yield head.branch.label, inventory.shown(head)
    for tag in inventory.tags.values():
        if (record := find_readable(repo_store, tag.commit_id)) is not None:
            yield tag.name, record


def find_readable(repo_store: RepoStore, commit_id: str) -> CommitRecord | None:
    """Return a commit, or None if it cannot be read: a damaged commit is a finding of its own."""
    try:
        return repo_store.commits.get(commit_id)
    except AnabranchError:
        return None
