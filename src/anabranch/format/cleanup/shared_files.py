"""Files in bases, which a dataset shares with its clones and sources, and a list of those that no version names.

A file in the dataset's own folder is found by a listing. A base may be shared with other datasets, so a file there is
removed only if this dataset named it and no other dataset needs it. Once the last manifest that named the file is
removed, nothing else records it, so the list is written before that manifest is removed and read by the next cleanup.
An interrupted cleanup loses no file.

A base that no version uses can be removed from the list of bases. Lance has no operation for it. A writer that is about
to put files into the base must not land on a version that does not list it, or its files cannot be found: the versions
put here conflict with every concurrent write.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.errors import (
    AnabranchError,
    ConflictError,
    CorruptError,
    DamagedFileError,
    DatasetInUseError,
    NotFoundError,
    ObjectNotFoundError,
)
from anabranch.format.bases.bases import get_base, get_target, has_manifest, label, list_bases
from anabranch.format.cleanup.retention import VersionKey, manifests_of
from anabranch.format.clone.holds import list_holds
from anabranch.format.home import Home, is_staged
from anabranch.format.layout.files import FileKind, FilesReader, VersionFiles
from anabranch.format.layout.listing import CLEANUP_RECORD, Layout, LayoutFile, layout
from anabranch.format.layout.manifest import BasePath, put_next_version, without_base
from anabranch.format.refs.branches import list_branch_files
from anabranch.ids import MAIN
from anabranch.storage import ObjectStore, in_parallel, open_store
from anabranch.storage.uris import follow_links, join_uri, relative_to


def read_record(store: ObjectStore) -> frozenset[tuple[FileKind, str]]:
    """The files on the list, each with its kind and address."""
    try:
        data = store.get(CLEANUP_RECORD)
    except ObjectNotFoundError:
        return frozenset()
    try:
        return frozenset((FileKind(file["kind"]), str(file["uri"])) for file in json.loads(data)["files"])
    # Not taken for an empty list: the next write would replace it, and the files on it would never be removed.
    except (KeyError, TypeError, ValueError) as err:
        raise DamagedFileError(
            f"{CLEANUP_RECORD!r} in {store.uri!r} is damaged: {err!r}",
            hint="delete it: files in bases that no version names any more then stay there",
        ) from err


def write_record(store: ObjectStore, files: Iterable[tuple[FileKind, str]]) -> None:
    """Replace the list; an empty one is deleted."""
    listed = [{"kind": kind.value, "uri": uri} for kind, uri in sorted(files)]
    if listed:
        store.put(CLEANUP_RECORD, json.dumps({"files": listed}, indent=1).encode())
    else:
        store.delete(CLEANUP_RECORD)


def record_branch(home: Home) -> None:
    """Put the files in bases that a branch names on the list, before the branch's own files are deleted."""
    root = home.on(None)
    own = list_branch_files(root, home.branch or MAIN)
    named = _files_in_bases(root, Layout(root=root.root, files=tuple(own), branches=()))
    _add(root, named)


def record_clone_files(source: Home, clone: Home) -> None:
    """Put the files that a clone names in bases of its source on the source's list, before the clone is deleted."""
    bases = {follow_links(base.path.rstrip("/")) for base in list_bases(source)}
    # Without bases the clone has only files of its own, and files below the source's root, which a listing finds.
    if bases:
        named = _files_in_bases(clone, layout(clone))
        _add(source, ((kind, uri) for kind, uri in named if any(relative_to(uri, path) for path in bases)))


def _files_in_bases(root: Home, files: Layout) -> set[tuple[FileKind, str]]:
    """The files outside of a dataset that some of its versions name, those of damaged manifests not included."""
    reader = FilesReader(root, files)

    def elsewhere(manifest: LayoutFile) -> frozenset[tuple[FileKind, str]]:
        try:
            return reader.read(manifest).elsewhere
        except (CorruptError, NotFoundError):
            return frozenset()

    return {file for found in in_parallel(elsewhere, manifests_of(files).values()) for file in found}


def _add(root: Home, files: Iterable[tuple[FileKind, str]]) -> None:
    store = root.store()
    known = read_record(store)
    listed = known.union(files)
    if listed != known:
        write_record(store, listed)


def files_of_others(root: Home, bases: Iterable[BasePath]) -> frozenset[str]:
    """The addresses of all files that known clones and sources of a dataset need.

    A clone may have moved inherited files into a base that both use. A clone's own manifests name files that its source
    wrote into a base. So nothing is removed from a base unless each of these datasets can be read.
    """
    needed: set[str] = set()
    for hold in list_holds(root):
        # A crash left the hold without a clone.
        if hold.clone_uri is None:
            continue
        try:
            needed |= files_of_dataset(Home.at(hold.clone_uri, root.storage_options))
        except AnabranchError as err:
            raise DatasetInUseError(
                f"the clone {hold.clone_uri!r} of {root.root!r} cannot be read, and may need files in a base:"
                f" {err.problem}",
                hint=f"relocate it if it was moved, or release it with `clone_release({hold.name!r})`",
            ) from err
    return frozenset(needed | _files_of_sources(root, bases))


def _files_of_sources(root: Home, bases: Iterable[BasePath]) -> set[str]:
    needed: set[str] = set()
    sources = [Home.at(path, root.storage_options) for path in sorted(_source_roots(root, bases))]
    for source in sources:
        try:
            needed |= files_of_dataset(source)
        except AnabranchError as err:
            raise DatasetInUseError(
                f"the source {source.root!r} of {root.root!r} cannot be read, and may need files in a base:"
                f" {err.problem}",
                hint="make it reachable, or leave out the bases",
            ) from err
    # The version that the source holds for this clone names every file that the clone inherited. Without it, a file
    # that the source has dropped would look like one that this dataset wrote.
    if sources and not any(hold.clone_uri == root.root for source in sources for hold in list_holds(source)):
        raise DatasetInUseError(
            f"{root.root!r} is a clone that none of its sources knows, so files in a base may not be its own",
            hint="run relocate on it, which records it in its source, or leave out the bases",
        )
    return needed


def _source_roots(root: Home, bases: Iterable[BasePath]) -> set[str]:
    own = follow_links(root.root)
    found = set()
    for base in bases:
        path, is_branch, _ = base.path.rstrip("/").partition("/tree/")
        if not base.is_dataset_root or relative_to(follow_links(path), own) is not None:
            continue
        # Only the source of a clone gets the id 0. It counts even if it is not there any more.
        if is_branch or base.id == 0 or has_manifest(open_store(path, root.storage_options)):
            found.add(path)
    return found


def files_of_dataset(root: Home) -> frozenset[str]:
    """The addresses of all files that any version of a dataset needs, index folders as folders."""
    files = layout(root)
    reader = FilesReader(root, files)
    real = follow_links(root.root)
    found: set[str] = set()
    for needs in in_parallel(reader.read, list(manifests_of(files).values())):
        found.update(join_uri(real, path) for path in needs.below)
        found.update(uri for _, uri in needs.elsewhere)
    return frozenset(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRemoval:
    """A removed base, and the version of each branch that no longer lists it; in a dry run, the present versions.

    `unused_files` is the number of files that are left in the base: versions of this dataset named them, and none does
    any more.
    """

    base: BasePath
    versions: Mapping[str, int]
    unused_files: int
    dry_run: bool


def remove_base(root: Home, name: str, *, dry_run: bool = False) -> BaseRemoval:
    """Make new versions of main and of all branches that do not list a base; older versions still do.

    Raise ConflictError if any version that exists has files in the base.
    """
    needs = _read_all(root)
    newest = _newest_versions(needs)
    listed = [base for branch in sorted(newest, key=_main_first) for base in needs[branch, newest[branch]].bases]
    base = get_base(listed, name)
    get_target(root, [base], base.id)  # refuses the root of another dataset
    _refuse_used(root, base, needs, newest)
    versions: dict[str, int] = {}
    # Main is changed last: a root that only a branch lists counts as stale, so that a removal which is interrupted
    # leaves a state that the next one can read and finish.
    for branch in sorted(newest, key=_main_first, reverse=True):
        if _lists(needs[branch, newest[branch]], base):
            home, version = root.on(branch), newest[branch]
            versions[branch or MAIN] = version if dry_run else _put_without(home, base)
    place = _location(base)
    left = sum(1 for _, uri in read_record(root.store()) if relative_to(uri, place) is not None)
    return BaseRemoval(base=base, versions=versions, unused_files=left, dry_run=dry_run)


def _newest_versions(places: Iterable[VersionKey]) -> dict[str | None, int]:
    """Return the newest ordinary version of each branch."""
    newest: dict[str | None, int] = {}
    for branch, version in places:
        if not is_staged(version):
            newest[branch] = max(version, newest.get(branch, 0))
    return newest


def _main_first(branch: str | None) -> str:
    return branch or ""


def _put_without(home: Home, base: BasePath) -> int:
    return put_next_version(home, lambda data: without_base(data, base.path))


def _read_all(root: Home) -> dict[VersionKey, VersionFiles]:
    files = layout(root)
    reader = FilesReader(root, files)
    # A tree without a ref is what a crash left, or a branch in creation. Doctor decides on it.
    manifests = {place: file for place, file in manifests_of(files).items() if file.has_ref}
    return dict(zip(manifests, in_parallel(reader.read, manifests.values()), strict=True))


def _refuse_used(
    root: Home, base: BasePath, needs: Mapping[VersionKey, VersionFiles], newest: Mapping[str | None, int]
) -> None:
    place = _location(base)
    # All versions, not only the newest: older ones are still read, and a restore makes them the newest.
    users = [key for key, need in needs.items() if any(relative_to(uri, place) for _, uri in need.elsewhere)]
    if users:
        raise ConflictError(
            f"base {label(base)!r} of {root.root!r} holds files of {_listed(users)}",
            hint="move the fragments to another base and clean up older versions first",
        )
    # Branches may inherit only from roots that main lists, in older versions too.
    if not base.is_dataset_root:
        return
    older = [place for place in needs if place[0] is not None and place[1] != newest[place[0]]]
    old = [place for place in older if _lists(needs[place], base)]
    if old:
        raise ConflictError(
            f"base {label(base)!r} of {root.root!r} is a dataset root, and {_listed(old)} lists it",
            hint="clean up the older versions of the branch, or delete the branch, first",
        )


def _listed(places: Sequence[VersionKey]) -> str:
    branch, version = places[0]
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"version {version} of {branch or MAIN!r}{more}"


def _lists(need: VersionFiles, base: BasePath) -> bool:
    return any(_location(other) == _location(base) for other in need.bases)


def _location(base: BasePath) -> str:
    return follow_links(base.path.rstrip("/"))
