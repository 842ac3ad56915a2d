"""The branches of one dataset: their metadata in `_refs/branches/`, their files in `tree/`.

Lance's own deletion of a branch is not used. It takes the folder above the last branch below `main/` for the dataset
root and removes it, it leaves the files of a branch that has another one inside its folder, and one ref that it cannot
read stops every deletion.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import lance

from anabranch.errors import (
    AnabranchError,
    BranchExistsError,
    BranchInUseError,
    BusyError,
    ConflictError,
    CorruptError,
    DamagedFileError,
    DatasetExistsError,
    InvalidInputError,
    InvalidPathError,
    NotFoundError,
    ObjectNotFoundError,
    StorageError,
)
from anabranch.format.bases import bases_of, check_bases
from anabranch.format.home import Home, branch_folder, is_staged
from anabranch.format.layout.listing import (
    BRANCH_REFS,
    LayoutFile,
    LayoutKind,
    ManifestName,
    branch_of_ref_path,
    branch_ref_path,
    lay_out,
    manifest_of_path,
    manifest_path,
    pending_manifest_of_path,
)
from anabranch.format.layout.manifest import read_manifest
from anabranch.format.layout.needed_files import FileMention, files_of_version
from anabranch.format.refs.ref_files import RefFile, RefKind, encode_branch, ref_problem
from anabranch.format.refs.refs import (
    BranchInfo,
    Source,
    TagInfo,
    find_branch,
    get_branch,
    no_branch,
    scan_branches,
    scan_tags,
)
from anabranch.format.staging.manifests import Origin, find_origin
from anabranch.ids import MAIN, BranchName
from anabranch.storage import ObjectInfo, put_once, remove_empty_folders
from anabranch.storage.local_store import refuse_links
from anabranch.storage.uris import is_local, join_uri

# An attempt fails only if another process removes a manifest at the same moment.
_ATTEMPTS = 10
# A tag that keeps a version for a clone, see `holds`. The name alone marks it: a process may die before it writes the
# metadata.
HOLD = re.compile(r"clone-[0-9a-f]{16}")


def create_branch(root: Home, name: str, source: Source) -> BranchInfo:
    """Create a branch from one version, and check the result.

    The branch's first manifest comes first, then its ref. Another creator of the same name may write either in between.
    The ref decides who has created the branch, so a call may continue with the manifest that a failed one has left.
    """
    BranchName.parse_new(name)
    source_branch, version = source
    home = root.on(source_branch)
    at = home.open(version)
    check_bases(home, bases_of(at))
    version = at.version
    if is_staged(version):
        raise InvalidInputError(
            f"version {version} of {home.uri!r} is staged and not part of its history", hint="settle it first"
        )
    parent = read_parent(home)
    refuse_links(root.root, *root.on(name).folders)
    is_begun = _refuse_taken(root, name, at, Origin(branch=source_branch, version=version))
    try:
        if not is_begun:
            clone_version(home, version, name)
        put_branch(home, version, name, first=version, parent=parent)
    # A creator that lost the race has left its first manifest in this tree, which would open at the wrong version.
    except AnabranchError as err:
        if find_branch(root, name) is not None:
            _drop_losing_manifests(root, name)
        # Both mean that another creator of the same name is half done: the source was just opened, so it exists.
        elif not isinstance(err, DatasetExistsError | NotFoundError):
            raise
        if isinstance(err, StorageError):
            raise  # our put may have arrived after its timeout
        raise BranchExistsError(
            f"another process is making the branch {name!r} of {root.root!r}, or has made it",
            hint="choose another name",
        ) from err
    _drop_losing_manifests(root, name)
    info = get_branch(root, name)
    # Another creator's ref came first, so the branch is theirs.
    if (info.parent_branch, info.parent_version) != (source_branch, version):
        raise BranchExistsError(
            f"branch {name!r} of {root.root!r} was just made from another version", hint="choose another name"
        )
    _check_surroundings(root, info)
    return info


def read_parent(source: Home) -> bytes:
    """Return the ref of the home that a new branch starts from, which continues it; the root has none.

    Raise BranchNotFoundError or DamagedFileError if Lance could not branch from it.
    """
    if source.branch is None:
        return b""
    path = branch_ref_path(source.branch)
    try:
        data = source.store().get(path)
    except (InvalidPathError, ObjectNotFoundError):
        raise no_branch(source, source.branch) from None
    if (problem := ref_problem(data, RefKind.BRANCH)) is not None:
        raise DamagedFileError(
            f"Lance cannot read the metadata of branch {source.branch!r} in {path!r}: {problem}",
            hint="run doctor with repair on the dataset",
        )
    return data


def clone_version(source: Home, version: int, name: str) -> None:
    """Write the first manifest of a branch, as Lance does when it creates one; `put_branch` completes it."""
    target = source.on(name)
    clone = lance.LanceOperation.Clone(
        is_shallow=True, ref_name=source.branch, ref_version=version, ref_path=source.uri, branch_name=name
    )
    with source.errors():
        lance.LanceDataset.commit(target.uri, clone, read_version=version, storage_options=target.lance_options())


def put_branch(source: Home, version: int, name: str, *, first: int, parent: bytes) -> None:
    """Put the ref of a branch, whose `first` version has been written. Raise BranchExistsError if it has one.

    Lance would write the ref under its name and not sync it. A power loss could then leave an empty file, which stops
    every listing of the branches.
    """
    store, manifest = source.store(), source.on(name).manifest_path(first)
    ref = encode_branch(
        parent_branch=source.branch,
        parent_version=version,
        created_at=datetime.now(UTC),
        manifest_size=store.head(manifest).size,
        parent_ref=parent,
    )
    after = [join_uri(source.root, manifest)] if is_local(source.root) else []
    if not put_once(store, branch_ref_path(name), ref, after=after):
        raise BranchExistsError(f"dataset {source.root!r} has a branch {name!r} already", hint="choose another name")


def _check_surroundings(root: Home, info: BranchInfo) -> None:
    """Roll a new branch back if, concurrently, a branch that shares its folder was created or its parent deleted."""
    # Every creator writes its ref first and then lists the others, and a deletion removes its ref first and then lists
    # the others. So of two operations at the same time at least one sees the other, and both may.
    try:
        _refuse_neighbours(root, info.name)
        if info.parent_branch is not None:
            get_branch(root, info.parent_branch)
    except AnabranchError:
        root.store().delete(branch_ref_path(info.name))
        remove_branch_files(root, info.name)
        raise


def _refuse_taken(root: Home, name: str, at: lance.LanceDataset, origin: Origin) -> bool:
    """Refuse a name that is in use. Return whether a creator that did not put the ref has left the first manifest.

    `at` is the version that the branch is created from, and `origin` is its position.
    """
    if find_branch(root, name) is not None:
        raise BranchExistsError(f"dataset {root.root!r} has a branch {name!r} already", hint="choose another name")
    _refuse_neighbours(root, name)
    folder = branch_folder(name)
    paths = [info.path for info in root.store().list(folder)]
    manifests = list(filter(_is_any_manifest, paths))
    # A tree with anything else is what is left of a branch that had rows of its own.
    if all(path.startswith((f"{folder}/_versions/", f"{folder}/_transactions/")) for path in paths):
        if not manifests:
            return False
        if manifests == [manifest_path(origin.version, folder)] and _is_fork(root.on(name), at, origin):
            return True
    raise BranchExistsError(
        f"dataset {root.root!r} holds files of an unfinished branch {name!r}",
        hint="run doctor with repair, or choose another name",
    )


def _is_any_manifest(path: str) -> bool:
    return manifest_of_path(path) is not None or pending_manifest_of_path(path) is not None


def _is_fork(home: Home, at: lance.LanceDataset, origin: Origin) -> bool:
    """Return whether the first version of a home is a fork of an opened version, and not of one that had its name."""
    try:
        first = home.open(origin.version)
        return (
            find_origin(home, first) == origin
            and str(first.lance_schema) == str(at.lance_schema)
            and _mentions(home, origin.version) == _mentions(home.on(origin.branch), origin.version)
        )
    except (CorruptError, NotFoundError):
        return False


def _mentions(home: Home, version: int) -> list[FileMention]:
    """Return the files of a version, whose random names identify its rows. A fork has them in another base."""
    return [replace(file.mention, base_id=None) for file in files_of_version(home, version).files]


def _refuse_neighbours(root: Home, name: str) -> None:
    """Refuse a branch whose folder would be inside that of another branch, or contain it."""
    # Lance removes the folder of a branch that it deletes, and leaves the folder if another branch is in it.
    for other in filter(None, (branch_of_ref_path(info.path) for info in root.store().list(BRANCH_REFS))):
        if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
            raise ConflictError(
                f"branch {name!r} would share a folder with the branch {other!r}",
                hint=f"choose a name that neither continues {other!r} nor is continued by it",
            )


def _drop_losing_manifests(root: Home, name: str) -> None:
    """Remove the first manifests of creators that lost the name, so that the branch opens as its ref records."""
    info = get_branch(root, name)
    manifests = _ordinary_manifests(root, name)
    for version, path in manifests.items():
        # Only first manifests are removed. Any other version has the work of a writer in it.
        if version != info.parent_version and _is_first_version(root.on(name), version, path):
            root.store().delete(path)
    if info.parent_version not in manifests:
        _drop_empty_branch(root, name)
        raise BusyError(f"another process is making the branch {name!r} of {root.root!r}", hint="try again")


def _drop_empty_branch(root: Home, name: str) -> None:
    """Remove the ref of a branch without manifests."""
    # A creator puts the ref last. So another process has removed the manifest that the creator continued with.
    ref = branch_ref_path(name)
    if root.store().find_info(ref) is not None and not _ordinary_manifests(root, name):
        root.store().delete(ref)


def _ordinary_manifests(root: Home, name: str) -> dict[int, str]:
    """Return the paths of a branch's manifests by version, without staged versions."""
    paths = [info.path for info in root.store().list(f"{branch_folder(name)}/_versions")]
    parsed = [(manifest_of_path(path), path) for path in paths]
    return {found.version: path for found, path in parsed if found is not None and not is_staged(found.version)}


def _is_first_version(home: Home, version: int, path: str) -> bool:
    for _ in range(_ATTEMPTS):
        try:
            return find_origin(home, home.open(version)) is not None
        except NotFoundError:
            # Others that lost the name clean up as well; Lance reads the newest manifest, which may be gone too.
            if path not in _ordinary_manifests(home, str(home.branch)).values():
                return False
    raise BusyError(f"the versions of {home.uri!r} keep changing", hint="try again")


def list_branch_files(root: Home, name: str) -> list[LayoutFile]:
    """List the files of a branch, with or without metadata, but none of `a/b` for `a`."""
    store = root.store()
    # The ref may be gone already. With it in the list, the files are assigned to this branch and to no other.
    own = ObjectInfo(path=branch_ref_path(name), size=0, modified=datetime.now(UTC))
    refs = {info.path: info for info in store.list(BRANCH_REFS)} | {own.path: own}
    return lay_out(root.root, [*refs.values(), *store.list(branch_folder(name))]).of_branch(name)


def remove_branch_files(root: Home, name: str, files: Iterable[LayoutFile] | None = None) -> None:
    """Remove the files of a branch without metadata, and the folders that become empty.

    Without `files`, all files of the branch are listed first.

    The first manifest goes first. A tree that still has it has lost its metadata, which can be restored. A tree without
    it was left by an interrupted deletion. The other manifests follow, as no version may outlive its files.
    """
    store = root.store()
    found = list_branch_files(root, name) if files is None else files
    for file in sorted(found, key=_removal_order):
        store.delete(file.path)
    _drop_empty_branch(root, name)
    remove_empty_folders(root.root, branch_folder(name))


def _removal_order(file: LayoutFile) -> tuple[int, int, str]:
    match file.kind:
        case LayoutKind.MANIFEST:
            return 0, ManifestName.parse(file.name).version, file.path
        case LayoutKind.DETACHED_MANIFEST | LayoutKind.PENDING_MANIFEST | LayoutKind.VERSION_HINT:
            return 1, 0, file.path
    return 2, 0, file.path


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedBranch:
    """A deleted branch, with the number of files that it had and their bytes; in a dry run nothing was deleted."""

    name: str
    files: int
    bytes: int
    dry_run: bool


def delete_branch(
    root: Home, name: str, *, on_removal: Callable[[Home], None] = lambda _: None, dry_run: bool = False
) -> DeletedBranch:
    """Remove a branch and its files; refuse while another branch or a tag needs them.

    The branch may have metadata that cannot be read. Other refs that cannot be read do not stop the deletion unless
    they may need the branch. `on_removal` is called with the branch's home when nothing can refuse the deletion any
    more, right before the files are removed.
    """
    if name == MAIN:
        raise InvalidInputError("branch 'main' cannot be deleted", hint="delete the dataset itself if you mean it")
    store, path = root.store(), branch_ref_path(name)
    try:
        ref = store.get(path)
    except (InvalidPathError, ObjectNotFoundError):
        get_branch(root, name)  # raises BranchNotFoundError
        raise
    _refuse_in_use(root, name)
    files = list_branch_files(root, name)
    report = DeletedBranch(name=name, files=len(files), bytes=sum(file.size for file in files), dry_run=dry_run)
    if dry_run:
        return report
    store.delete(path)
    # Durable before the first file is removed: a ref that comes back after a power loss would have no files.
    store.sync_folders([BRANCH_REFS])
    try:
        # Read the refs again after our own deletion. If a child or a tag came in between, one of the two operations
        # sees the other: here we restore the branch; there, the creator finds that its source is gone and rolls back.
        _refuse_in_use(root, name)
        on_removal(root.on(name))
        # List the files first: if the store fails now, the branch stays as it was, instead of files without metadata.
        files = list_branch_files(root, name)
    except AnabranchError:
        # Put it only if absent: another process may have created a branch of this name.
        put_once(store, path, ref)
        raise
    remove_branch_files(root, name, files)
    return report


def _refuse_in_use(root: Home, name: str) -> None:
    for branch in scan_branches(root):
        if branch.name == name:
            continue
        if branch.info is not None:
            is_child = branch.info.parent_branch == name
            reason = f"branch {name!r} is the parent of {branch.name!r}"
        else:
            is_child = _reads_files_of(root, branch.name, name)
            reason = f"branch {branch.name!r}, whose metadata cannot be read, reads files of {name!r}"
        if is_child:
            raise BranchInUseError(reason, hint=f"delete {branch.name!r} first")
    for tag in scan_tags(root):
        _refuse_tag(name, tag)


def _reads_files_of(root: Home, other: str, name: str) -> bool:
    """Return whether the manifests of a branch name files of another branch. For branches with unreadable metadata."""
    store = root.store()
    for info in store.list(f"{branch_folder(other)}/_versions"):
        if manifest_of_path(info.path) is None:
            continue
        try:
            bases = read_manifest(store.get(info.path), name=info.path).base_paths
        except ObjectNotFoundError:
            continue
        except CorruptError:
            raise BranchInUseError(
                f"{info.path!r} and the metadata of its branch cannot be read, and may need branch {name!r}",
                hint=f"restore one of them from a backup, or delete {other!r} first",
            ) from None
        # By the end of the path: the base may name the dataset's former location.
        if any(base.path.rstrip("/").endswith(f"/{branch_folder(name)}") for base in bases):
            return True
    return False


def _refuse_tag(name: str, tag: RefFile[TagInfo]) -> None:
    if tag.info is not None and tag.info.branch == name:
        raise BranchInUseError(
            f"tag {tag.name!r} names version {tag.info.version} of branch {name!r}",
            hint=f"delete the tag {tag.name!r} first",
        )
    # A damaged tag counts if its readable part names the branch, or if it keeps files for a clone.
    is_doubtful = HOLD.fullmatch(tag.name) or json.dumps(name) in tag.data.decode(errors="replace")
    if tag.info is None and is_doubtful:
        raise BranchInUseError(
            f"the tag in {tag.path!r} cannot be read, and may name a version of branch {name!r}",
            hint="restore the file from a backup, or delete the tag first",
        )
