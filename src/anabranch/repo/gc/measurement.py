"""Measure the storage of a repository: which holders need which files, by the rules of garbage collection."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain

from anabranch.errors import TableNotFoundError
from anabranch.format.arguments import require_names
from anabranch.format.bases import Usage
from anabranch.format.layout.dead_files import Reach, VersionKey, Wanted, find_reach
from anabranch.format.layout.listing import VERSION_HINT, branch_of_ref_path
from anabranch.hints import suggest
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.gc.collection import find_horizon
from anabranch.repo.gc.reports import (
    CollectedObject,
    FileGroup,
    GcStage,
    HolderKind,
    Policy,
    RepositoryStorage,
    TableUsage,
    measure_holders,
)
from anabranch.repo.gc.roots import Roots, find_roots
from anabranch.repo.gc.sweep import (
    find_wanted,
    iter_held_entries,
    iter_waves,
    iter_waves_beside_tables,
    list_datasets,
)
from anabranch.repo.log.collected import list_collected
from anabranch.repo.log.config import TABLES, RepoConfig
from anabranch.repo.log.entries import CommitRecord
from anabranch.repo.log.store import RepoStore, View
from anabranch.storage import in_parallel, iter_in_parallel
from anabranch.storage.requests import OnProgress, Progress, ignore_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a repository to measure: all of it, the files of one branch, or some tables."""

    branch: BranchName | None = None
    tables: frozenset[TableKey] | None = None

    @classmethod
    def of(cls, branch: str | None, tables: Sequence[str] | None) -> "Part":
        if tables is not None:
            require_names(tables, "tables")
        return cls(
            branch=None if branch is None else BranchName.parse_public(branch),
            tables=None if tables is None else frozenset(map(TableKey.parse, tables)),
        )

    @property
    def is_all(self) -> bool:
        return self.branch is None and self.tables is None


def measure_storage(
    repo_store: RepoStore, policy: Policy, part: Part, *, progress: OnProgress = ignore_progress
) -> RepositoryStorage:
    """Return which holders need which files under a policy, and what gc would free. Nothing is changed.

    Concurrent writes may or may not be counted.
    """
    if part.branch is not None:
        repo_store.heads.get(part.branch)
    collected = list_collected(repo_store.config)
    while True:
        report = _Measurement(repo_store, policy, part, progress).run(collected)
        # The records are read again only if files were missing, so that the usual case has no extra request.
        before, collected = collected, list_collected(repo_store.config) if report.damaged else collected
        if collected == before:
            return report
        # Files were missing because their commits were collected during the measurement. Measure again without these.


@dataclass(slots=True)
class _Need:
    """The holders that need one version of a table, and the names of the table in their states."""

    tables: set[str] = field(default_factory=set)
    keepers: set[str] = field(default_factory=set)
    heads: set[str] = field(default_factory=set)

    def add(self, other: "_Need") -> None:
        self.tables |= other.tables
        self.keepers |= other.keepers
        self.heads |= other.heads


_Needs = Mapping[VersionKey, _Need]


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredTable:
    usage: TableUsage
    groups: tuple[FileGroup, ...]
    garbage: tuple[CollectedObject, ...]
    damaged: tuple[str, ...]


class _Measurement:
    """One measurement, which reads the same roots and datasets as a garbage collection."""

    def __init__(self, repo_store: RepoStore, policy: Policy, part: Part, progress: OnProgress) -> None:
        self._repo_store = repo_store
        self._policy = policy
        self._part = part
        self._progress = progress

    def run(self, collected: frozenset[str]) -> RepositoryStorage:
        config = self._repo_store.config
        horizon, _ = find_horizon(config, self._policy.grace)
        self._progress(Progress(stage=GcStage.READING, done=0, total=2))
        roots = find_roots(self._repo_store, self._policy, horizon=horizon).without(collected)
        self._progress(Progress(stage=GcStage.READING, done=1, total=2))
        commits = in_parallel(self._repo_store.commits.get, sorted(roots.retained))
        wanted = find_wanted(self._repo_store, roots, commits)
        needs = _find_needs(self._repo_store, roots, commits)
        self._progress(Progress(stage=GcStage.READING, done=2, total=2))
        tables = list(self._measure_tables(self._choose(needs), wanted, needs, horizon))
        groups = tuple(group for table in tables for group in table.groups)
        garbage = [found for table in tables for found in table.garbage]
        if self._part.is_all:
            garbage += chain.from_iterable(iter_waves_beside_tables(config, roots.published, horizon))
        return RepositoryStorage(
            root=config.root,
            holders=tuple(measure_holders(groups, self._kinds(roots, groups))),
            tables=tuple(table.usage for table in tables),
            metadata=_measure_metadata(config) if self._part.is_all else {},
            garbage=tuple(garbage),
            damaged=tuple(path for table in tables for path in table.damaged),
            groups=groups,
        )

    def _choose(self, needs: Mapping[str, _Needs]) -> list[str]:
        """Return the datasets to measure. Raise TableNotFoundError if a requested table is in no retained commit."""
        if self._part.is_all:
            return list_datasets(self._repo_store.config)
        keys = None if self._part.tables is None else set(map(str, self._part.tables))
        known = {table for places in needs.values() for each in places.values() for table in each.tables}
        for key in sorted((keys or set()) - known):
            raise TableNotFoundError(
                f"there is no table '{key}' in any retained commit",
                hint=suggest(key, known, "list the tables of a branch to see which exist", by_parts=True),
            )
        branch = None if self._part.branch is None else str(self._part.branch)

        def is_chosen(need: _Need) -> bool:
            has_table = keys is None or bool(keys & need.tables)
            has_branch = branch is None or branch in need.keepers | need.heads
            return has_table and has_branch

        return sorted(dataset for dataset, places in needs.items() if any(map(is_chosen, places.values())))

    def _kinds(self, roots: Roots, groups: Iterable[FileGroup]) -> dict[str, HolderKind]:
        """Return the kinds of the holders to report, branches first and main before the others."""
        living = {str(entry.branch) for entry in roots.heads}
        found = {name: _kind_of(name, living) for group in groups for name in group.keepers | group.heads}
        if self._part.branch is not None:
            return {str(self._part.branch): HolderKind.BRANCH}
        order = list(HolderKind)
        return dict(sorted(found.items(), key=lambda item: (order.index(item[1]), item[0] != MAIN, item[0])))

    def _measure_tables(
        self,
        datasets: Collection[str],
        wanted: Mapping[str, Wanted],
        needs: Mapping[str, _Needs],
        horizon: datetime,
    ) -> Iterator[_MeasuredTable]:
        def measure(dataset: str) -> _MeasuredTable:
            root = self._repo_store.config.dataset_root(dataset)
            reach = find_reach(root, wanted.get(dataset, Wanted()), horizon=horizon)
            return _measure_table(dataset, reach, needs.get(dataset, {}))

        self._progress(Progress(stage=GcStage.SWEEPING, done=0, total=len(datasets)))
        for done, measured in enumerate(iter_in_parallel(measure, datasets), start=1):
            yield measured
            self._progress(Progress(stage=GcStage.SWEEPING, done=done, total=len(datasets)))


def _find_needs(
    repo_store: RepoStore, roots: Roots, commits: Sequence[CommitRecord]
) -> dict[str, dict[VersionKey, _Need]]:
    """Return the holders of each version of each dataset."""
    found: dict[str, dict[VersionKey, _Need]] = defaultdict(lambda: defaultdict(_Need))
    labels: dict[str, str] = {}
    for held in iter_held_entries(repo_store, roots, commits):
        need = found[held.entry.dataset][held.entry.home, held.entry.version]
        need.tables.add(str(held.key))
        need.keepers.update(labels.setdefault(holder, _label(holder)) for holder in held.holders)
    # One state of main for all live branches, so that the report is consistent with itself.
    main = next(head.head for head in roots.heads if str(head.branch) == MAIN)
    for head in roots.heads:
        for key, entry in View.of(head, main).tables(repo_store.commits).items():
            need = found[entry.dataset][entry.home, entry.version]
            need.tables.add(str(key))
            need.heads.add(_label(str(head.branch)))
    return found


def _label(holder: str) -> str:
    """Return the name of a holder for the report: 'run ...' for the internal branch of a run."""
    run_id = None if " " in holder else BranchName(holder).run_id
    return holder if run_id is None else f"{HolderKind.RUN} {run_id}"


def _kind_of(label: str, living: Collection[str]) -> HolderKind:
    for kind in (HolderKind.TAG, HolderKind.RUN, HolderKind.CLONE):
        if label.startswith(f"{kind} "):
            return kind
    if label in {HolderKind.WORK, HolderKind.LANCE}:
        return HolderKind(label)
    return HolderKind.BRANCH if label in living else HolderKind.DELETED


def _measure_table(dataset: str, reach: Reach, needs: _Needs) -> _MeasuredTable:
    """Group the files of a dataset by their holders, and sum up their sizes."""
    folder = f"{TABLES}/{dataset}"
    garbage = tuple(found for wave in iter_waves(folder, reach) for found in wave)
    users = _users_of_files(reach, needs)
    groups: dict[tuple[frozenset[str], frozenset[str], frozenset[str]], Usage] = defaultdict(Usage)
    for path, need in users.items():
        who = frozenset(need.tables), frozenset(need.keepers), frozenset(need.heads)
        groups[who] += Usage(files=1, bytes=reach.sizes[path])
    everything = Usage(files=len(reach.sizes), bytes=sum(reach.sizes.values()))
    needed = sum(groups.values(), Usage())
    freed = Usage(files=len(garbage), bytes=sum(found.bytes for found in garbage))
    return _MeasuredTable(
        usage=TableUsage(
            dataset=dataset,
            tables=tuple(sorted({table for each in needs.values() for table in each.tables})),
            needed=needed,
            garbage=freed,
            unjudged=everything - needed - freed,
        ),
        groups=tuple(
            FileGroup(tables=tables, keepers=keepers, heads=heads, usage=usage)
            for (tables, keepers, heads), usage in groups.items()
        ),
        garbage=garbage,
        damaged=tuple(f"{folder}/{path}" for path in reach.missing),
    )


def _users_of_files(reach: Reach, needs: _Needs) -> dict[str, _Need]:
    """Return the holders of each existing file.

    A file counts for the holders of the versions that contain it. Ordinary versions, which show settled states to
    plain Lance readers, are kept together with their home and have few files of their own. Those files count for all
    holders that have a version in that home.
    """
    found: dict[str, _Need] = {}
    tables = {table for need in needs.values() for table in need.tables}
    lance = _Need(tables=tables, keepers={HolderKind.LANCE})
    for place, files in reach.users.items():
        if place in needs:
            _add(found, files, reach, needs[place])
        if place in reach.foreign:
            _add(found, files, reach, lance)
    in_homes: dict[str | None, _Need] = defaultdict(_Need)
    for (home, _), need in needs.items():
        in_homes[home].tables |= need.tables
        in_homes[home].keepers |= need.keepers
    # Frozen here: files that only ordinary versions contain are counted once, for the holders of the home, not also
    # for those of a staged version.
    assigned = frozenset(found)
    # A home without holders is kept because others were forked from it: its files count for all holders.
    everyone = _Need(tables=tables, keepers={who for need in needs.values() for who in need.keepers})
    for place in reach.users.keys() - needs.keys() - reach.foreign:
        _add(found, reach.users[place] - assigned, reach, in_homes.get(place[0], everyone))
    _add_files_of_homes(found, reach, in_homes)
    return found


def _add_files_of_homes(found: dict[str, _Need], reach: Reach, in_homes: Mapping[str | None, _Need]) -> None:
    """Count the files that a home has once, its ref and Lance's version hint, for the holders of versions in it."""
    for path in reach.sizes.keys() - {file.path for file in reach.dead}:
        home = branch_of_ref_path(path)
        if path.endswith(f"/{VERSION_HINT}"):
            home = path.removesuffix(f"/{VERSION_HINT}").removeprefix("tree/")
        elif home is None and path != VERSION_HINT:
            continue
        if home in in_homes:
            _add(found, [path], reach, in_homes[home])


def _add(found: dict[str, _Need], files: Iterable[str], reach: Reach, need: _Need) -> None:
    """Add a need to those of the files that exist."""
    for path in files:
        if path in reach.sizes:
            found.setdefault(path, _Need()).add(need)


def _measure_metadata(config: RepoConfig) -> dict[str, Usage]:
    """Return the sizes of the folders beside the tables, with '/' for the files in the root."""

    def measure(folder: str) -> Usage:
        sizes = [info.size for info in config.store.list(folder)]
        return Usage(files=len(sizes), bytes=sum(sizes))

    folders = [folder for folder in config.store.list_folders() if folder != TABLES]
    found = dict(zip(folders, in_parallel(measure, folders), strict=True))
    loose = [info.size for info in config.store.list_files()]
    return {**found, "/": Usage(files=len(loose), bytes=sum(loose))}
