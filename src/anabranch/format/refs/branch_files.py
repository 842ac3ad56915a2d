"""The files of one branch below `tree/`: which they are, and how they are removed."""

from collections.abc import Iterable
from datetime import UTC, datetime

from anabranch.format.home import Home, branch_folder
from anabranch.format.layout.listing import LayoutFile, LayoutKind, lay_out
from anabranch.format.layout.names import BRANCH_REFS, ManifestName, branch_ref_path
from anabranch.storage import ObjectInfo, remove_empty_folders

__all__ = ["list_branch_files", "remove_branch_files"]


def list_branch_files(root: Home, name: str) -> list[LayoutFile]:
    """List the files of a branch, with or without metadata, but none of `a/b` for `a`."""
    store = root.store()
    own = ObjectInfo(path=branch_ref_path(name), size=0, modified=datetime.now(UTC))
    refs = {info.path: info for info in store.list(BRANCH_REFS)} | {own.path: own}
    return lay_out(root.root, [*refs.values(), *store.list(branch_folder(name))]).of_branch(name)


def remove_branch_files(root: Home, name: str, files: Iterable[LayoutFile] | None = None) -> None:
    """Remove the files of a branch whose metadata is gone, and the folders that this leaves empty.

    Without `files`, all files of the branch are listed first.

    The first manifest goes first. A tree that still has it has lost its metadata and can get it back; one without is
    what an interrupted deletion left. The other manifests follow, as no version may outlive its files.
    """
    store = root.store()
    found = list_branch_files(root, name) if files is None else files
    for file in sorted(found, key=_removal_order):
        store.delete(file.path)
    remove_empty_folders(root.root, branch_folder(name))


def _removal_order(file: LayoutFile) -> tuple[int, int, str]:
    match file.kind:
        case LayoutKind.MANIFEST:
            return 0, ManifestName.parse(file.name).version, file.path
        case LayoutKind.DETACHED_MANIFEST | LayoutKind.PENDING_MANIFEST | LayoutKind.VERSION_HINT:
            return 1, 0, file.path
    return 2, 0, file.path
