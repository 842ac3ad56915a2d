"""The metadata of a branch whose files are there, written again from what the files tell."""

from anabranch.errors import AnabranchError, ObjectNotFoundError
from anabranch.format.doctor.ref_bytes import branch_ref_bytes
from anabranch.format.home import Home, is_staged
from anabranch.format.layout.names import branch_ref_path, manifest_of_path
from anabranch.format.refs.branches import find_branch
from anabranch.format.refs.ref_files import RefKind, ref_problem
from anabranch.format.transactions import Origin, find_origin
from anabranch.storage import ObjectInfo, ObjectStore

__all__ = ["can_write_ref", "write_ref"]


def can_write_ref(home: Home) -> bool:
    """Whether a branch's files tell what it was made from, and that is there."""
    return _find_origin(home) is not None


def write_ref(home: Home) -> bool:
    """Write the metadata of a branch that has none, or that Lance refuses; return whether that was done."""
    found = _find_origin(home)
    branch = home.branch
    if found is None or branch is None:
        return False
    origin, first = found
    store, path = home.store(), branch_ref_path(branch)
    damaged = _read(store, path)
    if damaged is not None and ref_problem(damaged, RefKind.BRANCH) is None:
        return False
    parent = None if origin.branch is None else _read(store, branch_ref_path(origin.branch))
    data = branch_ref_bytes(
        origin,
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
        if origin is None or (origin.branch is not None and find_branch(home, origin.branch) is None):
            return None
    except AnabranchError:
        return None
    return origin, listed[first]
