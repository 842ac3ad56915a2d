"""What a dataset's own files say about it, gathered once and without raising for what is damaged."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeVar

import lance

from anabranch.errors import (
    AnabranchError,
    InvalidPathError,
    NotFoundError,
    StaleBaseError,
    StorageDeniedError,
    StorageUnavailableError,
)
from anabranch.format.bases.bases import FileKind, check_bases, resolve_path
from anabranch.format.home import Home, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.listing import Layout, LayoutFile, LayoutKind, layout
from anabranch.format.layout.manifest import BasePath, read_manifest
from anabranch.format.layout.names import ManifestName
from anabranch.format.refs.branches import BranchInfo, parse_branch, scan_branches, scan_refs
from anabranch.format.refs.ref_files import RefFile, RefKind
from anabranch.format.refs.tags import TagInfo, scan_tags
from anabranch.format.transactions import Origin, find_origin
from anabranch.storage import in_parallel, iter_in_parallel
from anabranch.storage.uris import normalise_uri

__all__ = ["Census", "Damage", "VersionFacts", "take_census", "take_partial_census"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file that cannot be read, and why."""

    path: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """One readable manifest: the places it lists, and every file it needs (a folder for an index), as URIs.

    `may_need` is for what Lance keeps as indices for its own bookkeeping, most of them without files. `sizes` are those
    that the manifest tells, `deletions` the numbers of rows that deletion files delete. With a `stale_base`, a place
    the dataset left, it is not opened and nothing else is told.
    """

    path: str
    branch: str | None
    version: int
    own_branch: str | None
    base_paths: tuple[str, ...]
    needs: frozenset[str] = frozenset()
    may_need: frozenset[str] = frozenset()
    cloned_from: Origin | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    deletions: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    stale_base: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
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
        """What each tag stands for, or why it cannot be read."""
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


def take_census(root: Home, *, progress: Callable[[int, int], None] = lambda *_: None) -> Census:
    """Read every branch, tag and version of a dataset; `progress` gets the number of versions read, and of all."""
    files = layout(root)
    manifests = [file for file in files.files if file.kind in _MANIFESTS]
    stale = in_parallel(lambda name: _stale_base(root.on(name)), files.branches)
    told = {name: said for name, said in zip(files.branches, stale, strict=True) if said}
    read = _read_all(root, manifests, progress)
    return _take(files, read, branch_refs=scan_branches(root), tag_refs=scan_tags(root), stale=told)


def take_partial_census(root: Home, files: Layout, versions: Collection[tuple[str | None, int]]) -> Census:
    """Look at some versions, each with its home, and at the metadata of those homes; at no tag."""
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
    progress(0, len(manifests))
    for facts in iter_in_parallel(lambda file: _version_facts(root, file), manifests):
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
) -> Census:
    return Census(
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


def _version_facts(root: Home, file: LayoutFile) -> VersionFacts | Damage | None:
    home = root.on(file.branch)
    version = ManifestName.parse(file.name).version
    try:
        info = read_manifest(root.store().get(file.path), name=file.path)
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
        return about if about.stale_base else _with_contents(about, home, info.base_paths)
    except (StorageDeniedError, StorageUnavailableError):
        raise
    except AnabranchError as err:
        is_gone = isinstance(err, NotFoundError) and root.store().find_info(file.path) is None
        return None if is_gone else Damage(path=file.path, problem=err.problem)


def _with_contents(about: VersionFacts, home: Home, bases: tuple[BasePath, ...]) -> VersionFacts:
    """What can be said of a version that may be opened."""
    dataset = home.open(about.version)
    needed = tuple(_needs(home, dataset, {base.id: base for base in bases}))
    with lance_errors(home.uri, home.storage_options):
        rows = int(dataset.count_rows())
    return replace(
        about,
        needs=frozenset(file.uri for file in needed if file.is_required),
        may_need=frozenset(file.uri for file in needed if not file.is_required),
        cloned_from=_cloned_from(home, dataset) if home.branch is not None else None,
        sizes={file.uri: file.size for file in needed if file.size is not None},
        deletions={file.uri: file.deletes for file in needed if file.deletes is not None},
        rows=rows,
    )


@dataclass(frozen=True, slots=True)
class _Needed:
    """A file that a version mentions, or the folder of an index; whether it must be there, and its size if known."""

    uri: str
    size: int | None = None
    deletes: int | None = None
    is_required: bool = True


def _needs(home: Home, dataset: lance.LanceDataset, bases: Mapping[int, BasePath]) -> Iterator[_Needed]:
    """Every file that a version mentions."""

    @cache
    def folder(kind: FileKind, base_id: int | None) -> str:
        uri = resolve_path("", kind, base_id, bases=bases, dataset_root=home.uri)
        try:
            return normalise_uri(uri)
        except InvalidPathError:
            return uri.rstrip("/")

    def place(name: str, kind: FileKind, base_id: int | None) -> str:
        return f"{folder(kind, base_id)}/{name}"

    with lance_errors(home.uri, home.storage_options):
        fragments = [fragment.metadata for fragment in dataset.get_fragments()]
        indices = dataset.describe_indices()
    for fragment in fragments:
        for file in fragment.files:
            yield _Needed(place(file.path, FileKind.DATA, file.base_id), size=file.file_size_bytes)
        if (deleted := fragment.deletion_file) is not None:
            name = deleted.path(fragment.id).rpartition("/")[2]
            yield _Needed(place(name, FileKind.DELETION, deleted.base_id), deletes=deleted.num_deleted_rows)
    for index in indices:
        is_required = not index.name.startswith("__lance_")
        for segment in index.segments:
            folder_uri = place(str(segment.uuid), FileKind.INDEX, segment.base_id)
            yield _Needed(folder_uri, size=segment.size_bytes, is_required=is_required)


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
