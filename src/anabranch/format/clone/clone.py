"""Make clones: a shallow clone reads the files of its source, a deep one has copies of them.

A shallow clone's version is held in the source, so that no cleanup there removes what the clone needs. The hold is made
before the clone and removed after it: a crash may leave an extra hold, but never an unprotected clone.

Lance makes the small files in a scratch folder; they are completed here, and put at the target with the manifest last.
Lance itself clones only within one bucket (elsewhere it writes to the source's bucket and then fails), and copies no
version that has files in other locations on S3. What it writes does not depend on its location, so small files can be
carried anywhere.

`copy_version` copies a version into another table, for a table that is replaced by another one.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from tempfile import TemporaryDirectory

import lance
import numpy as np
from lance.fragment import FragmentMetadata

from anabranch.errors import (
    AnabranchError,
    DamagedFileError,
    DatasetExistsError,
    InvalidInputError,
    InvalidPathError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from anabranch.format.bases import OWN_ROOT, bases_of, check_bases, has_manifest, is_manifest
from anabranch.format.clone.holds import (
    CloneInfo,
    Hold,
    clone_info,
    new_hold_id,
    release_hold,
    remove_dataset,
    scratch_home,
    take_hold,
)
from anabranch.format.home import Home, VersionRef
from anabranch.format.layout.fragment_rows import offsets_in
from anabranch.format.layout.listing import manifest_of_path, manifest_path
from anabranch.format.layout.manifest import BasePath, read_manifest, with_base_paths, without_base_paths
from anabranch.format.layout.needed_files import FileKind, NeededFile, files_of_version
from anabranch.format.refs.refs import get_branch, get_tag
from anabranch.format.staging.fragments import as_new_fragment
from anabranch.format.staging.manifests import Origin, stage
from anabranch.format.staging.rows import Addresses, delete_rows, join_addresses
from anabranch.format.staging.settle_version import give_ordinary_version
from anabranch.ids import MAIN
from anabranch.storage import copy_between, copy_verified, in_parallel, is_below_file, open_parent, open_store
from anabranch.storage.uris import is_local, join_uri, relative_to, split_uri

# The version to clone: a number in the source's home, the name of a tag, or (branch, version). None is the newest.
CloneRef = int | str | tuple[str | None, int | None]


def shallow_clone(
    source: Home,
    target_uri: str,
    *,
    ref: CloneRef | None = None,
    storage_options: Mapping[str, str] | None = None,
    new_id: Callable[[], str] = new_hold_id,
) -> CloneInfo:
    """Make a dataset that reads the files of one version of the source, and writes its own.

    Its base for the source is named after the tag cloned, or else after the hold. The storage options must reach both
    locations; by default they are the source's.
    """
    target = _target(source, target_uri, storage_options)
    refuse_mixed_stores(source.root, target.root)
    return clone_info(_make(source, target, ref, hold_id=new_id(), is_deep=False), exists=True)


def deep_clone(
    source: Home, target_uri: str, *, ref: CloneRef | None = None, storage_options: Mapping[str, str] | None = None
) -> CloneInfo:
    """Copy one version of the source with all of its files to an independent dataset, also in another store."""
    target = _target(source, target_uri, storage_options)
    hold = _make(source, target, ref, hold_id=new_hold_id(), is_deep=True)
    # The copies are complete, so the source need not keep the version any longer.
    release_hold(source.on(None), hold.name)
    return replace(clone_info(hold, exists=True), tag=None)


def _target(source: Home, target_uri: str, storage_options: Mapping[str, str] | None) -> Home:
    target = Home.at(target_uri, source.storage_options if storage_options is None else storage_options)
    if relative_to(target.root, source.root) is not None:
        raise InvalidPathError(
            f"clone {target.root!r} would be in its source {source.root!r}", hint="choose a path outside of it"
        )
    return target


def refuse_mixed_stores(source: str, target: str) -> None:
    """Refuse a shallow clone on another kind of store than its source."""
    # Lance opens the files of all bases with the options of the clone, which fit one kind of store only.
    kinds = ["local disk" if is_local(root) else split_uri(root)[0] for root in (source, target)]
    if kinds[0] != kinds[1]:
        raise InvalidInputError(
            f"a shallow clone on {kinds[1]} cannot read its source on {kinds[0]} with the same storage options",
            hint="make a deep clone",
        )


def _refuse_taken(target: Home) -> None:
    if is_below_file(target.root):
        raise InvalidPathError(f"clone {target.root!r} is a file, or is below one", hint="choose another path")
    if any(True for _ in target.store().list()):
        raise DatasetExistsError(f"there is something at {target.root!r} already", hint="choose another path")


def _resolve(source: Home, ref: CloneRef | None) -> tuple[Origin, str | None]:
    """Return the version to clone and its tag. Check that it exists and reads its own dataset."""
    match ref:
        case None:
            branch, version, tag = source.branch, None, None
        case str():
            found = get_tag(source, ref)
            branch, version, tag = found.branch, found.version, ref
        case (named, version):
            branch, tag = named, None
        case _:
            branch, version, tag = source.branch, ref, None
    home = source.on(None if branch == MAIN else branch)
    if home.branch is not None:
        get_branch(source, home.branch)
    opened = home.open(version)
    # A branch of a copied dataset reads the files of the original, and its clone would do the same.
    check_bases(home, bases_of(opened))
    return Origin(branch=home.branch, version=int(opened.version)), tag


def _make(source: Home, target: Home, ref: CloneRef | None, *, hold_id: str, is_deep: bool) -> Hold:
    """Make a clone and return its hold in the source. If this fails, nothing is left."""
    _refuse_taken(target)
    origin, tag = _resolve(source, ref)
    root = source.on(None)
    hold = take_hold(root, branch=origin.branch, version=origin.version, clone_uri=target.root, hold_id=hold_id)
    draft = Draft(files={})
    try:
        kept = VersionRef(home=root.on(hold.kept_branch), version=hold.kept_version)
        draft = draft_clone(kept, name=hold.name, tag=tag, is_deep=is_deep)
        _publish(root, target, draft)
        _try_to_read(target, draft.version)
    # Also for a keyboard interrupt: the target would remain as half a dataset.
    except BaseException:
        # If this fails, too, the hold stays: it does no harm, and it is listed.
        with suppress(AnabranchError):
            _roll_back(target, draft)
            release_hold(root, hold.name)
        raise
    return hold


def _try_to_read(target: Home, version: int) -> None:
    """Check that the clone's storage options reach the source."""
    # Another clone that is rolled back at this moment can disturb Lance while it looks for the newest version.
    opened = target.open(version)
    with target.errors():
        opened.scanner(columns=opened.schema.names[:1], limit=1).to_table()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The parts of a clone: small files by path with the manifest last, and the addresses to copy files from."""

    files: Mapping[str, bytes]
    copies: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> int:
        return next(name.version for name in map(manifest_of_path, self.files) if name is not None)


def draft_clone(source: VersionRef, *, name: str, is_deep: bool, tag: str | None = None) -> Draft:
    """Prepare a clone of a version that no cleanup removes. A deep one has a copy of every file.

    The base of a shallow one has the name of the tag, or the other name if that is missing or not valid for a base.
    """
    with _scratch_clone(source, name) as scratch:
        store = scratch.store()
        paths = [info.path for info in store.list() if is_manifest(info.path) or info.path.startswith("_transactions/")]
        # `_transactions` sorts before `_versions`, so that the manifest comes last.
        files = {path: store.get(path) for path in sorted(paths)}
        # Read from the scratch clone, in which every file has a base with a whole address, even those of the source's
        # own root.
        needed = files_of_version(scratch, scratch.head_version()).files if is_deep else ()
        copies = dict(chain.from_iterable(_parts(file, source.home) for file in needed))
    for path in filter(is_manifest, files):
        data = files[path]
        files[path] = without_base_paths(data, name=path) if is_deep else _named(data, source.home.uri, tag, name)
    return Draft(files=files, copies=copies)


def put_clone(source: Home, target: Home, draft: Draft, *, on_copied: Callable[[], None]) -> VersionRef:
    """Make a clone from its draft. `on_copied` is called after each file, by several threads."""
    _publish(source.on(None), target, draft, on_copied=on_copied)
    _try_to_read(target, draft.version)
    return VersionRef(home=target, version=draft.version)


def _named(manifest: bytes, cloned: str, tag: str | None, spare_name: str) -> bytes:
    """Give the base for the cloned home the tag's name, or the other name, if the tag cannot be the name of a base."""
    # Digits would be read as the id of a base, and OWN_ROOT names the clone itself. A clone of a clone has the bases of
    # its source, one of which may have this name.
    taken = {base.name for base in read_manifest(manifest).base_paths if base.path != cloned}
    is_usable = tag is not None and tag != OWN_ROOT and not tag.isdigit() and tag not in taken

    def named(base: BasePath) -> BasePath:
        return replace(base, name=tag if is_usable else spare_name) if base.path == cloned else base

    return with_base_paths(manifest, named)


def _parts(file: NeededFile, home: Home) -> Iterator[tuple[str, str]]:
    """Yield the path and the address of each part of a file: an index is a folder, and large blobs are in one."""
    folder, _, name = file.uri.rpartition("/")
    if file.kind is not FileKind.DELETION:
        # Large values are in a folder with the name of their data file, without the extension.
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
def _scratch_clone(source: VersionRef, name: str) -> Iterator[Home]:
    """Make a shallow clone with Lance, in a scratch folder."""
    # For a local source it is in the temporary folder, so that the source may be read-only. Lance clones a bucket only
    # within the bucket, so there it is in a folder of the source that no branch has.
    root = source.home.on(None)
    with ExitStack() as stack:
        if is_local(root.root):
            folder = stack.enter_context(TemporaryDirectory(prefix="anabranch-clone-"))
            scratch = Home.at(join_uri(folder, "scratch"), root.storage_options)
        else:
            scratch = scratch_home(root, name)
        stack.callback(remove_dataset, scratch)
        with root.errors():
            reference, options = (source.home.branch, source.version), root.lance_options()
            # A staged version is cloned as one, outside of any history, and not found unless it is named.
            found = {"version": source.version} if source.is_staged else {}
            root.open().shallow_clone(scratch.root, reference, storage_options=options, **found)
        if source.is_staged:
            give_ordinary_version(scratch, source.version, source.home.head_version(), source=source.home)
            scratch.store().delete(manifest_path(source.version))
        yield scratch


def _publish(root: Home, target: Home, draft: Draft, *, on_copied: Callable[[], None] = lambda: None) -> None:
    """Put a clone at an empty location. The dataset exists after the last put."""
    # Every copy is read back and compared. `on_copied` is called for each of them, by several threads.
    store = target.store()

    def copy(item: tuple[str, str]) -> None:
        copy_verified(*open_parent(item[1], root.storage_options), store, item[0])
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


def _roll_back(target: Home, draft: Draft) -> None:
    """Remove what was published. A small file with other bytes is that of another process, which may use the copies."""
    store = target.store()
    for path, data in reversed(list(draft.files.items())):
        with suppress(ObjectNotFoundError):
            if store.get(path) == data:
                store.delete(path)
    # The copies have the same names in every clone of this version. With a manifest there, they may belong to it.
    if not has_manifest(store):
        for path in draft.copies:
            store.delete(path)


def copy_version(source: VersionRef, *, onto: VersionRef) -> VersionRef:
    """Stage a table that has only the rows of another version, in its schema. Row ids are new.

    A second step deletes from each copy the rows deleted in the source: Lance accepts no new fragment with deletions.
    """
    dataset = source.open()
    fragments = dataset.get_fragments()
    _copy_files(source, onto)
    copies = [FragmentMetadata.from_json(json.dumps(_copied(fragment))) for fragment in fragments]
    # The schema as Lance has it, since the files are tied to its field ids.
    staged = stage(onto.open(), onto, lance.LanceOperation.Overwrite(dataset.lance_schema, copies))
    gone = join_addresses(list(_iter_deleted(source, dataset, fragments, staged.open().get_fragments())))
    return delete_rows(staged, gone).version_ref


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
    with source.home.errors():
        for fragment, copy in zip(fragments, copies, strict=True):
            offsets = offsets_in(source.home, dataset, fragment).astype(np.uint64)
            yield np.uint64(copy.fragment_id) << np.uint64(32) | offsets


def _copy_files(source: VersionRef, onto: VersionRef) -> None:
    """Copy the data files to the folder of the other home. Their names are unique."""
    needed = {file.uri: file for file in files_of_version(source.home, source.version).files}
    store = open_store(onto.home.uri, onto.home.storage_options)

    def copy(file: NeededFile) -> None:
        for path, uri in _parts(file, source.home):
            # Skip a file that is in this folder: the source may be a fork that inherited it from this home.
            if uri != join_uri(store.uri, path):
                copy_between(*open_parent(uri, source.home.storage_options), store, path)

    in_parallel(copy, [file for file in needed.values() if file.kind is FileKind.DATA])
