"""Rebuild damaged objects from others: commit objects from log entries, log entries from the entries around them."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from anabranch.errors import AnabranchError, CorruptError, NotFoundError, UnsupportedFormatError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.doctor.inventory import Inventory
from anabranch.repo.log import codec
from anabranch.repo.log.collected import find_record
from anabranch.repo.log.commits import commit_path
from anabranch.repo.log.entries import (
    BranchEvent,
    CommitKind,
    CommitRecord,
    GraphCommit,
    LogEntry,
    TableMap,
)
from anabranch.repo.log.numbered import NumberedLog
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.tags import TagInfo
from anabranch.storage import documents
from anabranch.storage.documents import is_sealed

__all__ = ["Entry", "OtherEntry", "Rebuilder", "find_copy", "rebuild_entry", "rebuild_newest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherEntry:
    """An entry of a log of which doctor reads only the number."""

    number: int


Entry = LogEntry | TagInfo | OtherEntry
IsOwn = Callable[[Entry, int], bool]
Decode = Callable[[bytes, int], Entry]

# Commits of these kinds change more than tables, or belong to other events, so their entry cannot be derived.
_UNUSUAL = frozenset({CommitKind.INIT, CommitKind.FREEZE})


class Rebuilder:
    """Rebuilds commit objects from the log entries that published them."""

    def __init__(self, repo_store: RepoStore, inventory: Inventory) -> None:
        self._repo_store = repo_store
        self._inventory = inventory

    def can_rebuild(self, commit_id: str) -> bool:
        return self._encoded(commit_id) is not None

    def rebuild(self, commit_id: str) -> bool:
        """Write the object again. Return False if it cannot be rebuilt."""
        data = self._encoded(commit_id)
        if data is None:
            return False
        self._repo_store.config.store.put(commit_path(commit_id), data)
        return True

    def _encoded(self, commit_id: str) -> bytes | None:
        """Return the bytes of the object, or None if a part of it is stored nowhere else."""
        where = self._inventory.published.get(commit_id)
        if where is None:
            return None
        record = self._repo_store.heads.get_numbered(BranchName(where[0]), where[1]).head
        full_map = None
        if record.base == commit_id:
            full_map = self._full_map(record, self._stored_map(commit_id))
            if full_map is None:
                return None
        return documents.dump({**codec.encode_commit(record, full_map), **self._mark(commit_id)})

    def _mark(self, commit_id: str) -> dict[str, int]:
        """Return the mark of a collected commit. The log does not have it, but the record of the collection does."""
        found = find_record(self._repo_store.config, commit_id)
        return {} if found is None else {"collected_at": found.at}

    def _stored_map(self, commit_id: str) -> TableMap | None:
        """Return the full map of an object of which another part is wrong.

        Return None without a valid checksum: the damage may be in the map itself.
        """
        path = commit_path(commit_id)
        try:
            data = self._repo_store.config.store.get(path)
            fields = documents.load(data, path=path)
            with documents.damage_named(path):
                is_own = is_sealed(data) and fields["commit"]["graph_commit_id"] == commit_id
                return codec.decode_full_map(fields) if is_own else None
        except (CorruptError, NotFoundError):
            return None

    def _full_map(self, record: CommitRecord, stored: TableMap | None) -> TableMap | None:
        """Return all tables of a commit, or None if they cannot be determined.

        The unchanged tables come from the parent commit, the changed ones from the stored map or from a later full map.
        """
        parent, commits = record.commit.parent_commit_id, self._repo_store.commits
        if parent is None:
            return {} if record.commit.kind is CommitKind.INIT else stored
        if record.has_tables_of_main:
            return stored  # a commit of a live branch: some of its tables are main's, not the parent's
        try:
            tables = commits.tables_of(commits.get(parent))
            known = stored if stored is not None else self._later_map(record.commit)
        except AnabranchError:
            return stored
        changed = {TableKey.parse(key) for key in record.commit.tables}
        if known is None and changed:
            return None
        for key in changed:
            tables.pop(key, None)
            if known is not None and key in known:
                tables[key] = known[key]
        return tables

    def _later_map(self, commit: GraphCommit) -> TableMap | None:
        """Return the next full map after that of a commit, if it still has the states that the commit wrote."""
        commits = self._repo_store.commits
        changed = {TableKey.parse(key) for key in commit.tables}
        for commit_id, parent_id in self._iter_next_full_maps(commit.graph_commit_id):
            record = commits.get(commit_id)
            # The changes of the parent are all changes between the two full maps.
            between = () if parent_id == commit.graph_commit_id else commits.get(parent_id).changes
            touched = {*between, *(TableKey.parse(key) for key in record.commit.tables)}
            if not record.has_tables_of_main and touched.isdisjoint(changed):
                return commits.tables_of(record)
        return None

    def _iter_next_full_maps(self, base: str) -> Iterator[tuple[str, str]]:
        """Yield each intact commit with a full map whose parent builds on the full map of `base`, and the parent."""
        broken = self._inventory.broken.keys() - {base}
        for commit_id, facts in sorted(self._inventory.commits.items()):
            parent_id = facts.made_from[0] if facts.made_from else ""
            parent = self._inventory.commits.get(parent_id)
            # Its map without its own changes is the map of its parent, and the parent names what changed since the
            # lost base.
            is_next = facts.base == commit_id and parent is not None and parent.base == base
            if is_next and broken.isdisjoint({commit_id, parent_id}):
                yield commit_id, parent_id


def find_copy(log: NumberedLog, is_own: IsOwn, decode: Decode, number: int) -> bytes | None:
    """Return the copy of an entry in the hint of its log, if the hint is of this entry and intact.

    The hint is written after the entry itself, so it is evidence that the entry was there.
    """
    # Stores that list in order have no hints.
    hint = None if log.store.lists_sorted else log.find_hint()
    if hint is None or hint[0] != number:
        return None
    try:
        return hint[1] if is_own(decode(hint[1], number), number) else None
    except CorruptError:
        return None


def rebuild_entry(repo_store: RepoStore, log: NumberedLog, branch: BranchName, number: int) -> bytes | None:
    """Return a lost log entry, or None if the entries before and after it do not determine it.

    The next entry must build on a commit that was published with this number on top of the previous entry, and the
    state of the branch must be the same in both.
    """
    before, after = _find(log, branch, number - 1), _find(log, branch, number + 1)
    # With two different states, the lost entry may have changed the state, and nothing else records how.
    if before is None or after is None or before.state != after.state:
        return None
    return _entry_after(before, _made_as(repo_store, after, number))


def rebuild_newest(
    repo_store: RepoStore, log: NumberedLog, branch: BranchName, number: int, published: Collection[str]
) -> bytes | None:
    """Return a damaged newest entry, given the commits that it published by other objects. None if it is ambiguous."""
    before = _find(log, branch, number - 1)
    # The state of the branch comes from the entry before. With two candidates a guess could change what the branch
    # shows.
    if before is None or len(published) != 1:
        return None
    try:
        record = repo_store.commits.get(*published)
    except AnabranchError:
        return None
    is_own = (record.commit.branch, record.commit.manifest_version) == (str(branch), number)
    # Only the object of a commit records that it was collected, never a log entry.
    return _entry_after(before, replace(record, collected_at=None)) if is_own else None


def _entry_after(before: LogEntry, record: CommitRecord | None) -> bytes | None:
    """Return the entry that published a commit on top of another entry, or None if it may have changed more."""
    # The entry may have changed the state of the branch, too, and no other object records how.
    if before.state.is_live or before.state.run is not None or before.state.is_deleted:
        return None
    if record is None or record.commit.kind in _UNUSUAL:
        return None
    commit = record.commit
    if commit.parent_commit_id != before.head.commit.graph_commit_id:
        return None
    event = BranchEvent.PULLED if commit.kind is CommitKind.PULL else BranchEvent.COMMITTED
    entry = before.next(event, at=commit.created_at, actor=commit.actor_id, head=record, state=before.state)
    return codec.encode_entry(entry)


def _made_as(repo_store: RepoStore, after: LogEntry, number: int) -> CommitRecord | None:
    """Return the commit that a lost entry published: the head of the next entry, or its parent."""
    here = (str(after.branch), number)
    for commit_id in (after.head.commit.graph_commit_id, after.head.commit.parent_commit_id):
        try:
            record = None if commit_id is None else repo_store.commits.get(commit_id)
        except AnabranchError:
            continue
        # A commit records the branch and the number of the entry that published it, so a wrong one cannot be taken.
        if record is not None and (record.commit.branch, record.commit.manifest_version) == here:
            return record
    return None


def _find(log: NumberedLog, branch: BranchName, number: int) -> LogEntry | None:
    """Return an entry if it is intact and belongs to the branch."""
    data = log.find(number) if number > 0 else None
    try:
        entry = None if data is None else codec.decode_entry(data, path=log.path(number))
    except (CorruptError, UnsupportedFormatError):
        return None
    is_own = entry is not None and entry.number == number and entry.branch == branch
    return entry if is_own else None
