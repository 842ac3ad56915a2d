"""Clones: a shallow one reads its source's files, a deep one has copies of them.

A shallow clone's version is held in the source, so that no cleanup there removes what the clone needs. The hold comes
before the clone and goes after it: a crash leaves a hold too many, never a clone unprotected.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from anabranch.errors import (
    AnabranchError,
    ConflictError,
    DatasetExistsError,
    DatasetInUseError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidPathError,
)
from anabranch.format.bases import bases_of, check_bases, has_manifest, is_dataset, is_manifest
from anabranch.format.clone.files import (
    Draft,
    deep_draft,
    publish,
    remove,
    remove_scratch,
    roll_back,
    shallow_draft,
)
from anabranch.format.clone.holds import Hold, list_damaged_holds, list_holds, new_hold_id, release_hold, take_hold
from anabranch.format.home import Home
from anabranch.format.lance_errors import lance_errors
from anabranch.format.layout.manifest import read_manifest
from anabranch.format.refs.refs import get_branch, get_tag
from anabranch.format.retention import record_clone_files
from anabranch.format.staging.manifests import Origin
from anabranch.format.staging.version_ref import VersionRef
from anabranch.ids import MAIN
from anabranch.storage import is_below_file
from anabranch.storage.uris import is_local, normalise_uri, relative_to, split_uri

# What to clone: a version of the source's home, the name of a tag, or (branch, version); None is the newest.
CloneRef = int | str | tuple[str | None, int | None]


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


def shallow_clone(
    source: Home,
    target_uri: str,
    *,
    ref: CloneRef | None = None,
    storage_options: Mapping[str, str] | None = None,
    new_id: Callable[[], str] = new_hold_id,
) -> CloneInfo:
    """Make a dataset that reads one version of the source's files where they are, and writes its own.

    Its base for the source is named after the tag cloned, or else after the hold. The storage options must reach both
    locations; by default they are the source's.
    """
    target = _target(source, target_uri, storage_options)
    refuse_mixed_stores(source.root, target.root)
    return _info(_make(source, target, ref, hold_id=new_id(), is_deep=False), exists=True)


def deep_clone(
    source: Home, target_uri: str, *, ref: CloneRef | None = None, storage_options: Mapping[str, str] | None = None
) -> CloneInfo:
    """Copy one version of the source, with all it needs, to a dataset that depends on no other; stores may differ."""
    target = _target(source, target_uri, storage_options)
    hold = _make(source, target, ref, hold_id=new_hold_id(), is_deep=True)
    # The copies are complete, so the source need not keep the version any longer.
    release_hold(source.on(None), hold.name)
    return replace(_info(hold, exists=True), tag=None)


def list_clones(source: Home, *, storage_options: Mapping[str, str] | None = None) -> tuple[CloneInfo, ...]:
    """List the shallow clones that were made of a dataset, oldest first; the options reach the clones."""
    options = source.storage_options if storage_options is None else storage_options
    holds = sorted(
        list_holds(source.on(None)), key=lambda hold: hold.created_at.timestamp() if hold.created_at else 0.0
    )
    return tuple(
        _info(hold, exists=hold.clone_uri is not None and is_dataset(hold.clone_uri, options)) for hold in holds
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedClone:
    """A dropped clone: its files and their bytes, and the tags that held its version; in a dry run nothing changed."""

    uri: str
    tags: tuple[str, ...]
    files: int
    bytes: int
    dry_run: bool


def drop_clone(
    source: Home, clone_uri: str, *, storage_options: Mapping[str, str] | None = None, dry_run: bool = False
) -> DroppedClone:
    """Delete a shallow clone, then what held its version in the source; both also if only one is left."""
    root, uri = source.on(None), normalise_uri(clone_uri)
    holds = [hold for hold in list_holds(root) if hold.clone_uri == uri]
    if not holds:
        raise DatasetNotFoundError(
            f"dataset {root.root!r} has no clone at {uri!r}", hint="list its clones to see which there are"
        )
    clone = Home.at(uri, root.storage_options if storage_options is None else storage_options)
    if has_manifest(clone.store()):
        _refuse_to_drop(root, clone, holds)
        if not dry_run:
            # Before the clone is deleted: afterwards nothing would name its files in the source's bases, and they
            # would stay forever.
            record_clone_files(root, clone)
    sizes = [info.size for info in clone.store().list()]
    if not dry_run:
        remove(clone)
        for hold in holds:
            release_clone(root, hold.name)
    tags = tuple(hold.name for hold in holds)
    return DroppedClone(uri=uri, tags=tags, files=len(sizes), bytes=sum(sizes), dry_run=dry_run)


def release_clone(source: Home, tag: str) -> None:
    """Remove a hold by its tag and leave the clone alone, for a clone that is gone or was made independent."""
    release_hold(source.on(None), tag)
    remove_scratch(source.on(None), tag)


def _target(source: Home, target_uri: str, storage_options: Mapping[str, str] | None) -> Home:
    target = Home.at(target_uri, source.storage_options if storage_options is None else storage_options)
    if relative_to(target.root, source.root) is not None:
        raise InvalidPathError(
            f"clone {target.root!r} would be in its source {source.root!r}", hint="choose a path outside of it"
        )
    return target


def refuse_mixed_stores(source: str, target: str) -> None:
    """Refuse a shallow clone on another kind of store than its source."""
    # Lance opens the files of all bases with the options of the clone, which fit one kind of store only.
    kinds = ["local disk" if is_local(root) else split_uri(root)[0] for root in (source, target)]
    if kinds[0] != kinds[1]:
        raise InvalidInputError(
            f"a shallow clone on {kinds[1]} cannot read its source on {kinds[0]} with the same storage options",
            hint="make a deep clone",
        )


def draft_clone(source: VersionRef, *, name: str, is_deep: bool) -> Draft:
    """Prepare a clone of a version that another holder keeps from every cleanup; its base has the name."""
    hold = Hold(
        name=name,
        clone_uri=None,
        branch=source.home.branch,
        version=source.version,
        created_at=None,
        kept_branch=source.home.branch,
        kept_version=source.version,
    )
    return _draft(source.home.on(None), hold, None, is_deep=is_deep)


def _draft(root: Home, hold: Hold, tag: str | None, *, is_deep: bool) -> Draft:
    return deep_draft(root, hold) if is_deep else shallow_draft(root, hold, tag=tag)


def put_clone(source: Home, target: Home, draft: Draft, *, on_copied: Callable[[], None]) -> VersionRef:
    """Make a clone from its draft; `on_copied` is called after each file, by several threads."""
    publish(source.on(None), target, draft, on_copied=on_copied)
    _try_to_read(target)
    return VersionRef(home=target, version=target.head_version())


def _refuse_taken(target: Home) -> None:
    if is_below_file(target.root):
        raise InvalidPathError(f"clone {target.root!r} is a file, or is below one", hint="choose another path")
    if any(True for _ in target.store().list()):
        raise DatasetExistsError(f"there is something at {target.root!r} already", hint="choose another path")


def _resolve(source: Home, ref: CloneRef | None) -> tuple[Origin, str | None]:
    """Return the version that is meant, and its tag, and make sure that it is there and reads its own dataset."""
    match ref:
        case None:
            branch, version, tag = source.branch, None, None
        case str():
            found = get_tag(source, ref)
            branch, version, tag = found.branch, found.version, ref
        case (named, version):
            branch, tag = named, None
        case _:
            branch, version, tag = source.branch, ref, None
    home = source.on(None if branch == MAIN else branch)
    if home.branch is not None:
        get_branch(source, home.branch)
    opened = home.open(version)
    # A branch of a copied dataset reads the files of the original, and its clone would do the same.
    check_bases(home, bases_of(opened))
    return Origin(branch=home.branch, version=int(opened.version)), tag


def _make(source: Home, target: Home, ref: CloneRef | None, *, hold_id: str, is_deep: bool) -> Hold:
    """Make a clone, and return what holds its version in the source; nothing stays if it fails."""
    _refuse_taken(target)
    origin, tag = _resolve(source, ref)
    root = source.on(None)
    hold = take_hold(root, branch=origin.branch, version=origin.version, clone_uri=target.root, hold_id=hold_id)
    draft = Draft(files={})
    try:
        draft = _draft(root, hold, tag, is_deep=is_deep)
        publish(root, target, draft)
        _try_to_read(target)
    # Also for a keyboard interrupt: the target would remain as half a dataset.
    except BaseException:
        # If this fails as well, the hold stays: it does no harm, and it is listed.
        with suppress(AnabranchError):
            roll_back(target, draft)
            release_hold(root, hold.name)
        raise
    return hold


def _try_to_read(target: Home) -> None:
    """Fail now rather than later if the clone's storage options do not reach the source."""
    opened = target.open()
    with lance_errors(target.root, target.storage_options):
        opened.scanner(columns=opened.schema.names[:1], limit=1).to_table()


def _refuse_to_drop(root: Home, clone: Home, holds: list[Hold]) -> None:
    store = clone.store()
    manifests = (store.get(info.path) for info in store.list("_versions") if is_manifest(info.path))
    bases = (base.path for manifest in manifests for base in read_manifest(manifest, name=clone.root).base_paths)
    # The address may belong to another dataset by now, which must not be deleted.
    if all(relative_to(path.rstrip("/"), root.root) is None for path in bases):
        raise ConflictError(
            f"the dataset at {clone.root!r} is not a clone of {root.root!r}",
            hint=f"relocate it if the source was moved, or release the tag {holds[0].name!r} if it is another dataset",
        )
    # Their data files may be in this clone, and nothing would remain to read them from.
    if clones := [*(hold.clone_uri or hold.name for hold in list_holds(clone)), *list_damaged_holds(clone)]:
        others = ", ".join(map(repr, clones))
        raise DatasetInUseError(
            f"clone {clone.root!r} has clones of its own: {others}", hint="drop them, or release their tags, first"
        )


def _info(hold: Hold, *, exists: bool | None) -> CloneInfo:
    return CloneInfo(
        uri=hold.clone_uri,
        branch=hold.branch,
        source_version=hold.version,
        tag=hold.name,
        created_at=hold.created_at,
        exists=exists,
    )
