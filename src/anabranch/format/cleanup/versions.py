"""Which versions of a dataset stay."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from anabranch.errors import DamagedFileError
from anabranch.format.cleanup.report import Retention
from anabranch.format.home import Home, is_staged
from anabranch.format.layout.listing import Layout, LayoutFile, LayoutKind
from anabranch.format.layout.names import BRANCH_REFS, TAG_REFS, ManifestName, tag_of_ref_path
from anabranch.format.refs.branches import get_branch
from anabranch.format.refs.tags import get_tag
from anabranch.storage import in_parallel

__all__ = ["KeptVersions", "VersionKey", "Referenced", "choose_versions", "manifests_of", "referenced_versions"]

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
