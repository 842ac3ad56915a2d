"""What a repository occupies, and for whose sake."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from anabranch.errors import NotFoundError
from anabranch.format.storage_report import Usage
from anabranch.repo.gc.report import CollectedObject

__all__ = [
    "FileGroup",
    "HolderKind",
    "HolderStorage",
    "Holding",
    "RepositoryStorage",
    "TableStorage",
    "TableUsage",
    "measure_holders",
]

_NAMED = 20


class HolderKind(StrEnum):
    """For whose sake files are kept."""

    BRANCH = "branch"
    TAG = "tag"
    RUN = "run"
    CLONE = "clone"
    DELETED = "deleted branch"  # until its grace is over
    WORK = "work in flight"
    LANCE = "Lance branches and tags"  # of whoever works on single tables, by Lance alone


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files of one table that the same holders keep, and that the newest states of the same holders have.

    `tables` are the names under which these states know the table: more than one where it was renamed.
    """

    tables: frozenset[str]
    keepers: frozenset[str]
    heads: frozenset[str]
    usage: Usage

    def is_of(self, holder: str) -> bool:
        return holder in self.keepers or holder in self.heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What somebody needs: `own` goes with it, `shared` is needed by others too.

    The same files are told apart in another way by `head`, what its newest state has, and `history`, what only older
    states do.
    """

    own: Usage = field(default_factory=Usage)
    shared: Usage = field(default_factory=Usage)
    head: Usage = field(default_factory=Usage)
    history: Usage = field(default_factory=Usage)

    @property
    def total(self) -> Usage:
        """All that it needs, own and shared."""
        return self.own + self.shared


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderStorage(Holding):
    """What a branch, a tag, a run or a clone needs of all tables together.

    A branch has its own name; any other is called by its kind, too: 'tag v1.0'.
    """

    kind: HolderKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStorage(Holding):
    """What somebody needs of one table."""

    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUsage:
    """One folder of a table: what somebody needs of it, what gc would free now, and what it does not judge.

    That is what was written lately, which may not be published yet, and what is none of ours. `tables` are the names
    that retained commits know it by; a dropped table may have none any more.
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
    """What the files of a repository are needed for, by holder and by table.

    `metadata` are the folders beside the tables: logs, commits, tags and so on; it is not given for a part of the
    repository. `garbage` is what gc would free, of tables and of metadata. `damaged` are files that are needed and not
    there. A file that lies in an added base outside of the repository is not counted.
    """

    root: str
    holders: tuple[HolderStorage, ...]
    tables: tuple[TableUsage, ...]
    metadata: Mapping[str, Usage]
    garbage: tuple[CollectedObject, ...] = field(repr=False)
    damaged: tuple[str, ...]
    groups: tuple[FileGroup, ...] = field(repr=False)

    @property
    def needed(self) -> Usage:
        """What somebody needs."""
        return sum((table.needed for table in self.tables), Usage())

    @property
    def total(self) -> Usage:
        """Everything: tables with their garbage, and metadata."""
        return sum((table.total for table in self.tables), sum(self.metadata.values(), Usage()))

    @property
    def freeable(self) -> Usage:
        """What gc would free now."""
        return Usage(files=len(self.garbage), bytes=sum(found.bytes for found in self.garbage))

    @property
    def freeable_by_reason(self) -> dict[str, Usage]:
        """What gc would free now, by the reason."""
        found: dict[str, Usage] = defaultdict(Usage)
        for each in self.garbage:
            found[each.reason] += Usage(files=1, bytes=each.bytes)
        return dict(sorted(found.items()))

    def holder(self, name: str) -> HolderStorage:
        """What one of them needs."""
        for each in self.holders:
            if each.name == name:
                return each
        names = ", ".join(each.name for each in self.holders[:_NAMED])
        raise NotFoundError(f"nobody called {name!r} needs anything here", hint=f"those who do are {names or 'none'}")

    def tables_of(self, name: str) -> tuple[TableStorage, ...]:
        """What one holder needs of each table."""
        found: dict[str, list[FileGroup]] = defaultdict(list)
        kind = self.holder(name).kind
        for group in self.groups:
            for table in group.tables if group.is_of(name) else ():
                found[table].append(group)
        return tuple(
            TableStorage(table=table, **_holding(name, kind, groups)) for table, groups in sorted(found.items())
        )

    def pinned_by(self, name: str) -> dict[str, Usage]:
        """Who else needs something that one holder needs, and how much of it."""
        found: dict[str, Usage] = defaultdict(Usage)
        self.holder(name)
        for group in self.groups:
            for other in group.keepers - {name} if group.is_of(name) else ():
                found[other] += group.usage
        return dict(sorted(found.items()))


def measure_holders(groups: Iterable[FileGroup], kinds: Mapping[str, HolderKind]) -> Iterator[HolderStorage]:
    """What each of some holders needs, one after the other."""
    by_holder: dict[str, list[FileGroup]] = {name: [] for name in kinds}
    for group in groups:
        for name in group.keepers | group.heads:
            if name in by_holder:
                by_holder[name].append(group)
    for name, found in by_holder.items():
        yield HolderStorage(kind=kinds[name], name=name, **_holding(name, kinds[name], found))


def _holding(name: str, kind: HolderKind, groups: Iterable[FileGroup]) -> dict[str, Usage]:
    found = {part: Usage() for part in ("own", "shared", "head", "history")}
    # These have but one state.
    is_state = kind in {HolderKind.TAG, HolderKind.CLONE}
    for group in groups:
        found["own" if group.keepers == {name} else "shared"] += group.usage
        found["head" if is_state or name in group.heads else "history"] += group.usage
    return found
