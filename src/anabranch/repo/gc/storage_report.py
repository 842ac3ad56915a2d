"""Measure the storage of a repository: which holders need which files, by the rules of garbage collection."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain

from anabranch.display import html_table, human_size
from anabranch.errors import NotFoundError
from anabranch.format.arguments import require_names, unknown_table
from anabranch.format.bases import Usage, usage_by_reason, usage_of
from anabranch.format.dead_files import Reach, Wanted, find_reach
from anabranch.format.layout.listing import VERSION_HINT, branch_of_ref_path
from anabranch.format.retention import Retention
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.gc.collection import GcStage, find_horizon, iter_swept
from anabranch.repo.gc.roots import HolderKind, Roots, find_roots
from anabranch.repo.gc.sweep_and_purge import (
    CollectedObject,
    Need,
    Needs,
    find_needs,
    find_wanted,
    iter_waves,
    iter_waves_beside_tables,
)
from anabranch.repo.log.collected import list_collected
from anabranch.repo.log.config import TABLES, RepoConfig
from anabranch.repo.log.repo_store import RepoStore
from anabranch.storage import in_parallel
from anabranch.storage.requests import OnProgress, counting, ignore_progress

# The maximum number of holders in an error message.
_LISTED = 20


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

    The same files divided in another way: `head` are those of the newest state, `history` those of older states only.
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
        return usage_of(found.bytes for found in self.garbage)

    @property
    def freeable_by_reason(self) -> dict[str, Usage]:
        """The files that gc would free now, by reason."""
        return usage_by_reason((found.reason, found.bytes) for found in self.garbage)

    def holder(self, name: str) -> HolderStorage:
        """Return what one holder needs. Raise NotFoundError if there is no holder of that name."""
        for each in self.holders:
            if each.name == name:
                return each
        names = ", ".join(each.name for each in self.holders[:_LISTED])
        hint = f"pass one of: {names}" if names else "measure the whole repository"
        raise NotFoundError(f"the storage report has no holder {name!r}", hint=hint)

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


def measure_storage(
    repo_store: RepoStore,
    policy: Retention,
    *,
    branch: str | None = None,
    tables: Sequence[str] | None = None,
    progress: OnProgress = ignore_progress,
) -> RepositoryStorage:
    """Return which holders need which files under a policy, and what gc would free. Nothing is changed.

    `branch` and `tables` limit what is measured. Concurrent writes may or may not be counted.
    """
    if tables is not None:
        require_names(tables, "tables")
    keys = None if tables is None else frozenset(str(TableKey.parse(table)) for table in tables)
    if branch is not None:
        branch = str(repo_store.heads.get(BranchName.parse_public(branch)).branch)
    collected = list_collected(repo_store.config)
    while True:
        report = _measure(repo_store, policy, branch, keys, collected, progress)
        # The records are read again only if files were missing, so that the usual case has no extra request.
        before, collected = collected, list_collected(repo_store.config) if report.damaged else collected
        if collected == before:
            return report
        # Files were missing because their commits were collected during the measurement. Measure again without these.


def _measure(
    repo_store: RepoStore,
    policy: Retention,
    branch: str | None,
    tables: frozenset[str] | None,
    collected: frozenset[str],
    progress: OnProgress,
) -> RepositoryStorage:
    """Measure once, with the roots and datasets that a garbage collection reads."""
    is_all = branch is None and tables is None
    config, read = repo_store.config, counting(progress, GcStage.READING)
    horizon, _ = find_horizon(config, policy.grace)
    read(0, 2)
    roots = find_roots(repo_store, policy, horizon=horizon).without(collected)
    read(1, 2)
    commits = in_parallel(repo_store.commits.get, sorted(roots.retained))
    wanted, needs = find_wanted(repo_store, roots, commits), find_needs(repo_store, roots, commits)
    read(2, 2)
    sweep = partial(_measure_table, config, wanted, needs, horizon)
    usages: list[TableUsage] = []
    groups: list[FileGroup] = []
    garbage: list[CollectedObject] = []
    damaged: list[str] = []
    datasets = config.list_datasets() if is_all else _choose(branch, tables, needs)
    for usage, found, dead, missing in iter_swept(sweep, datasets, progress):
        usages.append(usage)
        groups += found
        garbage += dead
        damaged += missing
    if is_all:
        garbage += chain.from_iterable(iter_waves_beside_tables(config, roots.published, horizon))
    return RepositoryStorage(
        root=config.root,
        holders=tuple(_measure_holders(groups, _find_kinds(branch, roots, groups))),
        tables=tuple(usages),
        metadata=_measure_metadata(config) if is_all else {},
        garbage=tuple(garbage),
        damaged=tuple(damaged),
        groups=tuple(groups),
    )


def _measure_table(
    config: RepoConfig, wanted: Mapping[str, Wanted], needs: Mapping[str, Needs], horizon: datetime, dataset: str
) -> tuple[TableUsage, list[FileGroup], list[CollectedObject], list[str]]:
    """Measure one dataset. Return its usage, its needed files, its garbage, and the paths of missing files."""
    reach = find_reach(config.dataset_root(dataset), wanted.get(dataset, Wanted()), horizon=horizon)
    folder, users = f"{TABLES}/{dataset}", needs.get(dataset, {})
    groups, dead = _group_files(reach, users), list(chain.from_iterable(iter_waves(folder, reach)))
    needed, freed = sum((group.usage for group in groups), Usage()), usage_of(one.bytes for one in dead)
    usage = TableUsage(
        dataset=dataset,
        tables=tuple(sorted({table for need in users.values() for table in need.tables})),
        needed=needed,
        garbage=freed,
        unjudged=usage_of(reach.sizes.values()) - needed - freed,
    )
    return usage, groups, dead, [f"{folder}/{path}" for path in reach.missing]


def _choose(branch: str | None, tables: frozenset[str] | None, needs: Mapping[str, Needs]) -> list[str]:
    """Return the datasets of a part. Raise TableNotFoundError if a requested table is in no retained commit."""
    known = {table for versions in needs.values() for need in versions.values() for table in need.tables}
    for key in sorted((tables or frozenset()) - known):
        raise unknown_table(key, "in any retained commit", known, "list the tables of a branch to see which exist")
    is_chosen = partial(_is_of_part, branch, tables)
    return sorted(dataset for dataset, versions in needs.items() if any(map(is_chosen, versions.values())))


def _is_of_part(branch: str | None, tables: frozenset[str] | None, need: Need) -> bool:
    has_table = tables is None or bool(tables & need.tables)
    return has_table and (branch is None or branch in need.keepers | need.heads)


def _find_kinds(branch: str | None, roots: Roots, groups: Iterable[FileGroup]) -> dict[str, HolderKind]:
    """Return the kinds of the holders to report, branches first and main before the others."""
    if branch is not None:
        return {branch: HolderKind.BRANCH}
    living = {str(entry.branch) for entry in roots.heads}
    found = {name: _kind_of(name, living) for group in groups for name in group.keepers | group.heads}
    order = list(HolderKind)
    return dict(sorted(found.items(), key=lambda item: (order.index(item[1]), item[0] != MAIN, item[0])))


def _kind_of(holder: str, living: Collection[str]) -> HolderKind:
    if holder in {HolderKind.WORK, HolderKind.LANCE}:
        return HolderKind(holder)
    # The name of a branch has no space.
    kind, has_kind, _ = holder.partition(" ")
    if has_kind:
        return HolderKind(kind)
    return HolderKind.BRANCH if holder in living else HolderKind.DELETED


def _group_files(reach: Reach, needs: Needs) -> list[FileGroup]:
    groups: dict[tuple[frozenset[str], ...], Usage] = defaultdict(Usage)
    for path, need in _find_users(reach, needs).items():
        holders = frozenset(need.tables), frozenset(need.keepers), frozenset(need.heads)
        groups[holders] += Usage(files=1, bytes=reach.sizes[path])
    return [
        FileGroup(tables=tables, keepers=keepers, heads=heads, usage=usage)
        for (tables, keepers, heads), usage in groups.items()
    ]


def _find_users(reach: Reach, needs: Needs) -> dict[str, Need]:
    """Return the holders of each existing file.

    A file counts for the holders of the versions that contain it. Ordinary versions, which show settled states to
    plain Lance readers, are kept together with their home and have few files of their own. Those files count for all
    holders that have a version in that home.
    """
    found: dict[str, Need] = {}
    # A home without holders is kept because others were forked from it: its files count for all holders.
    all_needs = Need()
    in_homes: dict[str | None, Need] = defaultdict(Need)
    for (home, _), need in needs.items():
        all_needs.tables |= need.tables
        all_needs.keepers |= need.keepers
        in_homes[home].add(Need(tables=need.tables, keepers=need.keepers))
    lance = Need(tables=all_needs.tables, keepers={HolderKind.LANCE})

    def add(files: AbstractSet[str], need: Need) -> None:
        for path in reach.sizes.keys() & files:
            found.setdefault(path, Need()).add(need)

    for key, files in reach.users.items():
        if key in needs:
            add(files, needs[key])
        if key in reach.external:
            add(files, lance)
    # Frozen here: files that only ordinary versions contain count once, for the holders of the home alone.
    assigned = frozenset(found)
    for key in reach.users.keys() - needs.keys() - reach.external:
        add(reach.users[key] - assigned, in_homes.get(key[0], all_needs))
    for home, path in _iter_files_of_homes(reach, in_homes):
        add({path}, in_homes[home])
    return found


def _iter_files_of_homes(reach: Reach, homes: Collection[str | None]) -> Iterator[tuple[str | None, str]]:
    """Yield the files that a home has once, its ref and Lance's version hint, each after the home."""
    for path in reach.sizes.keys() - {file.path for file in reach.dead}:
        home, is_hint = branch_of_ref_path(path), f"/{path}".endswith(f"/{VERSION_HINT}")
        if is_hint:
            home = path.removesuffix(VERSION_HINT).removeprefix("tree/").rstrip("/") or None
        if home in homes and (is_hint or home is not None):
            yield home, path


def _measure_metadata(config: RepoConfig) -> dict[str, Usage]:
    """Return the sizes of the folders beside the tables, with '/' for the files in the root."""
    folders = [folder for folder in config.store.list_folders() if folder != TABLES]
    found = in_parallel(lambda folder: usage_of(info.size for info in config.store.list(folder)), folders)
    loose = usage_of(info.size for info in config.store.list_files())
    return {**dict(zip(folders, found, strict=True)), "/": loose}


def _measure_holders(groups: Iterable[FileGroup], kinds: Mapping[str, HolderKind]) -> Iterator[HolderStorage]:
    """Yield what each holder needs, in the order of `kinds`."""
    by_holder: dict[str, list[FileGroup]] = defaultdict(list)
    for group in groups:
        for name in group.keepers | group.heads:
            by_holder[name].append(group)
    for name, kind in kinds.items():
        yield HolderStorage(kind=kind, name=name, **_holding(name, kind, by_holder[name]))


def _holding(name: str, kind: HolderKind, groups: Iterable[FileGroup]) -> dict[str, Usage]:
    found = {part: Usage() for part in ("own", "shared", "head", "history")}
    # A tag and a clone have only one state, so they have no history.
    has_one_state = kind in {HolderKind.TAG, HolderKind.CLONE}
    for group in groups:
        found["own" if group.keepers == {name} else "shared"] += group.usage
        found["head" if has_one_state or name in group.heads else "history"] += group.usage
    return found
