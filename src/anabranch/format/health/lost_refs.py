"""The metadata of a branch whose files are there, written again from what the files tell."""

import json
from typing import Any
from uuid import uuid4

from anabranch.errors import AnabranchError, DamagedFileError, ObjectNotFoundError
from anabranch.format.health.remedies import lineage_of
from anabranch.format.home import Home, is_staged
from anabranch.format.names import branch_ref_path, manifest_of_path
from anabranch.format.origins import Origin, find_origin
from anabranch.format.refs import find_branch
from anabranch.storage import ObjectInfo

__all__ = ["can_write_ref", "write_ref"]


def can_write_ref(home: Home) -> bool:
    """Whether a branch's files tell what it was made from, and that is there."""
    return _find_origin(home) is not None


def write_ref(home: Home) -> bool:
    """Write the metadata of a branch that has none, or unreadable ones; whether that was done."""
    found = _find_origin(home)
    branch = home.branch
    if found is None or branch is None or _has_ref(home, branch):
        return False
    origin, first = found
    fields = {
        "parentBranch": origin.branch,
        "identifier": {"version_mapping": [*_lineage(home, origin.branch), [origin.version, uuid4().hex]]},
        "parentVersion": origin.version,
        "createAt": int(first.modified.timestamp()),
        "manifestSize": first.size,
        "metadata": {},
    }
    home.store().put(branch_ref_path(branch), json.dumps(fields, indent=2).encode())
    return True


def _has_ref(home: Home, branch: str) -> bool:
    try:
        return find_branch(home, branch) is not None
    except DamagedFileError:
        return False


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


def _lineage(home: Home, parent: str | None) -> list[list[Any]]:
    if parent is None:
        return []
    try:
        return lineage_of(json.loads(home.store().get(branch_ref_path(parent))))
    except (ObjectNotFoundError, ValueError):
        return []
