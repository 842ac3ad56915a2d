"""What a branch shows: its own head, or, if it is live, main with the branch's own tables in the place of main's."""

from dataclasses import replace

from anabranch.ids import MAIN, BranchName
from anabranch.repo.log.entries import BranchMode, CommitRecord, LogEntry
from anabranch.repo.log.store import RepoStore

__all__ = ["is_recorded", "shown", "view"]


def view(records: RepoStore, entry: LogEntry) -> LogEntry:
    """A branch's newest entry as it shows itself now, on one state of main."""
    if entry.state.mode is not BranchMode.LIVE:
        return entry
    return shown(entry, records.heads.get(BranchName(MAIN)).head)


def is_recorded(entry: LogEntry, seen: LogEntry) -> bool:
    """Whether an entry, as it is seen on some state of main, is just what its head commit holds."""
    head = entry.head
    return seen is entry or seen.head.saw == (head.saw or head.commit.graph_commit_id)


def shown(entry: LogEntry, main: CommitRecord) -> LogEntry:
    """A live branch's entry on a given state of main. Its own tables are always among its head's changes."""
    own = {key: entry.head.changes.get(key) for key in entry.state.own}
    seen = main.commit.graph_commit_id
    return replace(entry, head=replace(entry.head, base=main.base, changes={**main.changes, **own}, saw=seen))
