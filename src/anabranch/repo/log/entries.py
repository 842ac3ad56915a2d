"""The values that a repository consists of: commits, table entries, log entries. All of them are immutable."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NoReturn

from anabranch.display import row_of, to_datetime
from anabranch.ids import MAIN, BranchName, TableKey


class CommitKind(StrEnum):
    """The kind of operation that made a commit."""

    INIT = "init"
    CLONE = "clone"
    LOAD = "load"
    CHANGE = "change"
    MERGE = "merge"
    SCHEMA_APPLY = "schema_apply"
    PUBLISH_RUN = "publish_run"
    REVERT = "revert"
    CHERRY_PICK = "cherry_pick"
    PULL = "pull"
    FREEZE = "freeze"
    ADOPT = "adopt"
    COMPACT = "compact"
    INDEX = "index"


class BranchMode(StrEnum):
    """How a branch shows tables that were not changed on it.

    `pinned`: as they were when the branch was created. `live`: as they are on main now.
    """

    PINNED = "pinned"
    LIVE = "live"


class BranchEvent(StrEnum):
    """The event that a log entry of a branch records.

    `undone` and `redone` are the steps of a user along the earlier positions of a branch. `rolled_back` is a movement
    that its own writer undid because it had to fail.
    """

    CREATED = "created"
    COMMITTED = "committed"
    DELETED = "deleted"
    RESTORED = "restored"
    PULLED = "pulled"
    FROZEN = "frozen"
    RESET = "reset"
    REBASED = "rebased"
    UNDONE = "undone"
    REDONE = "redone"
    ROLLED_BACK = "rolled_back"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    FAILED = "failed"
    ABORTED = "aborted"
    LOCKED = "locked"
    UNLOCKED = "unlocked"


# The dataset, home, version and primary key of a table. The key is not part of the Lance version.
StateId = tuple[str, str | None, int, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """One table in one snapshot: its dataset, home and version.

    `version` may be a staged version, with a number above 2^63. `head` is the newest ordinary version of the home when
    it was staged. `forked_from` is the (home, version) that the home was forked from.
    """

    dataset: str
    home: str | None
    version: int
    head: int
    primary_key: tuple[str, ...]
    rows: int
    forked_from: tuple[str | None, int] | None = None

    @property
    def state(self) -> StateId:
        """The fields that identify the rows, columns and key. Others may differ, for example after a rename."""
        return self.dataset, self.home, self.version, self.primary_key


def is_same_state(one: TableEntry | None, other: TableEntry | None) -> bool:
    """Return whether two entries have the same rows, columns and key. None means a missing table."""
    if one is None or other is None:
        return one is other
    return one.state == other.state


TableMap = Mapping[TableKey, TableEntry]
# The changes of a commit: the new entry of each table, or None for a dropped table.
Changes = Mapping[TableKey, TableEntry | None]


class FrozenDict(dict[str, str]):
    """An immutable `dict[str, str]`."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this mapping is immutable; make a copy with dict(...)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        # The default pickling sets the items one by one, which is refused.
        return type(self), (dict(self),)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCommit:
    """One commit of the whole repository. `manifest_version` is the number of its entry in the branch's log.

    `generation` is one more than the highest generation of the commits that it was made from. So a walk by descending
    generation reaches a commit only after all commits that were made from it.
    """

    graph_commit_id: str
    manifest_branch: str | None
    manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    message: str
    kind: CommitKind
    # A FrozenDict: a handle caches commits, and the next commit repeats their metadata.
    metadata: Mapping[str, str] = field(hash=False)
    tables: tuple[str, ...]
    generation: int

    @property
    def id(self) -> str:
        """The id of the commit and of its snapshot."""
        return self.graph_commit_id

    @property
    def parents(self) -> tuple[str, ...]:
        """The ids of the commits that it was made from, the first parent first."""
        return tuple(filter(None, (self.parent_commit_id, self.merged_parent_commit_id)))

    @property
    def branch(self) -> str:
        """The branch that the commit was made on."""
        return self.manifest_branch or MAIN

    @property
    def created(self) -> datetime:
        """The time of the commit, in UTC. `created_at` is the same in microseconds since 1970."""
        return to_datetime(self.created_at)

    def _repr_row_(self) -> Mapping[str, object]:
        row = row_of(self, "commit=graph_commit_id created actor=actor_id kind tables message")
        return row | {"tables": ", ".join(self.tables)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """A commit as it is stored: its tables are the changes since a base commit, which has the full map.

    `recent` are the encoded summaries of the commits before it, newest first, back to the start of its page. `older` is
    the first commit of the next page. A dropped table is a change to None.

    Tables can also come from commits that are not parents. `made_on` is the commit of main that a live branch showed
    when the commit was made on it or froze it. `taken_from` is the commit that a pull took its tables from, or the
    commit of main under a live branch that was merged. `main_id` is the commit of main below the tables: the one at the
    time of the commit, or that of a `View`. It is None on pinned branches.

    `collected_at` is when the commit was collected. It is set only if the commit was read from its own object.
    """

    commit: GraphCommit
    base: str
    changes: Mapping[TableKey, TableEntry | None]
    recent: tuple[tuple[Any, ...], ...]
    older: str | None
    main_id: str | None = None
    made_on: str | None = None
    taken_from: str | None = None
    collected_at: int | None = None

    @property
    def origin(self) -> "Origin":
        return Origin(commit=self.commit, made_on=self.made_on, taken_from=self.taken_from)

    @property
    def sources(self) -> tuple[str, ...]:
        """The commits from which this one was made: its parents first, then those from which it took tables."""
        return tuple(dict.fromkeys(filter(None, (*self.commit.parents, self.made_on, self.taken_from))))

    @property
    def has_tables_of_main(self) -> bool:
        """Whether some tables may be main's, not the parent's: it was made on a live branch, or froze one."""
        return self.made_on is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A commit and its sources apart from its parents (see `CommitRecord`)."""

    commit: GraphCommit
    made_on: str | None
    taken_from: str | None


class RunPhase(StrEnum):
    """The phase of a run. `expired` is not stored: it is a run whose lease has expired."""

    RUNNING = "running"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    FAILED = "failed"
    ABORTED = "aborted"
    EXPIRED = "expired"


class CheckResult(StrEnum):
    """The result of a check of a run. `unknown` is that of a run that failed before results were recorded."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """A check of a run and its result: the SQL, empty for a function, and what a failed check found."""

    name: str
    sql: str
    result: CheckResult
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of a run, in every entry of its hidden branch.

    `origin` is the commit that the run started from, and `main_id` that of main if its target is live. When the run is
    published, `published_after` is the version of the target after which its commit may be found, and `commit_id` is
    that commit. `outcomes` are the checks of the last attempt to publish it, recorded when the run ends.
    """

    target: BranchName
    target_created_as: int
    origin: str
    phase: RunPhase
    metadata: Mapping[str, str] = field(hash=False)
    main_id: str | None = None
    published_after: int | None = None
    commit_id: str | None = None
    error: str | None = None
    outcomes: tuple[CheckOutcome, ...] = ()

    @property
    def started_on(self) -> tuple[str, ...]:
        """The commits whose tables the run started with."""
        return (self.origin,) if self.main_id is None else (self.origin, self.main_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The commit that a branch was made from, and the branch, if the ref was a branch.

    `branch` is the name at that time, and `created_as` is that of the parent's state: the parent may be renamed, and
    its name used again, so `Heads.follow` finds its present name. Branches of older releases have no `created_as`.
    """

    branch: BranchName | None
    commit: str
    created_as: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """The new name of a renamed branch. `created_as` identifies the branch in each of the two logs."""

    created_as: int
    to: BranchName
    to_created_as: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerName:
    """An earlier name of a branch, and the entries of that name's log that are part of the branch's log."""

    branch: BranchName
    created_as: int
    until: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchState:
    """The state of a branch apart from its head. Every log entry contains all of it.

    `created_as` is the number of the log entry that created the branch: a branch that is deleted and created again is
    another branch. `own` are the tables that a live branch has changed or dropped, while all others follow main. For
    the hidden branch of a run, they are the tables that the run has changed. `checks` are the names and SQL of the
    checks that every merge into a protected branch must pass. `renames` are the branches that had this name and have
    another one now, oldest first. A branch that is created under a name again keeps them. `former_names` are the
    earlier names of this branch, oldest first.
    """

    mode: BranchMode
    parent: Parent | None
    created_at: int
    created_by: str | None
    created_as: int
    description: str = ""
    expires_at: int | None = None
    is_deleted: bool = False
    own: tuple[TableKey, ...] = ()
    is_protected: bool = False
    checks: tuple[tuple[str, str], ...] = ()
    run: RunState | None = None
    renames: tuple[Rename, ...] = ()
    former_names: tuple[FormerName, ...] = ()

    @property
    def is_live(self) -> bool:
        return self.mode is BranchMode.LIVE

    @property
    def renamed_to(self) -> BranchName | None:
        """The name that the branch got, if it was renamed. Its entry is a tombstone then."""
        rename = self.find_rename(self.created_as) if self.is_deleted else None
        return None if rename is None else rename.to

    def find_rename(self, created_as: int | None) -> Rename | None:
        """Return the rename of a branch of this name, or None if it was not renamed."""
        # Releases without renames recorded no `created_as`. A branch of theirs is older than every rename.
        return next((rename for rename in self.renames if created_as in (None, rename.created_as)), None)

    def follows_main(self, key: TableKey) -> bool:
        """Return whether a table is main's current one: the branch is live and has not changed or dropped it."""
        return self.is_live and key not in self.own


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One event of a branch, with the state and the head commit after it.

    `restores` is set by an undo and a redo: the number of the entry whose position the branch has again, or 0 if the
    branch did not exist before its first entry. So the next undo continues from there.
    """

    branch: BranchName
    number: int
    event: BranchEvent
    at: int
    actor: str | None
    state: BranchState
    head: CommitRecord = field(repr=False)
    restores: int | None = None

    @property
    def renamed_from(self) -> BranchName | None:
        """The former name, if this is the first entry of a renamed branch."""
        former = self.state.former_names
        return former[-1].branch if former and self.number == self.state.created_as else None

    def has_own(self, branch: BranchName, number: int) -> bool:
        """Return whether an entry belongs to this branch: to its log, or to the log of a former name."""
        if branch == self.branch and number >= self.state.created_as:
            return True
        # A branch that was renamed back has its present name among the former ones.
        return any(
            branch == former.branch and former.created_as <= number <= former.until
            for former in self.state.former_names
        )

    @property
    def position(self) -> int:
        """The number of the entry that first put the branch where it is after this entry."""
        return self.number if self.restores is None else self.restores

    @property
    def home_branch(self) -> BranchName:
        """The branch in whose homes the tables are staged: for a run its target, otherwise the branch itself."""
        return self.branch if self.state.run is None else self.state.run.target
