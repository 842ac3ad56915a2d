"""The retention policy of garbage collection, its report, and the storage report: which holders need how many bytes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from anabranch.display import html_table, human_size
from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.format.arguments import checked_number
from anabranch.format.bases import Usage
from anabranch.repo.log.config import RepoConfig

DEFAULT_GRACE = timedelta(days=1)
# Work whose lease was not renewed for two lease durations does not publish. The third is a margin for slow stores.
_LEASE_DURATIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How much history stays readable, and how long unreachable data stays (`grace`).

    Without `keep_newer_than` and `keep_last`, the whole history of every branch is kept. With one or both of them,
    every commit that at least one of them covers is kept. The newest commit of every branch and the commits of tags
    and clones are always kept.
    """

    keep_newer_than: timedelta | None = None
    keep_last: int | None = None
    grace: timedelta = DEFAULT_GRACE

    @property
    def keeps_all(self) -> bool:
        return self.keep_newer_than is None and self.keep_last is None


def safe_grace(config: RepoConfig) -> timedelta:
    """Return the shortest grace period after which a lease has certainly expired."""
    return config.lease * _LEASE_DURATIONS


def checked_policy(
    config: RepoConfig, *, keep_newer_than: timedelta | None, keep_last: int | None, grace: timedelta | None
) -> Policy:
    """Return the policy, or raise InvalidInputError if a value is out of range."""
    shortest = safe_grace(config)
    grace = max(DEFAULT_GRACE, shortest) if grace is None else _duration(grace, "grace")
    if grace < shortest:
        raise InvalidInputError(
            f"a grace period of {grace} is shorter than a lease lasts, so files of active work could be deleted",
            hint=f"pass a grace period of at least {shortest}",
        )
    if keep_last is not None:
        keep_last = checked_number(keep_last, "number of commits to keep", hint="pass an integer of at least 1")
        if keep_last < 1:
            raise InvalidInputError(f"cannot keep the last {keep_last} commits", hint="pass an integer of at least 1")
    newer = None if keep_newer_than is None else _duration(keep_newer_than, "keep_newer_than")
    return Policy(keep_newer_than=newer, keep_last=keep_last, grace=grace)


def _duration(value: Any, name: str) -> timedelta:
    if not isinstance(value, timedelta) or value < timedelta():
        raise InvalidInputError(
            f"{name} must be a duration of 0 or more, got {value!r}",
            hint="pass a datetime.timedelta, such as timedelta(days=30)",
        )
    return value


class GcStage(StrEnum):
    """What a garbage collection counts: the two parts of the history that it reads first, then tables."""

    READING = "history"
    SWEEPING = "tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedObject:
    """One unneeded object: its path below the repository's root, its size in bytes, and the reason."""

    path: str
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """What a garbage collection deleted, or what it would delete in a dry run.

    `commits` are the collected commits: their tables cannot be read any more. `branches` are the deleted branches past
    their expiry time, `runs` the expired runs that were marked as failed. `damaged` are missing files that retained
    commits need; nothing is deleted in such a table. `waiting_since` is set if active work prevents the deletion of
    younger files: the time when the work began, in microseconds.
    """

    dry_run: bool
    commits: tuple[str, ...]
    branches: tuple[str, ...]
    runs: tuple[str, ...]
    objects: tuple[CollectedObject, ...]
    damaged: tuple[str, ...]
    retained_commits: int
    tables: int
    waiting_since: int | None = None

    @property
    def bytes(self) -> int:
        """The total size of the objects in bytes."""
        return sum(found.bytes for found in self.objects)

    @property
    def by_reason(self) -> dict[str, tuple[int, int]]:
        """The number of objects and their bytes, by reason."""
        return {reason: (usage.files, usage.bytes) for reason, usage in _by_reason(self.objects).items()}


def _by_reason(objects: Iterable[CollectedObject]) -> dict[str, Usage]:
    found: dict[str, Usage] = defaultdict(Usage)
    for each in objects:
        found[each.reason] += Usage(files=1, bytes=each.bytes)
    return dict(sorted(found.items()))


# How many holders an error message lists.
_LISTED = 20


class HolderKind(StrEnum):
    """The kind of a holder: something that keeps files from being collected."""

    BRANCH = "branch"
    TAG = "tag"
    RUN = "run"
    CLONE = "clone"
    DELETED = "deleted branch"  # until its grace period ends
    WORK = "work in flight"
    LANCE = "lance branches and tags"  # made with Lance on single tables, outside Anabranch


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files of one table that have the same holders.

    `keepers` are the holders that retain the files, `heads` those whose newest state contains them. `tables` are the
    names of the table in these states: more than one if it was renamed.
    """

    tables: frozenset[str]
    keepers: frozenset[str]
    heads: frozenset[str]
    usage: Usage

    def is_of(self, holder: str) -> bool:
        """Return whether a holder retains the files or shows them in its newest state."""
        return holder in self.keepers or holder in self.heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The files that a holder needs. `own` are needed by this holder alone, `shared` by other holders too.

    The same files divided in another way: `head` are those of the newest state, `history` those that only older states
    need.
    """

    own: Usage = field(default_factory=Usage)
    shared: Usage = field(default_factory=Usage)
    head: Usage = field(default_factory=Usage)
    history: Usage = field(default_factory=Usage)

    @property
    def total(self) -> Usage:
        """Own and shared files together."""
        return self.own + self.shared


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderStorage(Holding):
    """The files that a branch, tag, run or clone needs, over all tables.

    `name` is the name of a branch, or the kind and the name for other holders: 'tag v1.0'.
    """

    kind: HolderKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStorage(Holding):
    """The files that a holder needs of one table."""

    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUsage:
    """The files of one table folder: `needed` by a holder, `garbage` that gc would free now, and `unjudged`.

    Unjudged files were written recently and may not be published yet, or Anabranch does not manage them. `tables` are
    the names of the table in retained commits; it is empty for a dropped table that no retained commit has.
    """

    dataset: str
    tables: tuple[str, ...]
    needed: Usage
    garbage: Usage
    unjudged: Usage

    @property
    def total(self) -> Usage:
        """All files of the folder together."""
        return self.needed + self.garbage + self.unjudged


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryStorage:
    """The storage of a repository, by holder and by table.

    `metadata` are the folders beside the tables: logs, commits, tags and so on. It is empty if only a part of the
    repository was measured. `garbage` is what gc would free, in tables and metadata. `damaged` are needed files that
    are missing. Files in an added base outside the repository are not counted.
    """

    root: str
    holders: tuple[HolderStorage, ...]
    tables: tuple[TableUsage, ...]
    metadata: Mapping[str, Usage]
    garbage: tuple[CollectedObject, ...] = field(repr=False)
    damaged: tuple[str, ...]
    groups: tuple[FileGroup, ...] = field(repr=False)

    def _repr_html_(self) -> str:
        holders = [(one.name, *_sizes(one.own, one.shared, one.head, one.history)) for one in self.holders]
        tables = [(", ".join(one.tables), *_sizes(one.needed, one.garbage)) for one in self.tables]
        by_holder = html_table(("holder", "own", "shared", "head", "history"), holders, title="Storage by holder")
        return by_holder + html_table(("table", "needed", "garbage"), tables, title="Storage by table")

    @property
    def needed(self) -> Usage:
        """The table files that at least one holder needs."""
        return sum((table.needed for table in self.tables), Usage())

    @property
    def total(self) -> Usage:
        """All files: tables with their garbage, and metadata."""
        return sum((table.total for table in self.tables), sum(self.metadata.values(), Usage()))

    @property
    def freeable(self) -> Usage:
        """The files that gc would free now."""
        return Usage(files=len(self.garbage), bytes=sum(found.bytes for found in self.garbage))

    @property
    def freeable_by_reason(self) -> dict[str, Usage]:
        """The files that gc would free now, by reason."""
        return _by_reason(self.garbage)

    def holder(self, name: str) -> HolderStorage:
        """Return what one holder needs. Raise NotFoundError if there is no holder of that name."""
        for each in self.holders:
            if each.name == name:
                return each
        names = ", ".join(each.name for each in self.holders[:_LISTED])
        raise NotFoundError(
            f"the storage report has no holder {name!r}",
            hint=f"pass one of: {names}" if names else "measure the whole repository",
        )

    def tables_of(self, name: str) -> list[TableStorage]:
        """List what one holder needs of each table."""
        found: dict[str, list[FileGroup]] = defaultdict(list)
        kind = self.holder(name).kind
        for group in self.groups:
            for table in group.tables if group.is_of(name) else ():
                found[table].append(group)
        return [TableStorage(table=table, **_holding(name, kind, groups)) for table, groups in sorted(found.items())]

    def pinned_by(self, name: str) -> dict[str, Usage]:
        """Return the other holders that need files of this holder, and how much each of them needs."""
        found: dict[str, Usage] = defaultdict(Usage)
        self.holder(name)
        for group in self.groups:
            for other in group.keepers - {name} if group.is_of(name) else ():
                found[other] += group.usage
        return dict(sorted(found.items()))


def _sizes(*usages: Usage) -> list[str]:
    return [human_size(usage.bytes) for usage in usages]


def measure_holders(groups: Iterable[FileGroup], kinds: Mapping[str, HolderKind]) -> Iterator[HolderStorage]:
    """Yield what each holder needs, in the order of `kinds`."""
    by_holder: dict[str, list[FileGroup]] = {name: [] for name in kinds}
    for group in groups:
        for name in group.keepers | group.heads:
            if name in by_holder:
                by_holder[name].append(group)
    for name, found in by_holder.items():
        yield HolderStorage(kind=kinds[name], name=name, **_holding(name, kinds[name], found))


def _holding(name: str, kind: HolderKind, groups: Iterable[FileGroup]) -> dict[str, Usage]:
    found = {part: Usage() for part in ("own", "shared", "head", "history")}
    # A tag and a clone have only one state, so they have no history.
    has_one_state = kind in {HolderKind.TAG, HolderKind.CLONE}
    for group in groups:
        found["own" if group.keepers == {name} else "shared"] += group.usage
        found["head" if has_one_state or name in group.heads else "history"] += group.usage
    return found
