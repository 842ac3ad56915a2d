"""The repairs of a dataset: small steps that read the files again right before they change anything."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property
from uuid import uuid4

from anabranch.errors import ObjectNotFoundError
from anabranch.format.home import Home, branch_folder
from anabranch.format.layout.listing import LayoutFile, LayoutKind
from anabranch.format.layout.names import VERSION_HINT, branch_ref_path, manifest_of_path, pending_manifest_of_path
from anabranch.format.refs.ref_files import lineage_of
from anabranch.format.staging.external_versions import Origin
from anabranch.storage import put_once

__all__ = ["Repairs", "store_time"]

_MANIFESTS = frozenset({LayoutKind.MANIFEST, LayoutKind.DETACHED_MANIFEST, LayoutKind.PENDING_MANIFEST})


def store_time(root: Home) -> datetime:
    """Return the time of the store's own clock, with which the ages of its files are compared.

    It is found by writing a file, which is removed again.
    """
    store = root.store()
    path = f"_doctor-{uuid4().hex}"
    store.put(path, b"")
    try:
        return store.head(path).modified
    finally:
        store.delete(path)


class Repairs:
    """The repairs of one dataset. Each returns whether it changed anything.

    A repair does nothing if the dataset has changed since the diagnosis, or if a file that it would change is younger
    than `grace`: it may belong to a branch that is just being created.
    """

    def __init__(self, root: Home, grace: timedelta) -> None:
        self._root = root
        self._store = root.store()
        self._grace = grace

    @cached_property
    def _old(self) -> datetime:
        """Files that were modified up to this time may be changed."""
        return store_time(self._root) - self._grace

    def remove_tree(self, branch: str, files: Sequence[LayoutFile]) -> bool:
        """Remove the files of a tree without a ref.

        Manifests are removed first: what a crash leaves then blocks no new branch, and contains no version without its
        data. Lance writes the manifest of a new branch before its ref, so a young manifest may be a branch in creation.
        Younger files of other kinds are kept: a creator that has just taken the name may have written them.
        """
        manifests = [file for file in files if file.kind in _MANIFESTS]
        # A tree without manifests is judged by its other files.
        if any(file.modified > self._old for file in manifests or files):
            return False
        # The ref came since the scan: the branch has been created.
        if self._store.find_info(branch_ref_path(branch)) is not None:
            return False
        # A manifest that was written since the diagnosis, even under the same name, is an attempt to create the branch.
        if self._manifests(branch) != {file.path: file.modified for file in manifests}:
            return False
        self.remove_files(sorted(files, key=_removal_order))
        return True

    def remove_files(self, files: Sequence[LayoutFile]) -> bool:
        """Remove the old ones of some files that will never be read."""
        old = [file for file in files if file.modified <= self._old]
        for file in old:
            self._store.delete(file.path)
        return bool(old)

    def remove_ref(self, branch: str) -> bool:
        """Remove the metadata of a branch without manifests."""
        path = branch_ref_path(branch)
        if self._is_young(path) or self._manifests(branch):
            return False
        self._store.delete(path)
        return True

    def drop_manifests(self, branch: str, paths: Sequence[str], seen: Sequence[str]) -> bool:
        """Remove the first manifests of creators that lost the race for the name of a branch.

        `seen` are all manifests of the branch at the diagnosis: a writer that has added one builds on what would go.
        """
        present = self._manifests(branch)
        if set(present) != set(seen) or max(present.values()) > self._old:
            return False
        for path in paths:
            self._store.delete(path)
        # The hint names the newest version, which is gone now. Lance lists the versions if there is no hint.
        self._store.delete(f"{branch_folder(branch)}/{VERSION_HINT}")
        return True

    def correct_ref(self, branch: str, parent: Origin) -> bool:
        """Change the metadata of a branch to name the parent from which its files came."""
        path = branch_ref_path(branch)
        if self._is_young(path):
            return False
        data = self._store.get(path)
        fields = json.loads(data)
        for key, value in (("parent_branch", parent.branch), ("parent_version", parent.version)):
            # The file keeps its spelling. A field in both spellings would be ambiguous.
            fields[key if key in fields else _camel_case(key)] = value
        if own := lineage_of(data):
            inherited = [] if parent.branch is None else lineage_of(self._store.get(branch_ref_path(parent.branch)))
            fields["identifier"]["version_mapping"] = [*inherited, [parent.version, own[-1][1]]]
        self._store.put(path, json.dumps(fields, indent=2).encode())
        return True

    def write_ref(self, path: str, data: bytes, *, expected: bytes | None, instead_of: str | None = None) -> bool:
        """Write a ref if it is still as `expected`, None for absent; then remove the file that it replaces."""
        if any(self._is_young(changed) for changed in (path, instead_of) if changed is not None):
            return False
        try:
            found = self._store.get(path)
        except ObjectNotFoundError:
            found = None
        if found != expected:
            return False
        # A damaged ref is replaced. A missing one is put only if it is still absent, because a creator may be writing
        # it.
        if expected is not None:
            self._store.put(path, data)
        elif not put_once(self._store, path, data):
            return False
        if instead_of is not None:
            self._store.delete(instead_of)
        return True

    def _manifests(self, branch: str) -> dict[str, datetime]:
        """Return the manifests of a tree, pending ones too, and when each was written."""
        return {
            info.path: info.modified
            for info in self._store.list(f"{branch_folder(branch)}/_versions")
            if manifest_of_path(info.path) or pending_manifest_of_path(info.path)
        }

    def _is_young(self, path: str) -> bool:
        found = self._store.find_info(path)
        return found is not None and found.modified > self._old


def _removal_order(file: LayoutFile) -> int:
    if file.kind is LayoutKind.VERSION_HINT:
        return 0
    return 1 if file.kind in _MANIFESTS else 2


def _camel_case(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(part.capitalize() for part in others)
