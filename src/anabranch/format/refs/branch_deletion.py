"""Delete a branch of one dataset with all of its files, and nothing else.

Lance's own deletion is not used. It takes the folder above the last branch below `main/` for the dataset root and
removes it, it leaves the files of a branch that has another one inside its folder, and one ref that it cannot read
stops every deletion.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.errors import (
    AnabranchError,
    BranchInUseError,
    CorruptError,
    InvalidInputError,
    InvalidPathError,
    ObjectNotFoundError,
)
from anabranch.format.home import Home, branch_folder
from anabranch.format.layout.listing import BRANCH_REFS, branch_ref_path, manifest_of_path
from anabranch.format.layout.manifest import read_manifest
from anabranch.format.refs.branches import BranchInfo, get_branch, list_branch_files, remove_branch_files, scan_branches
from anabranch.format.refs.ref_files import RefFile
from anabranch.format.refs.tags import TagInfo, scan_tags
from anabranch.ids import MAIN
from anabranch.storage import put_once

# A tag that keeps a version for a clone; see `holds`.
_HOLD = re.compile(r"clone-[0-9a-f]{16}")


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
        # Listed here, so that a store that fails now leaves the branch as it was, and not its files without metadata.
        files = list_branch_files(root, name)
    except AnabranchError:
        # Only if absent: another process may have created a branch of this name by now.
        put_once(store, path, ref)
        raise
    remove_branch_files(root, name, files)
    return report


def _refuse_in_use(root: Home, name: str) -> None:
    for branch in scan_branches(root):
        if branch.name != name:
            _refuse_child(root, name, branch)
    for tag in scan_tags(root):
        _refuse_tag(name, tag)


def _refuse_child(root: Home, name: str, other: RefFile[BranchInfo]) -> None:
    if other.info is not None:
        is_child = other.info.parent_branch == name
        said = f"branch {name!r} is the parent of {other.name!r}"
    else:
        is_child = _reads_files_of(root, other.name, name)
        said = f"branch {other.name!r}, whose metadata cannot be read, reads files of {name!r}"
    if is_child:
        raise BranchInUseError(said, hint=f"delete {other.name!r} first")


def _reads_files_of(root: Home, other: str, name: str) -> bool:
    """Whether a branch reads files of another one, by its manifests: for one whose metadata cannot be read."""
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
    # A tag that cannot be read counts if what is left of it names the branch, or if it keeps files for a clone.
    is_doubtful = _HOLD.fullmatch(tag.name) or json.dumps(name) in tag.data.decode(errors="replace")
    if tag.info is None and is_doubtful:
        raise BranchInUseError(
            f"the tag in {tag.path!r} cannot be read, and may name a version of branch {name!r}",
            hint="restore the file from a backup, or delete the tag first",
        )
