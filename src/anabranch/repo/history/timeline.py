"""The states of one table along the first parents of a commit, read only where they are needed.

The summaries of the commits show which of them changed the table. Most of these made their state from the one before
by staging on it: appending, changing or deleting rows, compacting, or changing columns. In a line of such states a data
file comes once and goes once, and deleted rows stay deleted. So a property such as "has this file" can be searched for
by halving, and the states in between need not be read.
"""

from collections.abc import Callable, Iterator

from anabranch.errors import NotFoundError
from anabranch.format.compare.entities import read_manifest_of
from anabranch.format.staging import VersionRef
from anabranch.ids import TableKey
from anabranch.repo.log.codec import CommitOutline, iter_outlines
from anabranch.repo.log.commits import commit_path
from anabranch.repo.log.entries import CommitKind, CommitRecord, GraphCommit, TableEntry
from anabranch.repo.log.store import RepoStore
from anabranch.storage.documents import damage_named

# Commits of these kinds are made by a transaction, which stages on the state of its parent. Others may take a state
# from elsewhere: from another branch, from an older commit, or from an external writer.
_STAGED_ON_PARENT = frozenset(
    {CommitKind.LOAD, CommitKind.CHANGE, CommitKind.SCHEMA_APPLY, CommitKind.COMPACT, CommitKind.INDEX}
)


class TableStates:
    """The commits that changed a table, newest first. State n is the table after commit n."""

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
        found = self._manifests.get(number)
        if found is None:
            entry = self.entry(number)
            assert entry is not None  # noqa: S101 - callers ask for the entry first
            home = self._repo_store.config.home_of(entry)
            found = read_manifest_of(VersionRef(home=home, version=entry.version))
            self._manifests = {number: found}  # Manifests may be large, and the last one is often needed again.
        return found

    def list_read(self) -> list[str]:
        """Return the commits whose states were read."""
        return [self._commits[number].commit_id for number in sorted(self._entries)]

    def last_alike(self, number: int, is_alike: Callable[[int], bool]) -> int:
        """Return the oldest state that is like state n, if all between are like it, too.

        In a line of states that were staged on each other, the states that are like the newest follow each other.
        """
        # In growing steps first, then by halving: each check reads a manifest, and a row may be unchanged over
        # thousands of states or over one.
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
