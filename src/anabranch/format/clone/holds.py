"""Holds: tags in a dataset that keep a version's files from any cleanup because a clone reads them.

A hold `clone-<id>` tags the cloned version and names the clone that reads it in its metadata. Lance's cleanup removes
the files of staged versions even when they are tagged, so such a version is first given a branch of the hold's name.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from anabranch.errors import (
    BranchInUseError,
    BranchNotFoundError,
    CorruptError,
    DatasetInUseError,
    InvalidNameError,
    TagNotFoundError,
)
from anabranch.format.home import Home, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.refs.branch_deletion import delete_branch
from anabranch.format.refs.branches import BranchInfo, list_branches
from anabranch.format.refs.tags import TagInfo, create_tag, delete_tag, find_tag, get_tag, list_tags
from anabranch.format.staging.forking import fork
from anabranch.format.staging.version_ref import VersionRef
from anabranch.ids import MAIN

__all__ = [
    "Hold",
    "list_damaged_holds",
    "list_holds",
    "record_address",
    "refuse_held_branch",
    "refuse_hold",
    "refuse_hold_name",
    "release_hold",
    "take_hold",
]

# The name alone marks a hold: a process may die before it writes the metadata.
_NAME = re.compile(r"clone-[0-9a-f]{16}")
_CLONE, _BRANCH, _VERSION = "anabranch.clone", "anabranch.clone.branch", "anabranch.clone.version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One version held for one clone.

    `kept_branch` and `kept_version` are where the version can be read in the source's ordinary history: the version
    itself, or what stands in for a staged one. `clone_uri` is None if the process that made the hold died early.
    """

    name: str
    clone_uri: str | None
    branch: str | None
    version: int
    created_at: datetime | None
    kept_branch: str | None
    kept_version: int


def take_hold(root: Home, *, branch: str | None, version: int, clone_uri: str, hold_id: str) -> Hold:
    """Hold a version for a clone that is about to be made; nothing stays if it fails."""
    name = f"clone-{hold_id}"
    try:
        # The branch before the tag: a tag on a staged version does not protect its files from native cleanup.
        kept = _keep_staged(root.on(branch), version, name) if is_staged(version) else (branch, version)
        create_tag(root, name, kept)
        said = {_CLONE: clone_uri, _BRANCH: branch or "", _VERSION: str(version)}
        with lance_errors(root.root, root.storage_options):
            root.open().tags.replace_metadata(name, said)
        return _of_tag(get_tag(root, name))
    # Also for a keyboard interrupt: a hold without a clone would keep its files for good.
    except BaseException:
        _forget(root, name)
        raise


def _keep_staged(home: Home, version: int, name: str) -> tuple[str, int]:
    """Give a staged version a branch on which it is an ordinary version."""
    return name, fork(VersionRef(home=home, version=version), name).head_version()


def list_holds(root: Home) -> tuple[Hold, ...]:
    tags = [tag for tag in list_tags(root) if _is_hold(tag)]
    tagged = {tag.name for tag in tags}
    # A process that died between the branch and the tag left a branch alone. It still holds the version.
    lost = [branch for branch in list_branches(root) if _NAME.fullmatch(branch.name) and branch.name not in tagged]
    return (*map(_of_tag, tags), *map(_of_branch, lost))


def list_damaged_holds(root: Home) -> tuple[str, ...]:
    """List the holds whose tags cannot be read: which version each keeps, and for which clone, is not known."""
    return tuple(tag.name for tag in list_tags(root).unreadable if _NAME.fullmatch(tag.name))


def refuse_hold(root: Home, name: str) -> None:
    """Raise DatasetInUseError if a tag is a hold: without it, a cleanup would remove files that a clone reads."""
    try:
        tag = find_tag(root, name)
    except CorruptError:
        if _NAME.fullmatch(name):
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
    if _NAME.fullmatch(name):
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
    """Record in a hold where its clone is now."""
    tag = get_tag(root, name)
    with lance_errors(root.root, root.storage_options):
        root.open().tags.replace_metadata(name, {**_of_clone(_of_tag(tag)), **tag.metadata, _CLONE: clone_uri})


def _of_clone(hold: Hold) -> dict[str, str]:
    return {_BRANCH: hold.branch or "", _VERSION: str(hold.version)}


def _is_hold(tag: TagInfo) -> bool:
    return _CLONE in tag.metadata or _NAME.fullmatch(tag.name) is not None


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
    """What a crash left between the branch for a staged version and the tag on it."""
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
    """Let cleanups remove what only this hold kept; raise TagNotFoundError if there is no such hold."""
    holds = list_holds(root)
    if name not in {hold.name for hold in holds} | set(list_damaged_holds(root)):
        raise TagNotFoundError(f"dataset {root.root!r} has no hold {name!r}", hint=f"its holds are: {_names(holds)}")
    _forget(root, name)


def _names(holds: Iterable[Hold]) -> str:
    return ", ".join(hold.name for hold in holds) or "none"


def _forget(root: Home, name: str) -> None:
    with suppress(TagNotFoundError):
        delete_tag(root, name)
    if _NAME.fullmatch(name):
        with suppress(BranchNotFoundError):
            delete_branch(root, name)
