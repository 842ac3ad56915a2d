"""The files of a clone: made by Lance in a scratch folder, completed here, put at the target with the manifest last.

Lance itself clones only within one bucket (elsewhere it writes to the source's bucket and then fails), and copies no
version that has files in other locations on S3. What it writes does not depend on its location, so small files can be
carried anywhere.

`copy_version` copies a version into another table, for a table that is replaced by another one.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory

import lance
import numpy as np
from lance.fragment import FragmentMetadata

from anabranch.errors import DamagedFileError, DatasetExistsError, ObjectExistsError, ObjectNotFoundError
from anabranch.format.bases import OWN_ROOT, has_manifest, is_manifest
from anabranch.format.clone.holds import Hold
from anabranch.format.home import Home, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.deletion_files import offsets_in
from anabranch.format.layout.files import FileKind, NeededFile, files_of_version
from anabranch.format.layout.listing import CLEANUP_RECORD, manifest_path
from anabranch.format.layout.manifest import BasePath, read_manifest, with_base_paths, without_base_paths
from anabranch.format.staging.fragments import as_new_fragment
from anabranch.format.staging.rows import Addresses, delete_at, join_addresses
from anabranch.format.staging.settling import give_ordinary_version
from anabranch.format.staging.version_ref import VersionRef, stage
from anabranch.ids import LAYOUT_NAMES
from anabranch.storage import ObjectStore, copy_between, copy_verified, in_parallel, open_store
from anabranch.storage.local_store import refuse_links
from anabranch.storage.uris import is_local, join_uri


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The parts of a clone: small files by path with the manifest last, and the addresses to copy files from."""

    files: Mapping[str, bytes]
    copies: Mapping[str, str] = field(default_factory=dict)


def shallow_draft(root: Home, hold: Hold, *, tag: str | None) -> Draft:
    """A clone whose base for the cloned home bears the tag's name; the hold's, if that cannot be the name of a base."""
    with _scratch_clone(root, hold) as scratch:
        files = _small_files(scratch.store())
    # Digits would be read as the id of a base, and OWN_ROOT names the clone itself.
    usable = tag is not None and tag != OWN_ROOT and not tag.isdigit()
    names = (tag if tag is not None and usable else hold.name, hold.name)
    cloned = root.on(hold.kept_branch).uri
    return Draft(files={path: _named(data, cloned, *names) if is_manifest(path) else data for path, data in files})


def _named(manifest: bytes, cloned: str, name: str, spare_name: str) -> bytes:
    # A clone of a clone has the bases of its source, one of which may have this name.
    taken = {base.name for base in read_manifest(manifest).base_paths if base.path != cloned}
    alias = spare_name if name in taken else name

    def named(base: BasePath) -> BasePath:
        return replace(base, name=alias) if base.path == cloned else base

    return with_base_paths(manifest, named)


def deep_draft(root: Home, hold: Hold) -> Draft:
    """A clone with a copy of every file, wherever the source has it."""
    with _scratch_clone(root, hold) as scratch:
        files = _small_files(scratch.store())
        # Asked of the scratch clone, in which every file has a base with a whole address, also those of the source's
        # own root.
        needed = files_of_version(scratch, scratch.head_version()).files
        copies = {path: uri for file in needed for path, uri in _parts(file, root)}
    return Draft(
        files={path: without_base_paths(data, name=path) if is_manifest(path) else data for path, data in files},
        copies=copies,
    )


def _parts(file: NeededFile, home: Home) -> Iterator[tuple[str, str]]:
    """Yield the path and the address of each part of a file: an index is a folder, and large blobs are in one."""
    folder, _, name = file.uri.rpartition("/")
    if file.kind is not FileKind.DELETION:
        # Large values are in a folder that is called like their data file, without the extension.
        inside = name if file.kind is FileKind.INDEX else name.rpartition(".")[0]
        found = [info.path for info in open_store(folder, home.storage_options).list(inside)]
        # A listing without files: the manifest names an index folder that does not exist.
        if file.kind is FileKind.INDEX and not found:
            raise DamagedFileError(f"the index {file.uri!r} is missing", hint="run doctor on the dataset")
        for path in found:
            yield f"{file.kind.folder}/{path}", join_uri(folder, path)
    if file.kind is not FileKind.INDEX:
        yield f"{file.kind.folder}/{file.mention.name}", file.uri


@contextmanager
def _scratch_clone(root: Home, hold: Hold) -> Iterator[Home]:
    """Let Lance make a shallow clone in a scratch folder.

    It is in the temporary folder of this machine where the source is local, so that the source may be read-only. From
    a bucket Lance clones within the bucket only, so there it is in a folder of the source that no branch has.
    """
    if is_local(root.root):
        with (
            TemporaryDirectory(prefix="anabranch-clone-") as folder,
            _clone_to(Home.at(join_uri(folder, "scratch"), root.storage_options), root, hold) as made,
        ):
            yield made
    else:
        with _clone_to(_scratch(root, hold.name), root, hold) as made:
            yield made


@contextmanager
def _clone_to(scratch: Home, root: Home, hold: Hold) -> Iterator[Home]:
    try:
        with lance_errors(root.root, root.storage_options):
            kept, options = (hold.kept_branch, hold.kept_version), root.lance_options()
            # A staged version is cloned as one, outside of any history, and not found unless it is named.
            found = {"version": hold.kept_version} if is_staged(hold.kept_version) else {}
            root.open().shallow_clone(scratch.root, kept, storage_options=options, **found)
        if is_staged(hold.kept_version):
            source = root.on(hold.kept_branch)
            give_ordinary_version(scratch, hold.kept_version, source.head_version(), source=source)
            scratch.store().delete(manifest_path(hold.kept_version))
        yield scratch
    finally:
        remove(scratch)


def remove_scratch(root: Home, hold_name: str) -> None:
    """Remove what a crash may have left of the scratch clone."""
    remove(_scratch(root, hold_name))


def _scratch(root: Home, hold_name: str) -> Home:
    # No branch is called so. Where the hold is named by a ULID, what a crash leaves looks like an unfinished fork.
    folder = f"tree/__clone__/{hold_name}"
    refuse_links(root.root, folder)
    return Home.at(join_uri(root.root, folder), root.storage_options)


def _small_files(store: ObjectStore) -> list[tuple[str, bytes]]:
    paths = [info.path for info in store.list() if is_manifest(info.path) or info.path.startswith("_transactions/")]
    # `_transactions` sorts before `_versions`, so that the manifest comes last.
    return [(path, store.get(path)) for path in sorted(paths)]


def publish(root: Home, target: Home, draft: Draft, *, on_copied: Callable[[], None] = lambda: None) -> None:
    """Put a clone where there is none yet; the dataset is there with the last put.

    Every copy is read back and compared. `on_copied` is called for each of them, by several threads.
    """
    store = target.store()

    def copy(item: tuple[str, str]) -> None:
        folder, _, name = item[1].rpartition("/")
        copy_verified(open_store(folder, root.storage_options), name, store, item[0])
        on_copied()

    in_parallel(copy, draft.copies.items())
    store.sync_all()  # the copies must be durable before the manifests that refer to them
    try:
        for path, data in draft.files.items():
            store.put_if_absent(path, data)
    except ObjectExistsError as err:
        raise _just_taken(target) from err
    # Two clones of different versions have manifests of different names, so both puts succeed. Each looks for the
    # other afterwards.
    if any(is_manifest(info.path) and info.path not in draft.files for info in store.list("_versions")):
        raise _just_taken(target)


def _just_taken(target: Home) -> DatasetExistsError:
    return DatasetExistsError(f"another process just made a dataset at {target.root!r}", hint="choose another path")


def roll_back(target: Home, draft: Draft) -> None:
    """Remove what was published; a small file of someone else has other bytes, and copies then may be theirs."""
    store = target.store()
    for path, data in reversed(list(draft.files.items())):
        with suppress(ObjectNotFoundError):
            # Another process may have put its own clone here. Its manifest has other bytes, and must stay.
            if store.get(path) == data:
                store.delete(path)
    # The copies have the same names in every clone of this version. With a manifest there, they may belong to it.
    if not has_manifest(store):
        for path in draft.copies:
            store.delete(path)


def remove(home: Home) -> None:
    """Delete a dataset's files, and its folder if it holds no others."""
    store = home.store()
    paths = [info.path for info in store.list()]
    if all(_is_of_dataset(path) for path in paths) and any(is_manifest(path) for path in paths):
        # Lance also removes the empty folders on local disk.
        with lance_errors(home.root, home.storage_options):
            lance.LanceDataset.drop(home.root, storage_options=home.lance_options(), ignore_not_found=True)
    for path in [info.path for info in store.list()]:
        if _is_of_dataset(path):
            store.delete(path)


def _is_of_dataset(path: str) -> bool:
    return path.partition("/")[0] in LAYOUT_NAMES or path == CLEANUP_RECORD


def copy_version(source: VersionRef, *, onto: VersionRef) -> VersionRef:
    """Stage a table that holds the rows of another version and nothing else, in its schema; row ids are new.

    What was deleted from a fragment is deleted from its copy, by a second step: Lance takes no new fragment with a
    deletion file.
    """
    dataset = source.open()
    fragments = dataset.get_fragments()
    _copy_files(source, onto)
    copies = [FragmentMetadata.from_json(json.dumps(_copied(fragment))) for fragment in fragments]
    # The schema as Lance has it, since the files are tied to its field ids.
    staged = stage(onto.open(), onto, lance.LanceOperation.Overwrite(dataset.lance_schema, copies))
    copied = staged.open()
    gone = join_addresses(list(_iter_deleted(source, dataset, fragments, copied.get_fragments())))
    return delete_at(staged, copied, gone, predicate="rows deleted before the copy").version_ref


def _copied(fragment: lance.LanceFragment) -> dict[str, object]:
    found = as_new_fragment(fragment.metadata.to_json())
    files = [{**file, "base_id": None} for file in found["files"]]
    overlays = [{**one, "data_file": {**one["data_file"], "base_id": None}} for one in found["overlays"]]
    return {**found, "files": files, "overlays": overlays, "deletion_file": None}


def _iter_deleted(
    source: VersionRef,
    dataset: lance.LanceDataset,
    fragments: Sequence[lance.LanceFragment],
    copies: Sequence[lance.LanceFragment],
) -> Iterator[Addresses]:
    with lance_errors(source.home.uri, source.home.storage_options):
        for fragment, copy in zip(fragments, copies, strict=True):
            offsets = offsets_in(source.home, dataset, fragment).astype(np.uint64)
            yield np.uint64(copy.fragment_id) << np.uint64(32) | offsets


def _copy_files(source: VersionRef, onto: VersionRef) -> None:
    """Copy the data files to where the other home has its own; their names are unique."""
    needed = {file.uri: file for file in files_of_version(source.home, source.version).files}
    store = open_store(onto.home.uri, onto.home.storage_options)

    def copy(file: NeededFile) -> None:
        for path, uri in _parts(file, source.home):
            folder, _, name = uri.rpartition("/")
            found = open_store(folder, source.home.storage_options)
            # Unless the file is in this folder already: the source is a fork that inherited it from this home.
            if join_uri(found.uri, name) != join_uri(store.uri, path):
                copy_between(found, name, store, path)

    in_parallel(copy, [file for file in needed.values() if file.kind is FileKind.DATA])
