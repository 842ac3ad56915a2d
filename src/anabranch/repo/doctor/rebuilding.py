"""Objects written again from others that say the same: commits from log entries, entries from those around them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from anabranch.errors import AnabranchError, CorruptError, NotFoundError, UnsupportedFormatError
from anabranch.ids import BranchName, TableKey
from anabranch.repo.doctor.seen import Seen
from anabranch.repo.log import codec
from anabranch.repo.log.collected import find_record
from anabranch.repo.log.commits import commit_path
from anabranch.repo.log.entries import (
    BranchEvent,
    BranchMode,
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
    """An entry of a log that doctor knows no more of than that every entry tells its number."""

    number: int


Entry = LogEntry | TagInfo | OtherEntry
IsOwn = Callable[[Entry, int], bool]
Decode = Callable[[bytes, int], Entry]

# Commits of these kinds change more than the tables, or come with other events.
_UNUSUAL = frozenset({CommitKind.INIT, CommitKind.FREEZE})


class Rebuilder:
    """Writes commit objects again."""

    def __init__(self, records: RepoStore, seen: Seen) -> None:
        self._records = records
        self._seen = seen

    def can_rebuild(self, commit_id: str) -> bool:
        return self._encoded(commit_id) is not None

    def rebuild(self, commit_id: str) -> bool:
        """Write the object again as the log entry that published it has it."""
        data = self._encoded(commit_id)
        if data is None:
            return False
        self._records.context.store.put(commit_path(commit_id), data)
        return True

    def _encoded(self, commit_id: str) -> bytes | None:
        """The object's bytes; None if something that belongs into it is nowhere else."""
        where = self._seen.published.get(commit_id)
        if where is None:
            return None
        record = self._records.heads.get_numbered(BranchName(where[0]), where[1]).head
        full_map = None
        if record.base == commit_id:
            full_map = self._full_map(record, self._stored_map(commit_id))
            if full_map is None:
                return None
        return documents.dump({**codec.encode_commit(record, full_map), **self._mark(commit_id)})

    def _mark(self, commit_id: str) -> dict[str, int]:
        """The mark of a commit that was collected, which the log does not have but the record of the collection has."""
        found = find_record(self._records.context, commit_id)
        return {} if found is None else {"collected_at": found.at}

    def _stored_map(self, commit_id: str) -> TableMap | None:
        """The full map in an object of which another part is wrong.

        It is used only under a valid checksum. Otherwise the damage may be in the map itself.
        """
        path = commit_path(commit_id)
        try:
            data = self._records.context.store.get(path)
            fields = documents.load(data, path=path)
            with documents.damage_named(path):
                is_own = is_sealed(data) and fields["commit"]["graph_commit_id"] == commit_id
                return codec.decode_full_map(fields) if is_own else None
        except (CorruptError, NotFoundError):
            return None

    def _full_map(self, record: CommitRecord, stored: TableMap | None) -> TableMap | None:
        """All tables of a commit: those of the commit before, and what it changed, by its own map or by a later one."""
        parent, commits = record.commit.parent_commit_id, self._records.commits
        if parent is None:
            return {} if record.commit.kind is CommitKind.INIT else stored
        if record.made_on is not None:
            return stored  # some of its tables came from main
        try:
            tables = commits.tables_of(commits.get(parent))
            known = stored if stored is not None else self._later_map(record.commit)
        except AnabranchError:
            return stored
        changed = {TableKey.parse(key) for key in record.commit.tables}
        if known is None and changed:
            return None
        mine = {key: entry for key, entry in (known or {}).items() if key in changed}
        return {**{key: entry for key, entry in tables.items() if key not in changed}, **mine}

    def _later_map(self, commit: GraphCommit) -> TableMap | None:
        """The next full map after that of a commit, if nothing that this changed was changed again before it."""
        commits = self._records.commits
        changed = {TableKey.parse(key) for key in commit.tables}
        for commit_id, facts in sorted(self._seen.commits.items()):
            before = facts.made_from[0] if facts.made_from else ""
            parent = self._seen.commits.get(before)
            is_next = facts.base == commit_id and parent is not None and parent.base == commit.graph_commit_id
            if not is_next or not {commit_id, before}.isdisjoint(self._seen.broken.keys() - {commit.graph_commit_id}):
                continue
            record = commits.get(commit_id)
            changes = () if before == commit.graph_commit_id else commits.get(before).changes
            touched = {*changes, *(TableKey.parse(key) for key in record.commit.tables)}
            if record.made_on is None and touched.isdisjoint(changed):
                return commits.tables_of(record)
        return None


def find_copy(log: NumberedLog, is_own: IsOwn, decode: Decode, number: int) -> bytes | None:
    """The copy of an entry that lies beside its log, put there after the entry itself, if it is this one and whole."""
    hint = None if log.store.lists_sorted else log.find_hint()
    if hint is None or hint[0] != number:
        return None
    try:
        return hint[1] if is_own(decode(hint[1], number), number) else None
    except CorruptError:
        return None


def rebuild_entry(records: RepoStore, log: NumberedLog, branch: BranchName, number: int) -> bytes | None:
    """Return a lost log entry if the entries around it leave no doubt what it was; None if they do.

    The entry after it must build on a commit that was made as this number on top of the entry before it, and nothing
    else about the branch may have changed.
    """
    before, after = _find(log, branch, number - 1), _find(log, branch, number + 1)
    if before is None or after is None or before.state != after.state:
        return None
    return _entry_after(before, _made_as(records, after, number))


def rebuild_newest(
    records: RepoStore, log: NumberedLog, branch: BranchName, number: int, published: Collection[str]
) -> bytes | None:
    """Return a damaged newest entry, given the commits that something says it published; None if there is any doubt."""
    before = _find(log, branch, number - 1)
    if before is None or len(published) != 1:
        return None
    try:
        record = records.commits.get(*published)
    except AnabranchError:
        return None
    is_own = (record.commit.branch, record.commit.manifest_version) == (str(branch), number)
    return _entry_after(before, replace(record, collected_at=None)) if is_own else None


def _entry_after(before: LogEntry, record: CommitRecord | None) -> bytes | None:
    """The entry that published a commit on top of another entry, if a commit is all that can have happened."""
    if before.state.mode is not BranchMode.PINNED or before.state.run is not None or before.state.is_deleted:
        return None
    if record is None or record.commit.kind in _UNUSUAL:
        return None
    commit, number = record.commit, before.number + 1
    if commit.parent_commit_id != before.head.commit.graph_commit_id:
        return None
    event = BranchEvent.PULLED if commit.kind is CommitKind.PULL else BranchEvent.COMMITTED
    entry = replace(before, number=number, event=event, at=commit.created_at, actor=commit.actor_id, head=record)
    return codec.encode_entry(entry)


def _made_as(records: RepoStore, after: LogEntry, number: int) -> CommitRecord | None:
    """The commit that the lost entry published, by the entry after it."""
    here = (str(after.branch), number)
    for commit_id in (after.head.commit.graph_commit_id, after.head.commit.parent_commit_id):
        try:
            record = None if commit_id is None else records.commits.get(commit_id)
        except AnabranchError:
            continue
        if record is not None and (record.commit.branch, record.commit.manifest_version) == here:
            return record
    return None


def _find(log: NumberedLog, branch: BranchName, number: int) -> LogEntry | None:
    data = log.find(number) if number > 0 else None
    try:
        entry = None if data is None else codec.decode_entry(data, path=log.path(number))
    except (CorruptError, UnsupportedFormatError):
        return None
    is_own = entry is not None and entry.number == number and entry.branch == branch
    return entry if is_own else None
