"""What a version occupies, and where: files and bytes by base and by kind."""

from collections import defaultdict
from dataclasses import dataclass

from anabranch.format.bases.bases import is_own_root, label
from anabranch.format.home import Home
from anabranch.format.layout.files import FileKind, NeededFile, files_of_version
from anabranch.format.layout.manifest import BasePath
from anabranch.storage import open_store

__all__ = ["BaseUsage", "DataFile", "StorageReport", "Usage", "list_data_files", "storage_report"]


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
    """The files in one location; `base` is None for the home's own root."""

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
class DataFile:
    """A data file of one fragment. Rows and deletions are those of the fragment, which may have several files."""

    fragment: int
    uri: str
    rows: int
    deletions: int
    bytes: int | None


def list_data_files(home: Home, version: int) -> list[DataFile]:
    """List the data files of a version, overlay files included, in all bases."""
    files = files_of_version(home, version).files
    deleted = {file.mention.fragment: file.mention.deleted_rows for file in files if file.kind is FileKind.DELETION}
    return [
        DataFile(
            fragment=file.mention.fragment,
            uri=file.uri,
            rows=file.mention.rows,
            deletions=deleted.get(file.mention.fragment) or 0,
            bytes=file.mention.size,
        )
        for file in files
        if file.kind is FileKind.DATA and file.mention.fragment is not None
    ]


def storage_report(home: Home, version: int | None = None) -> StorageReport:
    """Count the live files of a version, the newest by default, in each of its bases.

    Old versions' files are not counted, nor are manifests and transactions, which are always in the home itself.
    """
    number = int(home.open(version).version)
    needed = files_of_version(home, number)
    # A base may be another name of the own root. Its files are counted there, not twice.
    own = {base.id: None for base in needed.bases if is_own_root(home, base)}
    counted: dict[tuple[int | None, FileKind], Usage] = defaultdict(Usage)
    missing = []
    listing = _Listing(home)
    for file in needed.files:
        usage = listing.usage(file)
        if usage.files == 0 and file.mention.is_required:
            missing.append(file.uri)
        base_id = None if file.base_id is None else own.get(file.base_id, file.base_id)
        counted[base_id, file.kind] += usage
    others = sorted((base for base in needed.bases if base.id not in own), key=lambda base: base.id)
    return StorageReport(
        uri=home.uri,
        version=number,
        bases=tuple(_usage_of(home, base, counted) for base in (None, *others)),
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
    """What is in each folder that holds live files, listed once."""

    def __init__(self, home: Home) -> None:
        self._options = home.storage_options
        self._folders: dict[str, dict[str, Usage]] = {}

    def usage(self, file: NeededFile) -> Usage:
        folder, _, name = file.uri.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._list(folder)
        entries = self._folders[folder]
        usage = entries.get(name, Usage())
        # Large values are in a folder beside the data file, which no manifest lists.
        if file.kind is FileKind.DATA and usage.files:
            usage += entries.get(name.rpartition(".")[0], Usage())
        return usage

    def _list(self, folder: str) -> dict[str, Usage]:
        """Usage by first path segment: a file's own, or that of all in a folder together."""
        entries: dict[str, Usage] = defaultdict(Usage)
        for found in open_store(folder, self._options).list():
            entries[found.path.partition("/")[0]] += Usage(files=1, bytes=found.size)
        return entries
