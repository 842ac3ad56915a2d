"""A list of files in bases that no version of a dataset names any more.

A file in the dataset's own folder is found by a listing. A base may be shared with other datasets, so a file there is
removed only if this dataset named it, and once the last manifest that did is removed, nothing else says so. The list is
written before that manifest goes and read by the next cleanup; an interrupted cleanup loses no file.
"""

import json
from collections.abc import Iterable

from anabranch.errors import CorruptError, DamagedFileError, NotFoundError, ObjectNotFoundError
from anabranch.format.bases.bases import list_bases
from anabranch.format.cleanup.versions import manifests_of
from anabranch.format.home import Home
from anabranch.format.layout.files import FileKind, FilesReader
from anabranch.format.layout.listing import Layout, LayoutFile, layout
from anabranch.format.layout.names import CLEANUP_RECORD
from anabranch.format.refs.branch_files import list_branch_files
from anabranch.ids import MAIN
from anabranch.storage import ObjectStore, in_parallel
from anabranch.storage.uris import follow_links, relative_to

__all__ = ["read_record", "record_branch", "record_clone_files", "write_record"]


def read_record(store: ObjectStore) -> frozenset[tuple[FileKind, str]]:
    """The files on the list, each with its kind and address."""
    try:
        data = store.get(CLEANUP_RECORD)
    except ObjectNotFoundError:
        return frozenset()
    try:
        return frozenset((FileKind(file["kind"]), str(file["uri"])) for file in json.loads(data)["files"])
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
