"""What a cleanup is to keep, which versions of a dataset stay by these rules, and what a cleanup found and did."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from anabranch.errors import DamagedFileError, InvalidInputError
from anabranch.format.arguments import checked_number
from anabranch.format.home import Home, is_staged
from anabranch.format.layout.listing import (
    BRANCH_REFS,
    TAG_REFS,
    Layout,
    LayoutFile,
    LayoutKind,
    ManifestName,
    tag_of_ref_path,
)
from anabranch.format.refs.branches import get_branch
from anabranch.format.refs.tags import get_tag
from anabranch.storage import in_parallel

# Longer than a write takes between its first data file and its commit.
DEFAULT_GRACE = timedelta(days=1)


class CleanupReason(StrEnum):
    """Why a file is removed."""

    VERSION = "version that is not kept"
    UNUSED = "file of no kept version"
    UNFINISHED = "unfinished write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which versions stay.

    Without `keep_last` and `keep_newer_than` every version stays; with one of them, the versions that it names; with
    both, the versions that either names. Nothing younger than `grace` is removed.
    """

    keep_last: int | None = None
    keep_newer_than: timedelta | None = None
    grace: timedelta = DEFAULT_GRACE

    @property
    def keeps_all(self) -> bool:
        return self.keep_last is None and self.keep_newer_than is None


def checked_retention(
    *, keep_last: int | None = None, keep_newer_than: timedelta | None = None, grace: timedelta | None = None
) -> Retention:
    """Check what a caller wants to keep."""
    if keep_last is not None:
        keep_last = checked_number(keep_last, "number of versions to keep", hint="give a whole number, at least 1")
        if keep_last < 1:
            raise InvalidInputError(f"cannot keep the last {keep_last} versions", hint="give a number, at least 1")
    return Retention(
        keep_last=keep_last,
        keep_newer_than=None if keep_newer_than is None else _duration(keep_newer_than, "keep_newer_than"),
        grace=DEFAULT_GRACE if grace is None else _duration(grace, "grace"),
    )


def _duration(value: Any, name: str) -> timedelta:
    if not isinstance(value, timedelta) or value < timedelta():
        raise InvalidInputError(f"{name} must be a duration, got {value!r}", hint="give a datetime.timedelta")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile:
    """One file; `path` is below the dataset's root, or a whole address for a file in a base."""

    path: str
    bytes: int
    reason: CleanupReason


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedInBase:
    """Files in a base that no kept version needs and that stay, because the base was not named for cleanup."""

    name: str
    path: str
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What was removed, or in a dry run would be.

    `versions` are the removed versions, each as (branch, version), and `kept` is the number of versions that stay.
    `too_young` is how many of these stay only because of the grace period. `damaged` are files that kept versions need
    and that are missing or unreadable: if there are any, nothing is removed.
    """

    dry_run: bool
    versions: tuple[tuple[str, int], ...]
    files: tuple[RemovedFile, ...]
    kept: int
    too_young: int
    unused_in_bases: tuple[UnusedInBase, ...]
    damaged: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The size of all removed files."""
        return sum(file.bytes for file in self.files)

    @property
    def by_reason(self) -> dict[str, tuple[int, int]]:
        """The number of files, and their bytes, by reason."""
        found: dict[str, tuple[int, int]] = {}
        for file in self.files:
            count, size = found.get(file.reason, (0, 0))
            found[file.reason] = count + 1, size + file.bytes
        return dict(sorted(found.items()))


# A version: the branch, None for main, and the number.
VersionKey = tuple[str | None, int]

_MANIFESTS = frozenset({LayoutKind.MANIFEST, LayoutKind.DETACHED_MANIFEST})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersions:
    """The versions that stay, and those of them that stay only because they are young."""

    kept: frozenset[VersionKey]
    too_young: frozenset[VersionKey]


def manifests_of(files: Layout) -> dict[VersionKey, LayoutFile]:
    """The manifest of every version, staged versions and trees without a branch included."""
    found = [file for file in files.files if file.kind in _MANIFESTS]
    return {(file.branch, ManifestName.parse(file.name).version): file for file in found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Referenced:
    """The versions that tags name, holds of clones among them, and those that branches were made from.

    `first` are the versions that branches began with, which have the same files. If the metadata of a branch is lost,
    doctor writes it again from this version, and takes a tree without it for the rest of a deleted branch.
    """

    tagged: frozenset[VersionKey]
    forked: frozenset[VersionKey]
    first: frozenset[VersionKey]

    @property
    def all(self) -> frozenset[VersionKey]:
        return self.tagged | self.forked | self.first


def referenced_versions(root: Home, files: Layout) -> Referenced:
    """Read all refs.

    Raise DamagedFileError if a ref cannot be read: it may name any version.
    """
    for file in files.files:
        # It may protect any version. To ignore it could remove files that a tag needs.
        if file.kind is LayoutKind.UNKNOWN and file.path.startswith((f"{BRANCH_REFS}/", f"{TAG_REFS}/")):
            raise DamagedFileError(
                f"{file.path!r} in {root.root!r} may be a branch or tag in a spelling that is not known",
                hint="rename or remove the file, or run `Dataset.doctor()`",
            )
    names = [name for file in files.files if (name := tag_of_ref_path(file.path)) is not None]
    tags = in_parallel(lambda name: get_tag(root, name), names)
    branches = in_parallel(lambda name: get_branch(root, name), files.branches)
    return Referenced(
        tagged=frozenset((tag.branch, tag.version) for tag in tags),
        forked=frozenset((info.parent_branch, info.parent_version) for info in branches),
        first=frozenset((info.name, info.parent_version) for info in branches),
    )


def choose_versions(
    manifests: Mapping[VersionKey, LayoutFile],
    referenced: Referenced,
    retention: Retention,
    *,
    now: datetime,
) -> KeptVersions:
    """Decide which versions stay.

    Always kept are the first and the newest version of each branch, other referenced versions, staged versions (they
    are outside of the history, and no rule of retention speaks of them), and all versions in a tree without a branch,
    which doctor judges.
    """
    named = referenced.all
    wanted: set[VersionKey] = set()
    young: set[VersionKey] = set()
    for place, file in manifests.items():
        # Staged versions are outside the history, and a tree without a ref may be a branch that is being created.
        if place in named or is_staged(place[1]) or not file.has_ref:
            wanted.add(place)
        if file.modified > now - retention.grace:
            young.add(place)
    for branch, versions in _ordinary(manifests).items():
        own = {version: manifests[branch, version] for version in versions}
        wanted.update((branch, version) for version in _retained(own, retention, now))
    return KeptVersions(kept=frozenset(wanted | young), too_young=frozenset(young - wanted))


def _retained(manifests: Mapping[int, LayoutFile], retention: Retention, now: datetime) -> set[int]:
    """Return the ordinary versions of one branch that the rules of retention keep; the newest in any case."""
    if retention.keeps_all:
        return set(manifests)
    # The newest stays in any case: without an ordinary version Lance cannot open the branch.
    kept = set(sorted(manifests, reverse=True)[: max(1, retention.keep_last or 1)])
    if retention.keep_newer_than is not None:
        since = now - retention.keep_newer_than
        kept.update(version for version, file in manifests.items() if file.modified >= since)
    return kept


def _ordinary(manifests: Iterable[VersionKey]) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = defaultdict(list)
    for branch, version in manifests:
        if not is_staged(version):
            found[branch].append(version)
    return found
