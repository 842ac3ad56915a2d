"""Files in bases, which a dataset shares with its clones and sources, and a list of those that no version names.

A file in the dataset's own folder is found by a listing. A base may be shared with other datasets, so a file there is
removed only if this dataset named it and no other dataset needs it. Once the last manifest that named the file is
removed, nothing else records it, so the list is written before that manifest is removed and read by the next cleanup.
An interrupted cleanup loses no file.
"""

import json
from collections.abc import Iterable

from anabranch.errors import (
    AnabranchError,
    CorruptError,
    DamagedFileError,
    DatasetInUseError,
    NotFoundError,
    ObjectNotFoundError,
)
from anabranch.format.bases.bases import list_bases
from anabranch.format.cleanup.versions import manifests_of
from anabranch.format.clone.files import has_manifest
from anabranch.format.clone.holds import list_holds
from anabranch.format.home import Home
from anabranch.format.layout.files import FileKind, FilesReader
from anabranch.format.layout.listing import Layout, LayoutFile, layout
from anabranch.format.layout.manifest import BasePath
from anabranch.format.layout.names import CLEANUP_RECORD
from anabranch.format.refs.branches import list_branch_files
from anabranch.ids import MAIN
from anabranch.storage import ObjectStore, in_parallel, open_store
from anabranch.storage.uris import follow_links, join_uri, relative_to

__all__ = [
    "files_of_dataset",
    "files_of_others",
    "read_record",
    "record_branch",
    "record_clone_files",
    "write_record",
]


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
