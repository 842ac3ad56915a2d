"""A home: the folder in which one line of versions of a dataset lives, its root or a branch below `tree/`.

`VersionRef` is one version of a home. The bounded cache in which a process keeps what it read of homes, and of logs, is
here, too.
"""

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from anabranch.errors import (
    BranchNotFoundError,
    DamagedFileError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidNameError,
    StorageDeniedError,
    VersionNotFoundError,
)
from anabranch.format.lance_errors import lance_errors
from anabranch.storage import ObjectStore, open_store
from anabranch.storage.local_store import refuse_links
from anabranch.storage.options import checked_options, lance_options
from anabranch.storage.requests import check_process
from anabranch.storage.store import open_root
from anabranch.storage.uris import follow_links, is_local, join_uri, normalise_uri, relative_to, split_uri

if TYPE_CHECKING:
    import lance
    import pyarrow as pa


K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A cache of the last `limit` values at most. Threads may share it.

    With a `capacity`, the weights of all kept values are at most that in sum, but the newest value is always kept,
    unless it is heavier than `heaviest`.
    """

    def __init__(self, limit: int, *, capacity: float = math.inf, heaviest: float = math.inf) -> None:
        self._limit = limit
        self._capacity = capacity
        self._heaviest = heaviest
        self._lock = threading.Lock()
        # In the order of storing. A dict searches for its first key from the start, past all that were removed.
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._values)

    @property
    def weight(self) -> int:
        """The sum of the weights of all kept values."""
        return self._weight

    def find(self, key: K) -> V | None:
        found = self._values.get(key)
        return None if found is None else found[0]

    def keep(self, key: K, value: V, *, weight: int = 1) -> None:
        if weight > self._heaviest:
            return
        with self._lock:
            # Remove the key first, so that it moves to the end.
            _, former = self._values.pop(key, (None, 0))
            self._values[key] = (value, weight)
            self._weight += weight - former
            while len(self._values) > self._limit or (self._weight > self._capacity and len(self._values) > 1):
                self._weight -= self._values.popitem(last=False)[1][1]

    def forget(self, is_stale: Callable[[K], bool]) -> None:
        with self._lock:
            for key in [key for key in self._values if is_stale(key)]:
                self._weight -= self._values.pop(key)[1]


def branch_folder(branch: str) -> str:
    """Return the folder of a branch below the dataset root."""
    return f"tree/{branch}"


def is_staged(version: int) -> bool:
    """Return whether a version is detached: outside the history, with an id from the upper half of 64 bits."""
    return version >= 1 << 63


def is_safe_branch(branch: str) -> bool:
    """Return whether the path of a branch name stays below `tree/`."""
    # Names come from files of other tools. With `..` in a name, a deletion could leave the dataset.
    return "\\" not in branch and "\0" not in branch and {"", ".", ".."}.isdisjoint(branch.split("/"))


# The folders of a home that Lance reads and writes by itself.
_FOLDERS = ("_versions", "_transactions", "data", "_deletions", "_indices")

_REPAIR = "run `doctor(repair=True)`, which repairs it if another copy has the same state"

# The bytes of metadata and of indices that a handle may cache. Handles that were staged on each other share one
# cache, in which Lance keeps the manifest of every version of the chain: by default up to 1 GiB, and 6 GiB of indices.
_METADATA_BYTES = 64 * 1024 * 1024
_INDEX_BYTES = 512 * 1024 * 1024
# Reads that are closer to each other than this become one read. Lance has this number for remote stores and 4 KiB for
# local files, where it reads scattered rows one by one: to take 200 of a million rows took twice as long.
_BLOCK_BYTES = 64 * 1024

# Handles for staged versions, weighed by their fragments and columns: each handle holds its whole manifest, and the
# metadata of the files that it read. A merge of many tables opens three versions of each, and again to write.
# Until a version is first read, its handle is the one that it was staged on: it is opened from that one, and shares its
# metadata. Ids are never used again, so that a handle goes stale only if a relocation rewrites the manifest.
_HANDLES: "BoundedCache[HomeKey, lance.LanceDataset]" = BoundedCache(limit=4096, capacity=50_000)
_WEIGHT_OF_COLUMN = 2
# All caches of this process whose keys begin with a home.
_CACHES: "list[BoundedCache[Any, Any]]" = [_HANDLES]


def new_home_cache(*, limit: int, capacity: float = math.inf, heaviest: float = math.inf) -> "BoundedCache[HomeKey, V]":
    """Return a cache for values of homes and of their versions; `Home.forget` drops those of a dataset."""
    cache: BoundedCache[HomeKey, V] = BoundedCache(limit=limit, capacity=capacity, heaviest=heaviest)
    _CACHES.append(cache)
    return cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The dataset's root (branch None) or one of its branches.

    Lance opens it by its folder: a handle that was checked out from the root keeps the root's address, and its
    writes go wrong after pickling.

    Homes with another `recorded_root` are not equal. This keeps what was cached before a relocation by another process
    apart from what is read after it.
    """

    root: str
    branch: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    # The root that the repository records, None if it was not read; another value after a relocation.
    recorded_root: str | None = field(default=None, repr=False)
    # This home's path below the dataset's root ('' or 'tree/{branch}'), and its URI.
    folder: str = field(init=False, compare=False, repr=False)
    uri: str = field(init=False, compare=False, repr=False)
    # The paths of its folders, below the dataset's root. Lance reads and writes through them, so `refuse_links` checks
    # that none is a symbolic link.
    folders: tuple[str, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.branch is not None and not is_safe_branch(self.branch):
            raise InvalidNameError(
                f"branch name {self.branch!r} is not a path below the dataset", hint="use names without '.' and '..'"
            )
        folder = "" if self.branch is None else branch_folder(self.branch)
        object.__setattr__(self, "folder", folder)
        object.__setattr__(self, "uri", join_uri(self.root, folder) if folder else self.root)
        object.__setattr__(self, "folders", tuple(f"{folder}/{name}" for name in _FOLDERS))

    @classmethod
    def at(cls, root: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> "Home":
        return cls(root=normalise_uri(root), storage_options=checked_options(storage_options))

    def on(self, branch: str | None) -> "Home":
        """The home of a branch of the same dataset; None is the root."""
        return self if branch == self.branch else replace(self, branch=branch)

    def manifest_path(self, version: int) -> str:
        """Return the path of the manifest of a version below the dataset's root."""
        # Ordinary numbers count down, so that a sorted listing shows the newest first.
        name = f"d{version}.manifest" if version >= 1 << 63 else f"{(1 << 64) - 1 - version:020d}.manifest"
        return f"{self.folder}/_versions/{name}" if self.folder else f"_versions/{name}"

    def store(self) -> ObjectStore:
        """The object store rooted at the dataset's root."""
        return open_root(self.root, tuple(self.storage_options.items()))

    def errors(self) -> AbstractContextManager[None]:
        """Translate errors that Lance raises inside into errors of Anabranch that name the home."""
        return lance_errors(self.uri, self.storage_options)

    def lance_options(self) -> dict[str, str] | None:
        # A local dataset may have a base in a remote store, which is reached by the same options.
        return lance_options(self.storage_options) if self.storage_options or not is_local(self.root) else None

    def open(self, version: int | None = None, *, reads_metadata: bool = False) -> "lance.LanceDataset":
        """Open a version, staged ones too; the newest ordinary one by default.

        A caller that `reads_metadata` only gets the handle of a staged version, if it is kept, without a check for
        links.
        """
        check_process()
        given: object = version
        # Lance reads a text as a tag, and supports only unsigned numbers of 64 bits.
        if given is not None and not (isinstance(given, int) and 0 <= given < 1 << 64):
            raise self.no_version(version)
        if version is None or not is_staged(version):
            refuse_links(self.root, *self.folders)
            return self._open(version)
        kept = _HANDLES.find((self, version))
        if kept is not None and kept.version == version:
            # The handle has the manifest in memory, so to read metadata no path is followed.
            if not reads_metadata:
                refuse_links(self.root, *self.folders)
            return kept
        refuse_links(self.root, *self.folders)
        opened = self._open(version, kept)
        self.remember(version, opened)
        return opened

    def remember(self, version: int, handle: "lance.LanceDataset", *, columns_of: int | None = None) -> None:
        """Cache a handle for the next caller that opens a staged version: its own, or that of its base version.

        `columns_of` is a version with the same columns.
        """
        weight = len(handle.fragment_ids()) + _WEIGHT_OF_COLUMN * len(handle.lance_schema.fields())
        _HANDLES.keep((self, version), handle, weight=weight)
        columns = None if columns_of is None else _COLUMNS.find((self, columns_of))
        if columns is not None:
            _COLUMNS.keep((self, version), columns, weight=len(columns.schema))

    def forget(self) -> None:
        """Drop all cached values of this dataset. Call this before or after its manifests are rewritten."""
        for cache in _CACHES:
            cache.forget(lambda kept: relative_to(kept[0].root, self.root) is not None)

    def _open(self, version: int | None, base: "lance.LanceDataset | None" = None) -> "lance.LanceDataset":
        try:
            with self.errors():
                # A handle that was opened by itself would read all metadata of the files again.
                if base is not None and version is not None:
                    return base.checkout_version(version)
                return self._open_by_path(version)
        except VersionNotFoundError:
            raise self._not_found(version) from None
        except DamagedFileError as err:
            # Only the manifest of a staged version may have a copy, in the ordinary version that shows it.
            if version is None or not is_staged(version):
                raise
            raise DamagedFileError(err.problem, hint=_REPAIR) from err
        except DatasetNotFoundError:
            raise self._missing() from None

    def _open_by_path(self, version: int | None) -> "lance.LanceDataset":
        # On a path that is a file Lance retries for seconds.
        if is_local(self.uri) and not Path(self.uri).is_dir():
            raise self._missing()
        import lance  # takes most of the time of a short command

        opened = lance.dataset(
            self.uri,
            version=version,
            storage_options=self.lance_options(),
            block_size=_BLOCK_BYTES if is_local(self.uri) else None,
            metadata_cache_size_bytes=_METADATA_BYTES,
            index_cache_size_bytes=_INDEX_BYTES,
        )
        # A manifest full of zeros, as a power loss may leave it, is a table without rows to Lance.
        if opened.version == 0:
            name = "the newest version" if version is None else f"version {version}"
            raise DamagedFileError(f"{name} of dataset {self.uri!r} is damaged: its manifest is empty", hint=_REPAIR)
        return opened

    def head_version(self) -> int:
        """The newest ordinary version."""
        return int(self.open().version)

    def no_version(self, version: object) -> VersionNotFoundError:
        """Return the error for a version that does not exist."""
        is_lost = isinstance(version, int) and is_staged(version) and version < 1 << 64
        hint = _REPAIR if is_lost else "list its versions to see which exist"
        return VersionNotFoundError(f"dataset {self.uri!r} has no version {version!r}", hint=hint)

    def _not_found(self, version: int | None) -> VersionNotFoundError | DatasetNotFoundError | BranchNotFoundError:
        # On an object store, which has no folders, Lance reports a missing dataset as a missing version.
        has_versions = is_local(self.uri) or any(self.store().list(f"{self.folder}/_versions/".lstrip("/")))
        return self.no_version(version) if has_versions else self._missing()

    def _missing(self) -> DatasetNotFoundError | BranchNotFoundError:
        if self.branch is None:
            return DatasetNotFoundError(f"there is no Lance dataset at {self.root!r}", hint="check the path")
        return BranchNotFoundError(
            f"dataset {self.root!r} has no branch {self.branch!r}", hint="list its branches to see which exist"
        )


# A home and one of its versions, or None for a value of the home itself.
HomeKey = tuple[Home, int | None]


class _Columns(NamedTuple):
    """The columns of a version. Rows are compared and merged in `row_schema`, in which blobs are binary."""

    schema: "pa.Schema"
    row_schema: "pa.Schema"
    blobs: tuple[str, ...]


# Weighed by their columns.
_COLUMNS: "BoundedCache[HomeKey, _Columns]" = new_home_cache(limit=2048, capacity=100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRef:
    """One version, ordinary or staged, of a home. It never changes; recipes return a new one."""

    home: Home
    version: int

    @property
    def is_staged(self) -> bool:
        return is_staged(self.version)

    def open(self) -> "lance.LanceDataset":
        return self.home.open(self.version)

    def open_to_read(self) -> "lance.LanceDataset":
        """Open the version for reading only. A kept handle is returned without another check for links."""
        return self.home.open(self.version, reads_metadata=True)

    @property
    def schema(self) -> "pa.Schema":
        """The Arrow schema. That of a staged version is kept: Lance converts all columns each time."""
        found = _COLUMNS.find((self.home, self.version))
        return self._columns().schema if found is None else found.schema

    @property
    def row_schema(self) -> "pa.Schema":
        """The schema in which rows are compared and merged: blobs are binary."""
        return self._columns().row_schema

    @property
    def blob_columns(self) -> tuple[str, ...]:
        """The names of the blob columns. Those of a staged version are kept."""
        return self._columns().blobs

    def _columns(self) -> _Columns:
        key = self.home, self.version
        found = _COLUMNS.find(key)
        if found is None:
            from anabranch.format.arrow_types import find_blobs, with_bytes

            schema = self.open_to_read().schema
            blobs = find_blobs(schema)
            found = _Columns(schema, with_bytes(schema) if blobs else schema, blobs)
            if self.is_staged:
                _COLUMNS.keep(key, found, weight=len(schema))
        return found

    def count_rows(self) -> int:
        return int(self.home.open(self.version, reads_metadata=True).count_rows())

    def count_fragments(self) -> int:
        return len(self.open().get_fragments())

    def count_bytes(self) -> int:
        """Return the bytes of the data and overlay files, as the version records them."""
        return sum(map(fragment_bytes, self.open().get_fragments()))


def fragment_bytes(fragment: "lance.LanceFragment") -> int:
    """Return the bytes of the data and overlay files of a fragment, as its version records them."""
    # From the opened version, unlike `layout.needed_files`, which would request the manifest again.
    described = fragment.metadata
    files = (*described.files, *(overlay.data_file for overlay in described.overlays))
    return sum(file.file_size_bytes or 0 for file in files)


_REPOSITORY_MARK = "_repo.json"
# `{repository}/tables/{bucket}/{table}.lance` is the deepest path that a repository gives to a dataset.
_DEPTH = 3


def find_repository(root: Home) -> str | None:
    """Return the repository that a dataset is part of, by its path; None if there is none above it.

    A repository keeps its tables below `tables/` and its history tables directly in its root. A dataset in another
    folder is not part of it.
    """
    # A link may lead to a table of a repository from any folder.
    for start in dict.fromkeys([root.root, follow_links(root.root)]):
        folder = start
        for _ in range(_DEPTH):
            folder = folder.rpartition("/")[0]
            if not _is_folder(folder):
                break
            relative = start.removeprefix(f"{folder}/")
            # The folder may be a repository, but the dataset is not where its tables are.
            if "/" in relative and not relative.startswith("tables/"):
                continue
            try:
                if open_store(folder, root.storage_options).find_info(_REPOSITORY_MARK) is not None:
                    return folder
            except StorageDeniedError:
                break  # the credentials do not reach further than the dataset
    return None


def _is_folder(uri: str) -> bool:
    """Return whether an address may be that of a folder. A scheme alone, or a store without a bucket, is not."""
    return uri != "" and (is_local(uri) or ("://" in uri and split_uri(uri)[1] != ""))


def refuse_managed(root: Home, doing: str, *, instead: str) -> None:
    """Raise InvalidInputError for a table of a repository; `instead` is the method for it."""
    repository = find_repository(root)
    if repository is not None:
        raise InvalidInputError(
            f"dataset {root.root!r} is a table of the repository {repository!r}, whose versions belong to commits:"
            f" {doing} is refused",
            hint=f"open the repository and use `{instead}()`, which knows the commits",
        )
