"""Check the table states that commits name: readable, all files present, and, on request, the rows and their keys.

Also the homes of the current branches: do plain Lance readers see the published state, or an external write?
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import chain

import pyarrow as pa

from anabranch.errors import AnabranchError, LinkError, StorageDeniedError, StorageUnavailableError
from anabranch.format import staging
from anabranch.format.doctor.branches import find_ref_repair
from anabranch.format.doctor.findings_and_repairs import Case, FindingKind, Placement
from anabranch.format.doctor.inventory import Inventory as DatasetInventory
from anabranch.format.doctor.inventory import VersionFacts, WrongFile, check_contents, read_partial_inventory
from anabranch.format.home import Home, branch_folder, is_staged
from anabranch.format.layout.listing import Layout, ManifestName, branch_ref_path, lay_out, manifest_path, manifests_of
from anabranch.format.refs.ref_files import RefFile
from anabranch.format.refs.refs import BranchInfo, scan_branches
from anabranch.format.scan import iter_batches
from anabranch.format.staging import VersionRef, find_indexed_column, find_shown, rebuild_staged
from anabranch.ids import MAIN, BranchName, TableKey
from anabranch.repo.doctor.inventory import Inventory, Use
from anabranch.repo.log.config import TABLES, RepoConfig, owns
from anabranch.repo.log.entries import LogEntry, TableEntry, is_same_state
from anabranch.repo.log.repo_store import RepoStore
from anabranch.repo.write.settle import settle_table
from anabranch.storage import in_parallel, open_store
from anabranch.storage.local_store import refuse_links
from anabranch.storage.uris import follow_links, relative_to

_FROM_BACKUP = "restore it from a backup"
_PROBLEMS = {
    FindingKind.MISSING_DATA_FILE: ("a data file is missing", "{} data files are missing"),
    FindingKind.MISSING_DELETION_FILE: ("a deletion file is missing", "{} deletion files are missing"),
    FindingKind.WRONG_SIZE: ("a file has the wrong size", "{} files have the wrong size"),
}


def check_dataset(
    config: RepoConfig, dataset: str, uses: Mapping[Placement, Use]
) -> tuple[list[Case], dict[Placement, str], dict[Placement, str]]:
    """Check the table states that are stored in a dataset.

    Return the problems, the states that read a location from before the repository was moved, each with an explanation,
    and those that read another location, which is empty.
    """
    try:
        root = config.dataset_root(dataset)
        for home in {placement.home for placement in uses}:
            refuse_links(root.root, *root.on(home).folders)
    # Doctor does not follow links either: a repository from an untrusted source could name files outside of it.
    except LinkError as err:
        subject, problem = f"{TABLES}/{dataset}", f"it cannot be read: {err.problem}"
        link = Case(kind=FindingKind.SYMBOLIC_LINK, subject=subject, explanation=problem, remedy=err.hint)
        return [replace(link, placements=frozenset(uses))], {}, {}
    files = lay_out(root.root, root.store().list())
    check = _Check(root, dataset, uses, files)
    if not files.files:
        remedy = "restore the folder from a backup"
        return [check.case(FindingKind.MISSING_DATASET, "", "the dataset is missing", remedy, uses)], {}, {}
    return list(check.run()), check.stale, check.gone


class _Check:
    def __init__(self, root: Home, dataset: str, uses: Mapping[Placement, Use], files: Layout) -> None:
        self._root = root
        self._dataset = dataset
        self._uses = uses
        self._homes = {placement.home for placement in uses}
        self._files = files
        self.stale: dict[Placement, str] = {}
        self.gone: dict[Placement, str] = {}

    def case(
        self, kind: FindingKind, path: str, explanation: str, remedy: str, placements: Iterable[Placement] = ()
    ) -> Case:
        """Return a case of a file or folder below the dataset's root."""
        return Case(
            kind=kind,
            subject=self._below(path),
            explanation=explanation,
            remedy=remedy,
            placements=frozenset(placements),
        )

    def run(self) -> Iterator[Case]:
        listed = manifests_of(self._files).keys()
        # The root counts even if no commit reads it: without it, no table can be branched from the other homes.
        lost = {None, *self._homes} - {branch for branch, _ in listed}
        for home in lost:
            placements = frozenset(placement for placement in self._uses if placement.home == home)
            problem = f"{self._name(home)} has no versions"
            if not placements:
                problem += "; its branches can be read, but tables cannot be branched from them"
            folder = self._root.on(home).folder
            yield self.case(FindingKind.MISSING_HOME, folder, problem, "restore the folder from a backup", placements)
        wanted = {(placement.home, placement.version) for placement in self._uses if placement.home not in lost}
        inventory = read_partial_inventory(self._root, self._files, wanted)
        yield from self._refs(inventory, lost)
        yield from self._unreadable_versions(inventory, wanted - listed)
        yield from self._contents(inventory)
        for name in sorted(set(self._files.unreferenced_trees) - self._homes):
            problem = f"files of branch '{name}', whose creation did not finish; no commit needs them"
            yield self.case(FindingKind.UNFINISHED_FORK, branch_folder(name), problem, "gc removes them")

    def _refs(self, inventory: DatasetInventory, lost: set[str | None]) -> Iterator[Case]:
        refs = {ref.name: ref for ref in reversed(inventory.branch_refs)}
        for home in sorted(filter(None, self._homes - lost)):
            yield from self._ref(home, refs.get(home))
        # Damaged metadata of branches that no commit uses, too: gc deletes nothing in a dataset with such damage.
        unused = set(self._files.branches) - self._homes
        for ref in scan_branches(self._root, names=unused) if unused else ():
            if ref.info is None:
                yield from self._ref(ref.name, ref)

    def _unreadable_versions(self, inventory: DatasetInventory, missing: set[tuple[str | None, int]]) -> Iterator[Case]:
        for home, version in sorted(missing, key=repr):
            path = "/".join(filter(None, [self._root.on(home).folder, manifest_path(version)]))
            problem = f"{self._name(home)} has no version {version}"
            yield self._unreadable(FindingKind.MISSING_VERSION, path, problem, home, version)
        for file, damage in inventory.damaged_manifests:
            version = ManifestName.parse(file.name).version
            problem = f"version {version} of {self._name(file.branch)} cannot be opened: {damage}"
            yield self._unreadable(FindingKind.DAMAGED_MANIFEST, file.path, problem, file.branch, version)

    def _ref(self, home: str, ref: RefFile[BranchInfo] | None) -> Iterator[Case]:
        """Check the metadata of a Lance branch.

        The branch can be read without them, but Lance cannot list it or create a branch from it.
        """
        if ref is not None and ref.problem is None:
            return
        is_missing = ref is None
        # The branches of a copied repository cannot be opened before it is relocated.
        repair = find_ref_repair(self._root, self._files, home, ref)
        case = self.case(
            FindingKind.MISSING_REF if is_missing else FindingKind.DAMAGED_REF,
            branch_ref_path(home),
            f"{self._name(home)} has {'no' if is_missing else 'damaged'} metadata, and cannot be branched from",
            "a repair writes them again from the branch's first version" if repair else _FROM_BACKUP,
        )
        yield replace(case, repair=repair)

    def _unreadable(self, kind: FindingKind, path: str, problem: str, home: str | None, version: int) -> Case:
        """Return the case of a version without a readable manifest. A staged one is rebuilt from its settled copy."""
        placement = Placement(dataset=self._dataset, home=home, version=version)
        at = self._root.on(home)
        if not is_staged(version) or find_shown(at, version) is None:
            return self.case(kind, path, problem, _FROM_BACKUP, {placement})
        remedy = "`doctor(repair=True)` writes it again from a copy with the same content"
        return replace(self.case(kind, path, problem, remedy, {placement}), repair=partial(rebuild_staged, at, version))

    def _contents(self, inventory: DatasetInventory) -> Iterator[Case]:
        """Check the files of the versions. Those with stale or missing bases are left to their own findings."""
        readable = []
        for facts in inventory.versions:
            placement = self._placement_of(facts)
            # Its paths lead to the former location, so that its files would seem to be missing.
            if facts.stale_base is not None:
                self.stale[placement] = facts.stale_base
            else:
                readable.append((placement, facts))
        contents = check_contents(self._root, self._files, (facts for _, facts in readable))
        self._find_gone(contents.wrong)
        yield from self._wrong_files(contents.wrong)
        for folder, problem in sorted(contents.unchecked.items()):
            yield Case(
                kind=FindingKind.UNCHECKED_BASE,
                subject=folder,
                explanation=f"files of dataset '{self._dataset}' in this location cannot be checked: {problem}",
                remedy="make the location reachable and run doctor again",
            )
        for placement, facts in readable:
            wrong = sorted(self._uses[placement].rows - {facts.rows})
            if wrong and placement not in self.gone:
                yield self.case(
                    FindingKind.WRONG_ROW_COUNT,
                    facts.path,
                    f"version {facts.version} of {self._name(facts.branch)} has {facts.rows} rows, but commits record"
                    f" {', '.join(map(str, wrong))}",
                    "compare the table with a backup, and find out what wrote the commit",
                    {placement},
                )

    def _placement_of(self, facts: VersionFacts) -> Placement:
        return Placement(dataset=self._dataset, home=facts.branch, version=facts.version)

    def _find_gone(self, wrong: Iterable[WrongFile]) -> None:
        """Find the states that need files in a location that is now empty, such as the deleted source of a clone."""

        @cache
        def is_empty(base: str) -> bool:
            return next(iter(open_store(base, self._root.storage_options).list()), None) is None

        for one in wrong:
            # Only files outside the dataset can be missing because their whole location was deleted.
            if not one.is_missing or not one.file.is_elsewhere:
                continue
            for facts in one.versions:
                for base in (path.rstrip("/") for path in facts.base_paths):
                    if relative_to(one.file.uri, follow_links(base)) is not None and is_empty(base):
                        self.gone[self._placement_of(facts)] = base

    def _wrong_files(self, wrong: Sequence[WrongFile]) -> Iterator[Case]:
        """Report the missing and damaged files: one case for each index, and one for all others of each kind."""
        explanations: dict[str, str] = {}
        found: dict[FindingKind, dict[str, set[Placement]]] = defaultdict(lambda: defaultdict(set))
        for one in wrong:
            explanations[one.file.path] = one.explanation
            placements = {self._placement_of(facts) for facts in one.versions} - self.gone.keys()
            if placements:
                found[one.kind][one.file.path] |= placements
        for kind in (FindingKind.MISSING_INDEX, FindingKind.DAMAGED_INDEX):
            for path, placements in sorted(found.pop(kind, {}).items()):
                yield self._wrong_index(kind, path, placements)
        for path, placements in sorted(found.pop(FindingKind.DAMAGED_DELETION_FILE, {}).items()):
            explanation = f"a deletion file is damaged: {explanations[path]}"
            yield self.case(FindingKind.DAMAGED_DELETION_FILE, path, explanation, _FROM_BACKUP, placements)
        for kind, users in sorted(found.items()):
            paths = tuple(sorted(users))
            singular, plural = _PROBLEMS[kind]
            problem = singular if len(paths) == 1 else plural.format(len(paths))
            case = self.case(kind, paths[0], problem, "restore the files from a backup", set().union(*users.values()))
            yield replace(case, paths=tuple(map(self._below, paths)))

    def _wrong_index(self, kind: FindingKind, path: str, placements: set[Placement]) -> Case:
        """Report an index that is missing or damaged: rows can be read without it, and it can be built again."""
        placement = min(placements, key=repr)
        table = min(self._uses[placement].tables, default="TABLE")
        version_ref, column = VersionRef(home=self._root.on(placement.home), version=placement.version), "COLUMN"
        with suppress(AnabranchError):
            column = find_indexed_column(version_ref, path.rpartition("/")[2]) or column
        problem = "is missing" if kind is FindingKind.MISSING_INDEX else "is damaged"
        return self.case(
            kind,
            path,
            f"the index of column '{column}' {problem}; rows can be read and written, but searches cannot use it",
            f"build it again with `index({str(table)!r}, {column!r})`",
            placements,
        )

    def _below(self, path: str) -> str:
        """Return a path below the repository's root. A file in another location keeps its URI."""
        if "://" in path or path.startswith("/"):
            return path
        return "/".join(filter(None, [TABLES, self._dataset, path]))

    def _name(self, home: str | None) -> str:
        return f"dataset '{self._dataset}'" if home is None else f"branch '{home}' of dataset '{self._dataset}'"


def diagnose_rows(config: RepoConfig, uses: Mapping[Placement, Use]) -> Iterator[Case]:
    """Read every row of the given table states. Only the key columns of one state are in memory at a time.

    The same problem in several states of a table is one finding, because the states share files.
    """
    found: dict[tuple[str, FindingKind], list[tuple[Placement, str]]] = defaultdict(list)
    for placement, use in uses.items():
        for kind, problem in _check(config, placement, sorted(use.keys)):
            found[placement.dataset, kind].append((placement, problem))
    for (dataset, kind), states in sorted(found.items()):
        placement, problem = states[0]
        home = "" if placement.home is None else branch_folder(placement.home)
        others = "" if len(states) == 1 else f"; {len(states) - 1} other states of the table have the same problem"
        is_unreadable = kind is FindingKind.UNREADABLE_ROWS
        remedy = "correct the rows in a transaction, or set another primary key"
        yield Case(
            kind=kind,
            subject="/".join(filter(None, [TABLES, dataset, home])),
            explanation=f"version {placement.version}: {problem}{others}",
            remedy="restore its files from a backup" if is_unreadable else remedy,
            placements=frozenset(placement for placement, _ in states),
        )


def _check(config: RepoConfig, placement: Placement, keys: list[tuple[str, ...]]) -> Iterator[tuple[FindingKind, str]]:
    version_ref = VersionRef(home=config.dataset_root(placement.dataset).on(placement.home), version=placement.version)
    try:
        columns = _read_columns(version_ref, frozenset(chain.from_iterable(keys)))
    # A store that does not answer is not damage.
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        yield FindingKind.UNREADABLE_ROWS, f"its rows cannot be read: {err.problem}"
        return
    for key in filter(None, keys):
        rows, named = columns.select(list(key)), ", ".join(key)
        if any(rows.column(name).null_count for name in key):
            yield FindingKind.NULL_KEYS, f"rows have no value in the primary key ({named})"
        # Grouping takes a hash table of all keys. A cheaper test is enough for one column of numbers or times.
        if not staging.are_surely_unique(rows):
            repeated = len(rows) - len(rows.group_by(list(key)).aggregate([]))
            if repeated:
                yield FindingKind.DUPLICATE_KEYS, f"{repeated} rows repeat a primary key ({named})"


def _read_columns(version_ref: VersionRef, names: Collection[str]) -> pa.Table:
    """Read all columns, because damage in any file must be found. Return only the given ones."""
    schema = pa.schema([field for field in version_ref.schema if field.name in names])
    return pa.Table.from_batches((batch.select(schema.names) for batch in iter_batches(version_ref)), schema=schema)


def diagnose_homes(repo_store: RepoStore, inventory: Inventory, damaged: Collection[Placement]) -> Iterator[Case]:
    """Check the homes that the branches write to, except those with damaged table states."""
    broken = {(placement.dataset, placement.home) for placement in damaged}
    for head in inventory.heads.values():
        # A run has no homes of its own: it writes to those of its target.
        if head.state.is_deleted or head.branch.is_internal or head.head.base in inventory.broken:
            continue
        written = _iter_written(repo_store, inventory, head, broken)
        cases = list(filter(None, in_parallel(partial(_diagnose_home, repo_store, head.branch), written)))
        # If the branch moved, a writer has just published and will settle the home.
        if cases and repo_store.heads.find(head.branch) == head:
            yield from cases


def _iter_written(
    repo_store: RepoStore, inventory: Inventory, head: LogEntry, broken: Collection[tuple[str, str | None]]
) -> Iterator[tuple[TableKey, TableEntry]]:
    """Yield the tables that a branch has written in homes of its own, each of which has one table and is not broken."""
    commits = repo_store.commits
    tables, at_creation = commits.tables_of(head.head), dict[TableKey, TableEntry]()
    if str(head.branch) != MAIN:
        # If its first entry is damaged, that is a finding of its own.
        with suppress(AnabranchError):
            at_creation = commits.tables_of(repo_store.heads.get_numbered(head.branch, head.state.created_as).head)
    homes = Counter((entry.dataset, entry.home) for entry in tables.values())
    for key, entry in sorted(tables.items()):
        home = (entry.dataset, entry.home)
        is_checked = home not in broken and inventory.covers(key)
        # A table that is unchanged since the branch was created may be in a home of an earlier branch of this name.
        is_unchanged = is_same_state(at_creation.get(key), entry)
        if is_checked and owns(head.branch, entry.home) and homes[home] == 1 and not is_unchanged:
            yield key, entry


def _diagnose_home(repo_store: RepoStore, branch: BranchName, table: tuple[TableKey, TableEntry]) -> Case | None:
    """Return what is wrong with the newest ordinary version of a home, or None if it is the published state."""
    key, entry = table
    home = repo_store.config.dataset_root(entry.dataset).on(entry.home)
    subject = "/".join(filter(None, ["tables", entry.dataset, home.folder]))
    case = partial(Case, subject=subject, tables=(str(key),))
    repair = partial(settle_table, repo_store, branch, key)
    try:
        newest = staging.newest_version(home)
        if staging.is_damaged(home, newest):
            return case(
                kind=FindingKind.DAMAGED_MANIFEST,
                subject=f"{subject}/{manifest_path(newest)}",
                explanation=f"the newest ordinary version of '{key}', which plain Lance readers see, was cut off",
                remedy="a repair replaces it and settles the published state, as the next writer would",
                repair=repair,
            )
        home.open()
        external = staging.list_external_versions(home, since=entry.head)
        if not external and (newest == entry.version or staging.restored_version(home, newest) == entry.version):
            return None
    # A store that does not answer is not damage of the table: report it to the caller instead of a finding.
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        return case(
            kind=FindingKind.DAMAGED_MANIFEST,
            explanation=f"its newest version, which plain Lance readers see, cannot be opened: {err.problem}",
            remedy="restore it from a backup; Anabranch can still read the published state",
        )
    if external:
        versions = ", ".join(map(str, external))
        return case(
            kind=FindingKind.EXTERNAL_WRITE,
            explanation=f"another Lance tool wrote to '{key}' on branch '{branch}': version {versions}",
            remedy=f"merge it with `adopt('{key}', branch='{branch}')`, or set it aside with"
            f" `settle('{key}', branch='{branch}', force=True)`",
        )
    return case(
        kind=FindingKind.UNSETTLED_HOME,
        explanation=f"plain Lance readers see another state of '{key}' than branch '{branch}' has published",
        remedy="a repair settles it, as the next writer would",
        repair=repair,
    )
