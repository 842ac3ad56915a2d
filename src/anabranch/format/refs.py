"""The branches of one dataset: their metadata in `_refs/branches/`, their files in `tree/`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from anabranch.errors import (
    AnabranchError,
    BranchExistsError,
    BranchInUseError,
    BranchNotFoundError,
    BusyError,
    ConflictError,
    DamagedFileError,
    DatasetExistsError,
    InvalidInputError,
    InvalidPathError,
    NotFoundError,
    ObjectNotFoundError,
)
from anabranch.format.bases import bases_of, check_bases
from anabranch.format.home import Home, branch_folder, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.names import branch_of_ref_path, branch_ref_path, manifest_of_path
from anabranch.format.origins import find_origin
from anabranch.ids import MAIN, BranchName
from anabranch.storage import in_parallel

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

_ATTEMPTS = 10


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
    found = in_parallel(lambda name: find_branch(root, name), names)
    return tuple(info for info in found if info is not None)


def find_branch(root: Home, name: str) -> BranchInfo | None:
    """The metadata of a branch, whoever made it and however it is spelled; None if there is none."""
    path = branch_ref_path(name)
    try:
        fields = read_ref(root, path)
    except (InvalidPathError, ObjectNotFoundError):
        return None  # also for a name that is too long for any file
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
    if info is None and name == MAIN:
        raise BranchNotFoundError(
            f"branch 'main' of {root.root!r} has no metadata", hint="it is the dataset itself; ask about that"
        )
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
    check_bases(home, bases_of(at))
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
    except AnabranchError as err:
        if find_branch(root, name) is not None:
            _drop_losing_manifests(root, name)
        elif not isinstance(err, DatasetExistsError | NotFoundError):
            raise  # the source was just opened, so it is not what is missing
        raise BranchExistsError(
            f"someone else is making the branch {name!r} of {root.root!r}, or just has", hint="choose another name"
        ) from err
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
    manifests = _ordinary_manifests(root, name)
    for version, path in manifests.items():
        if version != info.parent_version and _is_first_version(root.on(name), version, path):
            root.store().delete(path)
    if info.parent_version not in manifests:
        raise BusyError(f"branch {name!r} of {root.root!r} is being made by someone else", hint="try again")


def _ordinary_manifests(root: Home, name: str) -> dict[int, str]:
    """The paths of a branch's manifests by version, without staged ones."""
    paths = [info.path for info in root.store().list(f"{branch_folder(name)}/_versions")]
    parsed = [(manifest_of_path(path), path) for path in paths]
    return {found.version: path for found, path in parsed if found is not None and not is_staged(found.version)}


def _is_first_version(home: Home, version: int, path: str) -> bool:
    for _ in range(_ATTEMPTS):
        try:
            return find_origin(home, home.open(version)) is not None
        except NotFoundError:
            # Others that lost the name clean up as well; Lance looks at the newest manifest, which may be gone too.
            if path not in _ordinary_manifests(home, str(home.branch)).values():
                return False
    raise BusyError(f"the versions of {home.uri!r} keep changing", hint="try again")


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
    for _ in range(_ATTEMPTS):
        try:
            with lance_errors(root.root, root.storage_options):
                return root.open().branches.delete(name)
        except BusyError:
            # Lance reads the refs of all branches, and stumbles over one that is just being deleted.
            if find_branch(root, name) is None:
                return _delete_tree(root, name)
    raise BusyError(f"others keep deleting branches of {root.root!r}", hint="try again")


def _delete_tree(root: Home, name: str) -> None:
    """Delete the files of a branch whose ref is gone; its manifests first, as what has none blocks nobody."""
    store = root.store()
    paths = [info.path for info in store.list(branch_folder(name))]
    for path in sorted(paths, key=lambda path: manifest_of_path(path) is None):
        store.delete(path)
