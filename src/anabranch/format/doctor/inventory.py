"""The refs and versions of a dataset, read once. Damaged files are recorded, not raised.

`check_contents` checks that the files of versions exist and are complete, in the dataset and in its bases.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from anabranch.errors import (
    AnabranchError,
    DamagedFileError,
    NotFoundError,
    ObjectNotFoundError,
    StaleBaseError,
    StorageDeniedError,
    StorageUnavailableError,
)
from anabranch.format.bases import check_bases, list_entries
from anabranch.format.doctor.findings_and_repairs import FindingKind
from anabranch.format.home import Home, is_staged
from anabranch.format.layout.fragment_rows import read_deletion_file
from anabranch.format.layout.listing import MANIFESTS, Layout, LayoutFile, LayoutKind, ManifestName, VersionKey, layout
from anabranch.format.layout.manifest import BasePath, base_paths_of, read_manifest
from anabranch.format.layout.needed_files import FileKind, FilesReader, NeededFile
from anabranch.format.refs.ref_files import RefFile
from anabranch.format.refs.refs import BranchInfo, TagInfo, scan_branches, scan_tags
from anabranch.format.staging.manifests import Origin, find_origin
from anabranch.storage import in_parallel, iter_in_parallel, open_parent

# Called with the number of versions read, and their total. A repair reads them again.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """A readable manifest: its bases, and all files that it needs.

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
    """Refs and manifests, each either read or damaged; `damaged_manifests` have the problem of each."""

    layout: Layout
    branch_refs: tuple[RefFile[BranchInfo], ...]
    tag_refs: tuple[RefFile[TagInfo], ...]
    versions: tuple[VersionFacts, ...]
    damaged_manifests: tuple[tuple[LayoutFile, str], ...]
    stale_bases: Mapping[str, str]

    @property
    def branches(self) -> tuple[BranchInfo, ...]:
        """The branches whose metadata can be read."""
        return tuple(ref.info for ref in self.branch_refs if ref.info is not None)

    @property
    def tags(self) -> tuple[TagInfo, ...]:
        """The tags that can be read."""
        return tuple(ref.info for ref in self.tag_refs if ref.info is not None)

    def find_readable_ref(self, branch: str) -> RefFile[BranchInfo] | None:
        """Return the metadata of a branch, None if it is missing or damaged."""
        return next((ref for ref in self.branch_refs if ref.name == branch and ref.info is not None), None)

    def ordinary_manifests(self, branch: str | None) -> list[LayoutFile]:
        """The manifests of a home's ordinary versions, oldest first, readable or not."""
        found = [file for file in self.layout.of_branch(branch) if file.kind is LayoutKind.MANIFEST]
        return sorted(found, key=lambda file: ManifestName.parse(file.name).version)

    def versions_of(self, branch: str | None) -> tuple[VersionFacts, ...]:
        """The ordinary versions of a home, oldest first."""
        own = (facts for facts in self.versions if facts.branch == branch and not is_staged(facts.version))
        return tuple(sorted(own, key=lambda facts: facts.version))


def read_inventory(root: Home, *, progress: Progress = lambda *_: None) -> Inventory:
    """Read every branch, tag and version of a dataset. `progress` gets the number of versions read, and their total."""
    files = layout(root)
    manifests = _manifests_in(files)
    stale = in_parallel(lambda name: _stale_base(root.on(name)), files.branches)
    versions, damaged = _read_all(root, manifests, progress)
    return Inventory(
        layout=files,
        branch_refs=scan_branches(root),
        tag_refs=scan_tags(root),
        versions=versions,
        damaged_manifests=damaged,
        stale_bases={name: problem for name, problem in zip(files.branches, stale, strict=True) if problem},
    )


def read_partial_inventory(root: Home, files: Layout, versions: Collection[VersionKey]) -> Inventory:
    """Read some versions, each with its home, and the metadata of those homes, but not the tags."""
    manifests = _manifests_in(files)
    manifests = [file for file in manifests if (file.branch, ManifestName.parse(file.name).version) in versions]
    names = {branch for branch, _ in versions if branch is not None}.intersection(files.branches)
    readable, damaged = _read_all(root, manifests, lambda *_: None)
    return Inventory(
        layout=files,
        branch_refs=scan_branches(root, names=names) if names else (),
        tag_refs=(),
        versions=readable,
        damaged_manifests=damaged,
        stale_bases={},
    )


def _manifests_in(files: Layout) -> list[LayoutFile]:
    """Return all manifests. With two naming schemes in a folder, a version may have two, and either may be damaged."""
    return [file for file in files.files if file.kind in MANIFESTS]


def _read_all(
    root: Home, manifests: list[LayoutFile], progress: Progress
) -> tuple[tuple[VersionFacts, ...], tuple[tuple[LayoutFile, str], ...]]:
    """Return the readable versions, and the damaged manifests with their problems."""
    versions: list[VersionFacts] = []
    damaged: list[tuple[LayoutFile, str]] = []
    reader = FilesReader(root)
    progress(0, len(manifests))
    found = iter_in_parallel(lambda file: _version_facts(root, reader, file), manifests)
    for done, (file, facts) in enumerate(zip(manifests, found, strict=True), start=1):
        if isinstance(facts, VersionFacts):
            versions.append(facts)
        elif facts is not None:
            damaged.append((file, facts))
        progress(done, len(manifests))
    return tuple(versions), tuple(damaged)


def _version_facts(root: Home, reader: FilesReader, file: LayoutFile) -> VersionFacts | str | None:
    """Read a version. Return the problem if it is damaged, None if its manifest was removed since the listing."""
    try:
        return _read_version(root.on(file.branch), reader, file)
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        # A missing data file raises the same error, so check whether the manifest exists.
        is_gone = isinstance(err, NotFoundError) and root.store().find_info(file.path) is None
        return None if is_gone else err.problem


def _read_version(home: Home, reader: FilesReader, file: LayoutFile) -> VersionFacts | str:
    version = ManifestName.parse(file.name).version
    data = home.store().get(file.path)
    manifest = read_manifest(data, name=file.path)
    bases = base_paths_of(manifest)
    # A manifest that was copied or renamed by hand has another number inside.
    if manifest.version != version:
        return f"it is version {manifest.version} under the name of version {version}"
    about = VersionFacts(
        path=file.path,
        branch=file.branch,
        version=version,
        own_branch=manifest.branch or None,
        base_paths=tuple(base.path for base in bases),
        stale_base=_stale_base(home, bases),
    )
    # Not opened: Lance would read the files of the original dataset and find them in order.
    if about.stale_base is not None:
        return about
    files = reader.parse(data, branch=file.branch, path=file.path).files
    dataset = home.open(version)
    with home.errors():
        about = replace(about, files=files, rows=int(dataset.count_rows()))
    if home.branch is not None:
        # The transaction that records the origin may be gone, and then it is not known.
        with suppress(AnabranchError):
            about = replace(about, cloned_from=find_origin(home, dataset))
    return about


def _stale_base(home: Home, bases: tuple[BasePath, ...] | None = None) -> str | None:
    """Return the problem of a branch's bases. Other damage is found elsewhere."""
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


# The findings of files that are missing, and of those that are damaged.
_KINDS = {
    FileKind.DATA: (FindingKind.MISSING_DATA_FILE, FindingKind.WRONG_SIZE),
    FileKind.DELETION: (FindingKind.MISSING_DELETION_FILE, FindingKind.DAMAGED_DELETION_FILE),
    FileKind.INDEX: (FindingKind.MISSING_INDEX, FindingKind.DAMAGED_INDEX),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongFile:
    """A file that is missing or damaged, the problem in words, and the versions that need the file."""

    file: NeededFile
    is_missing: bool
    explanation: str
    versions: tuple[VersionFacts, ...]

    @property
    def kind(self) -> FindingKind:
        """The kind of finding that reports the file."""
        missing, damaged = _KINDS[self.file.kind]
        return missing if self.is_missing else damaged


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
        for file in facts.files:
            if not file.mention.is_required:
                continue
            needed[file.uri] = file
            users[file.uri].append(facts)
    sizes, unchecked = _list_sizes(root, files, needed.values())
    # Files in a folder that cannot be listed are neither present nor missing.
    checked = [file for file in needed.values() if _folder(file.path) not in unchecked]
    problems = {**_find_cut_off_indices(root, files, checked), **_find_damaged_deletions(root, checked)}
    wrong = []
    for file in sorted(checked, key=lambda file: file.path):
        size = sizes.get(file.path)
        problem = _problem_of(file, size, problems.get(file.uri))
        if problem is not None:
            found = sorted(users[file.uri], key=lambda facts: (facts.branch or "", facts.version))
            wrong.append(WrongFile(file=file, is_missing=size is None, explanation=problem, versions=tuple(found)))
    return Contents(wrong=tuple(wrong), unchecked=unchecked)


def _problem_of(file: NeededFile, size: int | None, found: str | None) -> str | None:
    """Return the problem of a file: that it is missing or has another size, or else what was found in it."""
    if size is None:
        return "it is missing"
    expected = file.mention.size
    # Old manifests record no size. Then only the existence of a file can be checked.
    return found if expected in (None, size) else f"it has {size} bytes, and manifests record {expected}"


def _list_sizes(root: Home, files: Layout, needed: Iterable[NeededFile]) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """Return the sizes of existing files, and the folders in bases that cannot be listed, with the reason."""
    sizes: Counter[str] = Counter()
    for present in files.files:
        # By the paths that manifests use: an index is a folder, and its size is that of all of its files.
        sizes[present.named_path] += present.size
    wanted: dict[str, set[str]] = defaultdict(set)
    for file in needed:
        if file.is_elsewhere:
            wanted[_folder(file.path)].add(file.mention.name)
    unchecked: dict[str, str] = {}
    for folder, names in wanted.items():
        try:
            listed = list_entries(folder, root.storage_options)
            # Not with `|`, which would drop empty files: these are damaged, not missing.
            sizes.update({f"{folder}/{name}": listed[name].bytes for name in names & listed.keys()})
        # An unreachable base is reported once, not as many missing files.
        except AnabranchError as err:
            unchecked[folder] = err.problem
    return sizes, unchecked


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _find_cut_off_indices(root: Home, files: Layout, needed: Iterable[NeededFile]) -> dict[str, str]:
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
        folders[file.named_path]: f"{file.path!r} does not end as a Lance file does"
        for file, end in zip(checked, ends, strict=True)
        if end != _MAGIC
    }


def _find_damaged_deletions(root: Home, files: Iterable[NeededFile]) -> dict[str, str]:
    """Read deletion files. Manifests record no size of them, only the number of rows they delete."""
    deletions = [file for file in files if file.mention.deleted_rows is not None]

    def check(file: NeededFile) -> str | None:
        store, name = open_parent(file.uri, root.storage_options)
        try:
            found = len(read_deletion_file(store.get(name), name=name))
        except DamagedFileError as err:
            return err.problem
        except ObjectNotFoundError:
            return None  # a missing file is another problem
        expected = file.mention.deleted_rows
        return None if found == expected else f"it deletes {found} rows, and the manifest records {expected}"

    found = zip(deletions, in_parallel(check, deletions), strict=True)
    return {file.uri: problem for file, problem in found if problem is not None}
