"""The tables of a transaction: those of the head that it builds on, and the ones that it has changed."""

from anabranch.errors import InvalidInputError, TableNotFoundError, WriteConflictError
from anabranch.format.staging import Pin
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.entries import Changes, LogEntry, TableEntry
from anabranch.repo.log.store import RepoStore
from anabranch.repo.log.view import View, find_main
from anabranch.repo.write.homes import draft_existing, owns, refuse_shared_home
from anabranch.repo.write.staged_table import StagedTable, Step, replayed
from anabranch.suggestions import suggest

__all__ = ["WriteSet"]


class WriteSet:
    """The staged table for each changed one, None for a dropped one, on top of the head of a branch.

    On a live branch the head is combined with main as it was at the beginning.
    """

    def __init__(self, records: RepoStore, branch: BranchName) -> None:
        self._records = records
        self._drafts: dict[TableKey, StagedTable | None] = {}
        self._origins: dict[TableKey, TableEntry | None] = {}
        self.begin(branch)

    def begin(self, branch: BranchName) -> None:
        """Read the newest head of the branch; only while nothing is staged."""
        self.head = self._records.heads.get(branch)
        self.main = find_main(self._records, self.head)
        self._tables = self._tables_on(self.head)

    @property
    def is_empty(self) -> bool:
        return not self._drafts

    def changed_keys(self) -> set[TableKey]:
        return set(self._drafts)

    def has(self, key: TableKey) -> bool:
        missing = object()
        draft = self._drafts.get(key, missing)
        return draft is not None if draft is not missing else key in self._tables

    def table_keys(self) -> set[TableKey]:
        # Copies of the keys: another thread may change the drafts during the loop.
        return {key for key in {*list(self._tables), *list(self._drafts)} if self.has(key)}

    def entry(self, key: TableKey) -> TableEntry:
        draft = self._drafts.get(key)
        if draft is not None:
            return draft.to_entry()
        if not self.has(key):
            raise TableNotFoundError(
                f"there is no table '{key}' on branch '{self.head.branch}'",
                hint=suggest(str(key), map(str, self.table_keys()), "create it, or list the tables to see which exist"),
            )
        return self._tables[key]

    def get(self, key: TableKey) -> StagedTable:
        """Return a table as it is staged, or ready to be staged."""
        draft = self._drafts.get(key)
        if draft is None:
            draft = draft_existing(self._records.context, self.head.home_branch, key, self.entry(key))
        return draft

    def put(self, key: TableKey, draft: StagedTable | None) -> None:
        self._origins.setdefault(key, self._tables.get(key))
        self._drafts[key] = draft

    def take_in(self, prepared: StagedTable, step: Step) -> None:
        """Add a table that was prepared before; if it has changed since, on top of the change where that is safe."""
        key = prepared.key
        if key in self._drafts:
            raise InvalidInputError(
                f"this transaction has changed table '{key}' already",
                hint="take the files in before, or in another one",
            )
        if step.pin == prepared.pin and prepared.origin is not None:
            return
        self._drafts[key] = prepared.then(step)
        self._origins[key] = prepared.origin
        if self._tables.get(key) != prepared.origin:
            self.rebase(self.head)

    def changes(self) -> dict[TableKey, TableEntry | None]:
        """Return what differs from the head: the new entry of each table, None for a dropped one."""
        changes: dict[TableKey, TableEntry | None] = {}
        for key, draft in self._drafts.items():
            origin = self._origins[key]
            if draft is None:
                if origin is not None:
                    changes[key] = None
            elif origin is None or not draft.is_still(origin):
                changes[key] = draft.to_entry()
        return changes

    def rebase(self, head: LogEntry) -> Changes:
        """Move the staged tables onto a head that another writer published."""
        tables = self._tables_on(head)
        for key in self.changes():
            draft, theirs = self._drafts[key], tables.get(key)
            if draft is not None:
                refuse_shared_home(key, draft.to_entry(), tables, besides=self._drafts)
            if theirs != self._origins[key]:
                self._drafts[key] = self._on_top_of(theirs, key, head.home_branch)
                self._origins[key] = theirs
        self.head, self._tables = head, tables
        return self.changes()

    def _on_top_of(self, theirs: TableEntry | None, key: TableKey, branch: BranchName) -> StagedTable:
        origin, draft = self._origins[key], self._drafts[key]
        is_new_here = origin is None or draft is None or draft.origin is None
        if theirs is None or draft is None or is_new_here or theirs.primary_key != draft.primary_key:
            raise WriteConflictError(
                f"table '{key}' was created, dropped or replaced by another commit at the same time",
                hint="run the transaction again on the new state",
            )
        if not owns(branch, theirs.home):
            raise WriteConflictError(
                f"table '{key}' was reset by another commit at the same time",
                hint="run the transaction again on the new state",
            )
        return replayed(draft, theirs, Pin(home=self._records.context.home_of(theirs), version=theirs.version))

    def _tables_on(self, head: LogEntry) -> dict[TableKey, TableEntry]:
        return View.of(head, self.main).tables(self._records.commits)
