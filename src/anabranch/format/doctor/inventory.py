"""The refs and versions of a dataset, read once, without raising for what is damaged.

`check_contents` checks that the files which versions need are there and complete, in the dataset and in its bases.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

import lance

from anabranch.errors import (
    AnabranchError,
    DamagedFileError,
    NotFoundError,
    ObjectNotFoundError,
    StaleBaseError,
    StorageDeniedError,
    StorageUnavailableError,
)
from anabranch.format.bases import check_bases
from anabranch.format.doctor.findings import FindingKind
from anabranch.format.home import Home, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.deletion_files import read_deletion_file
from anabranch.format.layout.files import FileKind, FilesReader, NeededFile
from anabranch.format.layout.listing import Layout, LayoutFile, LayoutKind, ManifestName, layout
from anabranch.format.layout.manifest import BasePath, read_manifest
from anabranch.format.refs.branches import BranchInfo, parse_branch, scan_branches, scan_refs
from anabranch.format.refs.ref_files import RefFile, RefKind
from anabranch.format.refs.tags import TagInfo, scan_tags
from anabranch.format.staging.manifests import Origin, find_origin
from anabranch.storage import in_parallel, iter_in_parallel, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file that cannot be read, and why."""

    path: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """One readable manifest: the bases it lists, and all files that it needs.

    A version with a `stale_base`, a location that the dataset has left, is not opened, and has no other facts.
    """

    path: str
    branch: str | None
    version: int
    own_branch: str | None
    base_paths: tuple[str, ...]
    files: tuple[NeededFile, ...] = ()
    cloned_from: Origin | None = None
    rows: int = 0
    stale_base: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Refs and manifests, each either read or damaged."""

    layout: Layout
    branch_refs: tuple[RefFile[BranchInfo], ...]
    tag_refs: tuple[RefFile[TagInfo], ...]
    versions: tuple[VersionFacts, ...]
    damaged_manifests: tuple[tuple[LayoutFile, Damage], ...]
    stale_bases: Mapping[str, str]

    @property
    def branches(self) -> dict[str, BranchInfo | Damage]:
        """The metadata of each branch, or why it cannot be read."""
        return dict(map(_info_or_damage, self.branch_refs))

    @property
    def tags(self) -> dict[str, TagInfo | Damage]:
        """What each tag names, or why it cannot be read."""
        return dict(map(_info_or_damage, self.tag_refs))

    def manifest_of(self, branch: str | None, version: int) -> LayoutFile | None:
        """The manifest of a version, readable or not."""
        found = (file for file in self.layout.of_branch(branch) if file.kind in _MANIFESTS)
        return next((file for file in found if ManifestName.parse(file.name).version == version), None)

    def first_manifest(self, branch: str | None) -> LayoutFile | None:
        """The manifest of a home's oldest ordinary version, readable or not."""
        return min(self._ordinary(branch), key=lambda file: ManifestName.parse(file.name).version, default=None)

    def newest_manifest(self, branch: str | None) -> LayoutFile | None:
        """The manifest of a home's newest ordinary version, readable or not."""
        return max(self._ordinary(branch), key=lambda file: ManifestName.parse(file.name).version, default=None)

    def _ordinary(self, branch: str | None) -> list[LayoutFile]:
        return [file for file in self.layout.of_branch(branch) if file.kind is LayoutKind.MANIFEST]

    def versions_of(self, branch: str | None) -> tuple[VersionFacts, ...]:
        """The ordinary versions of a home, oldest first."""
        own = (facts for facts in self.versions if facts.branch == branch and not is_staged(facts.version))
        return tuple(sorted(own, key=lambda facts: facts.version))


def read_inventory(root: Home, *, progress: Callable[[int, int], None] = lambda *_: None) -> Inventory:
    """Read every branch, tag and version of a dataset; `progress` gets the number of versions read, and of all."""
    files = layout(root)
    manifests = [file for file in files.files if file.kind in _MANIFESTS]
    stale = in_parallel(lambda name: _stale_base(root.on(name)), files.branches)
    told = {name: said for name, said in zip(files.branches, stale, strict=True) if said}
    read = _read_all(root, manifests, progress)
    return _take(files, read, branch_refs=scan_branches(root), tag_refs=scan_tags(root), stale=told)


def read_partial_inventory(root: Home, files: Layout, versions: Collection[tuple[str | None, int]]) -> Inventory:
    """Read some versions, each with its home, and the metadata of those homes, but not the tags."""
    homes = {branch for branch, _ in versions}
    manifests = [
        file
        for file in files.files
        if file.kind in _MANIFESTS and (file.branch, ManifestName.parse(file.name).version) in versions
    ]
    names = {name for name in files.branches if name in homes}
    branch_refs = scan_refs(root, RefKind.BRANCH, parse_branch, names=names) if names else ()
    return _take(files, _read_all(root, manifests), branch_refs=branch_refs, tag_refs=(), stale={})


_Facts = VersionFacts | Damage | None


def _read_all(
    root: Home, manifests: list[LayoutFile], progress: Callable[[int, int], None] = lambda *_: None
) -> list[tuple[LayoutFile, _Facts]]:
    read: list[tuple[LayoutFile, _Facts]] = []
    reader = FilesReader(root)
    progress(0, len(manifests))
    for facts in iter_in_parallel(lambda file: _version_facts(root, reader, file), manifests):
        read.append((manifests[len(read)], facts))
        progress(len(read), len(manifests))
    return read


def _take(
    files: Layout,
    read: list[tuple[LayoutFile, _Facts]],
    *,
    branch_refs: tuple[RefFile[BranchInfo], ...],
    tag_refs: tuple[RefFile[TagInfo], ...],
    stale: Mapping[str, str],
) -> Inventory:
    return Inventory(
        layout=files,
        branch_refs=branch_refs,
        tag_refs=tag_refs,
        versions=tuple(facts for _, facts in read if isinstance(facts, VersionFacts)),
        damaged_manifests=tuple((file, facts) for file, facts in read if isinstance(facts, Damage)),
        stale_bases=stale,
    )


_MANIFESTS = frozenset({LayoutKind.MANIFEST, LayoutKind.DETACHED_MANIFEST})
Info = TypeVar("Info")


def _info_or_damage(ref: RefFile[Info]) -> tuple[str, Info | Damage]:
    if ref.info is not None:
        return ref.name, ref.info
    return ref.name, Damage(path=ref.path, problem=ref.problem or "it cannot be read")


def _version_facts(root: Home, reader: FilesReader, file: LayoutFile) -> VersionFacts | Damage | None:
    """Read a version; return None if its manifest was removed since it was listed."""
    home = root.on(file.branch)
    version = ManifestName.parse(file.name).version
    try:
        data = root.store().get(file.path)
        info = read_manifest(data, name=file.path)
        # A manifest that was copied or renamed by hand has another number inside.
        if info.version != version:
            return Damage(path=file.path, problem=f"it is version {info.version} under the name of version {version}")
        about = VersionFacts(
            path=file.path,
            branch=file.branch,
            version=version,
            own_branch=info.branch,
            base_paths=tuple(base.path for base in info.base_paths),
            stale_base=_stale_base(home, info.base_paths),
        )
        # Not opened: Lance would read the files of the original dataset and find them in order.
        if about.stale_base is not None:
            return about
        return _with_contents(about, home, reader.parse(data, branch=file.branch, path=file.path).files)
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        # A missing data file raises the same error, so the manifest itself is looked up.
        is_gone = isinstance(err, NotFoundError) and root.store().find_info(file.path) is None
        return None if is_gone else Damage(path=file.path, problem=err.problem)


def _with_contents(about: VersionFacts, home: Home, files: tuple[NeededFile, ...]) -> VersionFacts:
    """Return all facts about a version that may be opened."""
    dataset = home.open(about.version)
    with lance_errors(home.uri, home.storage_options):
        rows = int(dataset.count_rows())
    return replace(
        about,
        files=files,
        cloned_from=_cloned_from(home, dataset) if home.branch is not None else None,
        rows=rows,
    )


def _cloned_from(home: Home, dataset: lance.LanceDataset) -> Origin | None:
    """The source, if this version was made by branching; None if not, or if its transaction cannot be read any more."""
    try:
        return find_origin(home, dataset)
    except AnabranchError:
        return None


def _stale_base(home: Home, bases: tuple[BasePath, ...] | None = None) -> str | None:
    """What is wrong with a branch's bases; damage of another kind is found elsewhere."""
    try:
        check_bases(home, bases)
    except StaleBaseError as err:
        return err.problem
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError:
        return None
    return None


def label(branch: str | None) -> str:
    """Return the name of a home for messages."""
    return "main" if branch is None else f"branch {branch!r}"


# The last bytes of every Lance file.
_MAGIC = b"LANC"


class FileProblem(StrEnum):
    """What may be wrong with a file."""

    MISSING = "missing"
    WRONG_SIZE = "wrong size"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongFile:
    """A file that is missing or damaged, the problem in words, and the versions that need the file."""

    file: NeededFile
    problem: FileProblem
    explanation: str
    versions: tuple[VersionFacts, ...]

    @property
    def kind(self) -> FindingKind:
        """The kind of finding that reports the file."""
        is_missing = self.problem is FileProblem.MISSING
        match self.file.kind:
            case FileKind.INDEX:
                return FindingKind.MISSING_INDEX if is_missing else FindingKind.DAMAGED_INDEX
            case FileKind.DELETION:
                return FindingKind.MISSING_DELETION_FILE if is_missing else FindingKind.DAMAGED_DELETION_FILE
            case FileKind.DATA:
                return FindingKind.MISSING_DATA_FILE if is_missing else FindingKind.WRONG_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The files with problems, and the folders in bases that could not be listed, each with the reason."""

    wrong: tuple[WrongFile, ...]
    unchecked: Mapping[str, str] = field(default_factory=dict)


def check_contents(root: Home, files: Layout, versions: Iterable[VersionFacts]) -> Contents:
    """Check the files of some versions. Deletion files are read; of others, the size and the last bytes are compared.

    A file that several versions need is checked once.
    """
    users: dict[str, list[VersionFacts]] = defaultdict(list)
    needed: dict[str, NeededFile] = {}
    for facts in versions:
        for file in _required(facts):
            needed[file.uri] = file
            users[file.uri].append(facts)
    in_bases, unchecked = _list_bases(root, (file for file in needed.values() if file.is_elsewhere))
    sizes = _sizes_below(files) | in_bases
    # The files in a folder that cannot be listed are neither there nor missing.
    checked = [file for file in needed.values() if _folder(file.path) not in unchecked]
    problems = {**_find_cut_off_indices(root, files, checked), **_find_damaged_deletions(root, checked)}
    wrong = []
    for file in sorted(checked, key=lambda file: file.path):
        found = _find_problem(file, sizes.get(file.path)) or problems.get(file.uri)
        if found is not None:
            problem, explanation = found
            wrong.append(
                WrongFile(file=file, problem=problem, explanation=explanation, versions=_sorted(users[file.uri]))
            )
    return Contents(wrong=tuple(wrong), unchecked=unchecked)


def _required(facts: VersionFacts) -> Iterator[NeededFile]:
    return (file for file in facts.files if file.mention.is_required)


def _sizes_below(files: Layout) -> dict[str, int]:
    """Return the sizes of the files below the root, by the paths that manifests use: an index is a folder."""
    sizes: Counter[str] = Counter()
    for file in files.files:
        sizes[file.named_path] += file.size
    return dict(sizes)


def _sorted(versions: list[VersionFacts]) -> tuple[VersionFacts, ...]:
    return tuple(sorted(versions, key=lambda facts: (facts.branch or "", facts.version)))


_Problem = tuple[FileProblem, str]


def _find_problem(file: NeededFile, size: int | None) -> _Problem | None:
    """Compare the size of a file with that in the manifest, None for a file that is not there."""
    # Old manifests record no size. Then only the existence of a file can be checked.
    expected = file.mention.size
    if size is None:
        return FileProblem.MISSING, "it is missing"
    if expected is not None and size != expected:
        return FileProblem.WRONG_SIZE, f"it has {size} bytes, and manifests record {expected}"
    return None


def _list_bases(root: Home, files: Iterable[NeededFile]) -> tuple[dict[str, int], dict[str, str]]:
    """Return the sizes of the files in bases that are there, and the folders that cannot be listed, with the reason."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for file in files:
        wanted[_folder(file.path)].add(file.mention.name)
    sizes: Counter[str] = Counter()
    unchecked: dict[str, str] = {}
    for folder, names in wanted.items():
        try:
            for info in open_store(folder, root.storage_options).list():
                # An index is a folder, and its size is that of all of its files.
                name = info.path.partition("/")[0]
                if name in names:
                    sizes[f"{folder}/{name}"] += info.size
        # An unreachable base is reported once, not as many missing files.
        except AnabranchError as err:
            unchecked[folder] = err.problem
    return dict(sizes), unchecked


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _find_cut_off_indices(root: Home, files: Layout, needed: Iterable[NeededFile]) -> dict[str, _Problem]:
    """Find the indices with a file that does not end as a Lance file does, as after a power loss."""
    folders = {file.path: file.uri for file in needed if file.kind is FileKind.INDEX}

    def is_checked(file: LayoutFile) -> bool:
        is_whole = file.name.endswith(".lance") and file.size >= len(_MAGIC)
        return is_whole and file.kind is LayoutKind.INDEX and file.named_path in folders

    checked = list(filter(is_checked, files.files))
    store = root.store()
    # Only the last bytes are read: a file that a power loss cut off, or filled with zeros, has no mark there.
    ends = in_parallel(lambda file: store.get_range(file.path, file.size - len(_MAGIC), len(_MAGIC)), checked)
    return {
        folders[file.named_path]: (FileProblem.DAMAGED, f"{file.path!r} does not end as a Lance file does")
        for file, end in zip(checked, ends, strict=True)
        if end != _MAGIC
    }


def _find_damaged_deletions(root: Home, files: Iterable[NeededFile]) -> dict[str, _Problem]:
    """Read deletion files. Manifests record no size of them, only the number of rows they delete."""
    deletions = [file for file in files if file.mention.deleted_rows is not None]

    def check(file: NeededFile) -> str | None:
        folder, _, name = file.uri.rpartition("/")
        try:
            found = len(read_deletion_file(open_store(folder, root.storage_options).get(name), name=name))
        except DamagedFileError as err:
            return err.problem
        except ObjectNotFoundError:
            return None  # a missing file is another problem
        expected = file.mention.deleted_rows
        return None if found == expected else f"it deletes {found} rows, and the manifest records {expected}"

    found = zip(deletions, in_parallel(check, deletions), strict=True)
    return {file.uri: (FileProblem.DAMAGED, problem) for file, problem in found if problem is not None}
