"""Holds: tags in a dataset that keep a version's files from any cleanup because a clone reads them.

A hold `clone-<id>` tags the cloned version and names the clone that reads it in its metadata. Lance's cleanup removes
the files of staged versions even when they are tagged, so such a version is first given a branch of the hold's name.

A clone that was moved has a hold that names its former address. A clone that was copied shares the hold of the
original, and would lose its files when the original is dropped. Relocation puts both right with `record_clone`.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import uuid4

import lance

from anabranch.errors import (
    AnabranchError,
    BranchInUseError,
    BranchNotFoundError,
    CorruptError,
    DatasetInUseError,
    InvalidNameError,
    TagNotFoundError,
)
from anabranch.format.bases import is_dataset
from anabranch.format.home import Home, is_staged
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.manifest import BasePath
from anabranch.format.refs.branches import delete_branch
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
from anabranch.format.staging.manifests import Origin, find_transaction
from anabranch.format.staging.settling import fork
from anabranch.format.staging.version_ref import VersionRef
from anabranch.ids import MAIN
from anabranch.storage.uris import follow_links, relative_to

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


def new_hold_id() -> str:
    return uuid4().hex[:16]


def take_hold(root: Home, *, branch: str | None, version: int, clone_uri: str, hold_id: str) -> Hold:
    """Hold a version for a clone that is about to be made; nothing stays if it fails."""
    name = f"clone-{hold_id}"
    try:
        # The branch before the tag: a tag on a staged version does not protect its files from native cleanup.
        kept = (branch, version)
        if is_staged(version):
            kept = name, fork(VersionRef(home=root.on(branch), version=version), name).head_version()
        create_tag(root, name, kept)
        said = {_CLONE: clone_uri, _BRANCH: branch or "", _VERSION: str(version)}
        with lance_errors(root.root, root.storage_options):
            root.open().tags.replace_metadata(name, said)
        return _of_tag(get_tag(root, name))
    # Also for a keyboard interrupt: a hold without a clone would keep its files for good.
    except BaseException:
        _forget(root, name)
        raise


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


def _record_address(root: Home, name: str, clone_uri: str) -> None:
    """Record in a hold where its clone is now."""
    tag = get_tag(root, name)
    hold = _of_tag(tag)
    said = {_BRANCH: hold.branch or "", _VERSION: str(hold.version), **tag.metadata, _CLONE: clone_uri}
    with lance_errors(root.root, root.storage_options):
        root.open().tags.replace_metadata(name, said)


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
        names = ", ".join(hold.name for hold in holds) or "none"
        raise TagNotFoundError(f"dataset {root.root!r} has no hold {name!r}", hint=f"its holds are: {names}")
    _forget(root, name)


def _forget(root: Home, name: str) -> None:
    with suppress(TagNotFoundError):
        delete_tag(root, name)
    if _NAME.fullmatch(name):
        with suppress(BranchNotFoundError):
            delete_branch(root, name)


class HoldOutcome(StrEnum):
    """What became of the hold of a clone in its source."""

    UNCHANGED = "unchanged"
    UPDATED = "updated"
    ADDED = "added"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldChange:
    """The hold of a relocated clone in its source.

    UPDATED: it named the former address of a clone that was moved. ADDED: the clone had no hold of its own, because it
    was copied or was made by another tool. NOT_FOUND: the source cannot be read or changed, or the version that the
    clone was made from is unknown; `tag` is then None and `problem` is the reason.
    """

    source: str
    tag: str | None
    outcome: HoldOutcome
    problem: str | None = None


def record_clone(clone: Home, bases: Iterable[BasePath], *, dry_run: bool = False) -> tuple[HoldChange, ...]:
    """Make the source of a shallow clone hold what the clone reads, under the clone's present address.

    `bases` are those of the clone's main branch. The answer is empty for a dataset that is not a clone. An error in the
    source is reported, not raised: the clone itself has been relocated by then.
    """
    known = tuple(bases)
    made = _clone_operation(clone)
    roots = _source_roots(clone, known, made)
    if not roots:
        return ()
    # A clone of a clone inherits from several datasets, and only the last of them holds it.
    recorded = _recorded_root(made)
    source = Home.at(recorded if recorded in roots else roots[-1], clone.storage_options)
    try:
        return (_record(source, clone, known, made, dry_run=dry_run),)
    except AnabranchError as err:
        return (HoldChange(source=source.root, tag=None, outcome=HoldOutcome.NOT_FOUND, problem=err.problem),)


def _source_roots(clone: Home, bases: Iterable[BasePath], made: lance.LanceOperation.Clone | None) -> list[str]:
    """The roots of other datasets from which the clone inherits files; that of the newest base comes last."""
    roots: list[str] = []
    own = follow_links(clone.root)
    for base in sorted(bases, key=lambda base: base.id):
        root, is_branch, _ = base.path.rstrip("/").partition("/tree/")
        if not base.is_dataset_root or relative_to(follow_links(root), own) is not None:
            continue
        # A base may be a plain folder of files. Only these three prove that it is the root of a dataset.
        if is_branch or root == _recorded_root(made) or is_dataset(root, clone.storage_options):
            # A root that occurs again moves to the end: the last one is the direct source.
            roots = [*(known for known in roots if known != root), root]
    return roots


def _recorded_root(made: lance.LanceOperation.Clone | None) -> str | None:
    return None if made is None else made.ref_path.rstrip("/").partition("/tree/")[0]


def _clone_operation(clone: Home) -> lance.LanceOperation.Clone | None:
    """How the clone was made, as its oldest version records; None if that version was removed."""
    try:
        with lance_errors(clone.root, clone.storage_options):
            # Only the oldest version has the Clone operation, which names the source.
            first = min(int(ref["version"]) for ref in clone.open().version_refs())
        made = find_transaction(clone, clone.open(first), first)
    except AnabranchError:
        return None
    return made.operation if made is not None and isinstance(made.operation, lance.LanceOperation.Clone) else None


def _record(
    source: Home,
    clone: Home,
    bases: Iterable[BasePath],
    made: lance.LanceOperation.Clone | None,
    *,
    dry_run: bool,
) -> HoldChange:
    holds = list_holds(source)
    for hold in holds:
        # The source knows the clone under this address: there was no move, or it is recorded already.
        if hold.clone_uri == clone.root:
            return HoldChange(source=source.root, tag=hold.name, outcome=HoldOutcome.UNCHANGED)
    names = {base.name for base in bases if base.name is not None}
    origins = _origins(source, names, made)
    own = [hold for hold in holds if hold.name in names]
    # A hold that the clone names is its own. Otherwise each hold of the version that it was made from may be.
    candidates = own or [hold for hold in holds if _kept(hold) in origins]
    # If it cannot be found out whether there is a dataset at the address in the hold, assume there is.
    options = clone.storage_options
    moved = [h for h in candidates if h.clone_uri is None or is_dataset(h.clone_uri, options) is False]
    if len(moved) == 1:
        if not dry_run:
            _record_address(source, moved[0].name, clone.root)
        return HoldChange(source=source.root, tag=moved[0].name, outcome=HoldOutcome.UPDATED)
    # The original is still there, or several clones of one version moved: a hold too many does no harm.
    origin = next(iter([*map(_kept, own), *origins]), None)
    if origin is None:
        problem = "the version that the clone was made from is not known"
        return HoldChange(source=source.root, tag=None, outcome=HoldOutcome.NOT_FOUND, problem=problem)
    return _add_hold(source, clone, origin, dry_run=dry_run)


def _origins(source: Home, names: Iterable[str], made: lance.LanceOperation.Clone | None) -> list[Origin]:
    """The versions that a clone may have been made from: by its first transaction, else by a tag's name."""
    if made is not None:
        return [Origin(branch=made.ref_name, version=made.ref_version)]
    tags = (find_tag(source, name) for name in sorted(names))
    return [Origin(branch=tag.branch, version=tag.version) for tag in tags if tag is not None]


def _add_hold(source: Home, clone: Home, origin: Origin, *, dry_run: bool) -> HoldChange:
    if dry_run:
        source.on(origin.branch).open(origin.version)
        return HoldChange(source=source.root, tag=None, outcome=HoldOutcome.ADDED)
    made = take_hold(source, branch=origin.branch, version=origin.version, clone_uri=clone.root, hold_id=new_hold_id())
    return HoldChange(source=source.root, tag=made.name, outcome=HoldOutcome.ADDED)


def _kept(hold: Hold) -> Origin:
    return Origin(branch=hold.kept_branch, version=hold.kept_version)
