"""The names of a dataset's files. Those of manifests and deletion files are values that give the same name back.

Both types have `find`, which returns None for a name that does not follow the rule, and `parse`, which raises.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self, TypeVar
from urllib.parse import quote, unquote

from anabranch.errors import InvalidNameError
from anabranch.format.home import is_safe_branch, is_staged

__all__ = [
    "BRANCH_REFS",
    "CLEANUP_RECORD",
    "MANAGED_TAG",
    "TAG_REFS",
    "VERSION_HINT",
    "DeletionFileName",
    "DeletionKind",
    "ManifestName",
    "ManifestScheme",
    "branch_of_ref_path",
    "branch_ref_path",
    "is_data_file",
    "is_transaction_file",
    "manifest_of_path",
    "manifest_path",
    "pending_manifest_of_path",
    "tag_of_ref_path",
    "tag_ref_path",
]

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
    """Whether a name is that of a data file: a UUID, of which 3 bytes are binary digits, to spread the load on S3."""
    return _DATA.fullmatch(name) is not None


def is_transaction_file(name: str) -> bool:
    """Whether a name is that of a transaction file: the version that was read, and a UUID."""
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
    """The version whose manifest is at a path, in whatever home; None if it is no such path."""
    folder, _, name = path.rpartition("/")
    return ManifestName.find(name) if folder.rpartition("/")[2] == "_versions" else None


def pending_manifest_of_path(path: str) -> ManifestName | None:
    """The version that a managed commit has written and not finished; the next reader makes it a manifest."""
    pending = _PENDING.fullmatch(path)
    return manifest_of_path(pending[1]) if pending else None


def manifest_path(version: int, folder: str = "") -> str:
    """Return where a home holds the manifest of a version: below its folder, or, given the folder, below the root."""
    scheme = ManifestScheme.DETACHED if is_staged(version) else ManifestScheme.V2
    return f"{folder}/_versions/{ManifestName(version=version, scheme=scheme)}".lstrip("/")


def branch_ref_path(name: str) -> str:
    """Where the dataset root holds a branch's metadata; `/` becomes `%2F`, and Lance quotes other scripts as well."""
    return f"{BRANCH_REFS}/{quote(name, safe='')}.json"


def tag_ref_path(name: str) -> str:
    return f"{TAG_REFS}/{quote(name, safe='')}.json"


def branch_of_ref_path(path: str) -> str | None:
    """The branch whose metadata is at a path below the dataset root; None if it is no such path."""
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
