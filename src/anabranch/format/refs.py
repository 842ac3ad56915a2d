"""The branches of one dataset: their metadata in `_refs/branches/`, their files in `tree/`."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from anabranch.errors import (
    BranchExistsError,
    BranchInUseError,
    BranchNotFoundError,
    BusyError,
    ConflictError,
    DamagedFileError,
    InvalidInputError,
    ObjectNotFoundError,
)
from anabranch.format.home import Home, branch_folder, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.names import branch_of_ref_path, branch_ref_path, manifest_path
from anabranch.ids import MAIN, BranchName

__all__ = [
    "BranchInfo",
    "Source",
    "create_branch",
    "delete_branch",
    "find_branch",
    "get_branch",
    "list_branches",
    "read_ref",
]

# A place in a dataset's history: branch (None for main) and version (None for the newest).
Source = tuple[str | None, int | None]

_PARALLEL_READS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchInfo:
    """A branch's metadata. The parent branch None is main."""

    name: str
    parent_branch: str | None
    parent_version: int
    created_at: datetime
    manifest_size: int
    metadata: Mapping[str, str]


def list_branches(root: Home) -> tuple[BranchInfo, ...]:
    store = root.store()
    paths = [info.path for info in store.list("_refs/branches")]
    names = sorted(name for path in paths if (name := branch_of_ref_path(path)) is not None)
    with ThreadPoolExecutor(_PARALLEL_READS) as readers:
        found = readers.map(lambda name: find_branch(root, name), names)
        return tuple(info for info in found if info is not None)


def find_branch(root: Home, name: str) -> BranchInfo | None:
    """The metadata of a branch, whoever made it and however it is spelled; None if there is none."""
    path = branch_ref_path(name)
    try:
        fields = read_ref(root, path)
    except ObjectNotFoundError:
        return None
    try:
        return BranchInfo(
            name=name,
            parent_branch=fields.get("parent_branch"),
            parent_version=int(fields["parent_version"]),
            created_at=datetime.fromtimestamp(int(fields["create_at"]), UTC),
            manifest_size=int(fields["manifest_size"]),
            metadata=dict(fields.get("metadata") or {}),
        )
    except (KeyError, TypeError, ValueError) as err:
        raise DamagedFileError(
            f"branch {name!r} of {root.root!r} has damaged metadata in {path!r}: {err!r}",
            hint="run doctor on the dataset",
        ) from err


def get_branch(root: Home, name: str) -> BranchInfo:
    info = find_branch(root, name)
    if info is None:
        raise BranchNotFoundError(
            f"dataset {root.root!r} has no branch {name!r}", hint="list its branches to see which exist"
        )
    return info


def read_ref(root: Home, path: str) -> dict[str, Any]:
    """The fields of a ref file under the specification's names; Lance itself writes them in camel case."""
    data = root.store().get(path)
    try:
        fields = json.loads(data)
    except ValueError as err:
        raise DamagedFileError(f"{path!r} in {root.root!r} is not JSON", hint="run doctor on the dataset") from err
    if not isinstance(fields, dict):
        raise DamagedFileError(f"{path!r} in {root.root!r} is not a JSON object", hint="run doctor on the dataset")
    return {_snake_case(key): value for key, value in fields.items()}


def _snake_case(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


def create_branch(root: Home, name: str, source: Source) -> BranchInfo:
    """Branch from one version, and make sure that this is what came out.

    Lance writes the branch's first manifest, then its ref, and guards neither against another creator of the same name.
    """
    BranchName.parse_new(name)
    source_branch, version = source
    home = root.on(source_branch)
    at = home.open(version)
    version = at.version
    if is_staged(version):
        raise InvalidInputError(
            f"version {version} of {home.uri!r} is staged and not part of its history", hint="settle it first"
        )
    _refuse_taken(root, name)
    reference = (source_branch, version)
    try:
        with lance_errors(root.root, root.storage_options):
            root.open().create_branch(name, reference, storage_options=root.lance_options())
    except Exception:
        if find_branch(root, name) is None:
            raise
        _drop_losing_manifests(root, name)
        raise BranchExistsError(
            f"dataset {root.root!r} has a branch {name!r} already", hint="someone just made it; choose another name"
        ) from None
    _drop_losing_manifests(root, name)
    info = get_branch(root, name)
    if (info.parent_branch, info.parent_version) != reference:
        raise BranchExistsError(
            f"branch {name!r} of {root.root!r} was just made from another version", hint="choose another name"
        )
    return info


def _refuse_taken(root: Home, name: str) -> None:
    if find_branch(root, name) is not None:
        raise BranchExistsError(f"dataset {root.root!r} has a branch {name!r} already", hint="choose another name")
    others = [branch_of_ref_path(info.path) for info in root.store().list("_refs/branches")]
    for other in filter(None, others):
        # One would keep its files inside the other's folder, and deleting either would leave or lose files.
        if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
            raise ConflictError(
                f"branch {name!r} would share a folder with the branch {other!r}",
                hint=f"choose a name that neither continues {other!r} nor is continued by it",
            )
    if any(True for _ in root.store().list(branch_folder(name))):
        raise BranchExistsError(
            f"dataset {root.root!r} holds files of an unfinished branch {name!r}",
            hint="run doctor with repair, or choose another name",
        )


def _drop_losing_manifests(root: Home, name: str) -> None:
    """Remove the first manifests of creators that lost the name, so that the branch opens as its ref says."""
    info = get_branch(root, name)
    home = root.on(name)
    opened = home.open()
    with lance_errors(home.uri, root.storage_options):
        versions = [ref["version"] for ref in opened.version_refs()]
    for version in versions:
        if version == info.parent_version:
            continue
        with lance_errors(home.uri, root.storage_options):
            transaction = home.open(version).read_transaction(version)
        if transaction is not None and type(transaction.operation).__name__ == "Clone":
            root.store().delete(f"{branch_folder(name)}/{manifest_path(version)}")
    if info.parent_version not in versions:
        raise BusyError(f"branch {name!r} of {root.root!r} is being made by someone else", hint="try again")


def delete_branch(root: Home, name: str) -> None:
    """Remove a branch and its files; refused while another branch or a tag needs them."""
    if name == MAIN:
        raise InvalidInputError("branch 'main' cannot be deleted", hint="delete the dataset itself if you mean it")
    get_branch(root, name)
    for other in list_branches(root):
        if other.name.startswith(f"{name}/"):
            raise BranchInUseError(
                f"branch {name!r} shares its folder with {other.name!r}", hint=f"delete {other.name!r} first"
            )
        if other.parent_branch == name:
            raise BranchInUseError(
                f"branch {name!r} is the parent of {other.name!r}", hint=f"delete {other.name!r} first"
            )
    with lance_errors(root.root, root.storage_options):
        root.open().branches.delete(name)
