"""The names of a dataset's files, and the kind and the branch of each file in a listing.

The names of manifests and deletion files are values that give the same name back. Both types have `find`, which returns
None for a name that does not follow the rule, and `parse`, which raises.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Self, TypeVar
from urllib.parse import quote, unquote
from uuid import uuid4

from anabranch.errors import DatasetNotFoundError, InvalidNameError
from anabranch.format.home import Home, branch_folder, is_safe_branch, is_staged
from anabranch.storage import ObjectInfo

BRANCH_REFS = "_refs/branches"
TAG_REFS = "_refs/tags"
# In the dataset root: files in bases that no version names any more. Ours, not Lance's.
CLEANUP_RECORD = "_cleanup/unused.json"
# In each home: where Lance notes its newest version.
VERSION_HINT = "_versions/latest_version_hint.json"

# The tag on the first version of each table of a repository.
MANAGED_TAG = "anabranch-managed"

T = TypeVar("T")

_U64_MAX = 2**64 - 1
# Without leading zeros, so that the parsed value gives the same name back.
_NUMBER = r"(0|[1-9][0-9]{0,19})"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DATA = re.compile(r"[01]{24}[0-9a-f]{26}\.lance")
_DELETION = re.compile(_NUMBER + "-" + _NUMBER + r"-([0-9a-f]{1,32})\.(arrow|bin)")
_TRANSACTION = re.compile(_NUMBER + "-" + _UUID + r"\.txn")
_DETACHED = re.compile("d" + _NUMBER + r"\.manifest")
# At most 19 digits: a name of 20 digits is one of V2.
_V1 = re.compile(r"([1-9][0-9]{0,18})\.manifest")
_V2 = re.compile(r"([0-9]{20})\.manifest")
# With managed versioning, Lance writes a manifest under a UUID first. The next client that opens it gives it the
# ordinary name.
_PENDING = re.compile(r"(.+\.manifest)-[0-9a-f-]{32,36}")
_REF = re.compile(r"([^/]+)\.json")


def is_data_file(name: str) -> bool:
    """Return whether a name is that of a data file: a UUID with 3 bytes as binary digits, to spread the load on S3."""
    return _DATA.fullmatch(name) is not None


def new_data_file() -> str:
    """Return a new name for a data file, in the form that `is_data_file` accepts."""
    number = uuid4().bytes
    return "".join(f"{byte:08b}" for byte in number[:3]) + number[3:].hex() + ".lance"


def is_transaction_file(name: str) -> bool:
    """Return whether a name is that of a transaction file: the version that was read, and a UUID."""
    match = _TRANSACTION.fullmatch(name)
    return match is not None and _fits(match[1])


class DeletionKind(StrEnum):
    """How a deletion file holds its offsets; the value is the extension."""

    ARROW = "arrow"
    BITMAP = "bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionFileName:
    """The rows deleted from one fragment. Lance writes `id` as a decimal number; the specification shows hex."""

    fragment_id: int
    read_version: int
    id: str
    kind: DeletionKind

    def __str__(self) -> str:
        return f"{self.fragment_id}-{self.read_version}-{self.id}.{self.kind}"

    @classmethod
    def find(cls, name: str) -> Self | None:
        match = _DELETION.fullmatch(name)
        if not match or not _fits(match[1], match[2]):
            return None
        return cls(fragment_id=int(match[1]), read_version=int(match[2]), id=match[3], kind=DeletionKind(match[4]))

    @classmethod
    def parse(cls, name: str) -> Self:
        rule = "'{fragment}-{read version}-{id}', then '.arrow' or '.bin'"
        return _found(cls.find(name), name, "a deletion file", rule)


class ManifestScheme(StrEnum):
    V1 = "v1"
    V2 = "v2"
    DETACHED = "detached"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestName:
    """One version's manifest.

    V2 counts down in 20 digits, so that a sorted listing shows the newest first; a detached version has its own prefix.
    """

    version: int
    scheme: ManifestScheme

    def __str__(self) -> str:
        match self.scheme:
            case ManifestScheme.V1:
                return f"{self.version}.manifest"
            case ManifestScheme.V2:
                return f"{_U64_MAX - self.version:020d}.manifest"
            case ManifestScheme.DETACHED:
                return f"d{self.version}.manifest"

    @classmethod
    def find(cls, name: str) -> Self | None:
        if match := _DETACHED.fullmatch(name):
            version, scheme = int(match[1]), ManifestScheme.DETACHED
        elif match := _V2.fullmatch(name):
            version, scheme = _U64_MAX - int(match[1]), ManifestScheme.V2
        elif match := _V1.fullmatch(name):
            version, scheme = int(match[1]), ManifestScheme.V1
        else:
            return None
        # A detached id under an ordinary name, or the other way round, is a name that Lance never writes.
        is_right = 0 < version <= _U64_MAX and is_staged(version) == (scheme is ManifestScheme.DETACHED)
        return cls(version=version, scheme=scheme) if is_right else None

    @classmethod
    def parse(cls, name: str) -> Self:
        rule = "'{version}', '{2^64-1-version, 20 digits}' or 'd{detached version}', then '.manifest'"
        return _found(cls.find(name), name, "a manifest", rule)


def manifest_of_path(path: str) -> ManifestName | None:
    """Return the version whose manifest is at a path in any home, or None for other paths."""
    folder, _, name = path.rpartition("/")
    return ManifestName.find(name) if folder.rpartition("/")[2] == "_versions" else None


def pending_manifest_of_path(path: str) -> ManifestName | None:
    """Return the version of an unfinished managed commit at a path. The next reader makes it a manifest."""
    pending = _PENDING.fullmatch(path)
    return manifest_of_path(pending[1]) if pending else None


def manifest_path(version: int, folder: str = "") -> str:
    """Return the path of a version's manifest: below its home, or below the root if the home's folder is given."""
    scheme = ManifestScheme.DETACHED if is_staged(version) else ManifestScheme.V2
    return f"{folder}/_versions/{ManifestName(version=version, scheme=scheme)}".lstrip("/")


def branch_ref_path(name: str) -> str:
    """Return the path of a branch's metadata below the root. `/` becomes `%2F`, and Lance quotes other scripts, too."""
    return f"{BRANCH_REFS}/{quote(name, safe='')}.json"


def tag_ref_path(name: str) -> str:
    return f"{TAG_REFS}/{quote(name, safe='')}.json"


def branch_of_ref_path(path: str) -> str | None:
    """Return the branch whose metadata is at a path below the dataset root, or None for other paths."""
    return _ref_name(path, BRANCH_REFS)


def tag_of_ref_path(path: str) -> str | None:
    return _ref_name(path, TAG_REFS)


def _ref_name(path: str, folder: str) -> str | None:
    if not path.startswith(f"{folder}/"):
        return None
    match = _REF.fullmatch(path[len(folder) + 1 :])
    name = unquote(match[1]) if match else None
    # A name such as '..%2F..%2Fother' would become a path outside the dataset.
    return name if name is not None and is_safe_branch(name) else None


def _fits(*numbers: str) -> bool:
    return all(int(number) <= _U64_MAX for number in numbers)


def _found(value: T | None, name: str, kind: str, rule: str) -> T:
    if value is None:
        raise InvalidNameError(f"{name!r} is not the name of {kind}", hint=f"the rule is: {rule}")
    return value


class LayoutKind(StrEnum):
    """The kind of a file, by its path."""

    DATA = "data"
    BLOB = "blob"
    DELETION = "deletion"
    MANIFEST = "manifest"
    DETACHED_MANIFEST = "detached_manifest"
    PENDING_MANIFEST = "pending_manifest"
    VERSION_HINT = "version_hint"
    TRANSACTION = "transaction"
    INDEX = "index"
    MEM_WAL = "mem_wal"
    BRANCH_REF = "branch_ref"
    TAG_REF = "tag_ref"
    CLEANUP_RECORD = "cleanup_record"
    TEMPORARY = "temporary"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFile:
    """One file; `path` is below the dataset root.

    `branch` is None for the root's own files. `has_ref` is False for the files of a tree that no branch refers to.
    """

    path: str
    size: int
    modified: datetime
    kind: LayoutKind
    branch: str | None
    has_ref: bool

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def named_path(self) -> str:
        """The path by which a manifest names the file: a blob belongs to its data file, an index is a folder."""
        match self.kind:
            case LayoutKind.BLOB:
                return f"{self.path.rpartition('/')[0]}.lance"
            case LayoutKind.INDEX:
                # `_indices/UUID` at the root, `tree/BRANCH/_indices/UUID` on a branch, whose name may contain slashes.
                depth = 2 if self.branch is None else 3 + len(self.branch.split("/"))
                return "/".join(self.path.split("/")[:depth])
            case _:
                return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """A number of files, and their bytes."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The files of a dataset, sorted by path."""

    root: str
    files: tuple[LayoutFile, ...]
    branches: tuple[str, ...]

    @property
    def unknown_files(self) -> tuple[LayoutFile, ...]:
        """Files whose path follows no rule."""
        return tuple(file for file in self.files if file.kind is LayoutKind.UNKNOWN)

    @property
    def unreferenced_trees(self) -> tuple[str, ...]:
        """Names below `tree/` that have files but no branch metadata."""
        return tuple(sorted({file.branch for file in self.files if file.branch is not None and not file.has_ref}))

    @property
    def total(self) -> Total:
        """All files together."""
        return _total(self.files)

    @property
    def by_kind(self) -> dict[LayoutKind, Total]:
        """Files and bytes by what they are."""
        return {kind: _total(files) for kind, files in sorted(_grouped(self.files, lambda file: file.kind).items())}

    @property
    def by_branch(self) -> dict[str | None, Total]:
        """Totals of the root's own files (None) and of each tree."""
        groups = _grouped(self.files, lambda file: file.branch)
        return {name: _total(groups[name]) for name in sorted(groups, key=lambda name: name or "")}

    def of_branch(self, branch: str | None) -> list[LayoutFile]:
        """List the files of one branch, or of the root for None."""
        return [file for file in self.files if file.branch == branch]


MANIFESTS = frozenset({LayoutKind.MANIFEST, LayoutKind.DETACHED_MANIFEST})
# Include manifests that have not got their ordinary name yet, also those of a branch in creation.
ALL_MANIFESTS = MANIFESTS | {LayoutKind.PENDING_MANIFEST}

# A version of a dataset: the home it is in, None for the root, and its number.
VersionKey = tuple[str | None, int]


def version_order(key: VersionKey) -> tuple[str, int]:
    """Return what to sort versions by: first by branch, main before the others, then by number."""
    return key[0] or "", key[1]


def manifests_of(files: Layout) -> dict[VersionKey, LayoutFile]:
    """The manifest of every version, staged versions and trees without a branch included."""
    found = [file for file in files.files if file.kind in MANIFESTS]
    return {(file.branch, ManifestName.parse(file.name).version): file for file in found}


def layout(home: Home) -> Layout:
    """List every file of the dataset to which a home belongs, all of its branches included."""
    store = home.store()
    # Search for these folders first: otherwise all files below a wrong path would be listed.
    if all(next(iter(store.list(folder)), None) is None for folder in _DATASET_FOLDERS):
        raise DatasetNotFoundError(f"there is no Lance dataset at {home.root!r}", hint="check the path")
    return lay_out(home.root, store.list())


def lay_out(root: str, objects: Iterable[ObjectInfo]) -> Layout:
    """Classify a listing."""
    listed = sorted(objects, key=lambda info: info.path)
    branches = frozenset(name for info in listed if (name := branch_of_ref_path(info.path)) is not None)
    # Two passes: a tree without a ref is known only after all of its files were seen, and its unknown files
    # belong to it too.
    owners = [_owner(info.path, branches) for info in listed]
    trees = branches.union(filter(None, owners))
    files = tuple(
        _classified(info, owner or _longest(info.path, trees), branches)
        for info, owner in zip(listed, owners, strict=True)
    )
    return Layout(root=root, files=files, branches=tuple(sorted(branches)))


def _classified(info: ObjectInfo, owner: str | None, branches: frozenset[str]) -> LayoutFile:
    # Refs exist only at the root, so a path that looks like a ref inside a tree is unknown.
    rest = info.path if owner is None else info.path[len(branch_folder(owner)) + 1 :]
    kind = _kind_in_home(rest) or (_kind_of_ref(rest) if owner is None else None) or LayoutKind.UNKNOWN
    return LayoutFile(
        path=info.path,
        size=info.size,
        modified=info.modified,
        kind=kind,
        branch=owner,
        has_ref=owner is None or owner in branches,
    )


def _owner(path: str, branches: frozenset[str]) -> str | None:
    """Return the tree to which a Lance file belongs, or None for the root's files and for unknown files."""
    # Branch names hold slashes, and Lance lets them hold even the names of its own folders. So the longest known branch
    # below which the rest is a home's file comes first; then the shortest name, for trees without a ref.
    segments = path.split("/")
    if segments[0] != "tree":
        return None
    cuts = [at for at in range(2, len(segments)) if segments[at] in _HOME_FOLDERS]
    regular = [at for at in cuts if _kind_in_home("/".join(segments[at:]))]
    known = [at for at in reversed(regular) if "/".join(segments[1:at]) in branches]
    chosen = next(iter([*known, *regular, *cuts]), None)
    return None if chosen is None else "/".join(segments[1:chosen])


def _longest(path: str, trees: frozenset[str]) -> str | None:
    """Return the innermost tree around an unknown file."""
    if not path.startswith("tree/"):
        return None
    return max((name for name in trees if path.startswith(branch_folder(name) + "/")), key=len, default=None)


K = TypeVar("K")

# A dataset that has lost its versions still has the others.
_DATASET_FOLDERS = ("_versions", "_refs", "_transactions")

# A large value is named by 32 binary digits, in a folder named after its data file.
_DIGITS_OF_BLOB = re.compile(r"[01]{32}\.blob")
# The folder of an index is named by its UUID. The files inside depend on the kind of the index.
_INDEX = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/.+")
# Temporary files of Lance on local disk, which it renames or links when they are complete. A crash leaves them.
_TEMPORARY = re.compile(r"\.tmp[A-Za-z0-9]{6}")
_TEMPORARY_REF = re.compile(r"(.+\.json)\.tmp\.[0-9a-f]{32}")


def _kind_in_home(path: str) -> LayoutKind | None:
    folder, _, rest = path.partition("/")
    kind_below = _HOME_FOLDERS.get(folder)
    if kind_below is None or not rest:
        return None
    return LayoutKind.TEMPORARY if _TEMPORARY.fullmatch(rest.rpartition("/")[2]) else kind_below(rest)


def _kind_of_ref(path: str) -> LayoutKind | None:
    if (temporary := _TEMPORARY_REF.fullmatch(path)) and _kind_of_ref(temporary[1]):
        return LayoutKind.TEMPORARY
    if path == CLEANUP_RECORD:
        return LayoutKind.CLEANUP_RECORD
    if branch_of_ref_path(path) is not None:
        return LayoutKind.BRANCH_REF
    return LayoutKind.TAG_REF if tag_of_ref_path(path) is not None else None


def _kind_in_data(rest: str) -> LayoutKind | None:
    """Return the kind of a data file, or of a large value in the folder named after the data file."""
    if is_data_file(rest):
        return LayoutKind.DATA
    folder, _, name = rest.partition("/")
    is_blob = is_data_file(f"{folder}.lance") and _DIGITS_OF_BLOB.fullmatch(name)
    return LayoutKind.BLOB if is_blob else None


def _kind_in_versions(rest: str) -> LayoutKind | None:
    if f"_versions/{rest}" == VERSION_HINT:
        return LayoutKind.VERSION_HINT
    if pending_manifest_of_path(f"_versions/{rest}"):
        return LayoutKind.PENDING_MANIFEST
    if not (name := ManifestName.find(rest)):
        return None
    return LayoutKind.DETACHED_MANIFEST if name.scheme is ManifestScheme.DETACHED else LayoutKind.MANIFEST


_HOME_FOLDERS: dict[str, Callable[[str], LayoutKind | None]] = {
    "data": _kind_in_data,
    "_deletions": lambda rest: LayoutKind.DELETION if DeletionFileName.find(rest) else None,
    "_indices": lambda rest: LayoutKind.INDEX if _INDEX.fullmatch(rest) else None,
    "_mem_wal": lambda _: LayoutKind.MEM_WAL,
    "_transactions": lambda rest: LayoutKind.TRANSACTION if is_transaction_file(rest) else None,
    "_versions": _kind_in_versions,
}


def _grouped(files: Iterable[LayoutFile], key: Callable[[LayoutFile], K]) -> dict[K, list[LayoutFile]]:
    groups: dict[K, list[LayoutFile]] = defaultdict(list)
    for file in files:
        groups[key(file)].append(file)
    return groups


def _total(files: Iterable[LayoutFile]) -> Total:
    sizes = [file.size for file in files]
    return Total(files=len(sizes), bytes=sum(sizes))
