"""The tables of a transaction: those of its head, and those that it has changed.

Also the queue in which transactions of one process wait for each other.
"""

import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.dataset as pads

from anabranch.errors import InvalidInputError, TableExistsError, WriteConflictError
from anabranch.format.arguments import unknown_table
from anabranch.format.arrow_types import has_own_types
from anabranch.format.staging import VersionRef
from anabranch.format.staging.incoming import as_reader
from anabranch.ids import BranchName, TableKey
from anabranch.repo.log.config import owns
from anabranch.repo.log.entries import Changes, CommitRecord, LogEntry, TableEntry, TableMap
from anabranch.repo.log.repo_store import CommitTables, RepoStore, View, find_main
from anabranch.repo.write.homes import refuse_shared_home, stage_new, taken_homes
from anabranch.repo.write.staged_table import StagedTable, Step, replayed, stage_existing, with_wanted_indices
from anabranch.storage import in_parallel

# Rows are recorded only if they are in memory and small: then the requests to stage them cost more than the rows.
SMALL_BYTES = 1 << 20
# Recorded rows are copies in memory, so that their sum over all tables is bounded.
_RECORDED_BYTES = 16 << 20

# Stage recorded rows on a table.
StageRows = Callable[[StagedTable], Step]
# Return a table with another change staged.
Change = Callable[[StagedTable], StagedTable]


@dataclass(eq=False, repr=False)
class WriteSet:
    """The staged tables of a transaction on top of the head of a branch. A dropped table is None.

    Small changes of rows are recorded, and staged when their table is read or changed in another way, or when the
    transaction is committed: then all tables at once, so that many tables take as long as one.

    On a live branch the head is combined with main as it was at the beginning. The `created` tables were not changed
    since they were created.
    """

    _repo_store: RepoStore
    branch: BranchName
    created: set[TableKey] = field(default_factory=set)
    _changed: dict[TableKey, StagedTable | None] = field(default_factory=dict)
    _origins: dict[TableKey, TableEntry | None] = field(default_factory=dict)
    _recorded: dict[TableKey, list[StageRows]] = field(default_factory=dict)
    _recorded_bytes: int = 0
    head: LogEntry = field(init=False)
    main: CommitRecord | None = field(init=False)
    # The commit with the tables before the transaction, and the number of tables in each folder.
    _before: CommitRecord = field(init=False)
    _folders: Counter[str] | None = None

    def begin(self) -> None:
        """Read the newest head of the branch. Call this only while nothing is staged."""
        self.head = self._repo_store.heads.get(self.branch)
        is_live = self.head.state.is_live
        self.main = find_main(self._repo_store, self.head) if is_live else None
        self._before = View.of(self.head, self.main).record if is_live else self.head.head
        self._folders = None

    @property
    def _tables(self) -> TableMap:
        """The tables before the transaction."""
        return CommitTables(self._repo_store.commits.full_map, self._before)

    @property
    def is_empty(self) -> bool:
        return not self._changed and not self._recorded

    def changed_keys(self) -> set[TableKey]:
        return {*list(self._changed), *list(self._recorded)}

    def has(self, key: TableKey) -> bool:
        # None is a value here: it means a table that was dropped.
        return self._changed[key] is not None if key in self._changed else key in self._tables

    def table_keys(self) -> set[TableKey]:
        # Copies of the keys: another thread may change the set during the loop.
        return {key for key in {*list(self._tables), *list(self._changed)} if self.has(key)}

    def is_recorded(self, key: TableKey) -> bool:
        """Whether rows of a table are recorded, and not staged yet."""
        return key in self._recorded

    def entry(self, key: TableKey) -> TableEntry:
        """Return the staged state of a table, without recorded rows."""
        staged_table = self._changed.get(key)
        return self._entry_before(key) if staged_table is None else staged_table.to_entry()

    def get(self, key: TableKey) -> StagedTable:
        """Return the staged state of a table, or prepare it for staging. Its recorded rows are staged first."""
        if self.is_recorded(key):
            self.stage_recorded([key])
        return self._staged(key)

    def base_of(self, key: TableKey) -> tuple[VersionRef, tuple[str, ...]]:
        """Return the version of a table without recorded rows, and its primary key. Nothing is forked or written."""
        staged_table = self._changed.get(key)
        if staged_table is not None:
            return staged_table.version_ref, staged_table.primary_key
        entry = self._entry_before(key)
        return VersionRef(home=self._repo_store.config.home_of(entry), version=entry.version), entry.primary_key

    def schema_for(self, key: TableKey, data: object) -> pa.Schema | None:
        """Return the schema of a table for data without types, else None."""
        return None if has_own_types(data) else self.base_of(key)[0].schema

    def read(self, key: TableKey, data: Any) -> pa.Table | pa.RecordBatchReader:
        """Return rows in memory as a table, so that they can be checked before they are written, others as a stream."""
        # Only data that may be larger than the memory stays a stream.
        streams = isinstance(data, pa.RecordBatchReader | pads.Dataset | pads.Scanner)
        reader = as_reader(data, self.schema_for(key, data))
        return reader if streams else reader.read_all()

    def record(self, key: TableKey, rows: pa.Table, stage: StageRows) -> None:
        """Record a change of rows, unless there are none. The caller has checked that they fit the table."""
        if not len(rows):
            return
        self._recorded.setdefault(key, []).append(stage)
        self._recorded_bytes += rows.nbytes
        if self._recorded_bytes > _RECORDED_BYTES:
            self.stage_recorded()

    def stage_recorded(self, keys: Iterable[TableKey] | None = None) -> None:
        """Stage the recorded rows of all tables, or of some, in parallel.

        After an error they stay recorded, so that the transaction cannot be committed without them.
        """
        chosen = list(self._recorded if keys is None else keys)
        # All tables wait for the store at the same time: one after the other, the requests of many tables add up.
        for staged_table in in_parallel(self._staged, chosen, at_a_time=self._repo_store.config.tables_at_a_time):
            self.put(staged_table.key, staged_table)
        for key in chosen:
            del self._recorded[key]
        if not self._recorded:
            self._recorded_bytes = 0

    def _staged(self, key: TableKey) -> StagedTable:
        """Return a table with what is recorded for it."""
        staged_table = self._changed.get(key)
        if staged_table is None:
            staged_table = stage_existing(self._repo_store.config, self.head.home_branch, key, self._entry_before(key))
        for stage in self._recorded.get(key, ()):
            step = stage(staged_table)
            if step.version_ref != staged_table.version_ref:
                staged_table = staged_table.then(step)
        return staged_table

    def _entry_before(self, key: TableKey) -> TableEntry:
        # A changed table without an entry was dropped.
        entry = None if key in self._changed else self._repo_store.commits.find_table(self._before, key)
        if entry is None:
            hint = "create it, or list the tables with `tables()`"
            raise unknown_table(key, f"on branch '{self.head.branch}'", self.table_keys(), hint)
        return entry

    def put(self, key: TableKey, staged_table: StagedTable | None) -> None:
        """Store a changed table, and count the tables in each folder, if they were counted."""
        # The state before the first change stays, also if the table is dropped and created again: conflicts are found
        # by comparing with it.
        if key not in self._origins:
            self._origins[key] = self._repo_store.commits.find_table(self._before, key)
        if self._folders is not None:
            before = self._changed[key] if key in self._changed else self._tables.get(key)
            if before is not None:
                self._folders[before.dataset] -= 1
            if staged_table is not None:
                self._folders[staged_table.dataset] += 1
        self._changed[key] = staged_table
        self.created.discard(key)
        if staged_table is None:
            self._recorded.pop(key, None)
        elif staged_table.origin is None and not staged_table.steps:
            self.created.add(key)

    def _is_taken(self, folder: str) -> bool:
        """Return whether a table has a folder. They are counted once: a search for each new table is quadratic."""
        if self._folders is None:
            unchanged = (entry.dataset for key, entry in self._tables.items() if key not in self._changed)
            changed = (table.dataset for table in self._changed.values() if table is not None)
            self._folders = Counter([*unchanged, *changed])
        return self._folders[folder] > 0

    def new_table(self, key: TableKey, schema: pa.Schema, primary_key: Sequence[str]) -> StagedTable:
        """Return a new, empty table, which is not part of the set yet."""
        if self.has(key):
            raise TableExistsError(f"there is a table '{key}' already", hint="choose another name, or overwrite it")
        config, home = self._repo_store.config, self.head.home_branch
        return stage_new(config, home, key, schema=schema, primary_key=primary_key, is_taken=self._is_taken)

    def change_all(self, changes: Mapping[TableKey, Change]) -> None:
        """Change tables in parallel, each by its function. If one fails, nothing is changed."""
        self.stage_recorded()
        before = dict(zip(changes, in_parallel(self._staged, changes), strict=True))
        after = in_parallel(lambda key: changes[key](before[key]), changes)
        for key, staged_table in zip(changes, after, strict=True):
            if staged_table != before[key]:
                self.put(key, staged_table)

    def take_in(self, prepared: StagedTable, step: Step) -> None:
        """Add a table that was prepared before. If it has changed since, rebase it onto the change if that is safe."""
        key = prepared.key
        if key in self.changed_keys():
            hint = "take the files in before, or in another one"
            raise InvalidInputError(f"this transaction has changed table '{key}' already", hint=hint)
        # No rows were written. A new table is created even without rows.
        if step.version_ref == prepared.version_ref and prepared.origin is not None:
            return
        staged_table, theirs = prepared.then(step), self._tables.get(key)
        # An earlier transaction may have prepared the table, on an older state of it. A conflict is raised before the
        # table is in the set: a caller that catches it and commits must not replace the newer state.
        if theirs != prepared.origin:
            refuse_shared_home(key, staged_table.to_entry(), taken_homes(self._tables, besides={key, *self._changed}))
            staged_table = self._on_top_of(theirs, key, staged_table, prepared.origin)
        self._origins[key] = theirs
        self.put(key, staged_table)

    def changes(self) -> dict[TableKey, TableEntry | None]:
        """Return the changes since the head: the new entry of each table, None for a dropped one."""
        self.stage_recorded()
        changes: dict[TableKey, TableEntry | None] = {}
        for key, staged_table in self._changed.items():
            origin = self._origins[key]
            # Only a table that had no rows, at first or between two steps, can have a wanted index.
            is_empty = origin is not None and not origin.rows
            if staged_table is not None and (is_empty or len(staged_table.steps) > 1):
                staged_table = self._changed[key] = with_wanted_indices(staged_table)
            if staged_table is None:
                # A table that was created and dropped in this transaction leaves no trace.
                if origin is not None:
                    changes[key] = None
            elif (entry := staged_table.find_change(origin)) is not None:
                changes[key] = entry
        return changes

    def rebase(self, head: LogEntry) -> Changes:
        """Move the staged tables onto a head that another writer published."""
        before = View.of(head, self.main).record
        tables = CommitTables(self._repo_store.commits.full_map, before)
        taken = taken_homes(tables, besides=self._changed)
        for key in self.changes():
            staged_table, theirs = self._changed[key], tables.get(key)
            if staged_table is not None:
                refuse_shared_home(key, staged_table.to_entry(), taken)
            # A table that the other commit did not change keeps its staged version: nothing is staged twice.
            if theirs != self._origins[key]:
                self.put(key, self._on_top_of(theirs, key, staged_table, self._origins[key]))
                self._origins[key] = theirs
        self.head, self._before, self._folders = head, before, None
        return self.changes()

    def _on_top_of(
        self, theirs: TableEntry | None, key: TableKey, staged_table: StagedTable | None, origin: TableEntry | None
    ) -> StagedTable:
        """Return a changed table on top of the state that another commit gave its origin."""
        hint = "run the transaction again on the new state"
        is_new_here = origin is None or staged_table is None or staged_table.origin is None
        if theirs is None or staged_table is None or is_new_here or theirs.primary_key != staged_table.primary_key:
            problem = f"table '{key}' was created, dropped or replaced by another commit at the same time"
            raise WriteConflictError(problem, hint=hint)
        # After a reset or a pull the table is in a home of another branch, where this branch must not write.
        if not owns(self.head.home_branch, theirs.home):
            raise WriteConflictError(f"table '{key}' was reset by another commit at the same time", hint=hint)
        version_ref = VersionRef(home=self._repo_store.config.home_of(theirs), version=theirs.version)
        return replayed(staged_table, theirs, version_ref)


def warn_dropped(write_set: WriteSet) -> None:
    """Warn if a transaction was dropped with changes."""
    if not write_set.is_empty:
        tables = ", ".join(f"'{key}'" for key in sorted(map(str, write_set.changed_keys())))
        warnings.warn(
            f"a transaction on branch '{write_set.head.branch}' was dropped with changes to {tables}, which are lost: "
            "use it in a 'with' block, or call commit() or rollback()",
            ResourceWarning,
            stacklevel=2,
        )


# The repository's root, the branch and the table.
WriterKey = tuple[str, BranchName, TableKey]

# Longer than most transactions take. Staging concurrently with the holder only risks repeated work.
_PATIENCE_SECONDS = 10.0
# How often a waiting writer checks whether the holder was dropped. A dropped holder does not notify it.
_POLL_SECONDS = 0.1


@dataclass(slots=True, weakref_slot=True, eq=False)
class Writer:
    """One transaction in the queue. The queue does not keep it alive, so a dropped one does not block others."""

    thread: int = field(default_factory=threading.get_ident)


@dataclass(slots=True)
class WriterQueue:
    """Which writer holds which table. `generation` increases whenever a writer finishes.

    Writers of one table in one process wait for each other, instead of staging work that loses the race. This saves
    work and is not needed for correctness: a writer that cannot wait safely, or has waited long enough, continues, and
    publishing decides.
    """

    patience_seconds: float = _PATIENCE_SECONDS
    generation: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)
    # A dropped writer disappears from it.
    _turns: weakref.WeakValueDictionary[WriterKey, Writer] = field(default_factory=weakref.WeakValueDictionary)

    def take(self, writer: Writer, key: WriterKey) -> None:
        """Wait a bounded time for a key. Then the writer holds it until it leaves."""
        deadline = time.monotonic() + self.patience_seconds
        with self._changed:
            while self._turns.get(key) not in {None, writer}:
                # Continue without a turn, and publishing decides. Otherwise two threads could wait for each other.
                if self._must_not_wait(key):
                    return
                # The holder may be open for hours, for example in a notebook. This writer takes its turn, so that the
                # next one waits for this one.
                if (left := deadline - time.monotonic()) <= 0:
                    break
                self._changed.wait(min(left, _POLL_SECONDS))
            self._turns[key] = writer

    def leave(self, writer: Writer) -> None:
        with self._changed:
            for key, holder in list(self._turns.items()):
                # A turn that another writer has taken over stays.
                if holder is writer:
                    del self._turns[key]
            self.generation += 1
            self._changed.notify_all()

    def _must_not_wait(self, key: WriterKey) -> bool:
        """Return whether this thread holds the key, or a later key for which a holder of this key may wait.

        Threads wait for keys only in their order, so that no two threads wait for each other.
        """
        this = threading.get_ident()
        return any(other >= key and holder.thread == this for other, holder in list(self._turns.items()))


# The writers of this process.
WRITERS = WriterQueue()


P = ParamSpec("P")
R = TypeVar("R")
_LOCK = "_lock"


def atomic(method: Callable[P, R]) -> Callable[P, R]:
    """Run the atomic methods of an object in one thread at a time. Other threads wait.

    The object has an RLock `_lock`, so that an atomic method may call another one.
    """

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with getattr(args[0], _LOCK):
            return method(*args, **kwargs)

    return run
