"""The refs and versions of a dataset, read once, without raising for what is damaged."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import lance

from anabranch.errors import (
    AnabranchError,
    NotFoundError,
    StaleBaseError,
    StorageDeniedError,
    StorageUnavailableError,
)
from anabranch.format.bases.bases import check_bases
from anabranch.format.home import Home, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.files import FilesReader, NeededFile
from anabranch.format.layout.listing import Layout, LayoutFile, LayoutKind, layout
from anabranch.format.layout.manifest import BasePath, read_manifest
from anabranch.format.layout.names import ManifestName
from anabranch.format.refs.branches import BranchInfo, parse_branch, scan_branches, scan_refs
from anabranch.format.refs.ref_files import RefFile, RefKind
from anabranch.format.refs.tags import TagInfo, scan_tags
from anabranch.format.staging.external_versions import Origin, find_origin
from anabranch.storage import in_parallel, iter_in_parallel

__all__ = ["Inventory", "Damage", "VersionFacts", "label", "read_inventory", "read_partial_inventory"]


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
