"""Find the files that a version needs.

Garbage collection, cleanup, doctor, the storage report and clones all use this module. It reads only the bytes of the
manifest: to open a version by Lance costs several times as much, and garbage collection reads every version that stays.
Versions have most of their fragments in common, so each description of a fragment is parsed once.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from uuid import UUID

from anabranch.errors import BaseNotFoundError, InvalidPathError, ObjectNotFoundError, UnsupportedFormatError
from anabranch.format.home import Home, is_staged
from anabranch.format.layout import messages
from anabranch.format.layout.listing import (
    DeletionFileName,
    DeletionKind,
    Layout,
    LayoutFile,
    LayoutKind,
    ManifestName,
    ManifestScheme,
)
from anabranch.format.layout.manifest import BasePath, base_paths_of, indices_in, read_manifest
from anabranch.storage.uris import follow_links, join_uri, normalise_uri, relative_to

# Fields of an index that name no files.
_OTHER_INDEX_FIELDS = frozenset({2, 4, 5, 6, 7, 8, 11})

# An index is a folder of files, and a data file may have a folder of large values beside it.
_BESIDE = frozenset({LayoutKind.BLOB, LayoutKind.INDEX})


class FileKind(StrEnum):
    """The kinds of file that may be below a base. An overlay file is a data file."""

    DATA = "data"
    DELETION = "deletion"
    INDEX = "index"

    @property
    def folder(self) -> str:
        """The folder of files of this kind in a dataset root."""
        return _FOLDERS[self]


_FOLDERS = {FileKind.DATA: "data", FileKind.DELETION: "_deletions", FileKind.INDEX: "_indices"}


@dataclass(frozen=True, slots=True)
class FileMention:
    """A file as a manifest describes it; an index is a folder.

    `size` and `deleted_rows` may be None: then the manifest does not record them. `rows` are those of the fragment that
    the file belongs to. What Lance keeps as indices for its own bookkeeping may have no files and is not required.
    """

    kind: FileKind
    name: str
    base_id: int | None
    size: int | None = None
    fragment: int | None = None
    rows: int = 0
    deleted_rows: int | None = None
    is_required: bool = True


@dataclass(frozen=True, slots=True)
class NeededFile:
    """A file that a version needs, and where it is.

    `path` is below the dataset's root, or the whole address of a file in another location. `is_supported` is False for
    a base in a kind of store that this product cannot open.
    """

    mention: FileMention
    path: str
    uri: str
    is_supported: bool

    @property
    def kind(self) -> FileKind:
        """The kind of the file."""
        return self.mention.kind

    @property
    def is_elsewhere(self) -> bool:
        """Whether the file is outside of the dataset's root."""
        return self.path == self.uri


@dataclass(frozen=True, kw_only=True)
class VersionFiles:
    """All files that one version needs, and the bases that it lists.

    `below` are the paths of those below the dataset's root: its manifest and transaction, and each file in the folder
    of an index or of large values.
    """

    bases: tuple[BasePath, ...]
    files: tuple[NeededFile, ...]
    below: frozenset[str]

    @cached_property
    def elsewhere(self) -> frozenset[tuple[FileKind, str]]:
        """The kinds and addresses of the files in other locations; an index is a folder."""
        return frozenset((file.kind, file.uri) for file in self.files if file.is_elsewhere and file.is_supported)


class FilesReader:
    """Reads which files the versions of one dataset need. `files` is a listing of the dataset."""

    def __init__(self, root: Home, files: Layout | None = None) -> None:
        self._root = root.on(None)
        self._store = root.store()
        # Branches name the root by the path by which it was opened when they were made, perhaps through a link.
        self._real_root = follow_links(root.root)
        self._homes: dict[tuple[str | None, tuple[BasePath, ...]], _HomeFiles] = {}
        self._beside: dict[str, list[str]] = defaultdict(list)
        # Manifests name a data file and the folder of an index. Only the listing has the files beside and inside.
        for file in () if files is None else files.files:
            if file.kind in _BESIDE:
                self._beside[file.named_path].append(file.path)

    def read(self, manifest: LayoutFile) -> VersionFiles:
        """Return the files of a version; raise NotFoundError if its manifest is gone."""
        return self.parse(self._store.get(manifest.path), branch=manifest.branch, path=manifest.path)

    def read_own(self, manifest: LayoutFile) -> frozenset[str]:
        """Return the paths of the manifest and the transaction of a version, which record where it came from."""
        message = read_manifest(self._store.get(manifest.path), name=manifest.path)
        return frozenset(_own_paths(self._root.on(manifest.branch), manifest.path, message))

    def parse(self, data: bytes, *, branch: str | None, path: str) -> VersionFiles:
        """Return the files of a version whose manifest was read from a path."""
        manifest, home = read_manifest(data, name=path), self._root.on(branch)
        bases = base_paths_of(manifest)
        known = self._homes.get((branch, bases))
        if known is None:
            known = self._homes[branch, bases] = _HomeFiles(home, bases, real_root=self._real_root)
        below = _own_paths(home, path, manifest)
        found = [file for fragment in manifest.fragments for file in known.files_of(fragment, files_of_fragment)]
        for index in indices_in(data, manifest, path):
            found.extend(known.files_of(index, lambda description: (folder_of_index(description),)))
        for file in found:
            # Files in a base belong to another dataset: they are needed, but they are not below this root.
            if not file.is_elsewhere:
                if file.kind is not FileKind.INDEX:
                    below.add(file.path)
                below.update(self._beside.get(file.path, ()))
        return VersionFiles(bases=bases, files=tuple(found), below=frozenset(below))


def files_of_version(home: Home, version: int) -> VersionFiles:
    """Return the files of one version of a home. Folders of indices and of large values are not listed."""
    # Tables that other tools made may still have V1 names.
    schemes = (ManifestScheme.DETACHED,) if is_staged(version) else (ManifestScheme.V2, ManifestScheme.V1)
    for scheme in schemes:
        name = ManifestName(version=version, scheme=scheme)
        path = f"{home.folder}/_versions/{name}".lstrip("/")
        try:
            data = home.store().get(path)
        except ObjectNotFoundError:
            continue
        return FilesReader(home).parse(data, branch=home.branch, path=path)
    raise home.no_version(version)


def _own_paths(home: Home, path: str, manifest: messages.Manifest) -> set[str]:
    """Return the path of a manifest, and that of its transaction if this is in a file."""
    name = manifest.transaction_file
    return {path, f"{home.folder}/_transactions/{name}".lstrip("/")} if name else {path}


class _HomeFiles:
    """The files of versions of one home that list the same bases."""

    def __init__(self, home: Home, bases: Iterable[BasePath], *, real_root: str) -> None:
        self._home = home
        self._bases = {base.id: base for base in bases}
        self._root = real_root
        self._folders: dict[tuple[FileKind, int | None], tuple[str, bool]] = {}
        self._seen: dict[bytes, tuple[NeededFile, ...]] = {}

    def files_of(self, description: bytes, parse: Callable[[bytes], tuple[FileMention, ...]]) -> tuple[NeededFile, ...]:
        known = self._seen.get(description)
        if known is None:
            known = self._seen[description] = tuple(map(self._resolve, parse(description)))
        return known

    def _resolve(self, mention: FileMention) -> NeededFile:
        folder, is_supported = self._folder(mention.kind, mention.base_id)
        uri = f"{folder}/{mention.name}"
        return NeededFile(mention, relative_to(uri, self._root) or uri, uri, is_supported)

    def _folder(self, kind: FileKind, base_id: int | None) -> tuple[str, bool]:
        """Return the folder that holds files of a kind, and whether it is in a store that can be opened."""
        key = kind, base_id
        if key not in self._folders:
            uri = resolve_path("", kind, base_id, bases=self._bases, dataset_root=self._home.uri)
            try:
                self._folders[key] = follow_links(normalise_uri(uri)), True
            # A base in a store that only Lance can open must not stop a scan of the dataset.
            except InvalidPathError:
                self._folders[key] = uri.rstrip("/"), False
        return self._folders[key]


# A base, also as a manifest describes it.
AnyBase = BasePath | messages.BasePath


def resolve_path(
    file_path: str, kind: FileKind, base_id: int | None, *, bases: Mapping[int, AnyBase], dataset_root: str
) -> str:
    """Return the address of a file, by the two steps of the storage layout specification.

    The `dataset_root` of a branch is its own folder, `{root}/tree/{branch}`.
    """
    if base_id is None:
        return f"{dataset_root}/{_FOLDERS[kind]}/{file_path}"
    if base_id not in bases:
        raise unknown_base(base_id, bases.values())
    base = bases[base_id]
    return join_uri(base.path, _FOLDERS[kind], file_path) if base.is_dataset_root else join_uri(base.path, file_path)


def unknown_base(wanted: str | int, known: Iterable[AnyBase]) -> BaseNotFoundError:
    """Return the error for a base that is not listed."""
    names = ", ".join(f"{base.id} ({base.name})" if base.name else str(base.id) for base in known)
    return BaseNotFoundError(f"there is no base {wanted!r}", hint=f"the bases are: {names or 'none'}")


def files_of_fragment(description: bytes) -> tuple[FileMention, ...]:
    """Return the data, overlay and deletion files of a fragment.

    Raise UnsupportedFormatError if the description has an unknown field, since that field may name further files.
    """
    fragment = messages.Fragment.parse(description, "fragment")
    if unknown := messages.find_unknown_fields(fragment):
        raise _unknown_field("fragment", unknown)
    number, rows = fragment.id, fragment.physical_rows
    found: list[FileMention] = []
    for file in (*fragment.files, *map(attrgetter("data_file"), fragment.overlays)):
        base_id = file.base_id if file.HasField("base_id") else None
        # A size of 0 means that it is not recorded.
        found.append(FileMention(FileKind.DATA, file.path, base_id, file.file_size_bytes or None, number, rows))
    if fragment.HasField("deletion_file"):
        deletions = fragment.deletion_file
        name = DeletionFileName(
            fragment_id=number,
            read_version=deletions.read_version,
            id=str(deletions.id),
            kind=DeletionKind.BITMAP if deletions.file_type else DeletionKind.ARROW,
        )
        base_id = deletions.base_id if deletions.HasField("base_id") else None
        deleted = deletions.num_deleted_rows or None
        found.append(FileMention(FileKind.DELETION, str(name), base_id, None, number, rows, deleted))
    return tuple(found)


def _unknown_field(what: str, unknown: set[int]) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"a manifest describes a {what} with the unknown field {min(unknown)}, which may name further files",
        hint="upgrade Anabranch: a newer release of Lance wrote the manifest",
    )


def folder_of_index(description: bytes) -> FileMention:
    """Return the folder of an index. Raise UnsupportedFormatError if the description has an unknown field."""
    index = messages.Index.parse(description, "index")
    if unknown := messages.find_unknown_fields(index) - _OTHER_INDEX_FIELDS:
        raise _unknown_field("index", unknown)
    return FileMention(
        FileKind.INDEX,
        str(UUID(bytes=index.uuid.uuid)),
        index.base_id if index.HasField("base_id") else None,
        # Older manifests do not list the files of an index.
        sum(file.size_bytes for file in index.files) if index.files else None,
        is_required=not index.name.startswith("__lance_"),
    )


def names_in_index(description: bytes) -> tuple[str, ...]:
    """Return the names of the files in an index folder, if the description lists them."""
    return tuple(file.path for file in messages.Index.parse(description, "index").files)
