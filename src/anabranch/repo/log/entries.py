"""The values a repository is made of; all of them immutable."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NoReturn

from anabranch.ids import MAIN, BranchName, CommitId, TableKey

__all__ = [
    "BranchEvent",
    "BranchMode",
    "BranchState",
    "Changes",
    "CommitKind",
    "CommitRecord",
    "FrozenDict",
    "GraphCommit",
    "LogEntry",
    "Origin",
    "Parent",
    "RunPhase",
    "RunState",
    "TableEntry",
    "TableMap",
]


class CommitKind(StrEnum):
    """What made a commit."""

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
    """What a branch shows of the tables that were never written on it: as they were, or main's as they are."""

    PINNED = "pinned"
    LIVE = "live"


class BranchEvent(StrEnum):
    """What one entry of a branch's log says happened."""

    CREATED = "created"
    COMMITTED = "committed"
    DELETED = "deleted"
    RESTORED = "restored"
    PULLED = "pulled"
    FROZEN = "frozen"
    RESET = "reset"
    REBASED = "rebased"
    UNDONE = "undone"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    FAILED = "failed"
    ABORTED = "aborted"
    LOCKED = "locked"
    UNLOCKED = "unlocked"


class RunPhase(StrEnum):
    """How far a run is. `expired` is not stored: it is a run whose process gave no sign of life for too long."""

    RUNNING = "running"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    FAILED = "failed"
    ABORTED = "aborted"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry:
    """One table in one snapshot: which dataset, which home, which version of it.

    `version` may be staged, an id above 2^63; `head` is the home's ordinary head when it was staged; `forked_from` is
    the (home, version) that the home was forked from.
    """

    dataset: str
    home: str | None
    version: int
    head: int
    primary_key: tuple[str, ...]
    rows: int
    forked_from: tuple[str | None, int] | None = None

    @property
    def state(self) -> tuple[str, str | None, int]:
        """Dataset, home and version: entries with the same state have the same rows and columns."""
        return self.dataset, self.home, self.version


TableMap = Mapping[TableKey, TableEntry]
# What a commit changes: the new entry of each table, None for one that is gone.
Changes = Mapping[TableKey, TableEntry | None]


class FrozenDict(dict[str, str]):
    """Text by text that nobody can change, and a dict for whoever prints it, compares it or writes it as JSON."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("these values do not change; make a copy with dict(...)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        # By default the items would be set one by one.
        return type(self), (dict(self),)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCommit:
    """One step of the whole repository. `manifest_version` is the number of its entry in the branch's log.

    `generation` is one more than the highest of whatever it was made from, so that a walk by falling generation meets a
    commit only after all that were made from it.
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
    metadata: Mapping[str, str] = field(hash=False)
    tables: tuple[str, ...]
    generation: int

    def __post_init__(self) -> None:
        # Handles keep commits, and the next one repeats what they say.
        object.__setattr__(self, "metadata", FrozenDict(self.metadata))

    @property
    def id(self) -> CommitId:
        """The commit's id, which is its snapshot's, too."""
        return CommitId(self.graph_commit_id)

    @property
    def branch(self) -> str:
        """The branch that the commit was made on."""
        return self.manifest_branch or MAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """A commit as it is stored: its tables as changes since a base commit that holds the full map.

    `recent` are the commits before it, newest first, back to the start of its page, as they are encoded; `older` is the
    commit that opens the next page. A dropped table is a change to None.

    Tables need not come from a parent: `made_on` is the commit of main under a live branch when the commit was made on
    it, or fixed what it showed; `taken_from` is the one that a pull took its tables from, and the one of main under a
    live branch that was merged. `saw` is what a live branch is seen on: main as it is now, or as it was for the commit.

    `collected_at` is known of a commit read from its own object: when garbage collection let its data go.
    """

    commit: GraphCommit
    base: str
    changes: Mapping[TableKey, TableEntry | None]
    recent: tuple[tuple[Any, ...], ...]
    older: str | None
    saw: str | None = None
    made_on: str | None = None
    taken_from: str | None = None
    collected_at: int | None = None

    @property
    def origin(self) -> "Origin":
        return Origin(commit=self.commit, made_on=self.made_on, taken_from=self.taken_from)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A commit with all that it was made from."""

    commit: GraphCommit
    made_on: str | None
    taken_from: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """What a branch was made from: the commit, and the branch if it was named by one."""

    branch: BranchName | None
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What is true of a run, in every entry of its hidden branch.

    `origin` is the commit that holds what it began with, and `saw` that of main if its target is live. From when it was
    first to be published, `published_after` is the version of the target after which its commit is to be looked for;
    `commit_id` is that commit.
    """

    target: BranchName
    target_created_as: int
    origin: str
    phase: RunPhase
    metadata: Mapping[str, str] = field(hash=False)
    saw: str | None = None
    published_after: int | None = None
    commit_id: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchState:
    """What is true of a branch apart from its head; every log entry carries it whole.

    `created_as` is the number of the log entry that created it: a branch deleted and made again is another one. `own`
    are the tables that a live branch has a copy of, or hides, while all others follow main; of a run's hidden branch,
    those that it has touched. `checks` are names and SQL that every merge into a protected branch has to pass.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One event of a branch, with all that is needed to go on from it."""

    branch: BranchName
    number: int
    event: BranchEvent
    at: int
    actor: str | None
    state: BranchState
    head: CommitRecord = field(repr=False)

    def next(
        self, event: BranchEvent, *, at: int, actor: str | None, head: CommitRecord, state: BranchState
    ) -> "LogEntry":
        """Return the entry that follows this one in its log."""
        return replace(self, number=self.number + 1, event=event, at=at, actor=actor, head=head, state=state)

    @property
    def home_branch(self) -> BranchName:
        """The branch in whose homes its tables are staged: its own, but for a run that of its target."""
        return self.branch if self.state.run is None else self.state.run.target
