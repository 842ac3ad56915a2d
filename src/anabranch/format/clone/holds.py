"""Holds, and the clones they are for: tags in a dataset that keep a version's files because a clone reads them.

A hold `clone-<id>` tags the cloned version and names the clone that reads it in its metadata. Lance's cleanup removes
the files of staged versions even when they are tagged, so such a version is first given a branch of the hold's name.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter
from uuid import uuid4

import lance

from anabranch.errors import (
    BranchInUseError,
    BranchNotFoundError,
    ConflictError,
    CorruptError,
    DatasetInUseError,
    DatasetNotFoundError,
    InvalidNameError,
    TagNotFoundError,
)
from anabranch.format.bases import has_manifest, is_dataset, is_manifest
from anabranch.format.home import Home, VersionRef, is_staged
from anabranch.format.layout.listing import CLEANUP_RECORD
from anabranch.format.layout.manifest import read_manifest
from anabranch.format.refs.branches import HOLD, delete_branch
from anabranch.format.refs.refs import (
    BranchInfo,
    TagInfo,
    create_tag,
    delete_tag,
    find_tag,
    get_tag,
    list_branches,
    list_tags,
)
from anabranch.format.staging.settle_version import fork
from anabranch.ids import LAYOUT_NAMES, MAIN
from anabranch.storage.local_store import refuse_links
from anabranch.storage.uris import join_uri, normalise_uri, relative_to

_CLONE, _BRANCH, _VERSION = "anabranch.clone", "anabranch.clone.branch", "anabranch.clone.version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One version held for one clone.

    `kept_branch` and `kept_version` are where the version can be read in the source's ordinary history: the version
    itself, or an ordinary copy of a staged one. `clone_uri` is None if the process that made the hold died early.
    """

    name: str
    clone_uri: str | None
    branch: str | None
    version: int
    created_at: datetime | None
    kept_branch: str | None
    kept_version: int


def new_hold_id() -> str:
    return uuid4().hex[:16]


def take_hold(root: Home, *, branch: str | None, version: int, clone_uri: str, hold_id: str) -> Hold:
    """Hold a version for a new clone. If this fails, nothing is left."""
    name = f"clone-{hold_id}"
    try:
        # The branch before the tag: a tag on a staged version does not protect its files from native cleanup.
        kept = (branch, version)
        if is_staged(version):
            kept = name, fork(VersionRef(home=root.on(branch), version=version), name).head_version()
        create_tag(root, name, kept)
        metadata = {_CLONE: clone_uri, _BRANCH: branch or "", _VERSION: str(version)}
        with root.errors():
            root.open().tags.replace_metadata(name, metadata)
        return _of_tag(get_tag(root, name))
    # Also for a keyboard interrupt: a hold without a clone would keep its files for good.
    except BaseException:
        _forget(root, name)
        raise


def list_holds(root: Home) -> tuple[Hold, ...]:
    tags = [tag for tag in list_tags(root) if _is_hold(tag)]
    tagged = {tag.name for tag in tags}
    # A process that died between the branch and the tag left a branch alone. It still holds the version.
    lost = [branch for branch in list_branches(root) if HOLD.fullmatch(branch.name) and branch.name not in tagged]
    return (*map(_of_tag, tags), *map(_of_branch, lost))


def list_damaged_holds(root: Home) -> tuple[str, ...]:
    """List the holds whose tags cannot be read, so that their versions and clones are unknown."""
    return tuple(tag.name for tag in list_tags(root).unreadable if HOLD.fullmatch(tag.name))


def refuse_hold(root: Home, name: str) -> None:
    """Raise DatasetInUseError if a tag is a hold: without it, a cleanup would remove files that a clone reads."""
    try:
        tag = find_tag(root, name)
    except CorruptError:
        if HOLD.fullmatch(name):
            raise  # it held a version for a clone, and the clone may still exist
        return
    if tag is not None and _is_hold(tag):
        hold = _of_tag(tag)
        raise DatasetInUseError(
            f"tag {name!r} of {root.root!r} holds version {hold.kept_version} of"
            f" {hold.kept_branch or MAIN!r} for {_clone_of(hold)}",
            hint=_how_to_end(hold),
        )


def refuse_held_branch(root: Home, branch: str) -> None:
    """Raise BranchInUseError if a clone reads a version of a branch."""
    for hold in list_holds(root):
        if hold.kept_branch == branch:
            raise BranchInUseError(
                f"version {hold.kept_version} of branch {branch!r} of {root.root!r} is held for {_clone_of(hold)}",
                hint=_how_to_end(hold),
            )


def refuse_hold_name(name: str) -> None:
    """Raise InvalidNameError for a name that only holds have: a tag or branch of such a name counts as one."""
    if HOLD.fullmatch(name):
        raise InvalidNameError(
            f"name {name!r} is reserved for versions that a clone reads", hint="choose a name of another form"
        )


def _clone_of(hold: Hold) -> str:
    return "a clone that was not finished" if hold.clone_uri is None else f"the clone {hold.clone_uri!r}"


def _how_to_end(hold: Hold) -> str:
    release = f"`clone_release({hold.name!r})`"
    if hold.clone_uri is None:
        return f"release it with {release}"
    return (
        f"delete the clone with `clone_drop({hold.clone_uri!r})`; if it no longer"
        f" exists or needs this dataset no more, use {release}"
    )


def record_address(root: Home, name: str, clone_uri: str) -> None:
    """Record the present address of a clone in its hold."""
    tag = get_tag(root, name)
    hold = _of_tag(tag)
    metadata = {_BRANCH: hold.branch or "", _VERSION: str(hold.version), **tag.metadata, _CLONE: clone_uri}
    with root.errors():
        root.open().tags.replace_metadata(name, metadata)


def _is_hold(tag: TagInfo) -> bool:
    return _CLONE in tag.metadata or HOLD.fullmatch(tag.name) is not None


def _of_tag(tag: TagInfo) -> Hold:
    return Hold(
        name=tag.name,
        clone_uri=tag.metadata.get(_CLONE),
        branch=tag.metadata.get(_BRANCH, tag.branch) or None,
        version=int(tag.metadata.get(_VERSION, tag.version)),
        created_at=tag.created_at,
        kept_branch=tag.branch,
        kept_version=tag.version,
    )


def _of_branch(branch: BranchInfo) -> Hold:
    """Return the hold of a branch without a tag, which a crash left."""
    return Hold(
        name=branch.name,
        clone_uri=None,
        branch=branch.parent_branch,
        version=branch.parent_version,
        created_at=branch.created_at,
        kept_branch=branch.name,
        kept_version=branch.parent_version,
    )


def release_hold(root: Home, name: str) -> None:
    """Remove a hold, so that cleanups may remove its files. Raise TagNotFoundError if it does not exist."""
    holds = list_holds(root)
    if name not in {hold.name for hold in holds} | set(list_damaged_holds(root)):
        names = ", ".join(hold.name for hold in holds) or "none"
        raise TagNotFoundError(f"dataset {root.root!r} has no hold {name!r}", hint=f"its holds are: {names}")
    _forget(root, name)


def _forget(root: Home, name: str) -> None:
    with suppress(TagNotFoundError):
        delete_tag(root, name)
    if HOLD.fullmatch(name):
        with suppress(BranchNotFoundError):
            delete_branch(root, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneInfo:
    """A clone and the version it was made from.

    `tag` is the hold in the source, None for a deep clone. `uri` is None where a crash left a hold without a clone.
    `exists` is whether there is a dataset at the uri now, None if its store could not be asked; a clone that was
    moved elsewhere no longer exists here and still needs its hold.
    """

    uri: str | None
    branch: str | None
    source_version: int
    tag: str | None
    created_at: datetime | None
    exists: bool | None


def clone_info(hold: Hold, *, exists: bool | None) -> CloneInfo:
    return CloneInfo(
        uri=hold.clone_uri,
        branch=hold.branch,
        source_version=hold.version,
        tag=hold.name,
        created_at=hold.created_at,
        exists=exists,
    )


def list_clones(source: Home, *, storage_options: Mapping[str, str] | None = None) -> tuple[CloneInfo, ...]:
    """List the shallow clones of a dataset, oldest first. The options reach the clones."""
    options = source.storage_options if storage_options is None else storage_options
    holds = sorted(
        list_holds(source.on(None)), key=lambda hold: hold.created_at.timestamp() if hold.created_at else 0.0
    )
    return tuple(
        clone_info(hold, exists=hold.clone_uri is not None and is_dataset(hold.clone_uri, options)) for hold in holds
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedClone:
    """A dropped clone: its files, their bytes, and the tags that held its version. In a dry run nothing changed."""

    uri: str
    tags: tuple[str, ...]
    files: int
    bytes: int
    dry_run: bool


def drop_clone(
    source: Home,
    clone_uri: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    on_removal: Callable[[Home, Home], None] = lambda *_: None,
    dry_run: bool = False,
) -> DroppedClone:
    """Delete a shallow clone, then its hold in the source. The files of the clone may be missing already.

    `on_removal` is called with the source and the clone when nothing can refuse the deletion any more, right before the
    clone's files are removed: afterwards nothing names its files in the source's bases.
    """
    root, uri = source.on(None), normalise_uri(clone_uri)
    tags = tuple(hold.name for hold in list_holds(root) if hold.clone_uri == uri)
    if not tags:
        raise DatasetNotFoundError(
            f"dataset {root.root!r} has no clone at {uri!r}", hint="list its clones to see which there are"
        )
    clone = Home.at(uri, root.storage_options if storage_options is None else storage_options)
    if has_manifest(clone.store()):
        _refuse_to_drop(root, clone, tags[0])
        if not dry_run:
            on_removal(root, clone)
    sizes = list(map(attrgetter("size"), clone.store().list()))
    if not dry_run:
        remove_dataset(clone)
        for tag in tags:
            release_clone(root, tag)
    return DroppedClone(uri=uri, tags=tags, files=len(sizes), bytes=sum(sizes), dry_run=dry_run)


def _refuse_to_drop(root: Home, clone: Home, tag: str) -> None:
    store = clone.store()
    contents = (store.get(info.path) for info in store.list("_versions") if is_manifest(info.path))
    manifests = map(partial(read_manifest, name=clone.root), contents)
    # The address may belong to another dataset by now, which must not be deleted.
    if all(relative_to(base.path.rstrip("/"), root.root) is None for found in manifests for base in found.base_paths):
        raise ConflictError(
            f"the dataset at {clone.root!r} is not a clone of {root.root!r}",
            hint=f"relocate it if the source was moved, or release the tag {tag!r} if it is another dataset",
        )
    # Their data files may be in this clone, and would be lost.
    if clones := [*(hold.clone_uri or hold.name for hold in list_holds(clone)), *list_damaged_holds(clone)]:
        others = ", ".join(map(repr, clones))
        raise DatasetInUseError(
            f"clone {clone.root!r} has clones of its own: {others}", hint="drop them, or release their tags, first"
        )


def release_clone(source: Home, tag: str) -> None:
    """Remove a hold by its tag without changing the clone, which is deleted or independent."""
    release_hold(source.on(None), tag)
    # A crash may have left the scratch clone.
    remove_dataset(scratch_home(source.on(None), tag))


def scratch_home(root: Home, hold_name: str) -> Home:
    # No branch has such a name. If the hold is named by a ULID, the leftovers of a crash look like an unfinished fork.
    folder = f"tree/__clone__/{hold_name}"
    refuse_links(root.root, folder)
    return Home.at(join_uri(root.root, folder), root.storage_options)


def remove_dataset(home: Home) -> None:
    """Delete a dataset's files, and its folder if it holds no others."""
    store = home.store()
    paths = [info.path for info in store.list()]
    if all(_is_of_dataset(path) for path in paths) and any(is_manifest(path) for path in paths):
        # Lance also removes the empty folders on local disk.
        with home.errors():
            lance.LanceDataset.drop(home.root, storage_options=home.lance_options(), ignore_not_found=True)
    for path in [info.path for info in store.list()]:
        if _is_of_dataset(path):
            store.delete(path)


def _is_of_dataset(path: str) -> bool:
    return path.partition("/")[0] in LAYOUT_NAMES or path == CLEANUP_RECORD
