"""Measure what a repository occupies: which files are needed by whom, as garbage collection sees it."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from anabranch.errors import InvalidInputError, TableNotFoundError
from anabranch.format.names import VERSION_HINT, branch_of_ref_path
from anabranch.format.reach import Place, Reach, Wanted, find_reach
from anabranch.format.storage_report import Usage
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.gc.collecting import Progress, find_horizon, list_datasets
from anabranch.repo.gc.dead import iter_history_reach, iter_loose, iter_waves
from anabranch.repo.gc.policy import Policy
from anabranch.repo.gc.report import CollectedObject, GcStage
from anabranch.repo.gc.roots import Roots, find_roots
from anabranch.repo.gc.usage import FileGroup, HolderKind, RepositoryStorage, TableUsage, measure_holders
from anabranch.repo.gc.wanted import find_wanted, iter_held_entries
from anabranch.repo.log.collected import list_collected
from anabranch.repo.log.config import TABLES, RepoConfig
from anabranch.repo.log.entries import BranchMode, CommitRecord, TableEntry
from anabranch.repo.log.store import RepoStore
from anabranch.repo.refs.live import shown
from anabranch.storage import in_parallel, iter_in_parallel

__all__ = ["Part", "measure_storage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What of a repository is measured: all of it, or what a branch has, or some tables."""

    branch: BranchName | None = None
    tables: frozenset[TableKey] | None = None

    @classmethod
    def of(cls, branch: str | None, tables: Sequence[str] | None) -> "Part":
        if isinstance(tables, str):
            raise InvalidInputError(f"{tables!r} is no list of tables", hint=f"give [{tables!r}]")
        return cls(
            branch=None if branch is None else BranchName.parse_public(branch),
            tables=None if tables is None else frozenset(map(TableKey.parse, tables)),
        )

    @property
    def is_all(self) -> bool:
        return self.branch is None and self.tables is None


def measure_storage(
    records: RepoStore, policy: Policy, part: Part, *, progress: Progress = lambda *_: None
) -> RepositoryStorage:
    """Tell for whose sake files are kept under a policy, and what would be freed; nothing is changed.

    What others do meanwhile may or may not be counted.
    """
    if part.branch is not None:
        records.heads.get(part.branch)
    collected = list_collected(records.context)
    while True:
        report = _Measurement(records, policy, part, progress).run(collected)
        before, collected = collected, list_collected(records.context) if report.damaged else collected
        if collected == before:
            return report
        # What seemed to be missing was collected meanwhile.


@dataclass(slots=True)
class _Interest:
    """Who needs one version of a table, and by which names they know the table."""

    tables: set[str] = field(default_factory=set)
    keepers: set[str] = field(default_factory=set)
    heads: set[str] = field(default_factory=set)

    def add(self, other: "_Interest") -> None:
        self.tables |= other.tables
        self.keepers |= other.keepers
        self.heads |= other.heads


_Interests = Mapping[Place, _Interest]


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredTable:
    usage: TableUsage
    groups: tuple[FileGroup, ...]
    garbage: tuple[CollectedObject, ...]
    damaged: tuple[str, ...]


class _Measurement:
    def __init__(self, records: RepoStore, policy: Policy, part: Part, progress: Progress) -> None:
        self._records = records
        self._policy = policy
        self._part = part
        self._progress = progress

    def run(self, collected: frozenset[str]) -> RepositoryStorage:
        context = self._records.context
        horizon, _ = find_horizon(context, self._policy.grace)
        self._progress(GcStage.READING, 0, 2)
        roots = find_roots(self._records, self._policy, horizon=horizon).without(collected)
        self._progress(GcStage.READING, 1, 2)
        commits = in_parallel(self._records.commits.get, sorted(roots.retained))
        wanted = find_wanted(self._records, roots, commits)
        interests = _find_interests(self._records, roots, commits)
        self._progress(GcStage.READING, 2, 2)
        tables = list(self._measure_tables(self._choose(interests), wanted, interests, horizon))
        groups = tuple(group for table in tables for group in table.groups)
        garbage = [found for table in tables for found in table.garbage]
        if self._part.is_all:
            reached = iter_history_reach(context, horizon)
            garbage += [found for name, reach in reached for wave in iter_waves(name, reach) for found in wave]
            garbage += iter_loose(context, roots.published, horizon)
        return RepositoryStorage(
            root=context.root,
            holders=tuple(measure_holders(groups, self._kinds(roots, groups))),
            tables=tuple(table.usage for table in tables),
            metadata=_measure_metadata(context) if self._part.is_all else {},
            garbage=tuple(garbage),
            damaged=tuple(path for table in tables for path in table.damaged),
            groups=groups,
        )

    def _choose(self, interests: Mapping[str, _Interests]) -> list[str]:
        """The datasets to be measured."""
        if self._part.is_all:
            return list_datasets(self._records.context)
        keys = None if self._part.tables is None else set(map(str, self._part.tables))
        known = {table for places in interests.values() for each in places.values() for table in each.tables}
        for key in sorted((keys or set()) - known):
            raise TableNotFoundError(f"no commit that is kept has a table {key}", hint="list the tables of a branch")
        branch = None if self._part.branch is None else str(self._part.branch)
        return sorted(
            dataset
            for dataset, places in interests.items()
            if any(
                (keys is None or keys & each.tables) and (branch is None or branch in each.keepers | each.heads)
                for each in places.values()
            )
        )

    def _kinds(self, roots: Roots, groups: Iterable[FileGroup]) -> dict[str, HolderKind]:
        """The holders to be told of, branches first."""
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
        interests: Mapping[str, _Interests],
        horizon: datetime,
    ) -> Iterator[_MeasuredTable]:
        def measure(dataset: str) -> _MeasuredTable:
            root = self._records.context.dataset_root(dataset)
            reach = find_reach(root, wanted.get(dataset, Wanted()), horizon=horizon)
            return _measure_table(dataset, reach, interests.get(dataset, {}))

        self._progress(GcStage.SWEEPING, 0, len(datasets))
        for done, measured in enumerate(iter_in_parallel(measure, datasets), start=1):
            yield measured
            self._progress(GcStage.SWEEPING, done, len(datasets))


def _find_interests(
    records: RepoStore, roots: Roots, commits: Sequence[CommitRecord]
) -> dict[str, dict[Place, _Interest]]:
    """Who needs which versions of which datasets."""
    found: dict[str, dict[Place, _Interest]] = defaultdict(lambda: defaultdict(_Interest))
    labels: dict[str, str] = {}
    for held in iter_held_entries(records, roots, commits):
        interest = found[held.entry.dataset][held.entry.home, held.entry.version]
        interest.tables.add(str(held.key))
        interest.keepers.update(labels.setdefault(holder, _label(holder)) for holder in held.holders)
    for name, key, entry in _iter_heads(records, roots):
        interest = found[entry.dataset][entry.home, entry.version]
        interest.tables.add(str(key))
        interest.heads.add(name)
    return found


def _iter_heads(records: RepoStore, roots: Roots) -> Iterator[tuple[str, TableKey, TableEntry]]:
    """Every table of every branch as it is now; a live one shows most of main's."""
    main = next(entry.head for entry in roots.heads if str(entry.branch) == MAIN)
    for entry in roots.heads:
        seen = shown(entry, main) if entry.state.mode is BranchMode.LIVE else entry
        for key, table in records.commits.tables_of(seen.head).items():
            yield _label(str(entry.branch)), key, table


def _label(holder: str) -> str:
    """What people call somebody who holds commits."""
    run_id = None if " " in holder else BranchName(holder).run_id
    return holder if run_id is None else f"{HolderKind.RUN} {run_id}"


def _kind_of(label: str, living: Collection[str]) -> HolderKind:
    for kind in (HolderKind.TAG, HolderKind.RUN, HolderKind.CLONE):
        if label.startswith(f"{kind} "):
            return kind
    if label in {HolderKind.WORK, HolderKind.LANCE}:
        return HolderKind(label)
    return HolderKind.BRANCH if label in living else HolderKind.DELETED


def _measure_table(dataset: str, reach: Reach, interests: _Interests) -> _MeasuredTable:
    folder = f"{TABLES}/{dataset}"
    garbage = tuple(found for wave in iter_waves(folder, reach) for found in wave)
    users = _users_of_files(reach, interests)
    groups: dict[tuple[frozenset[str], frozenset[str], frozenset[str]], Usage] = defaultdict(Usage)
    for path, interest in users.items():
        who = frozenset(interest.tables), frozenset(interest.keepers), frozenset(interest.heads)
        groups[who] += Usage(files=1, bytes=reach.sizes[path])
    everything = Usage(files=len(reach.sizes), bytes=sum(reach.sizes.values()))
    needed = sum(groups.values(), Usage())
    freed = Usage(files=len(garbage), bytes=sum(found.bytes for found in garbage))
    return _MeasuredTable(
        usage=TableUsage(
            dataset=dataset,
            tables=tuple(sorted({table for each in interests.values() for table in each.tables})),
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


def _users_of_files(reach: Reach, interests: _Interests) -> dict[str, _Interest]:
    """Who needs each file that is there.

    Ordinary versions, which show settled states to any Lance tool, are kept with their home and need few files of
    their own: those count for whoever has something in that home, all others only for whose states they are of.
    """
    found: dict[str, _Interest] = {}
    tables = {table for interest in interests.values() for table in interest.tables}
    strangers = _Interest(tables=tables, keepers={HolderKind.LANCE})
    for place, files in reach.users.items():
        if place in interests:
            _add(found, files, reach, interests[place])
        if place in reach.foreign:
            _add(found, files, reach, strangers)
    told, in_homes = frozenset(found), _by_home(interests)
    # What others were forked from is kept for all of them.
    anybody = _Interest(tables=tables, keepers={who for interest in interests.values() for who in interest.keepers})
    for place in reach.users.keys() - interests.keys() - reach.foreign:
        _add(found, reach.users[place] - told, reach, in_homes.get(place[0], anybody))
    dead = {file.path for file in reach.dead}
    for home, path in _iter_files_of_homes(reach.sizes.keys() - dead):
        if home in in_homes:
            _add(found, [path], reach, in_homes[home])
    return found


def _iter_files_of_homes(paths: Iterable[str]) -> Iterator[tuple[str | None, str]]:
    """The files that a home has once, whatever its versions: its ref, and Lance's hint at the newest version."""
    for path in paths:
        home = branch_of_ref_path(path)
        if home is not None or path == VERSION_HINT:
            yield home, path
        elif path.endswith(f"/{VERSION_HINT}"):
            yield path.removesuffix(f"/{VERSION_HINT}").removeprefix("tree/"), path


def _add(found: dict[str, _Interest], files: Iterable[str], reach: Reach, interest: _Interest) -> None:
    for path in files:
        if path in reach.sizes:
            found.setdefault(path, _Interest()).add(interest)


def _by_home(interests: _Interests) -> dict[str | None, _Interest]:
    """All who have something in each home."""
    found: dict[str | None, _Interest] = defaultdict(_Interest)
    for (home, _), interest in interests.items():
        found[home].tables |= interest.tables
        found[home].keepers |= interest.keepers
    return found


def _measure_metadata(context: RepoConfig) -> dict[str, Usage]:
    """Everything beside the tables, by folder."""

    def measure(folder: str) -> Usage:
        sizes = [info.size for info in context.store.list(folder)]
        return Usage(files=len(sizes), bytes=sum(sizes))

    folders = [folder for folder in context.store.list_folders() if folder != TABLES]
    found = dict(zip(folders, in_parallel(measure, folders), strict=True))
    loose = [info.size for info in context.store.list_files()]
    return {**found, "/": Usage(files=len(loose), bytes=sum(loose))}
