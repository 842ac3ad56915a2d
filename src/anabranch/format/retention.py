"""The retention rules of a cleanup: the versions that stay, and the files in bases that other datasets need.

A file in the dataset's own folder is found by a listing. A base may be shared with other datasets, clones and sources
among them, so a file there is removed only if this dataset named it and no other dataset needs it. Once the last
manifest that named the file is removed, nothing else records it, so a list of such files is written before that
manifest is removed and read by the next cleanup. An interrupted cleanup loses no file.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from anabranch.errors import (
    AnabranchError,
    CorruptError,
    DamagedFileError,
    DatasetInUseError,
    InvalidInputError,
    NotFoundError,
    ObjectNotFoundError,
)
from anabranch.format.arguments import checked_number
from anabranch.format.bases import has_manifest, list_bases, source_roots, usage_by_reason
from anabranch.format.clone.holds import list_holds
from anabranch.format.home import Home, is_staged
from anabranch.format.layout.listing import (
    BRANCH_REFS,
    CLEANUP_RECORD,
    TAG_REFS,
    Layout,
    LayoutFile,
    LayoutKind,
    VersionKey,
    layout,
    manifests_of,
    tag_of_ref_path,
)
from anabranch.format.layout.manifest import BasePath
from anabranch.format.layout.needed_files import FileKind, FilesReader, VersionFiles
from anabranch.format.refs.branches import list_branch_files
from anabranch.format.refs.refs import get_branch, get_tag
from anabranch.ids import MAIN
from anabranch.storage import ObjectStore, in_parallel, open_store
from anabranch.storage.uris import follow_links, join_uri, relative_to

# Called with the number of files that are done and their total.
Progress = Callable[[int, int], None]

# Longer than a write takes between its first data file and its commit.
DEFAULT_GRACE = timedelta(days=1)


class CleanupReason(StrEnum):
    """Why a file is removed."""

    VERSION = "version that is not kept"
    UNUSED = "file of no kept version"
    UNFINISHED = "unfinished write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The history to keep: versions of a dataset, or commits of a repository.

    Without `keep_last` and `keep_newer_than`, all of it stays. With one of them, what that rule covers stays; with
    both, what either covers. Nothing that was needed or written within `grace` is removed.
    """

    keep_last: int | None = None
    keep_newer_than: timedelta | None = None
    grace: timedelta = DEFAULT_GRACE

    @property
    def keeps_all(self) -> bool:
        return self.keep_newer_than is None and self.keep_last is None


def checked_retention(
    *,
    keep_last: int | None = None,
    keep_newer_than: timedelta | None = None,
    grace: timedelta | None = None,
    of: str = "versions",
) -> Retention:
    """Return the retention rules of a caller. Raise InvalidInputError if a value is out of range."""
    if keep_last is not None:
        hint = "pass an integer of at least 1"
        keep_last = checked_number(keep_last, f"number of {of} to keep", hint=hint)
        if keep_last < 1:
            raise InvalidInputError(f"cannot keep the last {keep_last} {of}", hint=hint)
    durations: dict[str, Any] = {"keep_newer_than": keep_newer_than, "grace": grace}
    for name, value in durations.items():
        if value is not None and (not isinstance(value, timedelta) or value < timedelta()):
            raise InvalidInputError(
                f"{name} must be a duration of 0 or more, got {value!r}",
                hint="pass a datetime.timedelta, such as timedelta(days=30)",
            )
    return Retention(
        keep_last=keep_last, keep_newer_than=keep_newer_than, grace=DEFAULT_GRACE if grace is None else grace
    )


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
    """The removed versions and files, or those that a dry run would remove.

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
        found = usage_by_reason((file.reason, file.bytes) for file in self.files)
        return {reason: (usage.files, usage.bytes) for reason, usage in found.items()}


# A file in a base: what it is, and its address.
BaseFile = tuple[FileKind, str]


def read_versions(root: Home, files: Layout, *, skips_damaged: bool = False) -> dict[VersionKey, VersionFiles]:
    """Read which files each version needs. Raise CorruptError or NotFoundError for a manifest that cannot be read."""
    reader = FilesReader(root, files)

    def read(manifest: LayoutFile) -> VersionFiles | None:
        try:
            return reader.read(manifest)
        except (CorruptError, NotFoundError):
            if skips_damaged:
                return None
            raise

    manifests = manifests_of(files)
    found = zip(manifests, in_parallel(read, manifests.values()), strict=True)
    return {key: needs for key, needs in found if needs is not None}


def referenced_versions(root: Home, files: Layout) -> tuple[frozenset[VersionKey], frozenset[VersionKey]]:
    """Return the versions that tags name, holds of clones among them, and those that branches need.

    Raise DamagedFileError if a ref cannot be read: it may name any version.
    """
    for file in files.files:
        # The ref may protect any version. If it were ignored, files that a tag needs could be removed.
        if file.kind is LayoutKind.UNKNOWN and file.path.startswith((f"{BRANCH_REFS}/", f"{TAG_REFS}/")):
            raise DamagedFileError(
                f"{file.path!r} in {root.root!r} may be a branch or tag in a spelling that is not known",
                hint="rename or remove the file, or run `Dataset.doctor()`",
            )
    names = [name for file in files.files if (name := tag_of_ref_path(file.path)) is not None]
    tags = in_parallel(lambda name: get_tag(root, name), names)
    branches = in_parallel(lambda name: get_branch(root, name), files.branches)
    # If the metadata of a branch is lost, doctor writes it again from the version that the branch began with. Without
    # that version, doctor takes the tree for the rest of a deleted branch.
    first = ((info.name, info.parent_version) for info in branches)
    forked = ((info.parent_branch, info.parent_version) for info in branches)
    return frozenset((tag.branch, tag.version) for tag in tags), frozenset((*forked, *first))


def choose_versions(
    manifests: Mapping[VersionKey, LayoutFile],
    referenced: frozenset[VersionKey],
    retention: Retention,
    *,
    now: datetime,
) -> tuple[frozenset[VersionKey], frozenset[VersionKey]]:
    """Return the versions that stay, and those of them that stay only because they are young.

    Always kept are the first and the newest version of each branch, other referenced versions, staged versions (they
    are outside of the history, and no rule of retention speaks of them), and all versions in a tree without a branch,
    which doctor judges.
    """
    wanted: set[VersionKey] = set()
    young: set[VersionKey] = set()
    ordinary: dict[str | None, dict[int, LayoutFile]] = defaultdict(dict)
    for (branch, version), file in manifests.items():
        # Staged versions are outside the history, and a tree without a ref may be a branch that is being created.
        if (branch, version) in referenced or is_staged(version) or not file.has_ref:
            wanted.add((branch, version))
        if not is_staged(version):
            ordinary[branch][version] = file
        if file.modified > now - retention.grace:
            young.add((branch, version))
    for branch, own in ordinary.items():
        wanted.update((branch, version) for version in _retained(own, retention, now))
    return frozenset(wanted | young), frozenset(young - wanted)


def _retained(manifests: Mapping[int, LayoutFile], retention: Retention, now: datetime) -> set[int]:
    """Return the ordinary versions of one branch that the rules keep, and always the newest."""
    if retention.keeps_all:
        return set(manifests)
    # The newest stays in any case: without an ordinary version Lance cannot open the branch.
    kept = set(sorted(manifests, reverse=True)[: max(1, retention.keep_last or 1)])
    if retention.keep_newer_than is not None:
        since = now - retention.keep_newer_than
        kept.update(version for version, file in manifests.items() if file.modified >= since)
    return kept


def read_record(store: ObjectStore) -> frozenset[BaseFile]:
    """Return the files on the list, each with its kind and address."""
    try:
        data = store.get(CLEANUP_RECORD)
    except ObjectNotFoundError:
        return frozenset()
    try:
        return frozenset((FileKind(file["kind"]), str(file["uri"])) for file in json.loads(data)["files"])
    # A damaged list is an error: if it counted as empty, the next write would replace it, and its files would never be
    # removed.
    except (KeyError, TypeError, ValueError) as err:
        raise DamagedFileError(
            f"{CLEANUP_RECORD!r} in {store.uri!r} is damaged: {err!r}",
            hint="delete it: files in bases that no version names any more then stay there",
        ) from err


def write_record(store: ObjectStore, files: Iterable[BaseFile]) -> None:
    """Replace the list. Delete it if it is empty."""
    listed = [{"kind": kind.value, "uri": uri} for kind, uri in sorted(files)]
    if listed:
        store.put(CLEANUP_RECORD, json.dumps({"files": listed}, indent=1).encode())
    else:
        store.delete(CLEANUP_RECORD)


def record_branch(home: Home) -> None:
    """Put the files in bases that a branch names on the list, before the branch's own files are deleted."""
    root = home.on(None)
    own = list_branch_files(root, home.branch or MAIN)
    _add(root, _files_in_bases(root, Layout(root=root.root, files=tuple(own), branches=())))


def record_clone_files(source: Home, clone: Home) -> None:
    """Put the files that a clone names in bases of its source on the source's list, before the clone is deleted."""
    bases = {follow_links(base.path.rstrip("/")) for base in list_bases(source)}
    # Without bases the clone has only files of its own, and files below the source's root, which a listing finds.
    if bases:
        named = _files_in_bases(clone, layout(clone))
        _add(source, ((kind, uri) for kind, uri in named if any(relative_to(uri, path) for path in bases)))


def _files_in_bases(root: Home, files: Layout) -> set[BaseFile]:
    """Return the files outside of a dataset that its readable versions name."""
    return {file for needs in read_versions(root, files, skips_damaged=True).values() for file in needs.elsewhere}


def _add(root: Home, files: Iterable[BaseFile]) -> None:
    store = root.store()
    known = read_record(store)
    listed = known.union(files)
    if listed != known:
        write_record(store, listed)


def files_of_others(root: Home, bases: Iterable[BasePath]) -> frozenset[str]:
    """Return the addresses of all files that known clones and sources of a dataset need.

    A clone may have moved inherited files into a base that both use. A clone's own manifests name files that its source
    wrote into a base. So nothing is removed from a base unless each of these datasets can be read.
    """
    needed: set[str] = set()
    for hold in list_holds(root):
        # A crash may have left a hold without a clone.
        if hold.clone_uri is not None:
            hint = f"relocate it if it was moved, or release it with `clone_release({hold.name!r})`"
            needed |= _files_of_other(hold.clone_uri, f"the clone {hold.clone_uri!r} of {root.root!r}", root, hint)
    # Only the source of a clone gets the id 0. It counts even if it no longer exists.
    options = root.storage_options
    sources = source_roots(root, bases, lambda base, path: base.id == 0 or has_manifest(open_store(path, options)))
    for source in sources:
        hint = "make it reachable, or leave out the bases"
        needed |= _files_of_other(source, f"the source {source!r} of {root.root!r}", root, hint)
    held = (hold.clone_uri for source in sources for hold in list_holds(Home.at(source, options)))
    # The version that the source holds for this clone names every file that the clone inherited. Without it, a file
    # that the source has dropped would look like one that this dataset wrote.
    if sources and root.root not in held:
        raise DatasetInUseError(
            f"{root.root!r} is a clone that none of its sources knows, so files in a base may not be its own",
            hint="run relocate on it, which records it in its source, or leave out the bases",
        )
    return frozenset(needed)


def _files_of_other(uri: str, name: str, root: Home, hint: str) -> frozenset[str]:
    try:
        return files_of_dataset(Home.at(uri, root.storage_options))
    except AnabranchError as err:
        raise DatasetInUseError(
            f"{name} cannot be read, and may need files in a base: {err.problem}", hint=hint
        ) from err


def files_of_dataset(root: Home) -> frozenset[str]:
    """Return the addresses of all files that any version of a dataset needs. An index is one folder."""
    real = follow_links(root.root)
    found: set[str] = set()
    for needs in read_versions(root, layout(root)).values():
        found.update(join_uri(real, path) for path in needs.below)
        found.update(uri for _, uri in needs.elsewhere)
    return frozenset(found)
