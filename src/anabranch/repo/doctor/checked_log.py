"""The numbered logs that doctor checks: what their entries are, which refs need them, and how a lost one is rebuilt."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from urllib.parse import unquote

from anabranch.errors import AnabranchError, CorruptError, InvalidNameError, UnsupportedFormatError
from anabranch.ids import BranchName
from anabranch.repo.doctor.inventory import name_of
from anabranch.repo.log import codec
from anabranch.repo.log.clones import CLONES, ORIGIN
from anabranch.repo.log.config import BRANCHES, RUNS, RepoConfig
from anabranch.repo.log.entries import (
    BranchEvent,
    CommitKind,
    CommitRecord,
    LogEntry,
)
from anabranch.repo.log.numbered import NumberedLog
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.tags import TAGS, TagInfo, decode_tag
from anabranch.storage import documents


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherEntry:
    """An entry of a log of which doctor reads only the number."""

    number: int


Entry = LogEntry | TagInfo | OtherEntry
IsOwn = Callable[[Entry, int], bool]
Decode = Callable[[bytes, int], Entry]

# Commits of these kinds change more than tables, or belong to other events, so their entry cannot be derived.
_UNUSUAL = frozenset({CommitKind.INIT, CommitKind.FREEZE})


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

    @classmethod
    def of_branch(cls, log: NumberedLog, branch: BranchName) -> "CheckedLog":
        name = name_of(branch)
        label = name if branch.run_id is not None else f"branch '{name}'"
        return cls(log=log, label=label, name=name, branch=branch)

    def decode(self, data: bytes, number: int) -> Entry:
        path = self.log.path(number)
        if self.is_tag:
            return decode_tag(data, path=path)
        if self.branch is not None:
            return codec.decode_entry(data, path=path)
        fields = documents.load(data, path=path)
        with documents.damage_named(path):
            return OtherEntry(number=int(fields["number"]))

    def is_own(self, entry: Entry, number: int) -> bool:
        """Return whether an entry belongs to this log and has this number, by its own fields."""
        match entry:
            case LogEntry():
                return (entry.branch, entry.number) == (self.branch, number)
            case TagInfo():
                return (entry.name, entry.number) == (self.name, number)
            case OtherEntry():
                return entry.number == number

    def refs(self, number: int, newest: int) -> tuple[str, ...]:
        """Return the refs that cannot be read without an entry."""
        if self.branch is None and not self.is_tag:
            return ()
        # Without its newest entry the branch or tag itself cannot be read. Without an older one only refs to that
        # version fail.
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
        return CheckedLog.of_branch(log, BranchName(unquote(name)))
    if folder == RUNS:
        return CheckedLog.of_branch(log, BranchName.of_run(name))
    if folder == TAGS:
        return CheckedLog(log=log, label=f"tag '{name}'", name=name, is_tag=True)
    return CheckedLog(log=log, label=f"clone {name}", name=name)


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
    entry = replace(
        before,
        number=before.number + 1,
        event=event,
        at=commit.created_at,
        actor=commit.actor_id,
        head=record,
        restores=None,
    )
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
