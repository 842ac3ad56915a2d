"""Refs that Lance refuses, and branches whose metadata is lost: found, and written again as Lance writes them.

`Repairs` are the repairs of a dataset: small steps that read the files again right before they change anything.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from uuid import uuid4

from anabranch.errors import AnabranchError, ObjectNotFoundError
from anabranch.format.doctor.findings import Case, FindingKind
from anabranch.format.doctor.inventory import ALL_MANIFESTS, Inventory
from anabranch.format.home import Home, branch_folder, is_staged
from anabranch.format.layout.listing import (
    VERSION_HINT,
    LayoutFile,
    LayoutKind,
    branch_ref_path,
    manifest_of_path,
    pending_manifest_of_path,
    tag_ref_path,
)
from anabranch.format.refs.ref_files import (
    RefFile,
    RefKind,
    camel_case,
    encode_branch,
    encode_ref,
    lineage_of,
    parse_ref,
    ref_problem,
    usable_fields,
    whole_number,
)
from anabranch.format.refs.refs import BranchInfo, TagInfo, find_branch, parse_branch
from anabranch.format.staging.manifests import Origin, find_origin
from anabranch.storage import ObjectInfo, ObjectStore, put_once


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
        manifests = [file for file in files if file.kind in ALL_MANIFESTS]
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
            fields[key if key in fields else camel_case(key)] = value
        if own := lineage_of(data):
            inherited = [] if parent.branch is None else lineage_of(self._store.get(branch_ref_path(parent.branch)))
            fields["identifier"]["version_mapping"] = [*inherited, [parent.version, own[-1][1]]]
        self._store.put(path, json.dumps(fields, indent=2).encode())
        return True

    def write_ref(self, path: str, data: bytes, *, expected: bytes | None, instead_of: str | None = None) -> bool:
        """Write a ref if it is still as `expected`, None for absent; then remove the file that it replaces."""
        if any(self._is_young(changed) for changed in (path, instead_of) if changed is not None):
            return False
        if _read(self._store, path) != expected:
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
    return 1 if file.kind in ALL_MANIFESTS else 2


_FROM_BACKUP = "restore it from a backup"


Repair = Callable[[], bool]
AnyRef = RefFile[BranchInfo] | RefFile[TagInfo]


def diagnose_refs(inventory: Inventory, repairs: Repairs) -> Iterator[Case]:
    """Report the refs that Lance refuses."""
    for branch in inventory.branch_refs:
        if branch.problem is not None:
            repair = _repair_branch(inventory, branch, repairs)
            yield _damaged(branch, repair, f"{_FROM_BACKUP}, or delete the branch")
    for tag in inventory.tag_refs:
        if tag.problem is not None:
            yield _damaged(tag, _repair_tag(inventory, tag, repairs), f"{_FROM_BACKUP}, or delete the tag")


def _damaged(ref: AnyRef, repair: Repair | None, otherwise: str) -> Case:
    return Case(
        kind=FindingKind.DAMAGED_REF,
        subject=ref.path,
        explanation=f"{ref.problem}; Lance cannot list its refs, nor delete a branch, while it is there",
        remedy="a repair writes it again as Lance does" if repair is not None else f"none: {otherwise}",
        paths=(ref.path,),
        repair=repair,
    )


def _repair_branch(inventory: Inventory, ref: RefFile[BranchInfo], repairs: Repairs) -> Repair | None:
    path = branch_ref_path(ref.name)
    if path != ref.path and any(other.path == path for other in inventory.branch_refs):
        return None  # which of the two is right is for the user to decide
    data = _branch_data(inventory, ref.name, _parent_of(ref), damaged=ref.data)
    return None if data is None else _write(ref, path, data, repairs)


def _parent_of(ref: RefFile[BranchInfo]) -> Origin | None:
    """Return what a branch was made from, by its metadata, if that can be read."""
    try:
        info = ref.info or parse_branch(ref.name, ref.data)
    except (KeyError, ValueError):
        return None
    return Origin(branch=info.parent_branch, version=info.parent_version)


def rebuild_missing_ref(inventory: Inventory, branch: str, repairs: Repairs) -> Repair | None:
    """Return the repair of a branch without metadata, if its first version records what it was created from."""
    data = _branch_data(inventory, branch, None)
    return None if data is None else partial(repairs.write_ref, branch_ref_path(branch), data, expected=None)


def _branch_data(inventory: Inventory, branch: str, parent: Origin | None, *, damaged: bytes = b"") -> bytes | None:
    """Return the metadata of a branch, given its parent if that is known; None if it cannot be found."""
    manifests = inventory.ordinary_manifests(branch)
    if not manifests:
        return None
    first = manifests[0]
    # The metadata first: native cleanup may have removed the manifest that the branch began with.
    if parent is None:
        versions = inventory.versions_of(branch)
        # If the first manifest cannot be read, a later one has nothing to do with the creation.
        parent = versions[0].cloned_from if versions and versions[0].path == first.path else None
    if parent is None:
        return None
    above = next((ref for ref in inventory.branch_refs if ref.name == parent.branch and ref.info is not None), None)
    if parent.branch is not None and above is None:
        return None  # the parent has to be repaired first
    return encode_branch(
        parent_branch=parent.branch,
        parent_version=parent.version,
        created_at=first.modified,
        manifest_size=first.size,
        parent_ref=b"" if above is None else above.data,
        damaged=damaged,
    )


def _repair_tag(inventory: Inventory, ref: RefFile[TagInfo], repairs: Repairs) -> Repair | None:
    path = tag_ref_path(ref.name)
    if path != ref.path and any(other.path == path for other in inventory.tag_refs):
        return None
    place = _target_of(ref)
    manifest = None if place is None else inventory.manifest_of(*place)
    if place is None or manifest is None:
        return None
    # All but the target comes from the damaged file, where that is usable.
    found = usable_fields(ref.data, RefKind.TAG)
    data = encode_ref(
        {
            "branch": place[0],
            "version": place[1],
            "createdAt": found.get("createdAt"),
            "updatedAt": found.get("updatedAt"),
            "manifestSize": found.get("manifestSize", manifest.size),
            "metadata": found.get("metadata", {}),
        }
    )
    # The contents are right: Lance refuses the name of the tag, and a repair must not rename it.
    return None if data == ref.data else _write(ref, path, data, repairs)


def _target_of(ref: RefFile[TagInfo]) -> tuple[str | None, int] | None:
    """What a tag names, as far as that can be read."""
    if ref.info is not None:
        return ref.info.branch, ref.info.version
    try:
        fields = parse_ref(ref.data)
        branch, version = fields.get("branch"), whole_number(fields["version"])
    except (KeyError, ValueError):
        return None
    return (branch, version) if branch is None or isinstance(branch, str) else None


def _write(ref: AnyRef, path: str, data: bytes, repairs: Repairs) -> Repair:
    is_elsewhere = path != ref.path
    return partial(
        repairs.write_ref,
        path,
        data,
        expected=None if is_elsewhere else ref.data,
        instead_of=ref.path if is_elsewhere else None,
    )


def find_ref_repair(home: Home) -> Repair | None:
    """Return the repair of a branch without metadata, or with metadata that Lance refuses.

    None if the branch's files do not record what it was made from, or if that does not exist.
    """
    return None if _find_origin(home) is None else partial(_write_ref, home)


def _write_ref(home: Home) -> bool:
    found = _find_origin(home)
    if found is None:
        return False
    origin, first = found
    store, path = home.store(), branch_ref_path(str(home.branch))
    damaged = _read(store, path)
    # Another process repaired it, or created the branch again.
    if damaged is not None and ref_problem(damaged, RefKind.BRANCH) is None:
        return False
    parent = None if origin.branch is None else _read(store, branch_ref_path(origin.branch))
    data = encode_branch(
        parent_branch=origin.branch,
        parent_version=origin.version,
        created_at=first.modified,
        manifest_size=first.size,
        parent_ref=parent or b"",
        damaged=damaged or b"",
    )
    store.put(path, data)
    return True


def _read(store: ObjectStore, path: str) -> bytes | None:
    try:
        return store.get(path)
    except ObjectNotFoundError:
        return None


def _find_origin(home: Home) -> tuple[Origin, ObjectInfo] | None:
    """What a branch was made from, by its first ordinary version, and the file of that."""
    listed = {}
    for info in home.store().list(f"{home.folder}/_versions"):
        name = manifest_of_path(info.path)
        if name is not None and not is_staged(name.version):
            listed[name.version] = info
    if not listed:
        return None
    first = min(listed)
    try:
        origin = find_origin(home, home.open(first))
        # Metadata that names a missing parent would be the next finding.
        if origin is None or (origin.branch is not None and find_branch(home, origin.branch) is None):
            return None
    except AnabranchError:
        return None
    return origin, listed[first]
