"""What a version occupies, and where: files and bytes by base and by kind."""

from collections import defaultdict
from dataclasses import dataclass

import lance

from anabranch.format.bases.bases import FileKind, bases_of, is_own_root, label, resolve_path
from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.manifest import BasePath
from anabranch.storage import open_store
from anabranch.storage.uris import normalise_uri

__all__ = [
    "BaseUsage",
    "DataFile",
    "LiveFile",
    "StorageReport",
    "Usage",
    "list_data_files",
    "list_live_files",
    "storage_report",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Some files and their bytes together."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(files=self.files + other.files, bytes=self.bytes + other.bytes)

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(files=self.files - other.files, bytes=self.bytes - other.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseUsage:
    """What lies in one place; `base` is None for the home's own root."""

    base: BasePath | None
    name: str
    path: str
    data: Usage
    deletion: Usage
    index: Usage

    @property
    def total(self) -> Usage:
        """All of its files together."""
        return self.data + self.deletion + self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageReport:
    """The live files of one version; `missing` are those that are not where they should be."""

    uri: str
    version: int
    bases: tuple[BaseUsage, ...]
    missing: tuple[str, ...]

    @property
    def total(self) -> Usage:
        """The files of all bases together."""
        return sum((base.total for base in self.bases), Usage())


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A file that a version reads: `base_id` as recorded, `uri` as resolved.

    An index is a folder of files. A data file may have a folder of large blobs beside it, named without the ending.
    """

    kind: FileKind
    base_id: int | None
    uri: str


def list_live_files(home: Home, dataset: lance.LanceDataset) -> tuple[LiveFile, ...]:
    """List the data files, deletion files and index folders of an opened version, wherever they are."""
    by_id = {base.id: base for base in bases_of(dataset)}

    def live(path: str, kind: FileKind, base_id: int | None) -> LiveFile:
        where = resolve_path(path, kind, base_id, bases=by_id, dataset_root=home.uri)
        return LiveFile(kind=kind, base_id=base_id, uri=normalise_uri(where))

    found: list[LiveFile] = []
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        files = [*metadata.files, *(overlay.data_file for overlay in metadata.overlays)]
        found.extend(live(file.path, FileKind.DATA, file.base_id) for file in files)
        if (deletion := metadata.deletion_file) is not None:
            name = deletion.path(fragment.fragment_id).rpartition("/")[2]
            found.append(live(name, FileKind.DELETION, deletion.base_id))
    with lance_errors(home.uri, home.storage_options):
        indices = dataset.describe_indices()
    found.extend(live(part.uuid, FileKind.INDEX, part.base_id) for index in indices for part in index.segments)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A data file of one fragment. Rows and deletions are those of the fragment, which may have several files."""

    fragment: int
    uri: str
    rows: int
    deletions: int
    bytes: int | None


def list_data_files(home: Home, dataset: lance.LanceDataset) -> list[DataFile]:
    """List the data files of an opened version, wherever they are."""
    by_id = {base.id: base for base in bases_of(dataset)}
    found = []
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        for file in [*metadata.files, *(overlay.data_file for overlay in metadata.overlays)]:
            where = resolve_path(file.path, FileKind.DATA, file.base_id, bases=by_id, dataset_root=home.uri)
            found.append(
                DataFile(
                    fragment=fragment.fragment_id,
                    uri=normalise_uri(where),
                    rows=metadata.physical_rows or 0,
                    deletions=metadata.num_deletions,
                    bytes=file.file_size_bytes,
                )
            )
    return found


def storage_report(home: Home, version: int | None = None) -> StorageReport:
    """Count the live files of a version, the newest by default, in each of its bases.

    Old versions' files are not counted, nor are manifests and transactions, which are always in the home itself.
    """
    dataset = home.open(version)
    own = {base.id: None for base in bases_of(dataset) if is_own_root(home, base)}
    counted: dict[tuple[int | None, FileKind], Usage] = defaultdict(Usage)
    missing = []
    listing = _Listing(home)
    for file in list_live_files(home, dataset):
        usage = listing.usage(file)
        if usage.files == 0:
            missing.append(file.uri)
        base_id = None if file.base_id is None else own.get(file.base_id, file.base_id)
        counted[base_id, file.kind] += usage
    places: list[BasePath | None] = [None, *(base for base in bases_of(dataset) if base.id not in own)]
    return StorageReport(
        uri=home.uri,
        version=int(dataset.version),
        bases=tuple(_usage_of(home, base, counted) for base in places),
        missing=tuple(sorted(missing)),
    )


def _usage_of(home: Home, base: BasePath | None, counted: dict[tuple[int | None, FileKind], Usage]) -> BaseUsage:
    number = None if base is None else base.id
    return BaseUsage(
        base=base,
        name=label(base),
        path=home.uri if base is None else base.path,
        data=counted[number, FileKind.DATA],
        deletion=counted[number, FileKind.DELETION],
        index=counted[number, FileKind.INDEX],
    )


class _Listing:
    """What lies in each folder that holds live files, listed once."""

    def __init__(self, home: Home) -> None:
        self._options = home.storage_options
        self._folders: dict[str, dict[str, Usage]] = {}

    def usage(self, file: LiveFile) -> Usage:
        folder, _, name = file.uri.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._list(folder)
        entries = self._folders[folder]
        usage = entries.get(name, Usage())
        if file.kind is FileKind.DATA and usage.files:
            usage += entries.get(name.rpartition(".")[0], Usage())
        return usage

    def _list(self, folder: str) -> dict[str, Usage]:
        """Usage by first path segment: a file's own, or that of all in a folder together."""
        entries: dict[str, Usage] = defaultdict(Usage)
        for found in open_store(folder, self._options).list():
            entries[found.path.partition("/")[0]] += Usage(files=1, bytes=found.size)
        return entries
