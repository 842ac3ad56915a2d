"""What doctor does about a finding: small steps that look again right before they act."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

from anabranch.errors import ObjectNotFoundError
from anabranch.format.home import Home, branch_folder
from anabranch.format.layout.listing import LayoutFile, LayoutKind
from anabranch.format.layout.names import VERSION_HINT, branch_ref_path, manifest_of_path, pending_manifest_of_path
from anabranch.format.refs.ref_files import lineage_of
from anabranch.storage import ObjectStore, put_once

__all__ = [
    "CorrectRef",
    "DropManifests",
    "Remedy",
    "RemoveFiles",
    "RemoveRef",
    "RemoveTree",
    "WriteRef",
    "apply_remedy",
    "store_time",
]

_MANIFESTS = frozenset({LayoutKind.MANIFEST, LayoutKind.DETACHED_MANIFEST, LayoutKind.PENDING_MANIFEST})


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTree:
    """Remove the files of a tree that no branch refers to."""

    branch: str
    files: tuple[LayoutFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRef:
    """Remove the metadata of a branch without files."""

    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropManifests:
    """Remove the first manifests of creators that lost the race for a branch's name; `seen` are all the tree has."""

    branch: str
    paths: tuple[str, ...]
    seen: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectRef:
    """Make a branch's metadata name the parent from which its files came."""

    branch: str
    parent_branch: str | None
    parent_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRef:
    """Write a ref as Lance does, if it is still as `expected`, None for absent; then remove the file it stands for."""

    path: str
    data: bytes
    expected: bytes | None
    instead_of: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFiles:
    """Remove files that nobody will ever read."""

    files: tuple[LayoutFile, ...]


Remedy = RemoveFiles | RemoveTree | RemoveRef | DropManifests | CorrectRef | WriteRef


def apply_remedy(root: Home, remedy: Remedy, *, now: datetime, grace: timedelta) -> bool:
    """Do it, unless the dataset has changed since the diagnosis or something involved is younger than `grace`."""
    store = root.store()
    match remedy:
        case RemoveFiles():
            return _remove_files(store, remedy, before=now - grace)
        case RemoveTree():
            return _remove_tree(store, remedy, before=now - grace)
        case RemoveRef():
            return _remove_ref(store, remedy, before=now - grace)
        case DropManifests():
            return _drop_manifests(store, remedy, before=now - grace)
        case CorrectRef():
            return _correct_ref(store, remedy, before=now - grace)
        case WriteRef():
            return _write_ref(store, remedy, before=now - grace)


def store_time(root: Home) -> datetime:
    """The store's own clock, to which its files' ages are compared; found out by writing, and removing, a file."""
    store = root.store()
    path = f"_doctor-{uuid4().hex}"
    store.put(path, b"")
    try:
        return store.head(path).modified
    finally:
        store.delete(path)


def _remove_tree(store: ObjectStore, remedy: RemoveTree, *, before: datetime) -> bool:
    """Manifests go first: what is left behind by a crash then blocks nobody, and holds no version without its data.

    Lance writes a new branch's manifest before its ref, so a young manifest may be a branch in the making. Younger
    files of other kinds are spared: a creator that takes the name over just now may have written them.
    """
    manifests = [file for file in remedy.files if file.kind in _MANIFESTS]
    if any(file.modified > before for file in manifests or remedy.files):
        return False
    if store.find_info(branch_ref_path(remedy.branch)) is not None:
        return False
    # A manifest that came since the diagnosis, even under the same name, is someone's attempt to make the branch.
    if _manifests(store, remedy.branch) != {file.path: file.modified for file in manifests}:
        return False
    hints = [file for file in remedy.files if file.kind is LayoutKind.VERSION_HINT]
    first = {file.path for file in [*hints, *manifests]}
    others = [file for file in remedy.files if file.path not in first and file.kind is not LayoutKind.STRANGER]
    for file in [*hints, *manifests, *others]:
        if file.modified <= before:
            store.delete(file.path)
    return True


def _remove_files(store: ObjectStore, remedy: RemoveFiles, *, before: datetime) -> bool:
    old = [file for file in remedy.files if file.modified <= before]
    for file in old:
        store.delete(file.path)
    return bool(old)


def _remove_ref(store: ObjectStore, remedy: RemoveRef, *, before: datetime) -> bool:
    path = branch_ref_path(remedy.branch)
    if _is_young(store, path, before) or _manifests(store, remedy.branch):
        return False
    store.delete(path)
    return True


def _drop_manifests(store: ObjectStore, remedy: DropManifests, *, before: datetime) -> bool:
    present = _manifests(store, remedy.branch)
    # Whoever wrote since then has built on what was to go.
    if set(present) != set(remedy.seen) or max(present.values()) > before:
        return False
    for path in remedy.paths:
        store.delete(path)
    # It names the newest version, which is gone; Lance does without it.
    store.delete(f"{branch_folder(remedy.branch)}/{VERSION_HINT}")
    return True


def _correct_ref(store: ObjectStore, remedy: CorrectRef, *, before: datetime) -> bool:
    path = branch_ref_path(remedy.branch)
    if _is_young(store, path, before):
        return False
    fields = json.loads(store.get(path))
    for key, value in (("parent_branch", remedy.parent_branch), ("parent_version", remedy.parent_version)):
        fields[key if key in fields else _camel_case(key)] = value
    if own := lineage_of(store.get(path)):
        parent = remedy.parent_branch
        inherited = [] if parent is None else lineage_of(store.get(branch_ref_path(parent)))
        fields["identifier"]["version_mapping"] = [*inherited, [remedy.parent_version, own[-1][1]]]
    store.put(path, json.dumps(fields, indent=2).encode())
    return True


def _write_ref(store: ObjectStore, remedy: WriteRef, *, before: datetime) -> bool:
    changed = [path for path in (remedy.path, remedy.instead_of) if path is not None]
    if any(_is_young(store, path, before) for path in changed):
        return False
    try:
        found = store.get(remedy.path)
    except ObjectNotFoundError:
        found = None
    if found != remedy.expected:
        return False
    if remedy.expected is not None:
        store.put(remedy.path, remedy.data)
    elif not put_once(store, remedy.path, remedy.data):
        return False
    if remedy.instead_of is not None:
        store.delete(remedy.instead_of)
    return True


def _camel_case(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(part.capitalize() for part in others)


def _manifests(store: ObjectStore, branch: str) -> dict[str, datetime]:
    """The manifests of a tree, pending ones too, and when each was written."""
    listed = store.list(f"{branch_folder(branch)}/_versions")
    return {
        info.path: info.modified
        for info in listed
        if manifest_of_path(info.path) or pending_manifest_of_path(info.path)
    }


def _is_young(store: ObjectStore, path: str, before: datetime) -> bool:
    found = store.find_info(path)
    return found is not None and found.modified > before
